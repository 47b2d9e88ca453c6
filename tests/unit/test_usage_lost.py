"""Guests that run without libvirt knowing, or twice."""

from __future__ import annotations

import msgspec
import pytest

from agent.core.conflicts import Conflict, Owner, Resource
from agent.core.cpuset import CpuSet
from agent.core.guest import OtherProcess, RunIdentity, Validity
from tests.builders import guest, h8, uuid_of


@pytest.mark.parametrize(
    ("validity", "known", "commands"),
    [
        ("valid", "libvirt knows 20 alone", "`kill 10`"),
        ("lost-by-libvirt", "libvirt knows one at most", "`kill 10` or `kill 20`"),
    ],
)
def test_two_processes_of_one_guest_are_one_critical_row_whatever_libvirt_says(
    validity: Validity, known: str, commands: str
) -> None:
    seen = guest("a", {0: 2}, validity=validity, run=RunIdentity(pid=20))
    twice = msgspec.structs.replace(seen, others=(OtherProcess(run=RunIdentity(pid=10)),))
    assert h8().conflicts(twice) == (
        Conflict(
            id=f"domain-lost-by-libvirt:guest:{uuid_of('a')}",
            kind="domain-lost-by-libvirt",
            resource=Resource(kind="guest", id=uuid_of("a")),
            owners=(Owner(type="domain", uuid=uuid_of("a"), name="a", maker="libvirt"),),
            cause=f"2 QEMU processes of a live at once (pids 10, 20), of which {known}: two copies of this guest use "
            "its memory, devices and disks",
            severity="critical",
            action="This is dangerous, since two copies that write to one disk destroy what is on it: end one of them "
            f"now, from inside the guest or with {commands}, then check the disks before they are used again",
        ),
    )


def test_a_cpu_of_a_guests_second_process_is_pinned_twice_and_freed_by_ending_one_of_them() -> None:
    other = OtherProcess(run=RunIdentity(pid=10), pins=CpuSet([5]))
    twice = msgspec.structs.replace(guest("a", {0: 2}, run=RunIdentity(pid=20)), others=(other,))
    (row,) = (row for row in h8().conflicts(twice, guest("b", {0: 5})) if row.kind == "cpu-pinned-twice")
    assert (row.id, row.severity) == ("cpu-pinned-twice:cpu:5", "error")
    assert "a (some vCPU)" in row.cause
    assert row.action.startswith("Re-pin b with `virsh vcpupin b 0 3 --live --config`; ")
    again = msgspec.structs.replace(guest("b", {0: 5}), others=(other,))
    (row,) = (row for row in h8().conflicts(twice, again) if row.kind == "cpu-pinned-twice")
    assert row.action.startswith("End all but one of the QEMU processes of ")
