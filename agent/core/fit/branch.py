"""Branch and bound over sets of host cells that have devices of several kinds."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agent.core.cpuset import CpuSet, union
from agent.core.fit.matching import Matching, Shortage, match, transposed

SCALE = 1 << 20
"""A demand met by one host cell alone, so that shares of different demands can be added as whole numbers."""


class Demand(NamedTuple):
    """At least `wanted` free devices of some kinds: bit n for device n. near[n] come with host cell n, `elsewhere` with
    any. Masks and no numbers, since cells of one socket may reach the same devices."""

    wanted: int
    near: tuple[int, ...]
    elsewhere: int

    def short(self, chosen: int) -> bool:
        """These host cells have too few."""
        have = self.elsewhere
        for n in CpuSet.from_mask(chosen):
            have |= self.near[n]
        return have.bit_count() < self.wanted

    def is_out_of_reach(self, guest_cells: int) -> bool:
        """Not even the host cells with the most of them would have enough."""
        if (union(self.near) | self.elsewhere).bit_count() < self.wanted:
            return True
        most = sorted(map(int.bit_count, self.near), reverse=True)[:guest_cells]
        return sum(most) + self.elsewhere.bit_count() < self.wanted

    def share(self, n: int) -> int:
        """How much of what is wanted host cell n brings, of SCALE; more than all is no better than all."""
        return min(self.near[n].bit_count(), self.wanted) * SCALE // self.wanted if self.wanted > 0 else 0


class Branch:
    """columns: for each host cell the guest cells that it will do for. demands: of each kind of devices, then of
    several kinds together; kinds_of_devices: how many the first are. are_alike: host cells with equal columns and
    numbers are interchangeable, so only the first of them need be left out. steps, stopped: after `sets` is done."""

    def __init__(
        self,
        *,
        columns: Sequence[int],
        guest_cells: int,
        demands: Sequence[Demand],
        kinds_of_devices: int,
        are_alike: bool,
        most_steps: int,
    ) -> None:
        usable = [n for n, column in enumerate(columns) if column]
        twins = [_alike_masks([demand.near[n] for n in usable]) for demand in demands]
        kinds = {n: (columns[n], tuple(masks[i] for masks in twins)) for i, n in enumerate(usable)}
        weight = {n: sum(demand.share(n) for demand in demands[:kinds_of_devices]) for n in usable}
        self._order = sorted(usable, key=lambda n: (-weight[n], kinds[n], n))
        self._kind: list[object] = [kinds[n] if are_alike else n for n in self._order]
        self._columns = [columns[n] for n in self._order]
        self._wanted = guest_cells
        self._all_guests = (1 << guest_cells) - 1
        self._rows = transposed(self._columns, guest_cells)
        self._everything = (1 << len(self._order)) - 1
        self._demands = demands
        self._missing = [demand.wanted for demand in demands]
        self._near = [[demand.near[n] for n in self._order] for demand in demands]
        self._best: list[dict[int, list[int]]] = [{} for _ in self._near]
        self._rest = [_union_of_rest(near) for near in self._near]
        self._most_steps = most_steps
        self.steps = 0
        self.stopped = False

    def sets(self) -> Iterator[int]:
        """Every matchable set with enough of each kind, as a mask of host cells; those with the most first."""
        full = match(self._rows, self._everything)
        if not isinstance(full, Shortage):
            yield from self._sets(0, 0, [demand.elsewhere for demand in self._demands], Matching(self._columns), full)

    def _sets(self, at: int, taken: int, have: list[int], matching: Matching, full: Matching) -> Iterator[int]:
        """taken: places in the order, which `matching` gives guest cells to. full: that every guest cell has one of
        these or of those from `at` on, so that what is taken can be made complete."""
        left = self._wanted - len(matching.column_of)
        if left == 0:
            if self._can_reach(at, have, 0):
                yield sum(1 << self._order[n] for n in CpuSet.from_mask(taken))
            return
        while at + left <= len(self._order) and self._can_reach(at, have, left):
            self.steps += 1
            if self.steps > self._most_steps:
                self.stopped = True
                return
            grown = matching.copy()
            if grown.add_row(at, self._all_guests) is None:
                more = [mask | near[at] for mask, near in zip(have, self._near, strict=True)]
                yield from self._sets(at + 1, taken | 1 << at, more, grown, full)
                if self.stopped:
                    return
            after = self._next_kind(at)
            less = self._without(full, at, after, taken)
            if less is None:
                return
            at, full = after, less

    def _can_reach(self, at: int, have: list[int], left: int) -> bool:
        for n, (mask, rest, missing) in enumerate(zip(have, self._rest, self._missing, strict=True)):
            count = mask.bit_count()
            if count < missing and (
                left == 0 or (mask | rest[at]).bit_count() < missing or count + self._most(n, at, left) < missing
            ):
                return False
        return True

    def _most(self, demand: int, at: int, left: int) -> int:
        """The most devices that `left` of the host cells from place `at` on could add."""
        known = self._best[demand]
        if at not in known:
            counts = sorted(map(int.bit_count, set(self._near[demand][at:])), reverse=True)
            known[at] = [0, *itertools.accumulate(counts)]
        sums = known[at]
        return sums[min(left, len(sums) - 1)]

    def _next_kind(self, at: int) -> int:
        """Leaving out one host cell and taking its twin is the same as the reverse, which was tried."""
        kind = self._kind[at]
        while at < len(self._order) and self._kind[at] == kind:
            at += 1
        return at

    def _without(self, full: Matching, first: int, end: int, taken: int) -> Matching | None:
        """Full also without the places from `first` up to `end`; None when it cannot be."""
        rows = [full.row_of[n] for n in range(first, end) if n in full.row_of]
        if not rows:
            return full
        less = full.copy()
        for row in rows:
            less.forget(row)
        left = taken | self._everything >> end << end
        return less if all(less.add_row(row, left) is None for row in rows) else None


def _alike_masks(near: Sequence[int]) -> list[tuple[int, int]]:
    """Equal for host cells that are interchangeable: by number where nobody else reaches the same devices, else by the
    devices themselves, since two cells of one socket bring no more than one."""
    seen = shared = 0
    for mask in near:
        shared |= seen & mask
        seen |= mask
    return [(mask if mask & shared else 0, mask.bit_count()) for mask in near]


def _union_of_rest(near: Sequence[int]) -> list[int]:
    """[i]: all devices that the host cells from place i on reach."""
    return [*itertools.accumulate(reversed(near), operator.or_, initial=0)][::-1]
