"""Sharing out what is alike: the cheapest flow from few requests to few bins."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

Costs = Sequence[Mapping[int, int]]
"""For each request: what one piece costs it, by bin; a bin that is not named will not do."""

Shares = list[list[int]]
"""shares[request][bin]: pieces."""

_UNREACHED = 1 << 60


def cheapest(counts: Sequence[int], sizes: Sequence[int], costs: Costs) -> tuple[int, Shares] | None:
    """The shares that give every request its count of pieces at the least total cost, with that cost; None when there
    are none. sizes: pieces in each bin.

    Successive shortest paths: each path hands on as much as it can, also by moving earlier requests to other bins, so
    that the order of requests never decides whether all are served. Equal costs: the bin with the lowest number.
    """
    left = list(sizes)
    wanting = list(counts)
    shares = [[0] * len(left) for _ in counts]
    total = 0
    for request in range(len(wanting)):
        while wanting[request]:
            path = _path(request, shares, left, costs)
            if path is None:
                return None
            given_up = [(later, place) for (_, place), (later, _) in itertools.pairwise(path)]
            end = path[-1][1]
            moved = min(wanting[request], left[end], *(shares[later][place] for later, place in given_up))
            for one, place in path:
                shares[one][place] += moved
                total += moved * costs[one][place]
            for later, place in given_up:
                shares[later][place] -= moved
                total -= moved * costs[later][place]
            left[end] -= moved
            wanting[request] -= moved
    return total, shares


def _path(start: int, shares: Shares, left: list[int], costs: Costs) -> list[tuple[int, int]] | None:
    """(request, bin that it takes from) along the cheapest way from `start` to a bin with something left."""
    request_cost, request_from = [_UNREACHED] * len(shares), [-1] * len(shares)
    bin_cost, bin_from = [_UNREACHED] * len(left), [-1] * len(left)
    request_cost[start] = 0
    waiting = [start]
    while waiting:
        request = waiting.pop()
        for place, cost in costs[request].items():
            reached = request_cost[request] + cost
            if reached < bin_cost[place]:
                bin_cost[place], bin_from[place] = reached, request
                for other, given in enumerate(shares):
                    if given[place] and reached - costs[other][place] < request_cost[other]:
                        request_cost[other], request_from[other] = reached - costs[other][place], place
                        waiting.append(other)
    end = min((place for place, count in enumerate(left) if count), key=bin_cost.__getitem__, default=None)
    if end is None or bin_cost[end] == _UNREACHED:
        return None
    path = [(bin_from[end], end)]
    while path[-1][0] != start:
        place = request_from[path[-1][0]]
        path.append((bin_from[place], place))
    return path[::-1]
