"""The answer to a fit as a person reads it."""

from __future__ import annotations

from types import MappingProxyType

import msgspec

from agent.core.cpuset import CpuSet
from agent.core.pci import PciAddress
from agent.core.placement import CellPlacement, GivenDevices, Placement
from agent.core.reasons import (
    CellsContended,
    CpusShort,
    DevicesShort,
    MemoryShort,
    PagesShort,
    Reason,
)
from agent.core.relax.values import (
    CellShortfall,
    GuestsLeave,
    Leaving,
    MoreFree,
    OtherDevicePolicy,
    Relaxations,
)
from agent.render.fit_text import placement_text, refusal_text
from agent.render.paint import ansi_paint

MIB = 1024
NIC, GPU = PciAddress.parse("0000:3b:00.1"), PciAddress.parse("0000:5e:00.0")

PLACED = Placement(
    vcpus=6,
    memory_kib=6144 * MIB,
    cells=(
        CellPlacement(
            guest_cell=0,
            host_cell=1,
            vcpus=CpuSet(range(4)),
            memory_kib=4096 * MIB,
            page_size_kib=1 << 20,
            pins=MappingProxyType({0: 8, 1: 9, 2: 16}),
            shared_cpus=CpuSet([4, 5]),
        ),
        CellPlacement(
            guest_cell=1,
            host_cell=0,
            vcpus=CpuSet([4, 5]),
            memory_kib=2048 * MIB,
            page_size_kib=4,
            pins=MappingProxyType({4: 2, 5: 6}),
            idle_cpus=CpuSet([3]),
        ),
    ),
    emulator_cpus=CpuSet([10]),
    emulator_own=10,
    devices=(GivenDevices(request="alias:nic", devices=(NIC, GPU)),),
)

REASONS: tuple[Reason, ...] = (
    MemoryShort(guest_cell=None, cell=None, asked_kib=4096 * MIB, free_kib=1024 * MIB),
    DevicesShort(request="alias:nic", asked=2, free=1, offered=2),
    PagesShort(guest_cell=1, cell=2, size_kib=2048, asked=8, free=4),
    CpusShort(guest_cell=0, cell=0, asked=4, free=CpuSet([6, 7]), dedicated=CpuSet([4, 5, 6, 7])),
    PagesShort(guest_cell=1, cell=0, size_kib=2048, asked=8, free=4),
    CellsContended(guest_cells=CpuSet([0, 1]), cells=CpuSet([1])),
)


def test_a_placement_says_where_each_cell_cpu_page_and_device_goes() -> None:
    assert (
        placement_text(PLACED, device_cells={NIC: 1, GPU: 2})
        == """\
It fits: 6 vCPUs and 6 GiB of memory in 2 cells
  guest cell 0 on cell 1
    pinned     vCPUs 0-1 on CPUs 8-9, 2 on 16
    floating   vCPU 3 over CPUs 4-5
    memory     4 GiB in 1 GiB pages
  guest cell 1 on cell 0
    pinned     vCPU 4 on CPU 2, 5 on 6
    memory     2 GiB in 4 KiB pages
    kept idle  CPU 3, siblings that thread policy isolate keeps from everybody
  emulator     CPU 10, which nobody else has
  devices      0000:3b:00.1 (cell 1), 0000:5e:00.0 (cell 2, far from the guest)
               for alias:nic
"""
    )


def test_a_guest_without_cells_floats_and_nothing_is_far_from_it() -> None:
    placed = Placement(
        vcpus=2,
        memory_kib=512 * MIB,
        shared_cpus=CpuSet([0, 1]),
        devices=(GivenDevices(request="port\x1b", devices=(NIC,)),),
    )
    assert (
        placement_text(placed, device_cells={NIC: 1})
        == """\
It fits: 2 vCPUs and 512 MiB of memory
  floating     2 vCPUs over CPUs 0-1
  emulator     not confined
  devices      0000:3b:00.1 (cell 1) for port\\x1b
"""
    )


def test_a_refusal_groups_its_reasons_by_host_cell_then_requests_and_host() -> None:
    assert (
        refusal_text(REASONS)
        == """\
It does not fit, for 6 reasons:
cell 0
  - Cell 0 has 2 of 4 dedicated CPUs free (6-7); guest cell 0 asks for 4
  - Cell 0 has 4 pages of 2 MiB free; guest cell 1 asks for 8
cell 2
  - Cell 2 has 4 pages of 2 MiB free; guest cell 1 asks for 8
requests
  - Request alias:nic asks for 2 devices; 1 of 2 of that kind is free
host
  - The host as a whole has 1024 MiB of small-page memory free; the guest asks
    for 4096 MiB
  - Guest cells 0-1 together have only cell 1 of the host to choose from, and
    each needs a cell of its own
"""
    )


def test_what_would_help_stands_below_the_reasons_in_its_order() -> None:
    helps = Relaxations(
        found=(
            MoreFree(cells=(CellShortfall(cell=0, cpus=CpuSet([4, 5])),)),
            OtherDevicePolicy(requests=("alias:nic",), policy="preferred", sources=("flavor",)),
            GuestsLeave(guests=(Leaving(uuid="u", name="web", cells=CpuSet([0])),)),
        ),
        untried=3,
    )
    assert (
        refusal_text(REASONS[3:4], helps)
        == """\
It does not fit, for 1 reason:
cell 0
  - Cell 0 has 2 of 4 dedicated CPUs free (6-7); guest cell 0 asks for 4
It would fit
  - with 2 more dedicated CPUs (4-5) free on cell 0
  - with device policy preferred for alias:nic
    (hw:pci_numa_affinity_policy=preferred)
  - if guest web (on cell 0) left
Whether 3 more changes, such as that a guest left, would help was not tried: it
takes too long.
"""
    )


def test_that_nothing_was_found_is_said_and_that_nobody_looked_is_not() -> None:
    assert refusal_text(REASONS[3:4], Relaxations()).endswith("No single change that was tried would make it fit.\n")
    assert refusal_text(REASONS[3:4]).endswith("guest cell 0 asks for 4\n")


def test_no_line_breaks_between_a_vcpu_and_its_cpu() -> None:
    apart = msgspec.structs.replace(PLACED.cells[0], pins=MappingProxyType({n: 20 - 2 * n for n in range(4)}))
    for width in range(32, 60):
        text = placement_text(msgspec.structs.replace(PLACED, cells=(apart,)), width=width)
        joined = [line.strip() for line in text.splitlines() if " on " in line and "guest cell" not in line]
        assert all(part.strip().count(" on ") == 1 for line in joined for part in line.rstrip(",").split(", ")), text
        assert sum(line.count(" on ") for line in joined) == 4


def test_both_answers_keep_within_the_width_and_colour_only_what_heads_them() -> None:
    narrow = placement_text(PLACED, width=40) + refusal_text(REASONS, Relaxations(), width=40)
    assert max(map(len, narrow.splitlines())) <= 40
    assert placement_text(PLACED, paint=ansi_paint).startswith("\x1b[32mIt fits\x1b[0m: 6 vCPUs")
    painted = refusal_text(REASONS, paint=ansi_paint)
    assert painted.startswith("\x1b[31mIt does not fit\x1b[0m, for 6 reasons:\n\x1b[1mcell 0\x1b[0m\n")
