"""The text map: which letter a CPU gets, and where it stands."""

from __future__ import annotations

import msgspec
import pytest

from agent.core.cpuset import CpuSet
from agent.core.host_config import AcceptRule, HostConfig
from agent.core.topology import HostCell, HostTopology
from agent.render.cpu_states import CpuState, cpu_states
from agent.render.host_map import host_map
from agent.render.paint import ansi_paint
from tests.builders import guest
from tests.cli_reports import DATABASE, SPLIT, WEB, smt_topology, usage_of, with_cpu

EVERYTHING = HostConfig(dedicated=CpuSet.parse("0-511"))


def test_each_thread_is_a_letter_beside_its_sibling_under_its_cell() -> None:
    topology = smt_topology()
    assert (
        host_map(topology, *usage_of(topology, WEB, DATABASE))
        == """\
cell 0: 16 GiB, CPUs 0-3,8-11, 2 MiB pages 512 (64 free), socket 0
  core 0-3  CPU 0-3,8-11   ss ss CP P.
cell 1: 16 GiB, CPUs 4-7,12-15, 2 MiB pages 512 (64 free), socket 1
  core 0-3  CPU 4-7,12-15  .. .. .. ..

C = conflict: see `agentctl conflicts`: 1 (CPU 2)
P = pinned by a guest: 2 (CPUs 3,10)
. = free for pinned guests: 9 (CPUs 4-7,11-15)
s = shared by floating guests: 4 (CPUs 0-1,8-9)
"""
    )


def test_cpus_of_one_thread_stand_in_blocks_of_four() -> None:
    topology = smt_topology(cells=1, cores=10, threads=1)
    drawn = host_map(topology, *usage_of(topology, guest("a", {0: 4}), config=EVERYTHING))
    assert drawn.splitlines()[1] == "  core 0-9  CPU 0-9  .... P... .."


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        ({}, CpuState.FREE),
        ({"online": False}, CpuState.OFFLINE),
        ({"online": None}, CpuState.UNKNOWN),
        ({"isolated": True}, CpuState.ISOLATED),
        ({"allowed": False}, CpuState.WITHHELD),
        ({"isolated": True, "online": False}, CpuState.OFFLINE),
    ],
)
def test_a_cpu_that_no_guest_holds_has_the_letter_of_what_the_host_does_with_it(
    facts: dict[str, object], state: CpuState
) -> None:
    topology = with_cpu(smt_topology(), 5, **facts)
    assert cpu_states(topology, *usage_of(topology))[5] is state


def test_a_pinned_isolated_cpu_is_shown_as_pinned() -> None:
    topology = with_cpu(smt_topology(), 3, isolated=True)
    assert cpu_states(topology, *usage_of(topology, WEB))[3] is CpuState.PINNED


def test_a_cpu_in_no_set_is_left_to_the_host() -> None:
    topology = smt_topology()
    usage = usage_of(topology, config=HostConfig(dedicated=CpuSet.parse("2-7"), shared=CpuSet.parse("8-15")))
    assert [cpu for cpu, state in cpu_states(topology, *usage).items() if state is CpuState.HOST] == [0, 1]


def test_an_accepted_conflict_is_drawn_as_pinned() -> None:
    topology = smt_topology()
    accepting = msgspec.structs.replace(SPLIT, accept=(AcceptRule(kind="cpu-pinned-twice", guest="*"),))
    usage, conflicts = usage_of(topology, WEB, DATABASE, config=accepting)
    assert [row.accepted for row in conflicts if row.kind == "cpu-pinned-twice"] == [True]
    assert cpu_states(topology, usage, conflicts)[2] is CpuState.PINNED


def test_a_guest_pinned_to_an_offline_cpu_is_a_conflict_rather_than_offline() -> None:
    topology = with_cpu(smt_topology(), 2, online=False, cell=None, socket=None, core=None)
    assert cpu_states(topology, *usage_of(topology, WEB))[2] is CpuState.CONFLICT


def test_offline_cpus_whose_place_the_kernel_does_not_tell_stand_apart() -> None:
    topology = with_cpu(smt_topology(), 5, online=False, cell=None, socket=None, core=None)
    lines = host_map(topology, *usage_of(topology)).splitlines()
    assert lines[4:6] == ["without a known cell", "            CPU 5            x"]
    assert "x = offline: 1 (CPU 5)" in lines


def test_the_sockets_of_a_virtual_machine_share_a_row_when_each_has_one_core() -> None:
    topology = smt_topology(cells=1, cores=8, threads=1)
    cpus = tuple(msgspec.structs.replace(cpu, socket=cpu.id, core=0) for cpu in topology.cpus)
    drawn = host_map(msgspec.structs.replace(topology, cpus=cpus), *usage_of(topology, config=EVERYTHING))
    assert drawn.splitlines()[:2] == [
        "cell 0: 16 GiB, CPUs 0-7, 2 MiB pages 512 (64 free), sockets 0-7",
        "  CPU 0-7  .... ....",
    ]


def test_cores_of_two_kinds_stand_in_groups_of_their_own() -> None:
    topology = smt_topology(cells=1, cores=4, threads=1)
    cpus = tuple(
        msgspec.structs.replace(cpu, kind="performance" if cpu.id < 2 else "efficiency") for cpu in topology.cpus
    )
    lines = host_map(msgspec.structs.replace(topology, cpus=cpus), *usage_of(topology, config=EVERYTHING)).splitlines()
    assert lines[1:5] == [
        " socket 0, performance",
        "  core 0-1  CPU 0-1  ..",
        " socket 0, efficiency",
        "  core 2-3  CPU 2-3  ..",
    ]


def test_dies_are_named_when_a_socket_has_several() -> None:
    topology = smt_topology(cells=1, cores=4, threads=1)
    cpus = tuple(msgspec.structs.replace(cpu, die=cpu.id // 2) for cpu in topology.cpus)
    drawn = host_map(msgspec.structs.replace(topology, cpus=cpus), *usage_of(topology))
    assert [line for line in drawn.splitlines() if "die" in line] == [" socket 0, die 0", " socket 0, die 1"]


def test_a_cell_without_cpus_or_memory_says_so() -> None:
    topology = HostTopology(
        cells=(HostCell(id=2, cpus=CpuSet(), memory_kib=1048576), HostCell(id=7, cpus=CpuSet(), memory_kib=0)), cpus=()
    )
    assert host_map(topology, *usage_of(topology)).splitlines()[:2] == [
        "cell 2: 1 GiB, no CPUs",
        "cell 7: no memory, no CPUs",
    ]


def test_a_cell_whose_memory_guests_may_not_have_says_so() -> None:
    topology = HostTopology(cells=(HostCell(id=0, cpus=CpuSet(), memory_kib=1048576, allowed=False),), cpus=())
    assert "cell 0: 1 GiB, no CPUs, memory withheld from guests by a cpuset" in host_map(topology, *usage_of(topology))


def test_a_host_of_which_nothing_is_known_has_an_empty_map() -> None:
    topology = HostTopology(cells=(), cpus=())
    assert not host_map(topology, *usage_of(topology)).strip()


@pytest.mark.parametrize("width", [40, 80, 132])
def test_512_cpus_fit_the_width_and_every_cpu_is_drawn(width: int) -> None:
    topology = smt_topology(cells=8, cores=32, threads=2)
    picture = host_map(topology, *usage_of(topology, guest("a", {0: 100}), config=EVERYTHING), width=width)
    assert max(len(line) for line in picture.splitlines()) <= width
    rows = [line for line in picture.splitlines() if line.startswith("  core")]
    assert sum(row.rsplit("  ", 1)[1].count(".") for row in rows) == 511
    assert len(rows) <= 8 * 32 // (2 if width == 40 else 8)


def test_a_row_of_interleaved_cpu_numbers_names_its_first_and_last() -> None:
    topology = smt_topology(cells=1, cores=16, threads=1)
    cpus = tuple(msgspec.structs.replace(cpu, id=cpu.id * 4) for cpu in topology.cpus)
    drawn = host_map(msgspec.structs.replace(topology, cpus=cpus), *usage_of(topology))
    assert "CPU 0 .. 60" in drawn


def test_colours_surround_letters_and_change_nothing_else() -> None:
    topology = smt_topology()
    usage = usage_of(topology, WEB, DATABASE)
    painted = host_map(topology, *usage, paint=ansi_paint)
    assert "\x1b[1;31mC\x1b[0m" in painted
    plain = painted
    for code in ("\x1b[1;31m", "\x1b[1m", "\x1b[32m", "\x1b[2m", "\x1b[0m"):
        plain = plain.replace(code, "")
    assert plain == host_map(topology, *usage)
