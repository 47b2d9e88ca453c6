"""What a pass tells of memory that lies elsewhere, and when it looks; over a libvirt and a kernel in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.adapters.processes import QemuProcesses
from agent.core.cpuset import CpuSet
from agent.core.guest import Sighting
from agent.core.host_config import HostConfig
from agent.core.snapshot import Identity, Wish, first, take_in
from agent.look.domains import DomainsLook
from tests.builders import uuid_of
from tests.builders_proc import add_qemu, empty_proc
from tests.builders_xml import domain_xml
from tests.fakes_libvirt import FakeLibvirt

ALL, EVENT = Wish(domains=True), Wish()


class Bench:
    """Guests of 2 GiB, each with a control group, whose memory is put onto cells by hand."""

    def __init__(self, folder: Path) -> None:
        self.now = 1000.0
        self.proc, self.cgroups = empty_proc(folder / "proc"), folder / "cgroup"
        self.libvirt = FakeLibvirt(clock=self.clock)
        self.libvirt.start()
        self.now += 100.0
        self.pids: dict[str, int] = {}
        processes = QemuProcesses(
            self.proc, clock=self.clock, boot_clock=lambda: self.now + 1000.0, cgroups=self.cgroups
        )
        self.look = DomainsLook(self.libvirt, processes, clock=self.clock, interval_s=10.0, deep_interval_s=100.0)
        self.snapshot = first(Identity(agent_id="a", boot_id="b", epoch=1), HostConfig())

    def clock(self) -> float:
        """Each thing takes a moment, so that one comes before the other."""
        self.now += 1e-6
        return self.now

    def run(self, name: str, *, node: int | None = 0, page: int | None = None) -> None:
        """A running guest, bound to a cell unless that is None."""
        uuid = self.libvirt.define(domain_xml(name, mem=2048, node=node, page=page))
        pid = self.pids[name] = 2000 + len(self.libvirt.domains) + 100 * len(self.pids)
        add_qemu(self.proc, pid, uuid=uuid, name=name)
        (self.proc / str(pid) / "cgroup").write_text(f"0::/machine/qemu-1-{name}.libvirt-qemu/emulator\n")
        self.libvirt.start_domain(uuid)

    def put(self, name: str, mib: Mapping[int, int]) -> None:
        """The kernel has the guest's memory so."""
        group = self.cgroups / f"machine/qemu-1-{name}.libvirt-qemu"
        group.mkdir(parents=True, exist_ok=True)
        cells = " ".join(f"N{cell}={amount << 20}" for cell, amount in mib.items())
        (group / "memory.numa_stat").write_text(f"anon {cells}\n")

    def one_pass(self, wish: Wish = ALL) -> None:
        """Look and take in."""
        self.now += 10.0
        self.snapshot = take_in(self.snapshot, self.look.look(self.snapshot.ledger, wish))

    def seen(self, name: str) -> Sighting:
        return self.snapshot.ledger.sightings[uuid_of(name)]

    def elsewhere(self, name: str) -> CpuSet:
        return self.seen(name).memory_elsewhere


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_cells_with_much_memory_of_a_guest_bound_to_others_are_told(bench: Bench) -> None:
    for name in ("home", "away"):
        bench.run(name)
    bench.put("home", {0: 2048, 1: 3})
    bench.put("away", {0: 1000, 1: 3, 2: 900})
    bench.one_pass()
    assert (str(bench.elsewhere("home")), str(bench.elsewhere("away"))) == ("", "2")


@pytest.mark.parametrize("options", [{"node": None}, {"page": 2048}], ids=["floating", "in huge pages"])
def test_a_guest_whose_memory_may_lie_there_is_not_even_looked_at(bench: Bench, options: dict[str, Any]) -> None:
    bench.run("a", **options)
    bench.put("a", {1: 2048})
    bench.one_pass()
    assert bench.elsewhere("a") == CpuSet()


def test_a_guest_that_is_off_has_no_memory_anywhere(bench: Bench) -> None:
    bench.run("a")
    bench.put("a", {1: 2048})
    bench.one_pass()
    bench.libvirt.stop_domain(uuid_of("a"))
    bench.one_pass()
    assert bench.elsewhere("a") == CpuSet()


def test_memory_is_looked_at_only_with_a_reading_of_its_guest(bench: Bench) -> None:
    for name in ("a", "b"):
        bench.run(name)
        bench.put(name, {0: 2048, 1: 0})
    bench.one_pass()
    for name in ("a", "b"):
        bench.put(name, {0: 0, 1: 2048})
    bench.one_pass(EVENT)
    unread = [str(bench.elsewhere(name)) for name in ("a", "b")]
    bench.one_pass(Wish(marked=frozenset({uuid_of("b")})))
    assert (unread, [str(bench.elsewhere(name)) for name in ("a", "b")]) == (["", ""], ["", "1"])


def test_numbers_that_move_make_no_new_picture(bench: Bench) -> None:
    bench.run("a")
    told, pictures = [], [bench.snapshot.usage]
    for moved in (0, 100, 900, 800, 127, 129, 100, 2048, 50, 100):
        bench.put("a", {0: 2048 - moved, 1: moved})
        bench.one_pass()
        if bench.snapshot.usage is not pictures[-1]:
            pictures.append(bench.snapshot.usage)
            told.append(str(bench.elsewhere("a")))
    assert told == ["", "1", ""]


def test_memory_that_cannot_be_told_for_once_stays_where_it_was_last_seen(bench: Bench) -> None:
    bench.run("a")
    bench.put("a", {0: 0, 1: 2048})
    bench.one_pass()
    (bench.cgroups / "machine/qemu-1-a.libvirt-qemu/memory.numa_stat").write_text("")
    bench.one_pass()
    assert str(bench.elsewhere("a")) == "1"


def test_another_run_of_the_guest_begins_anew(bench: Bench) -> None:
    bench.run("a")
    bench.put("a", {0: 1948, 1: 130})
    bench.one_pass()
    before = str(bench.elsewhere("a"))
    bench.libvirt.stop_domain(uuid_of("a"))
    bench.libvirt.start_domain(uuid_of("a"))
    bench.put("a", {0: 1948, 1: 100})
    bench.one_pass()
    assert (before, str(bench.elsewhere("a"))) == ("1", "")


def test_where_no_group_tells_of_a_guest_alone_nothing_is_said(bench: Bench) -> None:
    bench.run("a")
    (bench.proc / str(bench.pids["a"]) / "cgroup").write_text("0::/system.slice/libvirtd.service\n")
    bench.put("a", {1: 2048})
    bench.one_pass()
    assert (bench.seen("a").validity, bench.elsewhere("a")) == ("valid", CpuSet())
