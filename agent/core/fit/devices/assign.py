"""Which free devices serve several requests together, at the least total distance.

Devices that no request can tell apart, and that are as far for each request, form one bin; what of which bin serves
which request is a min-cost flow (`flow`), so neither the order of requests nor what is given first matters.

A physical function (PF) and its virtual ones (VFs) exclude each other, which no flow can say. It matters only where one
request could have the PF and one (the same or another) a VF. A few groups of such PFs are searched for the nearest
answer (`whole_pf_search`). To give some of many PFs so that enough VFs of several products are left is a knapsack: then
numbers tell whether there is an answer and which PFs to give (`whole_pf_choice`), the nearest PFs first, and the sum of
all distances is the least only where a short search finds that too. More than numbers can tell (dozens of PFs of which
none are alike) is searched up to a bound, beyond which ServingStopped is raised, which is no no.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence

from agent.core.cpuset import CpuSet, union
from agent.core.fit.devices.flow_input import Distances, FlowInput, flow_input, with_whole_pfs
from agent.core.fit.devices.needs import Need, common_supply
from agent.core.fit.devices.pci_distance import RULED_OUT, PciDistance
from agent.core.fit.devices.supply import FreePool, PoolKey
from agent.core.fit.devices.whole_pf_choice import TooMany, whole_pf_choices
from agent.core.fit.devices.whole_pf_search import Plan, ServingStopped, WholePfSearch, flow_plan, least_cost
from agent.core.fit.host import Offer

FEW_COLUMNS = 12
"""Of a flow that is done in no time."""

MOST_COLUMNS_COMPARED = 40
"""Of a flow that is not too slow to be done some times for a nearer answer."""

MOST_COMPARED = 400
"""Columns of all flows from which on an answer is worth more than the nearest one."""

MOST_COLUMNS = 4_000
"""Of all flows where numbers do not tell whether there is an answer."""

MOST_CHOICES_TRIED = 8


def assign(needs: Sequence[Need], offer: Offer, cells: CpuSet | None, *, near_only: bool) -> list[int] | None:
    """Bit n of result[i]: device n serves need i. None when they cannot all be served. cells, near_only: as of
    `serve`. Raises ServingStopped."""
    distance = PciDistance(offer.facts, cells)
    within = [need.within(cells, near_only=near_only) for need in needs]
    # requests that may have the same are one, so that a thousand ports are no more work than one
    counts: dict[int, int] = {}
    for need, mask in zip(needs, within, strict=True):
        counts[mask] = counts.get(mask, 0) + need.request.count

    def distances_of(key: PoolKey, some: FreePool) -> Distances | None:
        allowed = [some.free & mask for mask in counts]
        if not any(allowed):
            return None
        far = distance.of(key.cell)
        return tuple([far if may_have else RULED_OUT for may_have in allowed])

    reachable = flow_input(common_supply(needs, offer), distances_of)
    found = _best(list(counts.values()), reachable)
    if found is None:
        return None
    given = dict(zip(counts, map(iter, _given(*found)), strict=True))
    return [union(itertools.islice(given[mask], need.request.count)) for need, mask in zip(needs, within, strict=True)]


def _best(counts: Sequence[int], reachable: FlowInput) -> tuple[FlowInput, Plan] | None:
    """A plan, and what its shares are of."""
    if not reachable.pf_groups:
        return _of(reachable, flow_plan(counts, reachable))
    search = WholePfSearch(counts, reachable)
    decided = None
    if search.columns > FEW_COLUMNS:
        decided = _decided(counts, reachable, search)
        if (
            decided is None
            or search.columns > MOST_COLUMNS_COMPARED
            or decided[1].cost == least_cost(counts, reachable)
        ):
            return decided
    try:
        return _of(reachable, search.plan(MOST_COMPARED))
    except ServingStopped:
        return decided or _decided(counts, reachable, search)


def _decided(counts: Sequence[int], reachable: FlowInput, search: WholePfSearch) -> tuple[FlowInput, Plan] | None:
    """Any plan, where there is one."""
    try:
        return _of_a_choice(counts, reachable)
    except TooMany:
        return _of(reachable, search.plan(MOST_COLUMNS))


def _of(reachable: FlowInput, plan: Plan | None) -> tuple[FlowInput, Plan] | None:
    return None if plan is None else (reachable, plan)


def _of_a_choice(counts: Sequence[int], reachable: FlowInput) -> tuple[FlowInput, Plan] | None:
    """With PFs no farther away than they must be. Raises TooMany where numbers do not tell."""
    far = [min(one for one in group.distances[0] if one != RULED_OUT) for group in reachable.pf_groups]
    may_be = True
    for most_far in sorted(set(far)):
        may_be = False
        choices = whole_pf_choices(counts, reachable, [one <= most_far for one in far])
        for choice in itertools.islice(choices, MOST_CHOICES_TRIED):
            may_be = True
            bins = with_whole_pfs(reachable, choice)
            if (plan := flow_plan(counts, bins)) is not None:
                return bins, plan
    if may_be:
        raise TooMany
    return None


def _given(reachable: FlowInput, plan: Plan) -> list[list[int]]:
    """The bit of each device, for each share."""
    given: list[list[int]] = [[] for _ in plan.shares]
    for column, pools in enumerate(_pools(reachable, plan)):
        shares = [share[column] for share in plan.shares]
        if any(shares):
            for mine, more in zip(given, _handed_out(shares, pools), strict=True):
                mine.extend(more)
    return given


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


def _handed_out(shares: Sequence[int], pools: Iterable[FreePool]) -> list[list[int]]:
    """Devices for each share, one by one from the pool with the most that is free."""
    heap = [(-pool.free_count, pool.vfs_lost, pool.free & -pool.free, pool.free) for pool in pools]
    heapq.heapify(heap)
    given: list[list[int]] = [[] for _ in shares]
    for request, share in enumerate(shares):
        for _ in range(share):
            left, vfs_lost, lowest, free = heap[0]
            given[request].append(lowest)
            free ^= lowest
            heapq.heapreplace(heap, (left + 1, vfs_lost, free & -free, free))
    return given
