"""From which pages of a host cell the memory of a guest cell comes (nova-rules B5)."""

from __future__ import annotations

from collections.abc import Iterator

from agent.core.fit.host import CellOffer, FreePages
from agent.core.instance import CellRequest, InstanceRequest
from agent.core.reasons import CellWithheld, MemoryShort, NoSuchPages, PagesShort, PagesUneven, Reason


def page_size(cell: CellRequest, request: InstanceRequest, room: CellOffer) -> int | None:
    """The size in KiB of the pages that the memory is taken from; None: there is not enough, `memory_reasons` says of
    what."""
    small = room.facts.small_kib
    if not room.facts.allowed:
        return None
    if request.page_size in (None, "small", small):
        return small if next(_small_reasons(cell, request, room), None) is None else None
    huge = _huge(request, room)
    best = next((pages.size_kib for pages in huge if next(_huge_reasons(cell, pages, room), None) is None), None)
    if best is None and request.page_size == "any" and next(_small_reasons(cell, request, room), None) is None:
        return small
    return best


def memory_reasons(cell: CellRequest, request: InstanceRequest, room: CellOffer) -> Iterator[Reason]:
    """Why no page size will do, one reason for each that was asked for; none when one will."""
    if not room.facts.allowed:
        yield CellWithheld(guest_cell=cell.id, cell=room.facts.id)
        return
    if page_size(cell, request, room) is not None:
        return
    wish, small = request.page_size, room.facts.small_kib
    huge = () if wish in (None, "small", small) else _huge(request, room)
    for pages in huge:
        yield from _huge_reasons(cell, pages, room)
    if wish in (None, "small", "any", small):
        yield from _small_reasons(cell, request, room)
    elif not huge:
        sizes = (small, *(pages.size_kib for pages in room.pages if pages.total > 0))
        yield NoSuchPages(guest_cell=cell.id, cell=room.facts.id, asked=wish, sizes_kib=sizes)


def _huge(request: InstanceRequest, room: CellOffer) -> tuple[FreePages, ...]:
    """The pools that the request can be met from, biggest first."""
    wanted = request.page_size
    return tuple(
        pages
        for pages in reversed(room.pages)
        if pages.total and (not isinstance(wanted, int) or wanted == pages.size_kib)
    )


def _huge_reasons(cell: CellRequest, pages: FreePages, room: CellOffer) -> Iterator[Reason]:
    asked, rest = divmod(cell.memory_kib, pages.size_kib)
    where = room.facts.id
    if rest:
        yield PagesUneven(guest_cell=cell.id, cell=where, size_kib=pages.size_kib, memory_kib=cell.memory_kib)
    elif asked > pages.free:
        yield PagesShort(
            guest_cell=cell.id,
            cell=where,
            size_kib=pages.size_kib,
            asked=asked,
            free=pages.free,
            reserved=pages.reserved,
        )


def _small_reasons(cell: CellRequest, request: InstanceRequest, room: CellOffer) -> Iterator[Reason]:
    """Floating guests may over-commit by the ratio, but each must fit the cell as a whole."""
    asked, where = cell.memory_kib, room.facts.id
    if asked % room.facts.small_kib:
        yield PagesUneven(guest_cell=cell.id, cell=where, size_kib=room.facts.small_kib, memory_kib=asked)
    free = free_memory(request, room)
    if asked > free:
        yield MemoryShort(guest_cell=cell.id, cell=where, asked_kib=asked, free_kib=free)


def free_memory(request: InstanceRequest, room: CellOffer) -> int:
    """Small-page memory in KiB that the cell has for one cell of such a guest."""
    by_ratio, really = room.free_by_ratio_kib, room.free_kib
    if request.cpu_policy == "dedicated":
        return really
    if request.cpu_policy == "mixed" or request.page_size is not None:
        return min(really, by_ratio)
    return min(room.total_kib, by_ratio)
