"""Which free devices serve several requests together, at the least total distance.

Exact. Devices that no request can tell apart, and that are as far for each request, form one bin; what of which bin
serves which request is a min-cost flow (`flow`), so neither the order of requests nor what is given first matters.

A physical function (PF) and its virtual ones (VFs) exclude each other, which no flow can say. It matters only where one
request could have the PF and one (the same or another) a VF. Such PFs at equal distances are alike but for how many of
their VFs are free, and whoever takes PFs best takes those with the fewest: so all that is open is how many PFs of a
group are given. That number is branched on: a flow in which each PF may be given beside its VFs is a bound from below;
where it uses more than there is, one branch allows fewer PFs and the other takes their VFs away. The cheapest node
without such a double use is the answer. Nodes where the PFs that must be given take too many VFs from any set of
requests (`whole_pf_bound`) are not looked at.

To give some PFs so that enough VFs of several products are left is a knapsack, so the number of nodes has no good
bound; guests that ask for a few PFs take a handful. After MOST_COMPARED nodes the first answer is taken instead of the
nearest. Whether there is an answer stays exact.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from agent.core.cpuset import CpuSet
from agent.core.fit.devices.flow import Shares, cheapest
from agent.core.fit.devices.flow_input import Distances, FlowInput, flow_input
from agent.core.fit.devices.needs import Need, common_supply
from agent.core.fit.devices.pci_distance import RULED_OUT, PciDistance
from agent.core.fit.devices.supply import FreePool, PoolKey
from agent.core.fit.devices.whole_pf_bound import WholePfBound
from agent.core.fit.host import Offer

MOST_COMPARED = 64
"""Nodes from which on an answer is worth more than the nearest one."""


class Plan(NamedTuple):
    """Shares of each request, by number: of the bins, then of each group the PFs and their VFs by pool. least, most:
    how many PFs of each group may be given."""

    cost: int
    shares: Shares
    least: tuple[int, ...]
    most: tuple[int, ...]


def assign(needs: Sequence[Need], offer: Offer, cells: CpuSet | None, *, near_only: bool) -> list[int] | None:
    """Bit n of result[i]: device n serves need i. None when they cannot all be served. cells, near_only: as of
    `serve`."""
    distance = PciDistance(offer.facts, cells)
    within = [need.within(cells, near_only=near_only) for need in needs]

    def distances_of(key: PoolKey, some: FreePool) -> Distances | None:
        allowed = [some.free & mask for mask in within]
        if not any(allowed):
            return None
        far = distance.of(key.cell)
        return tuple([far if may_have else RULED_OUT for may_have in allowed])

    reachable = flow_input(common_supply(needs, offer), distances_of)
    plan = _best([need.request.count for need in needs], reachable)
    return None if plan is None else _given(reachable, plan)


def _best(counts: Sequence[int], reachable: FlowInput) -> Plan | None:
    plans = _Plans(counts, reachable)
    nodes = list(plans.within((0,) * len(reachable.pf_groups), tuple(len(group.pfs) for group in reachable.pf_groups)))
    compared = 0
    while nodes:
        if compared <= MOST_COMPARED:
            # of equal nodes the last comes first, so that an answer is not looked for on all levels at once
            nodes.sort(key=lambda plan: plan.cost, reverse=True)
        compared += 1
        plan = nodes.pop()
        double = _used_twice(reachable, plan)
        if double is None:
            return plan
        group, given = double
        nodes += plans.within(plan.least, _with(plan.most, group, given - 1))
        nodes += plans.within(_with(plan.least, group, given), plan.most)
    return None


class _Plans:
    def __init__(self, counts: Sequence[int], reachable: FlowInput) -> None:
        columns = [one.distances for one in reachable.bins]
        columns += [distances for group in reachable.pf_groups for distances in group.distances]
        self._counts, self._reachable = counts, reachable
        self._costs = [
            {n: distances[request] for n, distances in enumerate(columns) if distances[request] != RULED_OUT}
            for request in range(len(counts))
        ]
        self._in_bins = [one.free_count for one in reachable.bins]
        self._bound = WholePfBound(counts, reachable)

    def within(self, least: tuple[int, ...], most: tuple[int, ...]) -> Iterator[Plan]:
        """The cheapest one with so many PFs of each group, as far as a flow can tell; none when there is none."""
        if not self._bound.can_hold(least, most):
            return
        sizes = [*self._in_bins]
        for group, low, high in zip(self._reachable.pf_groups, least, most, strict=True):
            sizes += [high, *(left[low] for left in group.vfs_left)]
        if (found := cheapest(self._counts, sizes, self._costs)) is not None:
            yield Plan(*found, least, most)


def _with(numbers: tuple[int, ...], place: int, number: int) -> tuple[int, ...]:
    return (*numbers[:place], number, *numbers[place + 1 :])


def _used_twice(reachable: FlowInput, plan: Plan) -> tuple[int, int] | None:
    """(number of the group, its PFs that are given) where more VFs are used than the other PFs have."""
    column = len(reachable.bins)
    for number, group in enumerate(reachable.pf_groups):
        end = column + len(group.distances)
        pfs, *vfs = (sum(share[n] for share in plan.shares) for n in range(column, end))
        if any(used > left[pfs] for used, left in zip(vfs, group.vfs_left, strict=True)):
            return number, pfs
        column = end
    return None


def _given(reachable: FlowInput, plan: Plan) -> list[int]:
    masks = [0] * len(plan.shares)
    for column, pools in enumerate(_pools(reachable, plan)):
        shares = [share[column] for share in plan.shares]
        if any(shares):
            masks = [mask | more for mask, more in zip(masks, _handed_out(shares, pools), strict=True)]
    return masks


def _pools(reachable: FlowInput, plan: Plan) -> Iterator[Iterable[FreePool]]:
    """What each share of the plan is taken from."""
    for one in reachable.bins:
        yield one.pools
    column = len(reachable.bins)
    for group in reachable.pf_groups:
        pfs = sum(share[column] for share in plan.shares)
        yield [one.pf for one in group.pfs[:pfs]]
        for part in range(len(group.vfs_left)):
            yield [one.vfs[part] for one in group.pfs[pfs:]]
        column += len(group.distances)


def _handed_out(shares: Sequence[int], pools: Iterable[FreePool]) -> list[int]:
    """Devices for each share, one by one from the pool with the most that is free."""
    heap = [(-pool.free_count, pool.vfs_lost, pool.free & -pool.free, pool.free) for pool in pools]
    heapq.heapify(heap)
    masks = [0] * len(shares)
    for request, share in enumerate(shares):
        for _ in range(share):
            left, vfs_lost, lowest, free = heap[0]
            masks[request] |= lowest
            free ^= lowest
            heapq.heapreplace(heap, (left + 1, vfs_lost, free & -free, free))
    return masks
