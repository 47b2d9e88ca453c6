"""Which host cells a guest takes, when each guest cell has one of its own and devices must be near.

Without devices it is a bipartite matching. With devices of one kind the question is which matchable set of host cells
has the most of them: sets that can be matched form a matroid, so taking host cells by falling number of devices, as
long as the set can still be matched, is exact. With devices of several kinds that can pull apart, a branch and bound
over the host cells is run on top of it, bounded by the most devices of each kind (and of each two, three, ... kinds
together) that any completion could reach. Its steps are limited by FitRules.most_steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agent.core.cpuset import CpuSet, union
from agent.core.fit.branch import Branch, Demand
from agent.core.fit.devices.needs import Need
from agent.core.fit.devices.serve import serve
from agent.core.fit.devices.together import MOST_TOGETHER, together
from agent.core.fit.host import CellOffer, Offer
from agent.core.fit.matching import Matching, Shortage, first_match, match, transposed
from agent.core.fit.table import Table
from agent.core.placement import GivenDevices


class Choice(NamedTuple):
    """columns: number of the host cell of each guest cell. devices: given beside them."""

    columns: tuple[int, ...]
    devices: tuple[GivenDevices, ...] = ()


class Stopped(NamedTuple):
    """The bound of the search was met before an answer."""

    steps: int


class Far(NamedTuple):
    """The devices are too far from any host cells that will do; steps: after which this was known."""

    steps: int = 0


def choose(table: Table, needs: Sequence[Need], offer: Offer, most_steps: int) -> Choice | Shortage | Stopped | Far:
    """Host cells and devices; a Shortage where guest cells alone do not fit.

    The guest's cells stay as close to each other as can be, then the order of the table counts. Devices that may be far
    are near if that is possible at all.
    """
    everything = (1 << len(table.hosts)) - 1
    whole = match(table.rows, everything)
    if isinstance(whole, Shortage):
        return whole
    regions = tuple(_regions(table, everything))
    if not needs:
        matched = (first_match(table.rows, mask) for mask in regions)
        return Choice(next(columns for columns in matched if not isinstance(columns, Shortage)))
    search = _Search(table, needs, offer)
    if search.is_hopeless:
        return Far()
    for near_only in (True, False) if any(None in need.reach for need in needs) else (False,):
        choice = search.greedy(regions, near_only=near_only)
        if choice is not None:
            return choice
    return search.branch_and_bound(most_steps) if any(need.is_hard for need in needs) else Far()


def are_out_of_reach(table: Table, needs: Sequence[Need], offer: Offer) -> bool:
    """No set of host cells has enough devices for them together, by their numbers alone."""
    return _Search(table, needs, offer).is_hopeless


def nearest(table: Table, need: Need, offer: Offer) -> CpuSet:
    """The host cells that the guest could have with the most devices for this request alone; none when it could have
    none at all."""
    search = _Search(table, (need,), offer)
    demand = _demand((need,), search.ids, near_only=False)
    chosen = search.heaviest((1 << len(table.hosts)) - 1, [demand.share(n) for n in range(len(table.hosts))])
    return CpuSet(search.ids[n] for n in CpuSet.from_mask(chosen or 0))


def could_have(table: Table) -> CpuSet:
    """Every host cell that is in some choice for the guest cells, devices aside, where there is any choice: a set that
    can be matched can be made as large as any other, and so can one host cell."""
    return CpuSet(table.hosts[n].facts.id for n in CpuSet.from_mask(union(table.rows)))


class _Search:
    def __init__(self, table: Table, needs: Sequence[Need], offer: Offer) -> None:
        self._table, self._needs, self._offer = table, needs, offer
        self._columns = transposed(table.rows, len(table.hosts))
        self.ids = [room.facts.id for room in table.hosts]
        self._hard = [need for need in needs if need.is_hard]
        self._demands = _demands(self._hard, self.ids, near_only=False)

    @property
    def is_hopeless(self) -> bool:
        """No set of host cells has enough devices, whichever guest cells they will do for."""
        return any(demand.is_out_of_reach(len(self._table.rows)) for demand in self._demands)

    def greedy(self, regions: Sequence[int], *, near_only: bool) -> Choice | None:
        """In the first region where it will do, the matchable set with the most devices; exact when all devices are of
        one kind."""
        demands = _demands(self._needs, self.ids, near_only=True) if near_only else self._demands
        kinds = len(_kinds(self._needs if near_only else self._hard))
        weights = [sum(demand.share(n) for demand in demands[:kinds]) for n in range(len(self.ids))]
        for region in regions:
            chosen = self.heaviest(region, weights)
            if chosen is None or any(demand.short(chosen) for demand in demands):
                continue
            found = self._served(chosen, near_only=near_only)
            if found is not None:
                return found
        return None

    def branch_and_bound(self, most_steps: int) -> Choice | Stopped | Far:
        """Every set that could do, best first."""
        branch = Branch(
            columns=self._columns,
            guest_cells=len(self._table.rows),
            demands=self._demands,
            kinds_of_devices=len(_kinds(self._hard)),
            are_alike=_numbers_tell_all(self._hard),
            most_steps=most_steps,
        )
        for chosen in branch.sets():
            found = self._served(chosen, near_only=False)
            if found is not None:
                return found
        return Stopped(branch.steps) if branch.stopped else Far(branch.steps)

    def _served(self, chosen: int, *, near_only: bool) -> Choice | None:
        cells = CpuSet(self.ids[n] for n in CpuSet.from_mask(chosen))
        devices = serve(self._needs, self._offer, cells, near_only=near_only)
        columns = first_match(self._table.rows, chosen)
        return None if devices is None or isinstance(columns, Shortage) else Choice(columns, devices)

    def heaviest(self, mask: int, weights: Sequence[int]) -> int | None:
        """The matchable set of the greatest weight; of equal ones that with the preferred host cells."""
        found = Matching(self._columns)
        guests, chosen = (1 << len(self._table.rows)) - 1, 0
        for n in sorted(CpuSet.from_mask(mask), key=lambda n: -weights[n]):
            if self._columns[n] and found.add_row(n, guests) is None:
                chosen |= 1 << n
                if len(found.column_of) == len(self._table.rows):
                    return chosen
        return None


def _numbers_tell_all(needs: Sequence[Need]) -> bool:
    """Host cells with equal numbers of devices are interchangeable: nothing else about their devices matters.

    A physical function and its virtual ones exclude each other, and of many kinds not every union is counted.
    """
    may_take_pfs = any(spec.device_type == "type-PF" for need in needs for spec in need.request.specs)
    return not may_take_pfs and len(_kinds(needs)) <= MOST_TOGETHER


def _kinds(needs: Sequence[Need]) -> list[list[Need]]:
    """Needs for the same devices under the same policy."""
    kinds: dict[object, list[Need]] = {}
    for need in needs:
        kinds.setdefault((need.pools, need.request.numa_policy), []).append(need)
    return list(kinds.values())


def _demands(needs: Sequence[Need], ids: Sequence[int], *, near_only: bool) -> tuple[Demand, ...]:
    """One for each kind of devices, and one for each union of kinds."""
    alone = [_demand(kind, ids, near_only=near_only) for kind in _kinds(needs)]
    return tuple(map(_joint, together(alone)))


def _demand(kind: Sequence[Need], ids: Sequence[int], *, near_only: bool) -> Demand:
    reach = kind[0].reach
    return Demand(
        wanted=sum(one.request.count for one in kind),
        near=tuple(reach.get(cell, 0) for cell in ids),
        elsewhere=0 if near_only else reach.get(None, 0),
    )


def _joint(demands: Sequence[Demand]) -> Demand:
    if len(demands) == 1:
        return demands[0]
    return Demand(
        wanted=sum(one.wanted for one in demands),
        near=tuple(map(union, zip(*(one.near for one in demands), strict=True))),
        elsewhere=union(one.elsewhere for one in demands),
    )


def _regions(table: Table, everything: int) -> Iterator[int]:
    """Sets of host cells that lie close together, the closest first and all of them last."""
    hosts = table.hosts
    if 1 < len(table.rows) < len(hosts):
        usable = everything & union(table.rows)
        seen = {everything}
        for radius in _radii(hosts)[:-1]:
            for room in hosts:
                mask = usable & _within(room, hosts, radius)
                if mask not in seen and mask.bit_count() >= len(table.rows):
                    seen.add(mask)
                    yield mask
    yield everything


def _radii(hosts: Sequence[CellOffer]) -> list[int]:
    """Every distance between two of the cells, ascending; one at least."""
    ids = [room.facts.id for room in hosts]
    return sorted({room.facts.distances.get(cell, 0) for room in hosts for cell in ids})


def _within(room: CellOffer, hosts: Sequence[CellOffer], radius: int) -> int:
    distances = room.facts.distances
    return sum(1 << n for n, other in enumerate(hosts) if distances.get(other.facts.id, 0) <= radius)
