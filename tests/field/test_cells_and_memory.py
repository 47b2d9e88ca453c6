"""Field cases of the kinds numa-shape, page-pools, memory and negative-free."""

from __future__ import annotations

import itertools

from agent.core.reasons import MemoryShort
from agent.core.topology import HostTopology
from agent.formats.wire import to_builtins
from tests.builders import Host, Node, guest, h2x4, host
from tests.field.claims import only_cell, placed, reasons
from tests.field.conftest import ClaimsOn
from tests.fit.arrival import domain_of
from tests.fit.requests import asks

MIB = 1024
GIB_PAGE = 1048576


def test_numa_node_without_memory(claims_on: ClaimsOn) -> None:
    """RHBZ#1247058. A guest goes to the cell with memory, also where the other has more CPUs free, or not at all."""
    lame = host({0: Node("0-3", 16384), 1: Node("4-7", 0)}, dedicated="0-7", shared="")
    usage = lame.usage()
    assert (len(usage.cells[1].dedicated.total), usage.cells[1].memory_kib.total) == (4, 0)
    assert usage.cells[1].memory_kib.free == 0
    assert usage.cells[0].memory_kib.free == 16384 * MIB
    full = reasons(claims_on(lame, guest("a", {0: 0, 1: 1, 2: 2})).claim("x", asks(2, 1024)))
    assert MemoryShort(guest_cell=0, cell=1, asked_kib=1024 * MIB, free_kib=0) in full
    assert only_cell(claims_on(lame, guest("a", {0: 0, 1: 1})).claim("y", asks(2, 1024))).host_cell == 0


def test_numa_sparse_node_ids(claims_on: ClaimsOn) -> None:
    """LP#1602023."""
    nodes = {number: Node(f"{4 * at}-{4 * at + 3}", 8192) for at, number in enumerate((0, 1, 16, 17))}
    power = host(nodes, dedicated="0-15", shared="")
    a = guest("a", {0: 0, 1: 1, 2: 2, 3: 4, 4: 5, 5: 6})
    assert {cell.id: len(cell.dedicated.free) for cell in power.usage(a).cells} == {0: 1, 1: 1, 16: 4, 17: 4}
    x = placed(claims_on(power, a).claim("x", asks(8, 4096, nodes=2)))
    assert [cell.guest_cell for cell in x.cells] == [0, 1]
    assert {cell.host_cell: str(cell.cpus) for cell in x.cells} == {16: "8-11", 17: "12-15"}
    cells = domain_of("x", x, asks(8, 4096, nodes=2)).cells
    assert [(cell.id, str(cell.nodeset)) for cell in cells] == [(n, str(x.cells[n].host_cell)) for n in (0, 1)]


def test_numa_none_at_all(claims_on: ClaimsOn) -> None:
    """kubernetes/kubernetes#89859. Without NUMA the topology is one cell 0; its rows read like any other's."""
    with_cells = host({0: Node("0-7", 16384)}, dedicated="2-7", shared="0-1")
    flat = Host(_without_numa(with_cells.topology), with_cells.config)
    usage = flat.usage()
    assert [(cell.id, cell.memory_kib.total) for cell in usage.cells] == [(0, 16384 * MIB)]
    assert len(usage.cells[0].dedicated.total) + len(usage.cells[0].shared_cpus) == 8
    assert to_builtins(usage) == to_builtins(with_cells.usage())
    assert str(only_cell(claims_on(flat).claim("x", asks(2, 1024))).cpus) == "2-3"


def test_memory_pages_aware_overcommit(claims_on: ClaimsOn) -> None:
    """LP#1811886."""
    pages = host({0: Node("0-1", 2048, {GIB_PAGE: 1})}, dedicated="0-1", shared="", reserve_mem=0, ratio_mem=1.0)
    empty = pages.usage()
    assert empty.cells[0].memory_kib.total == empty.cells[0].memory_kib.free == 1024 * MIB
    assert [(row.size_kib, row.free) for row in empty.cells[0].pages] == [(GIB_PAGE, 1)]
    claims = claims_on(pages)
    assert only_cell(claims.claim("x", asks(1, 1024))).page_size_kib == 4
    assert claims.usage.cells[0].memory_kib.free == 0
    assert [row.free for row in claims.usage.cells[0].pages] == [1]
    refused = reasons(claims.claim("y", asks(1, 1024)))
    assert MemoryShort(guest_cell=0, cell=0, asked_kib=1024 * MIB, free_kib=0) in refused
    assert only_cell(claims.claim("z", asks(1, 1024, page=GIB_PAGE))).page_size_kib == GIB_PAGE
    assert [row.free for row in claims.usage.cells[0].pages] == [0]


def test_memory_guest_without_numa_keeps_sums() -> None:
    """LP#1590607."""
    guests = (
        guest("a", {0: 0, 1: 1}, mem=2048, node=0),
        guest("b", {0: 4}, mem=1024, node=1),
        guest("z", mem=512),
    )
    for order in itertools.permutations(guests):
        usage = h2x4().usage(*order)
        assert [str(cell.dedicated.used) for cell in usage.cells] == ["0-1", "4"]
        assert [cell.memory_kib.used // MIB for cell in usage.cells] == [2048, 1024]
        assert usage.host.memory_kib.used // MIB == 2048 + 1024 + 512


def test_negative_free_is_reported(claims_on: ClaimsOn) -> None:
    """LP#1698383."""
    full = host({0: Node("0-7", 8192)}, dedicated="", shared="0-7", reserve_mem=512, ratio_mem=1.5)
    claims = claims_on(full, guest("a", mem=6144), guest("b", mem=6144))
    row = claims.usage.host.memory_kib
    assert (row.promised, to_builtins(claims.usage)["host"]["memory_kib"]["free"]) == (0, -768 * MIB)
    assert (row.limit // MIB, row.used // MIB, row.free // MIB) == (11520, 12288, -768)
    (refused,) = reasons(claims.claim("x", asks(1, 64, nodes=0)))
    assert refused == MemoryShort(guest_cell=None, cell=None, asked_kib=64 * MIB, free_kib=-768 * MIB)


def _without_numa(topology: HostTopology) -> HostTopology:
    return HostTopology(cells=topology.cells, cpus=topology.cpus, memory_kib=topology.memory_kib, has_cells=False)
