"""Which physical functions (PFs) to give as a whole so that enough virtual ones (VFs) are left: a knapsack.

Every kind of request that lives on VFs, and every set of kinds that compete for some, can lose so many VFs and no more.
Groups of PFs are split into two halves, all choices within a half are made, and a choice of one half is put beside
those of the other: for 16 PFs of which none are alike 256 and 256, of which those are compared that together have the
right number. What a choice leaves to each set is one field of a single number, so that two choices are held against all
limits at once.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from agent.core.fit.devices.flow_input import FlowInput
from agent.core.fit.devices.pci_distance import RULED_OUT

MOST_CHOICES = 5_000
"""Within one half."""

MOST_PAIRS = 200_000

_MOST_COMPETING = 6
"""Kinds of requests of which every set is looked at; of more only each alone and all together."""

_BITS = 24
_NONE = 1 << _BITS - 1
"""What a field is where a set of requests has just what it needs; all numbers of devices are far below."""

Fields = tuple[int, ...]

Choice = tuple[int, ...]
"""How many PFs of each group."""

Place = tuple[int | None, int]
"""Number of a bin (after None), or of a group and its column: 0 of the PFs, then the pools of VFs."""


class TooMany(Exception):
    """More choices than are looked at."""


class _Kind(NamedTuple):
    """Requests that may have the same devices. asked: how many all of them ask for."""

    asked: int
    places: frozenset[Place]

    @property
    def is_for_pfs(self) -> bool:
        """It may have PFs that exclude VFs."""
        return any(group is not None and not column for group, column in self.places)


class _Half(NamedTuple):
    """Some of the groups. [n]: the choices of n PFs among them, each with what it adds to the fields, and the most that
    any of them adds to each field."""

    groups: tuple[int, ...]
    choices: list[list[tuple[int, Choice]]]
    at_best: list[int]


def whole_pf_choices(counts: Sequence[int], reachable: FlowInput, allowed: Sequence[bool]) -> Iterator[Choice]:
    """Every choice among the allowed groups, of as many PFs as must be given, that leaves each set of requests what it
    needs. Where there is none, there is no way to serve them all from these groups. Raises TooMany."""
    problem = _Problem(counts, reachable)
    if problem.must < 1:
        yield (0,) * len(reachable.pf_groups)
        return
    one, other = problem.halves(allowed)
    pairs = 0
    for number, choices in enumerate(one.choices):
        rest = problem.must - number
        if not 0 <= rest < len(other.choices):
            continue
        able = [some for some in other.choices[rest] if problem.holds(some[0] + one.at_best[number])]
        for fields, choice in choices:
            if not problem.holds(fields + other.at_best[rest]):
                continue
            pairs += len(able)
            if pairs > MOST_PAIRS:
                raise TooMany
            base, signs = problem.spare + fields, problem.signs
            for more, complement in able:
                if (base + more) & signs == signs:
                    yield problem.in_order(one.groups + other.groups, choice + complement)


class _Problem:
    """must: how many PFs have to be given. A field of `spare` and of what is added to it belongs to one set of
    requests: what it has beside what it must have, VFs that are left or PFs that are given."""

    def __init__(self, counts: Sequence[int], reachable: FlowInput) -> None:
        self._groups = reachable.pf_groups
        kinds = _kinds(counts, reachable)
        of_pfs = {some: _spare(some, reachable) for some in _sets([kind for kind in kinds if kind.is_for_pfs])}
        self.must = -min(of_pfs.values(), default=0)
        self._of_pfs = [some for some, spare in of_pfs.items() if spare < 0]
        self._of_vfs = [some for some in _sets([kind for kind in kinds if not kind.is_for_pfs]) if _compete(some)]
        spares = [*(of_pfs[some] for some in self._of_pfs), *(_spare(some, reachable) for some in self._of_vfs)]
        self.spare = _packed([_NONE + spare for spare in spares])
        self.signs = _packed([_NONE] * len(spares))

    def holds(self, fields: int) -> bool:
        """Every set has what it needs."""
        return (self.spare + fields) & self.signs == self.signs

    def in_order(self, groups: Sequence[int], numbers: Sequence[int]) -> Choice:
        """By group of the input; none of those that are not named."""
        chosen = dict(zip(groups, numbers, strict=True))
        return tuple(chosen.get(group, 0) for group in range(len(self._groups)))

    def halves(self, allowed: Sequence[bool]) -> tuple[_Half, _Half]:
        """With about as many choices each."""
        sides: tuple[list[int], list[int]] = ([], [])
        sizes = [1, 1]
        open_ = [group for group, may_be in enumerate(allowed) if may_be]
        for group in sorted(open_, key=lambda group: -len(self._groups[group].pfs)):
            side = 0 if sizes[0] <= sizes[1] else 1
            sides[side].append(group)
            sizes[side] *= len(self._groups[group].pfs) + 1
        if max(sizes) > MOST_CHOICES:
            raise TooMany
        return self._half(sides[0]), self._half(sides[1])

    def _half(self, groups: Sequence[int]) -> _Half:
        choices: list[list[tuple[int, Choice]]] = [[(0, ())]]
        best: list[Fields] = [(0,) * (len(self._of_pfs) + len(self._of_vfs))]
        for group in groups:
            options = [self._fields(group, number) for number in range(len(self._groups[group].pfs) + 1)]
            packed = [_packed(fields) for fields in options]
            most = min(len(choices) + len(options) - 2, self.must)
            choices = [
                [
                    (fields + packed[number], (*choice, number))
                    for number in range(len(options))
                    if 0 <= total - number < len(choices)
                    for fields, choice in choices[total - number]
                ]
                for total in range(most + 1)
            ]
            best = [
                _greatest(
                    tuple(map(operator.add, best[total - number], options[number]))
                    for number in range(len(options))
                    if 0 <= total - number < len(best)
                )
                for total in range(most + 1)
            ]
        return _Half(tuple(groups), choices, [_packed(fields) for fields in best])

    def _fields(self, number: int, pfs: int) -> Fields:
        """What so many PFs of a group add to each field."""
        group = self._groups[number]
        lost = [left[0] - left[pfs] for left in group.vfs_left]
        given = [pfs if any((number, 0) in kind.places for kind in some) else 0 for some in self._of_pfs]
        columns = [{column for kind in some for of, column in kind.places if of == number} for some in self._of_vfs]
        return (*given, *(-sum(lost[column - 1] for column in some) for some in columns))


def _kinds(counts: Sequence[int], reachable: FlowInput) -> list[_Kind]:
    places: list[tuple[Place, Sequence[int]]] = [((None, n), one.distances) for n, one in enumerate(reachable.bins)]
    for number, group in enumerate(reachable.pf_groups):
        places += [((number, column), distances) for column, distances in enumerate(group.distances)]
    kinds: dict[frozenset[Place], int] = {}
    for request, count in enumerate(counts):
        able = frozenset(place for place, distances in places if distances[request] != RULED_OUT)
        kinds[able] = kinds.get(able, 0) + count
    return [_Kind(count, able) for able, count in kinds.items() if count]


def _sets(kinds: Sequence[_Kind]) -> Iterator[tuple[_Kind, ...]]:
    sizes = range(1, len(kinds) + 1) if len(kinds) <= _MOST_COMPETING else (1, len(kinds))
    return itertools.chain.from_iterable(itertools.combinations(kinds, size) for size in sizes)


def _compete(kinds: Sequence[_Kind]) -> bool:
    """No part of them has places that the others cannot have; else the parts tell all of it."""
    first, *others = kinds
    reached = first.places
    while near := [kind for kind in others if not reached.isdisjoint(kind.places)]:
        reached = reached.union(*(kind.places for kind in near))
        others = [kind for kind in others if kind not in near]
    return not others


def _spare(kinds: Sequence[_Kind], reachable: FlowInput) -> int:
    """How many devices they could have that are none of the PFs, beside those that they ask for."""
    places = frozenset[Place]().union(*(kind.places for kind in kinds))
    free = 0
    for group, column in places:
        if group is None:
            free += reachable.bins[column].free_count
        elif column:
            free += reachable.pf_groups[group].vfs_left[column - 1][0]
    return free - sum(kind.asked for kind in kinds)


def _packed(fields: Iterable[int]) -> int:
    return sum(field << _BITS * n for n, field in enumerate(fields))


def _greatest(some: Iterable[Fields]) -> Fields:
    return tuple(map(max, zip(*some, strict=True)))
