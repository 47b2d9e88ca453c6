"""Whole answers about whole hosts: where guest cells go, and what is refused although each part would do alone."""

from __future__ import annotations

from types import MappingProxyType

import msgspec

from agent.core.cpuset import CpuSet
from agent.core.fit import FitRules, NoFit, Offer, fit, host_facts, offer_of
from agent.core.instance import CellRequest, CpuPolicy, InstanceRequest, PageWord
from agent.core.pci import PciAddress, PciDevice
from agent.core.pci_request import PciRequest, PciSpec
from agent.core.placement import Placement
from agent.core.reasons import (
    CellsContended,
    CpusShort,
    EmulatorHomeless,
    MemoryShort,
    NoRoomTogether,
    SharedOverRatio,
    TooFewCells,
)
from agent.core.topology import PagePool
from tests.builders import Host, Node, host

KIB_PER_MIB = 1024


def offered(made: Host) -> Offer:
    """All of an empty host."""
    return offer_of(host_facts(made.topology, made.config), made.usage())


def guest(
    *sizes: tuple[int, int], policy: CpuPolicy | None = "dedicated", page_size: int | PageWord | None = None
) -> InstanceRequest:
    """A guest with a cell for each (vCPUs, MiB)."""
    cells = []
    first = 0
    for number, (vcpus, memory_mb) in enumerate(sizes):
        own = CpuSet(range(first, first + vcpus))
        first += vcpus
        pinned = own if policy == "dedicated" else CpuSet()
        cells.append(CellRequest(id=number, vcpus=own, memory_kib=memory_mb * KIB_PER_MIB, pinned=pinned))
    return InstanceRequest(
        vcpus=first,
        memory_kib=sum(cell.memory_kib for cell in cells),
        cells=tuple(cells),
        cpu_policy=policy,
        page_size=page_size,
    )


def where(found: Placement | NoFit) -> list[int]:
    """The host cell of each guest cell."""
    assert isinstance(found, Placement), found
    return [cell.host_cell for cell in found.cells]


TWO = host({0: Node("0-3", 8192), 1: Node("4-7", 8192)}, dedicated="0-7", shared="", reserve_mem=0)
UNEVEN = host({0: Node("0-3", 8192), 1: Node("4-5", 8192)}, dedicated="0-5", shared="", reserve_mem=0)


def test_a_guest_cell_that_fits_anywhere_makes_way_for_one_that_does_not() -> None:
    assert where(fit(guest((2, 1024), (4, 1024)), offered(UNEVEN))) == [1, 0]


def test_guest_cells_that_want_the_same_host_cell_are_named_with_it() -> None:
    found = fit(guest((3, 1024), (4, 1024)), offered(UNEVEN))
    assert isinstance(found, NoFit)
    assert found.reasons[-1] == CellsContended(guest_cells=CpuSet([0, 1]), cells=CpuSet([0]))
    assert {reason.cell for reason in found.reasons if isinstance(reason, CpusShort)} == {1}


def test_more_guest_cells_than_host_cells_are_refused_with_both_numbers() -> None:
    found = fit(guest((1, 512), (1, 512), (1, 512)), offered(TWO))
    assert found == NoFit(reasons=(TooFewCells(asked=3, cells=CpuSet([0, 1])),))


def test_several_guest_cells_share_a_host_cell_where_that_is_allowed() -> None:
    found = fit(guest((2, 1024), (2, 1024), (3, 1024)), offered(TWO), FitRules(share_cells=True))
    assert where(found) == [0, 0, 1]


def test_guest_cells_that_share_a_host_cell_do_not_over_commit_it_with_each_other() -> None:
    one = host({0: Node("0-3", 4096)}, dedicated="", shared="0-3", reserve_mem=0, ratio_mem=4.0)
    alone = fit(guest((1, 3072), policy="shared"), offered(one), FitRules(share_cells=True))
    together = fit(guest((1, 3072), (1, 3072), policy="shared"), offered(one), FitRules(share_cells=True))
    assert isinstance(alone, Placement)
    assert together == NoFit(reasons=(NoRoomTogether(guest_cells=CpuSet([0, 1]), cells=CpuSet([0])),))


def test_a_guest_stays_on_cells_that_are_close_to_each_other() -> None:
    made = host(
        {number: Node(f"{4 * number}-{4 * number + 3}", 8192) for number in range(4)},
        dedicated="0-15",
        shared="",
        reserve_mem=0,
    )
    cells = tuple(
        msgspec.structs.replace(
            cell,
            distances=MappingProxyType({n: 10 if n == cell.id else 12 + 20 * ((n - cell.id) % 2) for n in range(4)}),
        )
        for cell in made.topology.cells
    )
    made = made._replace(topology=msgspec.structs.replace(made.topology, cells=cells))
    assert sorted(where(fit(guest((4, 1024), (4, 1024)), offered(made)))) == [0, 2]


def test_packing_takes_the_host_cell_with_the_least_room() -> None:
    assert where(fit(guest((1, 512)), offered(UNEVEN), FitRules(pack=True))) == [1]
    assert where(fit(guest((1, 512)), offered(UNEVEN))) == [0]


def test_any_pages_that_fall_back_to_small_ones_must_be_free_on_the_host_as_a_whole() -> None:
    half = host({0: Node("0-3", 8192)}, dedicated="", shared="0-3", reserve_mem=0, ratio_mem=0.5)
    found = fit(guest((1, 6144), policy="shared", page_size="any"), offered(half))
    assert isinstance(found, NoFit)
    reserved = host({0: Node("0-3", 8192)}, dedicated="0-3", shared="", reserve_mem=4096)
    kib = 6144 * KIB_PER_MIB
    assert fit(guest((1, 6144), page_size="any"), offered(reserved)) == NoFit(
        reasons=(MemoryShort(guest_cell=None, cell=None, asked_kib=kib, free_kib=4096 * KIB_PER_MIB),)
    )


def test_any_pages_are_huge_on_all_cells_where_the_host_lacks_small_ones() -> None:
    made = host({0: Node("0-3", 4096, {2048: 512}), 1: Node("4-7", 8192)}, dedicated="0-7", shared="", reserve_mem=0)
    taken = msgspec.structs.replace(offered(made), free_kib=64 * KIB_PER_MIB, free_by_ratio_kib=64 * KIB_PER_MIB)
    found = fit(guest((1, 256), page_size="any"), taken)
    assert isinstance(found, Placement)
    assert [(cell.host_cell, cell.page_size_kib) for cell in found.cells] == [(0, 2048)]


def test_guest_cells_that_take_no_half_of_a_core_share_a_host_cell_by_taking_fewer_threads_of_each() -> None:
    made = host({0: Node("1,3-7", 8192)}, dedicated="1,3-7", shared="", smt=["1,3", "4,5,6,7"], reserve_mem=0)
    request = msgspec.structs.replace(guest((3, 512), (3, 512)), thread_policy="require")
    assert where(fit(request, offered(made), FitRules(share_cells=True))) == [0, 0]


def test_a_guest_without_cells_counts_against_the_host_alone() -> None:
    made = host({0: Node("0-1", 2048), 1: Node("2-3", 2048)}, dedicated="", shared="0-3", reserve_mem=0)
    request = InstanceRequest(vcpus=4, memory_kib=3072 * KIB_PER_MIB)
    found = fit(request, offered(made))
    assert isinstance(found, Placement)
    assert (found.cells, found.shared_cpus) == ((), CpuSet(range(4)))


def test_floating_vcpus_of_all_cells_together_stay_under_the_ratio_of_the_host() -> None:
    made = host({0: Node("0-3", 8192)}, dedicated="", shared="0-3", reserve_mem=0)
    spent = msgspec.structs.replace(offered(made), floating=3)
    found = fit(guest((4, 512), policy="shared"), spent)
    assert found == NoFit(reasons=(SharedOverRatio(guest_cell=None, cell=None, asked=4, free=3, limit=16),))


def test_a_guest_of_realtime_vcpus_alone_needs_somewhere_for_its_emulator() -> None:
    request = msgspec.structs.replace(guest((2, 512)), realtime=CpuSet([0, 1]), emulator_policy="share")
    assert fit(request, offered(TWO)) == NoFit(reasons=(EmulatorHomeless(vcpus=CpuSet([0, 1])),))


def test_policy_socket_takes_host_cells_of_as_many_sockets_as_the_devices_are_on() -> None:
    nodes = {number: Node(f"{2 * number}-{2 * number + 1}", 4096) for number in range(4)}
    functions = [function(f"0000:0{number + 1}:00.0", cell=number) for number in range(4)]
    made = host(nodes, dedicated="0-7", shared="", reserve_mem=0, pci=functions, pci_filter=["*:*:*.*"])
    cpus = tuple(msgspec.structs.replace(cpu, socket=cpu.id // 4) for cpu in made.topology.cpus)
    made = made._replace(topology=msgspec.structs.replace(made.topology, cpus=cpus))
    four = PciRequest(id="nic", specs=(PciSpec(product_id="10ed"),), count=4, numa_policy="socket")
    found = fit(msgspec.structs.replace(guest((1, 256), (1, 256)), devices=(four,)), offered(made))
    assert [cell // 2 for cell in sorted(where(found))] == [0, 1]


def function(address: str, *, cell: int) -> PciDevice:
    """A plain function of a network card."""
    return PciDevice(
        address=PciAddress.parse(address), vendor_id="8086", product_id="10ed", class_code="0200", cell=cell
    )


def test_a_host_that_lists_its_small_pages_as_a_pool_answers_as_one_that_does_not() -> None:
    cells = TWO.topology.cells
    pool = PagePool(size_kib=4, total=1 << 21, free=1 << 21)
    listed = msgspec.structs.replace(
        TWO.topology, cells=tuple(msgspec.structs.replace(cell, pages=(pool,)) for cell in cells)
    )
    for page_size in (None, "small", "any", "large", 4):
        asked = guest((2, 4096), (4, 1024), page_size=page_size)
        assert fit(asked, offered(Host(listed, TWO.config))) == fit(asked, offered(TWO))
