"""Which guest cells fall back to small pages (page size `any`) where the host as a whole is short of them.

Small-page memory is a cost, and what is free on the host the most that may be spent; the least that is needed is a
cheapest matching. Where devices count too, the search for host cells is repeated with some guest cells kept to huge
pages: with each smallest set of them that leaves no more to the others than is free. A set is looked at only while
there is a matching for it, so that without devices the first one found will do. What all this may cost is bounded by
FitRules.most_steps, as the search for devices is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from agent.core.cpuset import CpuSet
from agent.core.fit.devices.flow import cheapest
from agent.core.fit.devices.needs import Need
from agent.core.fit.host import Offer
from agent.core.fit.matching import Shortage
from agent.core.fit.pages import host_free_kib, host_memory_short, page_size
from agent.core.fit.search import Choice, Far, Stopped, choose
from agent.core.fit.table import Table, table_of
from agent.core.instance import InstanceRequest
from agent.core.reasons import MemoryShort

STEPS_OF_A_LOOK = 50
"""What a cheapest matching, or a choice of host cells, counts beside a step of the search for devices."""

_NO_MATCHING_KIB = 1 << 60


def choose_with_memory(
    request: InstanceRequest, table: Table, needs: Sequence[Need], offer: Offer, most_steps: int
) -> Choice | Shortage | Stopped | Far | MemoryShort:
    """`choose`, such that the small pages to which guest cells fall back are free on the host as a whole, too.

    A MemoryShort says how much small-page memory is needed at least: anywhere where that is too much, else on the host
    cells that would have been chosen.
    """
    found = choose(table, needs, offer, most_steps)
    free_kib = max(host_free_kib(request, offer), 0)
    if not isinstance(found, Choice) or _small_kib(found, request, table) <= free_kib:
        return found
    fallback = _Fallback(request, table, most_steps)
    least_kib = fallback.least_kib((1 << len(table.hosts)) - 1)
    if least_kib > free_kib:
        return host_memory_short(least_kib, request, offer)
    for rows in fallback.ways(free_kib):
        other = choose(table._replace(rows=rows), needs, offer, most_steps - fallback.steps)
        if isinstance(other, Choice):
            return other
        fallback.steps += STEPS_OF_A_LOOK + (0 if isinstance(other, Shortage) else other.steps)
    if fallback.steps > most_steps:
        return Stopped(fallback.steps)
    return host_memory_short(fallback.least_kib(sum(1 << column for column in found.columns)), request, offer)


def _small_kib(found: Choice, request: InstanceRequest, table: Table) -> int:
    """What falls back to small pages; other guests that take such pages are held against the host beforehand."""
    if request.page_size != "any":
        return 0
    rooms = [table.hosts[column] for column in found.columns]
    return sum(
        cell.memory_kib
        for cell, room in zip(request.cells, rooms, strict=True)
        if page_size(cell, request, room) == room.facts.small_kib
    )


class _Fallback:
    """Guest cells kept to huge pages are bits of a mask. Guest cells that will do on the same host cells and have the
    same of huge pages there are alike: of those only the largest are kept, since they could change places."""

    def __init__(self, request: InstanceRequest, table: Table, most_steps: int) -> None:
        large = msgspec.structs.replace(request, page_size="large")
        self._any, self._huge = table.rows, table_of(large, table.hosts).rows
        self._columns = (1 << len(table.hosts)) - 1
        self._kib = [
            cell.memory_kib if mask != huge else 0
            for cell, mask, huge in zip(request.cells, self._any, self._huge, strict=True)
        ]
        # the largest first: with these on huge pages the most others are free to go where devices are
        self._order = sorted(range(len(self._any)), key=lambda row: -self._kib[row])
        self._most_steps = most_steps
        self.steps = 0

    def least_kib(self, columns: int, at: int = 0, kept: int = 0) -> int:
        """The least small-page memory of any matching within these host cells, that of guest cells which are decided
        aside: the first `at` in their order."""
        costs: list[dict[int, int]] = [{} for _ in self._any]
        for place, row in enumerate(self._order):
            huge, kib = self._huge[row], self._kib[row] if place >= at else 0
            mask = (huge if kept >> row & 1 else self._any[row]) & columns
            costs[row] = {n: 0 if huge >> n & 1 else kib for n in CpuSet.from_mask(mask)}
        found = cheapest([1] * len(costs), [1] * self._columns.bit_length(), costs)
        return _NO_MATCHING_KIB if found is None else found[0]

    def ways(self, free_kib: int) -> Iterator[tuple[int, ...]]:
        """Rows of a table, each time with other guest cells kept to huge pages, as few of them as that memory allows;
        ends early when the steps are spent."""
        return self._ways(0, 0, free_kib)

    def _ways(self, at: int, kept: int, left_kib: int) -> Iterator[tuple[int, ...]]:
        """at: so many guest cells are decided, in their order; left_kib: for those that come."""
        rest_kib = sum(self._kib[row] for row in self._order[at:])
        is_more_than_needed = any(self._kib[row] <= left_kib - rest_kib for row in CpuSet.from_mask(kept))
        if is_more_than_needed or self.steps > self._most_steps:
            return
        self.steps += STEPS_OF_A_LOOK
        if self.least_kib(self._columns, at, kept) > left_kib:
            return
        if at == len(self._order):
            yield tuple(self._huge[row] if kept >> row & 1 else mask for row, mask in enumerate(self._any))
            return
        row = self._order[at]
        if self._kib[row] and self._are_larger_kept(at, kept):
            yield from self._ways(at + 1, kept | 1 << row, left_kib)
        if self._kib[row] <= left_kib:
            yield from self._ways(at + 1, kept, left_kib - self._kib[row])

    def _are_larger_kept(self, at: int, kept: int) -> bool:
        kind = self._kind(self._order[at])
        return all(kept >> row & 1 for row in self._order[:at] if self._kind(row) == kind)

    def _kind(self, row: int) -> tuple[int, int]:
        return self._any[row], self._huge[row]
