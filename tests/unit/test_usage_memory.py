"""Memory, pages and where more is used than there is."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from agent.core.conflicts import Conflict
from agent.core.cpuset import CpuSet
from agent.core.guest import GuestCell, Sighting
from agent.core.host_config import ReservedPages
from agent.core.misfits import misfits
from agent.core.topology import PagePool
from agent.core.usage import Amount, PageAmount
from tests.builders import Host, Node, configured, guest, h2x4, h8, host

MIB = 1024
GIB = 1048576


def _two_cells(**pools: PagePool) -> Host:
    """Two cells of 8 GiB, each with the pools of its own: cell0, cell1."""
    on = h2x4()
    cells = tuple(
        msgspec.structs.replace(cell, pages=(pools[f"cell{cell.id}"],)) if f"cell{cell.id}" in pools else cell
        for cell in on.topology.cells
    )
    return Host(msgspec.structs.replace(on.topology, cells=cells), on.config)


def _pool(total: int, free: int, reserved: int | None = None) -> PagePool:
    return PagePool(size_kib=2048, total=total, free=free, reserved=reserved)


def _over_cells(name: str, memory: Mapping[int, int], page: int | None = None) -> Sighting:
    """A guest with one cell for each host cell given, of so many MiB."""
    seen = guest(name, mem=sum(memory.values()))
    cells = tuple(
        GuestCell(id=at, vcpus=CpuSet([at]), memory_kib=mem * MIB, nodeset=CpuSet([cell]), page_size_kib=page)
        for at, (cell, mem) in enumerate(memory.items())
    )
    assert seen.domain is not None
    return msgspec.structs.replace(seen, domain=msgspec.structs.replace(seen.domain, cells=cells))


_TWO_OF_EACH = (("a", 4500, None), ("b", 4500, None), ("p", 1024, GIB), ("q", 1024, GIB))


def _both(*names: str) -> str:
    """As a sentence names them."""
    return " and ".join(sorted(names))


def _kinds(conflicts: tuple[Conflict, ...]) -> list[tuple[str, str]]:
    return [(row.id, row.severity) for row in conflicts]


def test_cells_and_host_count_each_guest_once_and_the_reserve_is_the_hosts() -> None:
    usage = h2x4().usage(_over_cells("a", {0: 1024, 1: 512}), guest("b", mem=256))
    assert [cell.memory_kib for cell in usage.cells] == [
        Amount(total=8192 * MIB, limit=8192 * MIB, used=1024 * MIB, free=7168 * MIB),
        Amount(total=8192 * MIB, limit=8192 * MIB, used=512 * MIB, free=7680 * MIB),
    ]
    assert usage.host.memory_kib == Amount(
        total=16384 * MIB, reserved=512 * MIB, limit=15872 * MIB, used=1792 * MIB, free=14080 * MIB
    )


def test_small_pages_that_are_reserved_in_a_cell_are_not_free_there_and_part_of_the_hosts_reserve() -> None:
    on = h2x4()
    reserved = (ReservedPages(cell=0, size_kib=4, count=256 * 1024),)
    config = msgspec.structs.replace(on.config, reserved_pages=reserved)
    usage = Host(on.topology, config).usage(guest("a", mem=1024, node=0))
    assert usage.cells[0].memory_kib == Amount(
        total=8192 * MIB, reserved=1024 * MIB, limit=7168 * MIB, used=1024 * MIB, free=6144 * MIB
    )
    assert usage.host.memory_kib.reserved == 1024 * MIB
    assert misfits(on.topology, config) == ()


def test_a_cell_that_is_overbooked_by_bound_guests_is_an_error_and_free_is_negative() -> None:
    made = h2x4().folded(guest("a", mem=6000, node=1), guest("b", mem=3000, node=1), guest("c", mem=100, node=0))
    (row,) = made.conflicts
    assert (row.id, row.severity) == ("memory-over-commit:memory:1", "error")
    assert (row.resource.kind, row.resource.id, row.resource.cell) == ("memory", "1", 1)
    assert {owner.name for owner in row.owners} == {"a", "b"}
    assert "bind 9000 MiB to cell 1, which has 8192 MiB besides huge pages, 808 MiB too few" in row.cause
    assert made.usage.cells[1].memory_kib.free == -808 * MIB


def test_a_ratio_does_not_hide_that_bound_memory_is_not_there() -> None:
    roomy = configured(h2x4(), ram_allocation_ratio=2.0)
    made = roomy.folded(guest("a", mem=9000, node=0))
    assert made.usage.cells[0].memory_kib.free > 0
    assert _kinds(made.conflicts) == [("memory-over-commit:memory:0", "error")]


def test_an_overbooked_host_is_info_while_the_ratio_allows_it_and_a_warning_beyond() -> None:
    one = host({0: Node("0-7", 8192)}, reserve_mem=512, ratio_mem=1.5)
    assert _kinds(one.conflicts(guest("a", mem=7680))) == []
    assert _kinds(one.conflicts(guest("a", mem=8000))) == [("memory-over-commit:memory:host", "info")]
    assert _kinds(one.conflicts(guest("a", mem=11521))) == [("memory-over-commit:memory:host", "warning")]


def test_memory_in_huge_page_pools_is_no_ordinary_memory_of_cell_or_host() -> None:
    usage = _two_cells(cell0=_pool(1024, 1024)).usage()
    assert [cell.memory_kib.total // MIB for cell in usage.cells] == [6144, 8192]
    assert usage.host.memory_kib.total // MIB == 16384 - 2048


def test_pages_are_rows_by_size_for_cell_and_host() -> None:
    on = _two_cells(cell0=_pool(512, 512), cell1=_pool(256, 256))
    usage = on.usage(_over_cells("a", {0: 100, 1: 20}, page=2048))
    assert [cell.pages for cell in usage.cells] == [
        (PageAmount(size_kib=2048, total=512, used=50, free=462, kernel_free=512),),
        (PageAmount(size_kib=2048, total=256, used=10, free=246, kernel_free=256),),
    ]
    assert usage.host.pages == (PageAmount(size_kib=2048, total=768, used=60, free=708, kernel_free=768),)


def test_pages_that_others_took_are_not_free() -> None:
    on = _two_cells(cell0=_pool(100, 30), cell1=_pool(100, 100, reserved=25))
    usage = on.usage(guest("a", mem=40, page=2048, node=0))
    assert [row.free for cell in usage.cells for row in cell.pages] == [30, 75]
    assert [row.free for row in usage.host.pages] == [105]


def test_pages_that_a_guest_has_not_touched_yet_are_held_all_the_same() -> None:
    on = _two_cells(cell0=_pool(100, 100))
    usage = on.usage(guest("a", mem=40, page=2048, node=0))
    assert [(row.used, row.free, row.kernel_free) for row in usage.cells[0].pages] == [(20, 80, 100)]


def test_reserved_pages_are_what_others_eat_from_first() -> None:
    reserve = (ReservedPages(cell=0, size_kib=2048, count=30), ReservedPages(cell=9, size_kib=2048, count=5))
    for taken, free in ((0, 50), (20, 50), (40, 40)):
        on = configured(_two_cells(cell0=_pool(100, 80 - taken)), reserved_pages=reserve)
        usage = on.usage(guest("a", mem=40, page=2048, node=0))
        assert [(row.reserved, row.free) for row in usage.cells[0].pages] == [(30, free)]
        assert [(row.reserved, row.free) for row in usage.host.pages] == [(30, free)]


def test_more_pages_than_the_cell_has_are_an_error_and_those_of_the_reserve_a_warning() -> None:
    reserve = (ReservedPages(cell=0, size_kib=2048, count=30),)
    on = configured(_two_cells(cell0=_pool(100, 0)), reserved_pages=reserve)
    (eaten,) = on.conflicts(guest("a", mem=200, page=2048, node=0))
    assert (eaten.id, eaten.severity) == ("pages-over-commit:pages:2048:0", "warning")
    assert eaten.action.startswith("Move a guest away or lower reserved_huge_pages")
    (row,) = on.conflicts(guest("a", mem=202, page=2048, node=0))
    assert (row.id, row.severity, row.resource.cell) == ("pages-over-commit:pages:2048:0", "error", 0)
    assert row.cause == "a uses 101 pages of 2048 KiB; cell 0 has 100, 30 of them reserved for others"


def test_a_page_size_that_the_cell_does_not_have_is_a_row_with_nothing_in_it() -> None:
    made = h2x4().folded(guest("a", mem=1024, page=GIB, node=1))
    assert made.usage.cells[1].pages == (PageAmount(size_kib=GIB, total=0, used=1, free=-1),)
    assert _kinds(made.conflicts) == [(f"pages-over-commit:pages:{GIB}:1", "error")]


def test_one_guest_uses_and_two_guests_use() -> None:
    on = h2x4()
    one = {row.resource.kind: row for row in on.conflicts(guest("a", mem=9000, node=0), guest("p", page=GIB))}
    assert one["memory"].cause.startswith("a binds 9000 MiB to cell 0, which has 8192 MiB")
    assert one["memory"].action.startswith("Move it away or bind its memory to another cell")
    assert one["pages"].cause == "p uses 1 page of 1048576 KiB; the host has 0"
    guests = [guest(name, mem=mem, node=0, page=page) for name, mem, page in _TWO_OF_EACH]
    two = {row.resource.kind: row for row in on.conflicts(*guests)}
    assert {row.cause for row in two.values()} == {
        f"{_both('a', 'b')} bind 9000 MiB to cell 0, which has 8192 MiB besides huge pages, 808 MiB too few",
        f"{_both('p', 'q')} use 2 pages of 1048576 KiB; cell 0 has 0",
    }
    assert two["memory"].action.startswith("Move one of these guests away or bind its memory to another cell")


def test_pages_of_guests_without_a_cell_count_on_the_host_only() -> None:
    on = _two_cells(cell0=_pool(10, 4), cell1=_pool(10, 10))
    usage = on.usage(guest("a", mem=12, page=2048))
    assert [(row.used, row.free) for cell in usage.cells for row in cell.pages] == [(0, 4), (0, 10)]
    assert [(row.used, row.free) for row in usage.host.pages] == [(6, 14)]
    full = on.folded(guest("a", mem=42, page=2048))
    assert _kinds(full.conflicts) == [("pages-over-commit:pages:2048", "error")]


def test_pools_that_the_kernel_shows_for_the_whole_host_only_count_there() -> None:
    on = h8()
    whole = Host(msgspec.structs.replace(on.topology, pages=(_pool(512, 512),)), on.config)
    usage = whole.usage(guest("a", mem=1024, page=2048))
    assert usage.cells[0].pages == ()
    assert [(row.total, row.used, row.free) for row in usage.host.pages] == [(512, 512, 0)]
    assert usage.host.memory_kib.total == (16384 - 1024) * MIB


def test_a_ratio_that_is_no_number_leaves_the_limit_at_what_there_is() -> None:
    on = configured(h8(), ram_allocation_ratio=float("nan"), cpu_allocation_ratio=float("inf"))
    usage = on.usage()
    assert usage.host.memory_kib.limit == (16384 - 512) * MIB
    assert usage.host.shared.limit == 2**62


def test_names_in_a_cause_are_at_most_five() -> None:
    guests = [guest(f"g{n}", mem=2000, node=0) for n in range(9)]
    row = next(row for row in h2x4().conflicts(*guests) if row.resource.cell == 0)
    assert row.cause.startswith("g0, g1, g2, g3 and 5 more bind")


def test_a_pool_of_the_small_page_is_small_page_memory_and_no_pool() -> None:
    """A host that somebody wrote after what libvirt lists has one."""
    on = h2x4()
    small = PagePool(size_kib=4, total=2 * 1024 * MIB // 4, free=0)
    cells = tuple(msgspec.structs.replace(cell, pages=(small, _pool(4, 4))) for cell in on.topology.cells)
    plain = tuple(msgspec.structs.replace(cell, pages=(_pool(4, 4),)) for cell in on.topology.cells)
    listed = msgspec.structs.replace(on.topology, cells=cells, pages=(small,))
    usage = Host(listed, on.config).usage(guest("a", mem=256))
    assert usage == Host(msgspec.structs.replace(on.topology, cells=plain), on.config).usage(guest("a", mem=256))
