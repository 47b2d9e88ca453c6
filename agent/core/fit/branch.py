"""Branch and bound over sets of host cells that have devices of several kinds."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agent.core.cpuset import CpuSet
from agent.core.fit.matching import Matching

SCALE = 1 << 20


class Demand(NamedTuple):
    """At least `wanted` devices of some kind: near[n] of them come with host cell n, `elsewhere` with any."""

    wanted: int
    near: tuple[int, ...]
    elsewhere: int

    def short(self, chosen: int) -> bool:
        """These host cells have too few."""
        return sum(self.near[n] for n in CpuSet.from_mask(chosen)) + self.elsewhere < self.wanted

    def share(self, n: int) -> int:
        """How much of what is wanted host cell n brings, in millionths; more than all is no better than all."""
        return min(self.near[n], self.wanted) * SCALE // self.wanted if self.wanted > 0 else 0


class Branch:
    """columns: for each host cell the guest cells that it will do for. are_alike: host cells with equal columns and
    numbers are interchangeable, so only the first of them need be left out. steps, stopped: after `sets` is done."""

    def __init__(
        self,
        *,
        columns: Sequence[int],
        guest_cells: int,
        demands: Sequence[Demand],
        are_alike: bool,
        most_steps: int,
    ) -> None:
        usable = [n for n, column in enumerate(columns) if column]
        kinds = {n: (columns[n], tuple(demand.near[n] for demand in demands)) for n in usable}
        weight = {n: sum(demand.share(n) for demand in demands) for n in usable}
        self._order = sorted(usable, key=lambda n: (-weight[n], kinds[n], n))
        self._kind: list[object] = [kinds[n] if are_alike else n for n in self._order]
        self._columns = [columns[n] for n in self._order]
        self._wanted = guest_cells
        self._all_guests = (1 << guest_cells) - 1
        self._is_uniform = all(column == self._all_guests for column in self._columns)
        self._missing = [demand.wanted - demand.elsewhere for demand in demands]
        self._near = [[demand.near[n] for n in self._order] for demand in demands]
        self._best = [_best_of_rest(near, guest_cells) for near in self._near]
        self._most_steps = most_steps
        self.steps = 0
        self.stopped = False

    def sets(self) -> Iterator[int]:
        """Every matchable set with enough of each kind, as a mask of host cells; those with the most first."""
        yield from self._sets(0, 0, [0] * len(self._near), Matching(self._columns))

    def _sets(self, at: int, chosen: int, have: list[int], matching: Matching) -> Iterator[int]:
        left = self._wanted - len(matching.column_of)
        if left == 0:
            if self._can_reach(at, have, 0):
                yield chosen
            return
        while at + left <= len(self._order) and self._can_reach(at, have, left):
            self.steps += 1
            if self.steps > self._most_steps:
                self.stopped = True
                return
            grown = matching.copy()
            if grown.add_row(at, self._all_guests) is None:
                more = [count + near[at] for count, near in zip(have, self._near, strict=True)]
                yield from self._sets(at + 1, chosen | 1 << self._order[at], more, grown)
                if self.stopped:
                    return
            at = self._next_kind(at)
            if not self._is_uniform and not self._completes(at, matching):
                return

    def _can_reach(self, at: int, have: list[int], left: int) -> bool:
        return all(
            count + best[at][left] >= missing
            for count, best, missing in zip(have, self._best, self._missing, strict=True)
        )

    def _next_kind(self, at: int) -> int:
        """Leaving out one host cell and taking its twin is the same as the reverse, which was tried."""
        kind = self._kind[at]
        while at < len(self._order) and self._kind[at] == kind:
            at += 1
        return at

    def _completes(self, at: int, matching: Matching) -> bool:
        grown = matching.copy()
        return any(
            len(grown.column_of) == self._wanted
            for n in range(at, len(self._order))
            if grown.add_row(n, self._all_guests) is None
        )


def _best_of_rest(near: Sequence[int], most: int) -> list[list[int]]:
    """[i][m]: the sum of the m largest numbers from place i on."""
    return [
        functools.reduce(
            lambda sums, n: [*sums, sums[-1] + n], (sorted(near[i:], reverse=True) + [0] * most)[:most], [0]
        )
        for i in range(len(near) + 1)
    ]
