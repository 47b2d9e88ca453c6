"""Which vCPUs of a guest are pinned or realtime, where a mask says so."""

from __future__ import annotations

from agent.core.cpuset import CpuSet
from agent.core.flavor.reading import UNREAD, Reading, Unread, masked, not_said
from agent.core.instance import EmulatorPolicy
from agent.core.request_faults import FaultKind, Property


def dedicated_mask(reading: Reading, vcpus: int | Unread) -> CpuSet | Unread | None:
    """hw:cpu_dedicated_mask: a part of the vCPUs, neither none nor all."""
    said = reading.flavor("cpu_dedicated_mask")
    if said is None:
        return None
    mask = _mask(reading, said, vcpus, "dedicated-mask-list", "dedicated-mask-range")
    if mask is UNREAD or vcpus is UNREAD:
        return UNREAD
    if mask and len(mask) < vcpus:
        return mask
    policy = "dedicated" if mask else "shared"
    return reading.refuse(
        "dedicated-mask-whole" if mask else "dedicated-mask-empty",
        said,
        _count(vcpus),
        found=f"{said} names {'all' if mask else 'none'} of the vCPUs, with vcpus={vcpus} of the flavor.",
        change=f"Name a part of them in {said.name}, or set hw:cpu_policy to {policy} without a mask.",
    )


def realtime_mask(reading: Reading, vcpus: int | Unread, emulator: EmulatorPolicy | Unread | None) -> CpuSet | Unread:
    """The vCPUs with a realtime scheduler: all without a mask; the image's mask counts before the flavor's."""
    flavor, image = reading.both("cpu_realtime_mask")
    if flavor is not None and image is not None and flavor.value != image.value:
        reading.note(f"{image} stands above {flavor}.")
    said = image or flavor
    if said is None:
        mask = UNREAD if vcpus is UNREAD else CpuSet.from_mask((1 << vcpus) - 1)
    else:
        mask = _mask(reading, said, vcpus, "realtime-list", "realtime-range")
    if mask is UNREAD or vcpus is UNREAD:
        return UNREAD
    if said is not None and not mask:
        return _refuse_empty(reading, said, vcpus)
    if len(mask) == vcpus and emulator is None:
        return _refuse_whole(reading, said, vcpus)
    return mask


def note_idle_mask(reading: Reading) -> None:
    """Note a mask of a guest that asks for no realtime."""
    for said in reading.both("cpu_realtime_mask"):
        if said is not None:
            reading.note(f"{said.name} has no effect without hw:cpu_realtime=true of the flavor.")


def mixed_mask(reading: Reading, policy: Property, dedicated: CpuSet | None, realtime: CpuSet | None) -> CpuSet:
    """The pinned vCPUs of a mixed guest: exactly one mask says which."""
    mask = reading.flavor("cpu_dedicated_mask")
    flavor, image = reading.both("cpu_realtime_mask")
    real = image or flavor or not_said("cpu_realtime_mask")
    missing = not_said("cpu_dedicated_mask")
    if dedicated is None and realtime is None:
        reading.refuse(
            "mixed-no-mask",
            policy,
            missing,
            found=f"{policy} pins a part of the vCPUs, but there is {missing} and no realtime to say which.",
            change="Set hw:cpu_dedicated_mask of the flavor to the vCPUs to pin, as in 0-1.",
        )
    elif dedicated is not None and realtime is not None:
        reading.refuse(
            "mixed-two-masks",
            policy,
            mask or missing,
            real,
            found=f"{policy} has {mask} and realtime, with {real}, and both say which vCPUs are pinned.",
            change="Take hw:cpu_dedicated_mask off the flavor: the realtime vCPUs are then the pinned ones.",
        )
    else:
        return dedicated or realtime or CpuSet()
    return CpuSet()


def _mask(reading: Reading, said: Property, vcpus: int | Unread, bad: FaultKind, beyond: FaultKind) -> CpuSet | Unread:
    if vcpus is UNREAD:
        return UNREAD
    try:
        mask = masked(said.value, vcpus)
    except ValueError as error:
        return reading.refuse(
            bad,
            said,
            found=f"{said} cannot be read: {error}.",
            change=f"Write {said.name} as 0-3, as 0,2 or as ^0 for all but the first.",
        )
    if mask <= CpuSet.from_mask((1 << vcpus) - 1):
        return mask
    return reading.refuse(
        beyond,
        said,
        _count(vcpus),
        found=f"{said} names vCPUs beyond the last, {vcpus - 1}, with vcpus={vcpus} of the flavor.",
        change=f"Name only vCPUs from 0 to {vcpus - 1} in {said.name}, or change vcpus.",
    )


def _refuse_empty(reading: Reading, said: Property, vcpus: int) -> Unread:
    return reading.refuse(
        "realtime-empty",
        said,
        _count(vcpus),
        found=f"{said} leaves no vCPU for realtime, with vcpus={vcpus} of the flavor.",
        change=f"Name a realtime vCPU in {said.name}, or take hw:cpu_realtime off the flavor.",
    )


def _refuse_whole(reading: Reading, said: Property | None, vcpus: int) -> Unread:
    mask = said or not_said("cpu_realtime_mask")
    own = not_said("emulator_threads_policy")
    makes = f"Without hw:cpu_realtime_mask all of vcpus={vcpus} are" if said is None else f"{said} makes all vCPUs"
    return reading.refuse(
        "realtime-whole",
        mask,
        own,
        _count(vcpus),
        found=f"{makes} realtime, and without hw:emulator_threads_policy the emulator has no CPU beside them.",
        change="Leave a vCPU out with hw:cpu_realtime_mask=^0, or set hw:emulator_threads_policy to isolate or share.",
    )


def _count(vcpus: int) -> Property:
    return Property(name="vcpus", value=str(vcpus), where="flavor")
