"""Which cores several cells of one guest take from one host cell, when each asks for siblings (thread policy require).

A guest cell takes some number of threads, two at least, from each core that had so many free when the guest came, and
of the last core what is missing; what it leaves of a core another cell of the same guest may have. Cores are alike when
as many of their CPUs were free and as many are left, so they are counted, not told apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

Kind = tuple[int, int]
"""Of a core: how many of its CPUs were free when the guest came, and how many of these are left."""


class Take(NamedTuple):
    """CPUs from so many cores that had `free` CPUs at first and have `left` now."""

    free: int
    left: int
    cpus: int
    cores: int


Ways = tuple[tuple[Take, ...], ...]
"""What each guest cell takes, one after the other."""


def siblings_for(counts: Sequence[int], cores: Sequence[int], spend: Callable[[], None]) -> Ways | None:
    """What guest cells with so many pinned vCPUs take from cores with so many free CPUs; None: they do not fit.

    Exact: every way that differs in numbers is tried, many threads of a core first. `spend` is called for each
    thing that is tried.
    """
    return _Packing(counts, spend).place(0, Counter((free, free) for free in cores if free > 1))


class _Packing:
    def __init__(self, counts: Sequence[int], spend: Callable[[], None]) -> None:
        self._counts, self._spend = counts, spend
        self._rest = [sum(counts[n:]) for n in range(len(counts) + 1)]
        self._failed: set[tuple[int, frozenset[tuple[Kind, int]]]] = set()

    def place(self, at: int, cores: Counter[Kind]) -> Ways | None:
        """The guest cells from number `at` on, on what the others left."""
        if at == len(self._counts):
            return ()
        self._spend()
        here = at, frozenset(cores.items())
        if here in self._failed or sum(left * count for (_, left), count in cores.items()) < self._rest[at]:
            return None
        for takes in _takes(self._counts[at], cores):
            others = self.place(at + 1, _after(cores, takes))
            if others is not None:
                return (takes, *others)
        self._failed.add(here)
        return None


def _takes(vcpus: int, cores: Counter[Kind]) -> Iterator[tuple[Take, ...]]:
    """Every way for one guest cell."""
    if not vcpus:
        yield ()
        return
    # fullest cores last, which leaves whole ones to others
    kinds = sorted(cores, key=lambda kind: (kind[1], kind[0]))
    most = max((free for free, _ in cores), default=0)
    for threads in range(min(most, max(vcpus, 2)), 1, -1):
        whole, rest = divmod(vcpus, threads)
        able = [kind for kind in kinds if kind[0] >= threads]
        for takes in _spread(whole, threads, [kind for kind in able if kind[1] >= threads], cores):
            if not rest:
                yield takes
                continue
            used = {(take.free, take.left): take.cores for take in takes}
            for free, left in able:
                if left >= rest and cores[free, left] > used.get((free, left), 0):
                    yield (*takes, Take(free, left, rest, 1))


def _spread(whole: int, threads: int, kinds: Sequence[Kind], cores: Counter[Kind]) -> Iterator[tuple[Take, ...]]:
    """Every way to take so many threads from each of `whole` cores of these kinds."""
    if not whole:
        yield ()
        return
    if sum(cores[kind] for kind in kinds) < whole:
        return
    first, *others = kinds
    for count in range(min(whole, cores[first]), -1, -1):
        mine = (Take(*first, threads, count),) if count else ()
        for rest in _spread(whole - count, threads, others, cores):
            yield (*mine, *rest)


def _after(cores: Counter[Kind], takes: Sequence[Take]) -> Counter[Kind]:
    left = Counter(cores)
    for take in takes:
        left[take.free, take.left] -= take.cores
        left[take.free, take.left - take.cpus] += take.cores
    return +left
