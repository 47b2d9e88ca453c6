"""Guests that try to hide: behind a name of blanks, and behind a second QEMU process of the same uuid."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from agent.core.conflicts import Conflict, Owner
from agent.core.cpuset import CpuSet
from agent.core.report import GuestReport, Report
from tests.functional.daemon import Daemon
from tests.functional.lab import LAB, Guest, Libvirtd

MakeGuest = Callable[..., Guest]
BLANK_UUID = "5b1a3f0e-8f5c-4d43-9d27-6c1f6e0b7a11"


@pytest.fixture
def daemon(libvirtd: Libvirtd) -> Iterator[Daemon]:
    made = Daemon(libvirtd.ro_uri)
    yield made
    made.clean()


def guest_of(told: Report, uuid: str) -> GuestReport:
    return next(guest for guest in told.guests if guest.sighting.uuid == uuid)


def lost_row(told: Report) -> Conflict | None:
    return next((row for row in told.conflicts if row.kind == "domain-lost-by-libvirt"), None)


def test_a_guest_with_a_name_of_blanks_hides_no_double_pin(
    daemon: Daemon, guest: MakeGuest, libvirtd: Libvirtd
) -> None:
    honest = guest("honest", pin={0: "0"})
    command = [sys.executable, str(LAB / "guest"), "xml", "  ", f"--uuid={BLANK_UUID}", "--pin=0=0"]
    definition = libvirtd.dir / "blank.xml"
    definition.write_text(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    libvirtd.virsh("create", str(definition))
    daemon.start()

    told = daemon.report()

    (row,) = told.conflicts
    assert (row.id, row.severity) == ("cpu-pinned-twice:cpu:0", "error")
    assert {owner.uuid for owner in row.owners} == {honest.uuid, BLANK_UUID}
    assert f"{BLANK_UUID} (vCPU 0)" in row.cause
    assert guest_of(told, BLANK_UUID).sighting.validity == "valid"
    assert [found["id"] for found in daemon.agentctl_json("conflicts", code=1)] == [row.id]


def test_a_lost_guest_that_libvirt_starts_again_stays_a_conflict_until_one_of_its_processes_has_ended(
    daemon: Daemon, guest: MakeGuest, libvirtd: Libvirtd
) -> None:
    first = guest("twice", pin={0: "1"})
    assert first.pid is not None
    daemon.start()
    libvirtd.kill()
    (libvirtd.pid_dir / "twice.xml").unlink()
    libvirtd.start()
    lost = lost_row(daemon.wait_for(lambda told: lost_row(told) is not None, "the lost guest to be reported"))
    assert lost is not None

    libvirtd.virsh("undefine", "twice")
    second = guest("twice", uuid=first.uuid, pin={0: "0"})

    assert second.pid not in {None, first.pid}

    def is_there_twice(told: Report) -> bool:
        seen = guest_of(told, first.uuid).sighting
        assert lost_row(told) is not None
        return bool(seen.others) and seen.validity == "valid"

    told = daemon.wait_for(is_there_twice, "the second process")
    row = lost_row(told)
    assert row is not None
    assert (row.id, row.since, row.severity) == (lost.id, lost.since, "critical")
    assert row.owners == (Owner(type="domain", uuid=first.uuid, name="twice", maker="libvirt"),)
    pids = ", ".join(str(pid) for pid in sorted((first.pid, second.pid or 0)))
    assert (
        f"2 QEMU processes of twice live at once (pids {pids}), of which libvirt knows {second.pid} alone" in row.cause
    )
    assert "dangerous" in row.action
    assert f"`kill {first.pid}`" in row.action
    assert told.usage.host.dedicated.used == CpuSet((0, 1))
    assert daemon.health().status == "degraded"

    libvirtd.virsh("destroy", "twice")

    def is_alone(told: Report) -> bool:
        seen = guest_of(told, first.uuid).sighting
        return seen.validity == "lost-by-libvirt" and not seen.others

    told = daemon.wait_for(is_alone, "the first process alone to be reported")
    assert guest_of(told, first.uuid).sighting.run.pid == first.pid
    assert told.usage.host.dedicated.used == CpuSet((1,))
    assert lost_row(told) is not None

    os.kill(first.pid, signal.SIGKILL)
    daemon.wait_for(lambda told: not told.conflicts, "the conflict to go with the process")
    assert daemon.report().usage.host.dedicated.used == CpuSet()
