"""From which pages of a host cell the memory of a guest cell comes (nova-rules B5)."""

from __future__ import annotations

from collections.abc import Iterator

from agent.core.fit.host import CellOffer, FreePages, Offer
from agent.core.instance import CellRequest, InstanceRequest
from agent.core.reasons import CellWithheld, MemoryShort, NoSuchPages, PagesShort, PagesUneven, Reason


def takes_small(request: InstanceRequest, small_kib: int | None) -> bool:
    """It asks for small pages or says nothing of pages, and gets no others."""
    return request.page_size in (None, "small", small_kib)


def host_takes_small(request: InstanceRequest, offer: Offer) -> bool:
    """`takes_small`, by the small page that all cells of the host have."""
    sizes = {room.facts.small_kib for room in offer.cells}
    return takes_small(request, sizes.pop() if sizes else None)


def huge_pools(request: InstanceRequest, room: CellOffer) -> tuple[FreePages, ...]:
    """The pools of huge pages that the request can be met from, biggest first."""
    wish = request.page_size
    if takes_small(request, room.facts.small_kib):
        return ()
    return tuple(
        pages for pages in reversed(room.pages) if pages.total and (not isinstance(wish, int) or wish == pages.size_kib)
    )


def free_kib(request: InstanceRequest, really_kib: int, by_ratio_kib: int, total_kib: int | None) -> int:
    """Small-page memory that there is for such a guest, of what is really free and what is free by the ratio.

    Floating guests may over-commit by the ratio, but each must fit into total_kib as a whole (None: no such limit).
    """
    if request.cpu_policy == "dedicated":
        return really_kib
    if request.cpu_policy == "mixed" or request.page_size is not None:
        return min(really_kib, by_ratio_kib)
    return by_ratio_kib if total_kib is None else min(total_kib, by_ratio_kib)


def cell_free_kib(request: InstanceRequest, room: CellOffer) -> int:
    """`free_kib` of a host cell, for one cell of the guest."""
    return free_kib(request, room.free_kib, room.free_by_ratio_kib, room.total_kib)


def host_free_kib(request: InstanceRequest, offer: Offer) -> int:
    """`free_kib` of all cells together: guests without cells have some of it, and of no cell's in the books."""
    return free_kib(request, offer.free_kib, offer.free_by_ratio_kib, None)


def host_memory_short(asked_kib: int, request: InstanceRequest, offer: Offer) -> MemoryShort:
    """The reason why the host as a whole has not so much small-page memory."""
    return MemoryShort(guest_cell=None, cell=None, asked_kib=asked_kib, free_kib=host_free_kib(request, offer))


def page_size(cell: CellRequest, request: InstanceRequest, room: CellOffer) -> int | None:
    """The size in KiB of the pages that the memory is taken from; None: there is not enough, `memory_reasons` says of
    what."""
    if not room.facts.allowed:
        return None
    sizes = (pool.size_kib for pool in huge_pools(request, room) if next(_huge_reasons(cell, pool, room), None) is None)
    best = next(sizes, None)
    if best is None and may_take_small(request, room) and next(_small_reasons(cell, request, room), None) is None:
        return room.facts.small_kib
    return best


def may_take_small(request: InstanceRequest, room: CellOffer) -> bool:
    """Small pages will do, if only where there are no huge ones."""
    return request.page_size == "any" or takes_small(request, room.facts.small_kib)


def memory_reasons(cell: CellRequest, request: InstanceRequest, room: CellOffer) -> Iterator[Reason]:
    """Why no page size will do, one reason for each that was asked for; none when one will."""
    if not room.facts.allowed:
        yield CellWithheld(guest_cell=cell.id, cell=room.facts.id)
        return
    if page_size(cell, request, room) is not None:
        return
    huge = huge_pools(request, room)
    for pages in huge:
        yield from _huge_reasons(cell, pages, room)
    if may_take_small(request, room):
        yield from _small_reasons(cell, request, room)
    elif not huge and request.page_size is not None:
        sizes = (room.facts.small_kib, *(pages.size_kib for pages in room.pages if pages.total > 0))
        yield NoSuchPages(guest_cell=cell.id, cell=room.facts.id, asked=request.page_size, sizes_kib=sizes)


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
    asked, where = cell.memory_kib, room.facts.id
    if asked % room.facts.small_kib:
        yield PagesUneven(guest_cell=cell.id, cell=where, size_kib=room.facts.small_kib, memory_kib=asked)
    free = cell_free_kib(request, room)
    if asked > free:
        yield MemoryShort(guest_cell=cell.id, cell=where, asked_kib=asked, free_kib=free)
