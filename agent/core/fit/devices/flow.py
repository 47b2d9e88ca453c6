"""Sharing out what is alike: the cheapest flow from few takers to few stocks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

Costs = Sequence[Mapping[int, int]]
"""For each taker: what one piece costs it, by stock; a stock that is not named will not do."""

Shares = list[list[int]]
"""shares[taker][stock]: pieces."""

_UNREACHED = 1 << 60


def cheapest(amounts: Sequence[int], stocks: Sequence[int], costs: Costs) -> tuple[int, Shares] | None:
    """The shares that give every taker its amount at the least total cost, with that cost; None when there are none.

    Successive shortest paths: each path hands on as much as it can, also by moving earlier takers to other stocks, so
    that the order of takers never decides whether all are served. Equal costs: the stock with the lowest number.
    """
    left = list(stocks)
    wanting = list(amounts)
    shares = [[0] * len(left) for _ in amounts]
    total = 0
    for taker in range(len(wanting)):
        while wanting[taker]:
            path = _path(taker, shares, left, costs)
            if path is None:
                return None
            given_up = [(later, stock) for (_, stock), (later, _) in itertools.pairwise(path)]
            end = path[-1][1]
            moved = min(wanting[taker], left[end], *(shares[later][stock] for later, stock in given_up))
            for one, stock in path:
                shares[one][stock] += moved
                total += moved * costs[one][stock]
            for later, stock in given_up:
                shares[later][stock] -= moved
                total -= moved * costs[later][stock]
            left[end] -= moved
            wanting[taker] -= moved
    return total, shares


def _path(start: int, shares: Shares, left: list[int], costs: Costs) -> list[tuple[int, int]] | None:
    """(taker, stock that it takes from) along the cheapest way from `start` to a stock with something left."""
    taker_cost = [_UNREACHED] * len(shares)
    taker_from, stock_cost, stock_from = [-1] * len(shares), [_UNREACHED] * len(left), [-1] * len(left)
    taker_cost[start] = 0
    waiting = [start]
    while waiting:
        taker = waiting.pop()
        for stock, cost in costs[taker].items():
            reached = taker_cost[taker] + cost
            if reached < stock_cost[stock]:
                stock_cost[stock], stock_from[stock] = reached, taker
                for other, given in enumerate(shares):
                    if given[stock] and reached - costs[other][stock] < taker_cost[other]:
                        taker_cost[other], taker_from[other] = reached - costs[other][stock], stock
                        waiting.append(other)
    end = min((stock for stock, many in enumerate(left) if many), key=stock_cost.__getitem__, default=None)
    if end is None or stock_cost[end] == _UNREACHED:
        return None
    path = [(stock_from[end], end)]
    while path[-1][0] != start:
        stock = taker_from[path[-1][0]]
        path.append((stock_from[stock], stock))
    return path[::-1]
