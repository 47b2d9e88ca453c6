"""CPU policy, thread policy and emulator threads of a guest, and which of its vCPUs are pinned or realtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from agent.core.cpuset import CpuSet
from agent.core.flavor.masks import dedicated_mask, mixed_mask, note_idle_mask, realtime_mask
from agent.core.flavor.reading import UNREAD, Reading, Unread, not_said
from agent.core.flavor.resources import Counted, counted, hyperthreading
from agent.core.host_config import HostConfig
from agent.core.instance import CpuPolicy, EmulatorPolicy, ThreadPolicy
from agent.core.request_faults import FaultKind, Property
from agent.core.values import Value

_POLICIES: Mapping[str, CpuPolicy] = {word: word for word in get_args(CpuPolicy)}
_THREADS: Mapping[str, ThreadPolicy] = {word: word for word in get_args(ThreadPolicy)}
_EMULATOR: Mapping[str, EmulatorPolicy] = {word: word for word in get_args(EmulatorPolicy)}
_WEAKER: Mapping[CpuPolicy, frozenset[CpuPolicy]] = {
    "dedicated": frozenset(),
    "mixed": frozenset({"dedicated"}),
    "shared": frozenset({"dedicated", "mixed"}),
}
"""What an image may not ask for beside the flavor's policy."""


class CpuPolicies(Value, frozen=True, kw_only=True):
    """Of the guest's CPUs. pinned: vCPUs with a host CPU of their own. is_realtime: asked for, whatever the mask."""

    policy: CpuPolicy | None = None
    thread_policy: ThreadPolicy | None = None
    emulator_policy: EmulatorPolicy | None = None
    pinned: CpuSet = CpuSet()
    realtime: CpuSet = CpuSet()
    is_realtime: bool = False


class _Policy(Value, frozen=True, kw_only=True):
    """The policy in force and the property that says so."""

    word: CpuPolicy | None
    said: Property

    @property
    def pins(self) -> bool:
        return self.word in {"dedicated", "mixed"}


def cpu_policies(reading: Reading, vcpus: int | Unread, config: HostConfig) -> CpuPolicies:
    """What flavor and image say together; faults are kept in the reading. vcpus: of the flavor."""
    emulator = reading.word(reading.flavor("emulator_threads_policy"), _EMULATOR, "emulator-policy-unknown")
    policy = _policy(reading, vcpus, emulator)
    threads = _thread_policy(reading, policy)
    if isinstance(policy, _Policy) and not policy.pins and emulator == "isolate":
        _needs_pins(reading, "emulator-policy-unpinned", reading.flavor("emulator_threads_policy"), policy)
    dedicated = dedicated_mask(reading, vcpus)
    wanted = reading.truth(reading.flavor("cpu_realtime"), "realtime-unclear")
    realtime = realtime_mask(reading, vcpus, emulator) if wanted is True else None
    if wanted is True:
        _check_realtime(reading, policy, emulator, config)
    elif wanted is not UNREAD:
        note_idle_mask(reading)
    pinned = _pinned(reading, policy, dedicated, realtime, vcpus)
    return CpuPolicies(
        policy=policy.word if isinstance(policy, _Policy) else None,
        thread_policy=threads if threads is not UNREAD else None,
        emulator_policy=emulator if emulator is not UNREAD else None,
        pinned=pinned,
        realtime=realtime if isinstance(realtime, CpuSet) else CpuSet(),
        is_realtime=wanted is True,
    )


def _policy(reading: Reading, vcpus: int | Unread, emulator: EmulatorPolicy | Unread | None) -> _Policy | Unread:
    stated = _stated_policy(reading)
    shared, dedicated = counted(reading, "VCPU"), counted(reading, "PCPU")
    if stated is UNREAD or shared is UNREAD or dedicated is UNREAD:
        return UNREAD
    asked = dedicated or shared
    if asked is None:
        return stated
    if stated.word is not None:
        return reading.refuse(
            "resources-beside-policy",
            stated.said,
            *asked.said,
            found=f"{stated.said} and {_joined(asked)} both say how the vCPUs are placed.",
            change=f"Take {stated.said.name} off the {stated.said.where}, or {asked.said[0].name} off the flavor.",
        )
    if shared is not None and dedicated is not None:
        return _refuse_both(reading, shared, dedicated)
    if dedicated is not None:
        _check_count(reading, dedicated, vcpus, emulator)
    elif asked.count != vcpus:
        reading.note(f"{_joined(asked)} does not change how many vCPUs the guest has.")
    return _Policy(word="dedicated" if dedicated is not None else "shared", said=asked.said[0])


def _stated_policy(reading: Reading) -> _Policy | Unread:
    flavor, image = reading.both("cpu_policy")
    by_flavor = reading.word(flavor, _POLICIES, "cpu-policy-unknown")
    by_image = reading.word(image, _POLICIES, "cpu-policy-unknown")
    if by_flavor is UNREAD or by_image is UNREAD:
        return UNREAD
    if by_flavor is None or flavor is None:
        return _Policy(word=by_image, said=image or not_said("cpu_policy"))
    if image is not None and by_image in _WEAKER[by_flavor]:
        return reading.refuse(
            "cpu-policy-conflict",
            flavor,
            image,
            found=f"{flavor} does not let an image ask for more, but there is {image}.",
            change=f"Take hw_cpu_policy off the image, or set hw:cpu_policy of the flavor to {by_image}.",
        )
    if image is not None and by_image != by_flavor:
        reading.note(f"{flavor} stands above {image}.")
    return _Policy(word=by_flavor, said=flavor)


def _refuse_both(reading: Reading, shared: Counted, dedicated: Counted) -> Unread:
    return reading.refuse(
        "resources-both",
        *shared.said,
        *dedicated.said,
        found=f"{_joined(shared)} and {_joined(dedicated)} cannot be in one flavor.",
        change=f"Take {shared.said[0].name} or {dedicated.said[0].name} off, or set hw:cpu_policy to mixed for both.",
    )


def _check_count(
    reading: Reading, asked: Counted, vcpus: int | Unread, emulator: EmulatorPolicy | Unread | None
) -> None:
    if vcpus is UNREAD or emulator is UNREAD:
        return
    isolated = reading.flavor("emulator_threads_policy") if emulator == "isolate" else None
    need = vcpus + (isolated is not None)
    if asked.count == need:
        return
    own = f" and one more for {isolated}" if isolated else ""
    reading.refuse(
        "pcpu-count",
        *asked.said,
        Property(name="vcpus", value=str(vcpus), where="flavor"),
        *([isolated] if isolated else []),
        found=f"{_joined(asked)} is not one CPU for each of vcpus={vcpus} of the flavor{own}.",
        change=f"Set {asked.said[0].name} so that all such entries together are {need}, or change vcpus.",
    )


def _thread_policy(reading: Reading, policy: _Policy | Unread) -> ThreadPolicy | Unread | None:
    stated, trait = _stated_threads(reading), hyperthreading(reading)
    if stated is UNREAD or trait is UNREAD:
        return UNREAD
    if trait is None:
        if stated is None:
            return None
        if isinstance(policy, _Policy) and not policy.pins:
            _needs_pins(reading, "thread-policy-unpinned", stated[0], policy)
        return stated[1]
    if stated is not None:
        return reading.refuse(
            "hyperthreading-beside-policy",
            trait[0],
            stated[0],
            found=f"{trait[0]} and {stated[0]} both say how threads of a core are used.",
            change=f"Take {trait[0].name} off the {trait[0].where}, or {stated[0].name} off the {stated[0].where}.",
        )
    if isinstance(policy, _Policy) and not policy.pins:
        _needs_pins(reading, "hyperthreading-unpinned", trait[0], policy)
    return trait[1]


def _stated_threads(reading: Reading) -> tuple[Property, ThreadPolicy] | Unread | None:
    flavor, image = reading.both("cpu_thread_policy")
    by_flavor = reading.word(flavor, _THREADS, "thread-policy-unknown")
    by_image = reading.word(image, _THREADS, "thread-policy-unknown")
    if by_flavor is UNREAD or by_image is UNREAD:
        return UNREAD
    if image is not None and by_image is not None:
        if flavor is None or by_flavor in {None, "prefer", by_image}:
            return image, by_image
        return reading.refuse(
            "thread-policy-conflict",
            flavor,
            image,
            found=f"{flavor} does not let an image say otherwise, but there is {image}.",
            change=f"Take hw_cpu_thread_policy off the image, or set it to {by_flavor}.",
        )
    return None if flavor is None or by_flavor is None else (flavor, by_flavor)


def _check_realtime(
    reading: Reading, policy: _Policy | Unread, emulator: EmulatorPolicy | Unread | None, config: HostConfig
) -> None:
    said = reading.flavor("cpu_realtime")
    if isinstance(policy, _Policy) and not policy.pins:
        _needs_pins(reading, "realtime-unpinned", said, policy)
    share = reading.flavor("emulator_threads_policy")
    if emulator == "share" and said and share and (config.shared is None or not config.has_split):
        own = Property(name="[compute] cpu_shared_set", value=None, where="config")
        reading.refuse(
            "realtime-share-set",
            said,
            share,
            own,
            found=f"{said} with {share} needs shared CPUs for the emulator, but there is {own} of this host.",
            change="Configure [compute] cpu_shared_set on the host, or set hw:emulator_threads_policy to isolate.",
        )


def _needs_pins(reading: Reading, kind: FaultKind, said: Property | None, policy: _Policy) -> None:
    if said is None:
        return
    reading.refuse(
        kind,
        said,
        policy.said,
        found=f"{said} is for pinned vCPUs alone, but there is {policy.said}.",
        change=f"{_instead(policy, 'dedicated or mixed')}, or take {said.name} off the {said.where}.",
    )


def _pinned(
    reading: Reading,
    policy: _Policy | Unread,
    dedicated: CpuSet | Unread | None,
    realtime: CpuSet | Unread | None,
    vcpus: int | Unread,
) -> CpuSet:
    if policy is UNREAD or dedicated is UNREAD or realtime is UNREAD or vcpus is UNREAD:
        return CpuSet()
    if policy.word == "mixed":
        return mixed_mask(reading, policy.said, dedicated, realtime)
    mask = reading.flavor("cpu_dedicated_mask")
    if dedicated is not None and mask is not None:
        reading.refuse(
            "dedicated-mask-policy",
            mask,
            policy.said,
            found=f"{mask} is for hw:cpu_policy=mixed alone, but there is {policy.said}.",
            change=f"{_instead(policy, 'mixed')}, or take hw:cpu_dedicated_mask off the flavor.",
        )
    return CpuSet.from_mask((1 << vcpus) - 1) if policy.word == "dedicated" else CpuSet()


def _instead(policy: _Policy, words: str) -> str:
    """What to do to the property that says the policy."""
    if policy.said.name.startswith("hw"):
        return f"Set hw:cpu_policy of the flavor to {words}"
    return f"Set hw:cpu_policy of the flavor to {words} in place of {policy.said.name}"


def _joined(asked: Counted) -> str:
    return ", ".join(map(str, asked.said))
