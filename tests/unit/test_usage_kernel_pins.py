"""What the kernel shows of vCPU threads where no definition tells: CPUs that may be pinned twice."""

from __future__ import annotations

import msgspec

from agent.core.conflicts import Conflict, Owner, Resource
from agent.core.cpuset import CpuSet
from agent.core.guest import Sighting
from tests.builders import configured, guest, h8, unread, uuid_of

LEGACY = configured(h8(), dedicated=None, shared=None)


def _bound(name: str, cpus: str) -> Sighting:
    """A guest that could never be read, with a vCPU thread on each of these CPUs."""
    return msgspec.structs.replace(unread(name, kernel_cpus=cpus), kernel_pins=CpuSet.parse(cpus))


def _owners(**makers: str) -> tuple[Owner, ...]:
    owners = [Owner(type="domain", uuid=uuid_of(name), name=name, maker=maker) for name, maker in makers.items()]
    return tuple(sorted(owners, key=lambda owner: owner.uuid or ""))


def _only(conflicts: tuple[Conflict, ...]) -> Conflict:
    (row,) = conflicts
    return row


def test_a_cpu_that_the_kernel_binds_an_unread_guest_to_may_be_pinned_twice() -> None:
    seen = (guest("a", {0: 2}), _bound("u", "2-3"))
    owners = _owners(a="libvirt", u="unknown")
    assert _only(h8().conflicts(*seen)) == Conflict(
        id="cpu-pinned-twice:cpu:2",
        kind="cpu-pinned-twice",
        resource=Resource(kind="cpu", id="2", cell=0),
        owners=owners,
        cause="CPU 2 may be pinned by 2 guests: a (vCPU 0), u (some vCPU); the definition of u could not be read, but "
        "the kernel binds its vCPU threads to that CPU",
        severity="warning",
        action="Re-pin a with `virsh vcpupin a 0 4 --live --config`; left alone nothing breaks, but these guests share "
        "the time of one CPU",
    )
    usage = h8().usage(*seen)
    assert [(row.cpu, row.owners) for row in usage.holders] == [(2, owners), (3, _owners(u="unknown"))]
    assert str(usage.host.dedicated.free) == "4-7"


def test_a_cpu_that_the_kernel_binds_two_unread_guests_to_may_be_pinned_twice() -> None:
    row = _only(h8().conflicts(_bound("u", "3"), _bound("v", "3")))
    assert row.severity == "warning"
    assert "the definitions of " in row.cause
    assert "once its definition can be read; " in row.action


def test_an_unread_guest_on_a_cpu_that_is_certainly_pinned_twice_is_named_in_the_same_row() -> None:
    row = _only(h8().conflicts(guest("a", {0: 2}), guest("b", {0: 2}), _bound("u", "2")))
    assert (row.severity, len(row.owners)) == ("error", 3)
    assert row.cause.startswith("CPU 2 is pinned by 3 guests: ")


def test_an_unread_guest_that_the_kernel_keeps_in_the_shared_set_is_pinned_to_none_of_it() -> None:
    one_shared = configured(h8(), shared=CpuSet([1]))
    assert one_shared.conflicts(_bound("u", "1"), _bound("v", "1")) == ()


def test_without_configured_sets_a_vcpu_of_an_unread_guest_beside_an_emulator_may_contradict() -> None:
    assert _only(LEGACY.conflicts(guest("a", {0: 0}, emu="1"), _bound("u", "1"))).severity == "warning"


def test_without_configured_sets_two_emulators_beside_it_make_nothing_certain() -> None:
    emulators = (guest("a", {0: 0}, emu="1"), guest("b", {0: 2}, emu="1"))
    assert _only(LEGACY.conflicts(*emulators, _bound("u", "1"))).severity == "warning"
