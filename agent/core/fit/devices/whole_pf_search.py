"""Which PFs to give as a whole, so that what all requests have is as near as can be: branch and bound.

PFs of a group are alike but for how many of their VFs are free, and whoever takes PFs best takes those with the fewest:
so all that is open is how many PFs of a group are given. That number is branched on: a flow in which each PF may be
given beside its VFs is a bound from below; where it uses more than there is, one branch allows fewer PFs and the other
takes their VFs away. The cheapest node without such a double use is the answer. Nodes where the PFs that must be given
take too many VFs from any set of requests (`whole_pf_bound`) are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agent.core.fit.devices.flow import Shares, cheapest
from agent.core.fit.devices.flow_input import Distances, FlowInput, side_by_side
from agent.core.fit.devices.pci_distance import RULED_OUT
from agent.core.fit.devices.whole_pf_bound import WholePfBound


class ServingStopped(Exception):
    """The bound of a search for devices was met before an answer. steps: nodes that were looked at."""

    def __init__(self, steps: int) -> None:
        super().__init__(f"no answer after {steps} steps")
        self.steps = steps


class Plan(NamedTuple):
    """Shares of each request, by number: of the bins, then of each group the PFs and their VFs by pool. least, most:
    how many PFs of each group may be given."""

    cost: int
    shares: Shares
    least: tuple[int, ...]
    most: tuple[int, ...]


class WholePfSearch:
    """columns: of each flow, which takes as long as it has many."""

    def __init__(self, counts: Sequence[int], reachable: FlowInput) -> None:
        self._counts, self._reachable = counts, reachable
        self.columns = len(_columns(reachable))
        self._plans: _Plans | None = None
        self._nodes: list[Plan] = []
        self._looked = 0

    def plan(self, most_columns: int) -> Plan | None:
        """The nearest one; None when there is none. Goes on where it ended. Raises ServingStopped when the flows since
        the first have had so many columns."""
        if self._plans is None:
            self._plans = _Plans(self._counts, self._reachable)
            self._nodes += self._plans.within(*self._plans.everything)
        while self._nodes:
            # of equal nodes the last comes first, so that an answer is not looked for on all levels at once
            self._nodes.sort(key=lambda plan: plan.cost, reverse=True)
            plan = self._nodes[-1]
            double = _used_twice(self._reachable, plan)
            if double is None:
                return plan
            if self._looked * self.columns > most_columns:
                raise ServingStopped(self._looked)
            self._looked += 1
            self._nodes.pop()
            group, given = double
            self._nodes += self._plans.within(plan.least, _with(plan.most, group, given - 1))
            self._nodes += self._plans.within(_with(plan.least, group, given), plan.most)
        return None


def flow_plan(counts: Sequence[int], bins: FlowInput) -> Plan | None:
    """The nearest one where nothing excludes anything."""
    return next(_Plans(counts, bins).within((), ()), None)


def least_cost(counts: Sequence[int], reachable: FlowInput) -> int | None:
    """No plan is nearer; None: there is none."""
    plan = flow_plan(counts, side_by_side(reachable))
    return None if plan is None else plan.cost


def _columns(reachable: FlowInput) -> list[Distances]:
    columns = [one.distances for one in reachable.bins]
    return columns + [distances for group in reachable.pf_groups for distances in group.distances]


class _Plans:
    def __init__(self, counts: Sequence[int], reachable: FlowInput) -> None:
        columns = _columns(reachable)
        self._counts, self._reachable = counts, reachable
        self._costs = [
            {n: distances[request] for n, distances in enumerate(columns) if distances[request] != RULED_OUT}
            for request in range(len(counts))
        ]
        self._in_bins = [one.free_count for one in reachable.bins]
        self._bound = WholePfBound(counts, reachable)
        whole = tuple(len(group.pfs) for group in reachable.pf_groups)
        self.everything = ((0,) * len(whole), whole)

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
