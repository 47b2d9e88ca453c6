"""Devices for the requests of one guest: which ones, or why there are none.

`serve` is exact, whatever the order of the requests: min-cost flow over bins of devices that are alike, with a search
over the physical functions that one request could have and a virtual one of which another could (`assign`). What that
search does not decide raises ServingStopped, and is no reason for anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import MappingProxyType

from agent.core.cpuset import CpuSet, union
from agent.core.fit.devices.assign import assign
from agent.core.fit.devices.needs import Need, needs, sockets
from agent.core.fit.devices.short import most_at_once, short
from agent.core.fit.devices.whole_pf_search import ServingStopped
from agent.core.fit.host import Offer
from agent.core.placement import GivenDevices
from agent.core.reasons import DevicesContended, DevicesFar, Reason, SocketsUnknown

__all__ = ["ServingStopped", "contended", "needs", "serve", "too_far", "unserved"]


def serve(
    needs: Sequence[Need], offer: Offer, cells: CpuSet | None, *, near_only: bool = False
) -> tuple[GivenDevices, ...] | None:
    """Devices for every need, in the order of the needs; None when they cannot all be served.

    cells: the host cells of the guest; None: it has none, and no policy has an effect. near_only: the policies that
    have a choice (preferred, legacy) are taken as required. The devices are as near as they can be in sum, then spread
    over the physical functions with the most that is free; of equal ones those with the lowest address. The order of
    the needs changes nothing. Raises ServingStopped.
    """
    order = sorted(range(len(needs)), key=lambda n: needs[n].request.id)
    masks = assign([needs[n] for n in order], offer, cells, near_only=near_only)
    if masks is None:
        return None
    addresses = offer.facts.devices.addresses
    given = {
        place: GivenDevices(
            request=needs[place].request.id, devices=tuple(addresses[n] for n in CpuSet.from_mask(mask))
        )
        for place, mask in zip(order, masks, strict=True)
    }
    return tuple(given[place] for place in range(len(needs)))


def unserved(needs: Sequence[Need], offer: Offer) -> tuple[Reason, ...]:
    """Why the needs cannot be served wherever the guest is; none when they can be somewhere or have no cells to obey.

    Each need that alone is too much, or else the fewest that are too much together.
    """
    if serve(needs, offer, None) is not None:
        return ()
    too_few = tuple(short(need, offer) for need in needs if _are_too_much((need,), offer, None))
    return too_few or (contended(needs, offer, None),)


def too_far(needs: Sequence[Need], offer: Offer, cells: CpuSet) -> tuple[Reason, ...]:
    """Why a guest on these host cells cannot have the devices; none when it can.

    Each need that alone cannot be served from there, or else the fewest that cannot together.
    """
    if serve(needs, offer, cells) is not None:
        return ()
    alone = needs if len(needs) == 1 else [need for need in needs if _are_too_much((need,), offer, cells)]
    far = tuple(_far(need, offer, cells) for need in alone)
    return far or (contended(needs, offer, cells),)


def contended(needs: Sequence[Need], offer: Offer, cells: CpuSet | None) -> DevicesContended:
    """Of needs that are too much together, what is left without each that does not matter to it."""
    alike: dict[object, list[Need]] = {}
    for need in needs:
        alike.setdefault((need.pools, need.request.numa_policy, need.request.count), []).append(need)
    left = list(needs)
    for some in alike.values():
        left = _without_most(left, some, offer, cells)
    numbers = sorted({number for need in left for number in need.pools})
    free = union(need.within(cells) for need in left)
    return DevicesContended(
        requests=tuple(need.request.id for need in left),
        asked=tuple(need.request.count for need in left),
        free=most_at_once(numbers, free, offer),
        cells=cells,
        has_pfs=_has_pfs(numbers, free, offer),
    )


def _without_most(needs: Sequence[Need], alike: Sequence[Need], offer: Offer, cells: CpuSet | None) -> list[Need]:
    """Needs that are too much together, without as many of these as do not matter to it; found by halving."""

    def without(count: int) -> list[Need]:
        gone = set(map(id, alike[:count]))
        return [need for need in needs if id(need) not in gone]

    least, most = 0, len(alike)
    while least < most:
        middle = (least + most + 1) // 2
        if _are_too_much(without(middle), offer, cells):
            least = middle
        else:
            most = middle - 1
    return without(least)


def _are_too_much(needs: Sequence[Need], offer: Offer, cells: CpuSet | None) -> bool:
    try:
        return serve(needs, offer, cells) is None
    except ServingStopped:
        return False


def _has_pfs(numbers: Iterable[int], free: int, offer: Offer) -> bool:
    """Any of these pools is of a physical function and another of its virtual ones."""
    some = [pool for n in numbers if (pool := offer.facts.devices.pools[n]).devices & free]
    return not {pool.family for pool in some if pool.is_pf}.isdisjoint(pool.family for pool in some if not pool.is_pf)


def _far(need: Need, offer: Offer, cells: CpuSet) -> Reason:
    request = need.request
    on_socket = sockets(offer.facts)
    if request.numa_policy == "socket" and (unknown := [cell for cell in cells if cell not in on_socket]):
        return SocketsUnknown(request=request.id, cells=CpuSet(unknown))
    pools, within = offer.facts.devices.pools, need.within(cells)
    by_cell: dict[int | None, list[int]] = {}
    for number in need.pools:
        by_cell.setdefault(pools[number].first.cell, []).append(number)
    counts = {cell: count for cell, mine in by_cell.items() if (count := most_at_once(mine, need.free, offer))}
    return DevicesFar(
        request=request.id,
        policy=request.numa_policy,
        asked=request.count,
        cells=cells,
        near=sum(count for cell, count in counts.items() if any(pools[n].devices & within for n in by_cell[cell])),
        by_cell=MappingProxyType({cell: count for cell, count in counts.items() if cell is not None}),
        elsewhere=counts.get(None, 0),
    )
