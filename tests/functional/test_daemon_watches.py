"""The main job on real input: a real libvirtd, QEMU guests with conflicting pins, libvirtd dying under the daemon."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from agent.core.conflicts import Owner
from agent.core.cpuset import CpuSet
from agent.core.report import GuestReport, Report
from agent.formats.wall_time import rfc3339
from tests.functional.daemon import Daemon
from tests.functional.lab import Guest, Libvirtd, wait_until

MakeGuest = Callable[..., Guest]


@pytest.fixture
def daemon(libvirtd: Libvirtd) -> Iterator[Daemon]:
    made = Daemon(libvirtd.ro_uri)
    yield made
    made.clean()


def by_name(told: Report) -> dict[str, GuestReport]:
    return {guest.sighting.name: guest for guest in told.guests}


def owner(guest: Guest) -> Owner:
    return Owner(type="domain", uuid=guest.uuid, name=guest.name, maker="libvirt")


def test_two_guests_on_one_cpu_are_reported_in_full_and_hide_nothing(daemon: Daemon, guest: MakeGuest) -> None:
    first, second = guest("one", pin={0: "1"}), guest("two", pin={0: "1"})
    guest("three", pin={0: "0"})
    guest("off", start=False, pin={0: "0"})
    daemon.start()

    told = daemon.report()

    assert {name: seen.sighting.state for name, seen in by_name(told).items()} == {
        "one": "running",
        "two": "running",
        "three": "running",
        "off": "shut-off",
    }
    (row,) = told.conflicts
    assert (row.id, row.kind, row.severity) == ("cpu-pinned-twice:cpu:1", "cpu-pinned-twice", "error")
    assert row.owners == (owner(first), owner(second))
    assert row.since is not None
    assert told.usage.host.dedicated.used == CpuSet.parse("0-1")
    assert told.usage.host.memory_kib.used == 3 * 16 * 1024
    assert (told.health.status, told.health.ready) == ("degraded", True)
    assert [row["id"] for row in daemon.agentctl_json("conflicts", code=1)] == ["cpu-pinned-twice:cpu:1"]


def test_a_guest_that_starts_and_ends_is_seen_by_its_events_alone(daemon: Daemon, guest: MakeGuest) -> None:
    daemon.configure("[tracker]\ninterval = 300\ndeep_interval = 3600\n")
    daemon.start()
    assert daemon.report().guests == ()

    late = guest("late", pin={0: "1"})
    def holds_its_cpu(told: Report) -> bool:  # it is defined first, and seen so for a moment
        return "late" in by_name(told) and by_name(told)["late"].holds.cpus == CpuSet((1,))

    daemon.wait_for(holds_its_cpu, "the started guest")

    assert late.pid is not None
    os.kill(late.pid, signal.SIGKILL)
    daemon.wait_for(lambda told: by_name(told)["late"].sighting.state == "shut-off", "the guest's end")
    assert daemon.report().usage.host.dedicated.used == CpuSet()


def test_a_live_repin_moves_what_the_guest_holds(daemon: Daemon, guest: MakeGuest, libvirtd: Libvirtd) -> None:
    guest("moves", pin={0: "0"})
    daemon.configure("[tracker]\ninterval = 300\ndeep_interval = 3600\n")
    daemon.start()
    assert by_name(daemon.report())["moves"].holds.cpus == CpuSet((0,))

    libvirtd.virsh("vcpupin", "moves", "0", "1", "--live")

    daemon.wait_for(lambda told: by_name(told)["moves"].holds.cpus == CpuSet((1,)), "the new pin")


def test_a_change_without_an_event_is_found_by_the_deep_pass(
    daemon: Daemon, guest: MakeGuest, libvirtd: Libvirtd
) -> None:
    guest("off", start=False, pin={0: "0"})
    daemon.configure("[tracker]\ninterval = 1\ndeep_interval = 10\n")
    daemon.start()

    libvirtd.virsh("setmaxmem", "off", "32M", "--config")

    def is_new(told: Report) -> bool:
        domain = by_name(told)["off"].sighting.domain
        return domain is not None and domain.memory_kib == 32 * 1024

    daemon.wait_for(is_new, "the changed definition")


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_while_libvirtd_is_down_the_last_known_counts_and_its_return_is_noticed(
    daemon: Daemon, guest: MakeGuest, libvirtd: Libvirtd, how: str
) -> None:
    guest("stays", pin={0: "1"})
    leaves = guest("leaves", pin={0: "0"})
    daemon.start()

    getattr(libvirtd, how)()
    told = daemon.wait_for(lambda told: source_problem(told, "libvirt") is not None, "the loss to be reported")
    assert told.usage.host.dedicated.used == CpuSet.parse("0-1")
    assert (told.health.status, len(told.guests)) == ("degraded", 2)
    assert "libvirt" in daemon.agentctl("status")

    assert leaves.pid is not None
    os.kill(leaves.pid, signal.SIGKILL)
    libvirtd.start()
    told = daemon.wait_for(lambda told: by_name(told)["leaves"].sighting.state == "shut-off", "the guest's end")
    assert told.usage.host.dedicated.used == CpuSet((1,))
    daemon.wait_for(lambda told: source_problem(told, "libvirt") is None, "libvirt to be well again")
    assert daemon.process.poll() is None


def test_a_frozen_libvirtd_is_named_and_costs_neither_the_report_nor_the_daemon(
    daemon: Daemon, guest: MakeGuest, libvirtd: Libvirtd
) -> None:
    guest("stays", pin={0: "1"})
    daemon.configure(
        "[tracker]\ninterval = 1\n[libvirt]\ncall_timeout = 2\nkeepalive_interval = 1\nkeepalive_count = 2\n"
    )
    daemon.start()
    before = daemon.report().generation

    libvirtd.pause()
    told = daemon.wait_for(lambda told: source_problem(told, "libvirt") is not None, "the freeze to be reported")
    assert told.usage.host.dedicated.used == CpuSet((1,))
    assert told.generation > before
    daemon.wait_for(lambda later: later.generation > told.generation + 1, "passes to go on")

    libvirtd.resume()
    daemon.wait_for(lambda told: source_problem(told, "libvirt") is None, "libvirt to be well again")


def test_events_still_come_once_after_libvirtd_was_restarted_under_the_daemon(
    daemon: Daemon, guest: MakeGuest, libvirtd: Libvirtd
) -> None:
    daemon.configure("[tracker]\ninterval = 300\ndeep_interval = 3600\n")
    daemon.start()
    for _ in range(3):
        libvirtd.stop()
        libvirtd.start()
    daemon.wait_for(lambda told: source_problem(told, "libvirt") is None, "libvirt to be well again")

    guest("late", pin={0: "1"})

    def runs(told: Report) -> bool:
        return "late" in by_name(told) and by_name(told)["late"].sighting.state == "running"

    told = daemon.wait_for(runs, "the started guest")
    assert by_name(told)["late"].sighting.validity == "valid"


def test_a_guest_that_libvirt_has_lost_still_holds_and_is_a_conflict(
    daemon: Daemon, guest: MakeGuest, libvirtd: Libvirtd
) -> None:
    lost = guest("lost", pin={0: "1"})
    daemon.start()

    libvirtd.kill()
    (libvirtd.pid_dir / "lost.xml").unlink()
    libvirtd.start()

    told = daemon.wait_for(lambda told: "domain-lost-by-libvirt" in kinds(told), "the lost guest to be reported")
    assert told.usage.host.dedicated.used == CpuSet((1,))
    assert by_name(told)["lost"].sighting.validity == "lost-by-libvirt"

    assert lost.pid is not None
    os.kill(lost.pid, signal.SIGKILL)
    daemon.wait_for(lambda told: kinds(told) == set(), "the conflict to go with the process")
    assert daemon.report().usage.host.dedicated.used == CpuSet()


def test_a_conflict_keeps_its_date_over_restarts_and_the_epoch_rises(daemon: Daemon, guest: MakeGuest) -> None:
    guest("one", pin={0: "1"})
    guest("two", pin={0: "1"})
    daemon.start()
    first = daemon.report()
    assert daemon.stop() == 0

    daemon.start()

    second = daemon.report()
    assert [row.since for row in second.conflicts] == [row.since for row in first.conflicts]
    assert (second.agent_id, second.epoch) == (first.agent_id, first.epoch + 1)


def test_a_conflict_that_other_guests_have_at_the_next_start_is_dated_anew(
    daemon: Daemon, guest: MakeGuest, libvirtd: Libvirtd
) -> None:
    guest("one", pin={0: "1"})
    guest("two", pin={0: "1"})
    daemon.start()
    (first,) = daemon.report().conflicts
    assert first.since is not None
    assert daemon.stop() == 0
    libvirtd.make_good()
    wait_until(lambda: rfc3339(time.time()) > (first.since or ""), "another second")
    others_came = rfc3339(time.time())
    guest("one", pin={0: "1"})
    guest("two", pin={0: "1"})

    daemon.start()

    (row,) = daemon.report().conflicts
    assert row.id == first.id
    assert row.since is not None
    assert row.since >= others_came


def source_problem(told: Report, name: str) -> str | None:
    return next((source.problem for source in told.health.sources if source.name == name), None)


def kinds(told: Report) -> set[str]:
    return {row.kind for row in told.conflicts}
