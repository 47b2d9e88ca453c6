"""Memory, huge pages and floating vCPUs of cells and host, and where more is used than there is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from agent.core import advice
from agent.core.conflicts import Conflict, Resource, Severity, conflict
from agent.core.cpuset import CpuSet
from agent.core.guest import Sighting
from agent.core.guest_memory import Binding, binding
from agent.core.holds import GuestHolds
from agent.core.host_config import HostConfig
from agent.core.topology import HostCell, HostTopology, PagePool
from agent.core.usage.rows import Amount, CellUsage, HostUsage, PageAmount
from agent.core.words import agrees, count, plural

KIB_PER_MIB = 1024

PINNING_DEVICES = frozenset({"pci", "vdpa"})
"""Kinds of host devices that read and write guest memory by its physical address, so that the kernel cannot move it."""

BOUND = float(2**62)
"""No limit is beyond it, whatever the ratio: the number still fits into what JSON readers can hold."""


class MemoryBooks(NamedTuple):
    """Sums over all guests: small-page memory, floating vCPUs by cell and beside the cells, pages by cell and size."""

    cell_memory_kib: Mapping[int, int]
    host_memory_kib: int
    cell_shared: Mapping[int, int]
    host_shared: int
    pages: Mapping[tuple[int | None, int], int]


def memory_books(guests: Iterable[GuestHolds]) -> MemoryBooks:
    """Add up what guests hold in amounts."""
    cell_memory: dict[int, int] = {}
    cell_shared: dict[int, int] = {}
    pages: dict[tuple[int | None, int], int] = {}
    host_memory = host_shared = 0
    for guest in guests:
        holds = guest.holds
        host_memory += holds.host_memory_kib
        host_shared += holds.host_shared
        for cell, kib in holds.cell_memory_kib.items():
            cell_memory[cell] = cell_memory.get(cell, 0) + kib
        for cell, vcpus in holds.cell_shared.items():
            cell_shared[cell] = cell_shared.get(cell, 0) + vcpus
        for hold in holds.pages:
            key = (hold.cell, hold.size_kib)
            pages[key] = pages.get(key, 0) + hold.count
    return MemoryBooks(cell_memory, host_memory, cell_shared, host_shared, pages)


def amount(total: int, ratio: float, used: int, reserved: int = 0) -> Amount:
    """A row whose limit is what total, reserve and ratio allow."""
    scaled = (total - reserved) * ratio
    limit = total - reserved if math.isnan(scaled) else int(min(max(scaled, -BOUND), BOUND))
    return Amount(total=total, reserved=reserved, limit=limit, used=used, free=limit - used)


def cell_memory(cell: HostCell, books: MemoryBooks, config: HostConfig, *, small_kib: int) -> Amount:
    """Small-page memory of a cell: all its memory but what lies in pools of huge pages, less what is reserved there."""
    total = cell.memory_kib - sum(pool.total * pool.size_kib for pool in cell.pages)
    reserved = _reserved_small(config, small_kib).get(cell.id, 0)
    return amount(total, config.ram_allocation_ratio, books.cell_memory_kib.get(cell.id, 0), reserved)


def host_memory(topology: HostTopology, books: MemoryBooks, config: HostConfig) -> Amount:
    """Small-page memory of the host: guests of all cells and of none against all memory but the reserve.

    What is reserved in cells is part of the host's reserve, unless it is more.
    """
    everything = topology.memory_kib or sum(cell.memory_kib for cell in topology.cells)
    total = everything - sum(pool.total * pool.size_kib for pool in _host_pools(topology))
    used = sum(books.cell_memory_kib.values()) + books.host_memory_kib
    in_cells = _reserved_small(config, topology.page_size_kib)
    reserved = sum(in_cells.get(cell.id, 0) for cell in topology.cells)
    return amount(total, config.ram_allocation_ratio, used, max(config.reserved_memory_mb * KIB_PER_MIB, reserved))


def _reserved_small(config: HostConfig, small_kib: int) -> dict[int, int]:
    """Small-page memory in KiB by cell that is reserved there: nova's reserved_huge_pages takes that size too."""
    return {row.cell: row.count * small_kib for row in config.reserved_pages if row.size_kib == small_kib}


def cell_pages(cell: HostCell, books: MemoryBooks, config: HostConfig) -> tuple[PageAmount, ...]:
    """One row for each size that the cell has or that a guest holds there."""
    used = {size: count for (owner, size), count in books.pages.items() if owner == cell.id}
    reserved = {row.size_kib: row.count for row in config.reserved_pages if row.cell == cell.id}
    return _page_rows(cell.pages, used, reserved)


def host_pages(topology: HostTopology, books: MemoryBooks, config: HostConfig) -> tuple[PageAmount, ...]:
    """One row for each size: sums over the cells and guests that no cell can be named for."""
    used: dict[int, int] = {}
    for (_, size), number in books.pages.items():
        used[size] = used.get(size, 0) + number
    ids = {cell.id for cell in topology.cells}
    reserved: dict[int, int] = {}
    for row in {(row.cell, row.size_kib): row for row in config.reserved_pages if row.cell in ids}.values():
        reserved[row.size_kib] = reserved.get(row.size_kib, 0) + row.count
    return _page_rows(_host_pools(topology), used, reserved)


def memory_conflicts(guests: Sequence[GuestHolds], cells: Sequence[CellUsage], host: HostUsage) -> Iterator[Conflict]:
    """Every place where guests use more memory or pages than there are, and every guest with memory where it should
    not be."""
    for guest in guests:
        yield from _memory_elsewhere(guest)
    for cell in cells:
        if cell.memory_kib.used > max(cell.memory_kib.total, 0):
            yield _cell_over_commit(cell, [one for one in guests if one.holds.cell_memory_kib.get(cell.id)])
        for row in cell.pages:
            yield from _pages_over_commit(cell.id, row, [one for one in guests if _holds_pages(one, cell.id, row)])
    yield from _host_over_commit(guests, host.memory_kib)
    short = {row.size_kib for cell in cells for row in cell.pages if row.used + row.reserved > row.total}
    for row in host.pages:
        if row.size_kib not in short:
            yield from _pages_over_commit(None, row, [one for one in guests if _holds_pages(one, None, row)])


def _host_pools(topology: HostTopology) -> tuple[PagePool, ...]:
    by_cell = tuple(pool for cell in topology.cells for pool in cell.pages)
    sizes = {pool.size_kib for pool in by_cell}
    return by_cell + tuple(pool for pool in topology.pages if pool.size_kib not in sizes)


def _page_rows(
    pools: Iterable[PagePool], used: Mapping[int, int], reserved: Mapping[int, int]
) -> tuple[PageAmount, ...]:
    by_size: dict[int, list[PagePool]] = {size: [] for size in used}
    for pool in pools:
        by_size.setdefault(pool.size_kib, []).append(pool)
    return tuple(_page_row(size, by_size[size], used.get(size, 0), reserved.get(size, 0)) for size in sorted(by_size))


def _page_row(size_kib: int, pools: Sequence[PagePool], used: int, reserved: int) -> PageAmount:
    total = sum(pool.total for pool in pools)
    kernel_free = sum(pool.free for pool in pools)
    # Pages that a process has mapped and not touched yet still count as free in the kernel's number.
    kernel_used = total - kernel_free + sum(pool.reserved or 0 for pool in pools)
    # The reserve is meant for those other users, so they eat from it first.
    apart = max(reserved, kernel_used - used) if pools else reserved
    return PageAmount(
        size_kib=size_kib,
        total=total,
        reserved=reserved,
        used=used,
        free=total - used - apart,
        kernel_free=kernel_free if pools else None,
    )


def _holds_pages(guest: GuestHolds, cell: int | None, row: PageAmount) -> bool:
    return any(hold.size_kib == row.size_kib and cell in {None, hold.cell} for hold in guest.holds.pages)


def _memory_elsewhere(guest: GuestHolds) -> Iterator[Conflict]:
    seen = guest.sighting
    bound = binding(seen.domain) if seen.domain is not None and seen.is_active else None
    away = seen.memory_elsewhere - bound.cells if bound is not None else CpuSet()
    if bound is None or not away:
        return
    yield conflict(
        "memory-elsewhere",
        Resource(kind="guest", id=seen.uuid, cell=away.lowest if len(away) == 1 else None),
        (guest.owner,),
        cause=f"The memory of {seen.label} is bound to {plural(bound.cells, 'cell')}, but much of it lies "
        f"in {plural(away, 'cell')}",
        severity="warning",
        action=f"{_way_home(seen, bound, away)}; left alone nothing breaks, but the guest waits longer for this "
        f"memory, and {plural(away, 'cell')} {agrees(away, 'has', 'have')} less room than the books say",
    )


def _way_home(seen: Sighting, bound: Binding, away: CpuSet) -> str:
    room = f"as soon as {plural(bound.cells, 'cell')} {agrees(bound.cells, 'has', 'have')} room"
    if seen.domain is not None and any(device.kind in PINNING_DEVICES for device in seen.domain.devices):
        return f"Stop and start {seen.label} {room}; while it runs its host devices keep its memory where it is"
    if seen.run.pid is None or not bound.is_one:
        return f"Stop and start {seen.label} {room}"
    command = f"migratepages {seen.run.pid} {away} {bound.cells}"
    return f"Move it with `{command}` (package numactl), or stop and start the guest, {room}"


def _cell_over_commit(cell: CellUsage, guests: Sequence[GuestHolds]) -> Conflict:
    over = cell.memory_kib.used - max(cell.memory_kib.total, 0)
    return conflict(
        "memory-over-commit",
        Resource(kind="memory", id=str(cell.id), cell=cell.id),
        (guest.owner for guest in guests),
        cause=f"{advice.names(guests)} {agrees(guests, 'binds', 'bind')} {_mib(cell.memory_kib.used)} MiB to "
        f"cell {cell.id}, which has {_mib(cell.memory_kib.total)} MiB besides huge pages, {_mib(over)} MiB too few",
        severity="error",
        action=f"Move {agrees(guests, 'it', 'one of these guests')} away or bind its memory to another cell at "
        f"its next start; left alone the kernel may kill a guest when cell {cell.id} runs out",
    )


def _host_over_commit(guests: Sequence[GuestHolds], row: Amount) -> Iterator[Conflict]:
    real = row.total - row.reserved
    if row.used <= max(real, 0):
        return
    severity: Severity = "warning" if row.used > row.limit else "info"
    allowed = f"ratio and reserve allow {_mib(row.limit)} MiB"
    yield conflict(
        "memory-over-commit",
        Resource(kind="memory", id="host"),
        (one.owner for one in guests if one.holds.cell_memory_kib or one.holds.host_memory_kib),
        cause=f"Guests were given {_mib(row.used)} MiB of small-page memory; the host has {_mib(row.total)} MiB and "
        f"keeps {_mib(row.reserved)} MiB of it; {allowed}",
        severity=severity,
        action="Move guests away or see to it that swap can take the difference; left alone the kernel swaps, and "
        "kills a guest when swap is full"
        if severity == "warning"
        else "Nothing need be done: ram_allocation_ratio allows it, as long as swap can take the difference",
    )


def _pages_over_commit(cell: int | None, row: PageAmount, guests: Sequence[GuestHolds]) -> Iterator[Conflict]:
    if row.used <= 0 or row.used + row.reserved <= row.total:
        return
    place = "the host" if cell is None else f"cell {cell}"
    reserve = f", {row.reserved} of them reserved for others" if row.reserved else ""
    yield conflict(
        "pages-over-commit",
        Resource(kind="pages", id=str(row.size_kib), cell=cell),
        (guest.owner for guest in guests),
        cause=f"{advice.names(guests)} {agrees(guests, 'uses', 'use')} {count(row.used, 'page')} of "
        f"{row.size_kib} KiB; {place} has {row.total}{reserve}",
        severity="error" if row.used > row.total else "warning",
        action=f"Raise the pool (nr_hugepages of {place}) or move a guest away; left alone a guest dies with a bus "
        "error when it touches a page that is not there"
        if row.used > row.total
        else "Move a guest away or lower reserved_huge_pages; left alone those that the reserve is for may not start",
    )


def _mib(kib: int) -> int:
    return round(kib / KIB_PER_MIB)
