"""One request for devices, as this host can serve it."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import msgspec

from agent.core.fit.devices.facts import REMOTE_MANAGED, DeviceFacts, Pool
from agent.core.fit.devices.supply import Supply, supply
from agent.core.fit.host import HostFacts, Offer
from agent.core.pci import DeviceType
from agent.core.pci_request import PciRequest, PciSpec
from agent.core.values import ReadOnlyMap, Value

_KEPT_BACK: tuple[DeviceType, ...] = ("type-PF", "vdpa")
"""Only for requests that name the type."""


class Need(Value, frozen=True, kw_only=True):
    """pools: numbers of the pools (of `DeviceFacts`) whose devices will do, before any look at cells. is_hard: the
    policy can rule out host cells. near: by host cell, at most how many free devices are near to a guest there (policy
    socket: anywhere on its socket); elsewhere: at most how many it may have wherever it is (preferred: near ones are
    among these). supply: what it competes for with the other requests of its guest, among which it has this place."""

    request: PciRequest
    pools: tuple[int, ...]
    is_hard: bool
    near: ReadOnlyMap[int, int] = MappingProxyType({})
    elsewhere: int = 0
    supply: Supply = Supply()
    place: int = 0


def needs(requests: tuple[PciRequest, ...], offer: Offer) -> tuple[Need, ...]:
    """What of the offer would do for each request, looked at alone."""
    devices = offer.facts.devices
    pools = [_pools(request, devices) for request in requests]
    common = supply(pools, devices, offer.free_devices)
    return tuple(
        _need(request, some, common, place, offer)
        for place, (request, some) in enumerate(zip(requests, pools, strict=True))
    )


def common_supply(needs: Sequence[Need], offer: Offer) -> tuple[Supply, Sequence[int]]:
    """What they all compete for, and the place of each in it."""
    if needs and all(need.supply is needs[0].supply for need in needs):
        return needs[0].supply, [need.place for need in needs]
    return supply([need.pools for need in needs], offer.facts.devices, offer.free_devices), range(len(needs))


def free_by_cell(need: Need, offer: Offer) -> dict[int | None, int]:
    """Free devices that would do, by the cell that the kernel names for them."""
    pools, free = offer.facts.devices.pools, offer.free_devices
    counts: dict[int | None, int] = {}
    for number in need.pools:
        pool = pools[number]
        if count := (pool.devices & free).bit_count():
            counts[pool.first.cell] = counts.get(pool.first.cell, 0) + count
    return counts


def sockets(facts: HostFacts) -> dict[int, int]:
    """The socket of each host cell that is on one."""
    return {cell.id: cell.socket for cell in facts.cells if cell.socket is not None}


def _pools(request: PciRequest, devices: DeviceFacts) -> tuple[int, ...]:
    """Pools that are alike in all that a request asks about are looked at once."""
    return tuple(sorted(n for some in devices.alike if _will_do(devices.pools[some[0]], request) for n in some))


def _need(request: PciRequest, pools: tuple[int, ...], common: Supply, place: int, offer: Offer) -> Need:
    need = Need(request=request, pools=pools, is_hard=False, supply=common, place=place)
    counts = free_by_cell(need, offer)
    everywhere = sum(counts.values())
    placed = {cell: count for cell, count in counts.items() if cell is not None}
    if offer.facts.is_one_cell:
        here = {cell.id: everywhere for cell in offer.facts.cells}
        return _placed(need, is_hard=False, near=here, elsewhere=everywhere)
    match request.numa_policy:
        case "preferred":
            return _placed(need, is_hard=False, near=placed, elsewhere=everywhere)
        case "legacy":
            return _placed(need, is_hard=bool(placed), near=placed, elsewhere=counts.get(None, 0))
        case "socket":
            return _placed(need, is_hard=True, near=_by_socket(placed, sockets(offer.facts)), elsewhere=0)
        case "required":
            return _placed(need, is_hard=True, near=placed, elsewhere=0)


def _placed(need: Need, *, is_hard: bool, near: dict[int, int], elsewhere: int) -> Need:
    return msgspec.structs.replace(need, is_hard=is_hard, near=MappingProxyType(near), elsewhere=elsewhere)


def _by_socket(placed: dict[int, int], of_cell: dict[int, int]) -> dict[int, int]:
    """For each cell what is anywhere on its socket, or on the cell alone when its socket is not known."""
    on_socket: dict[int, int] = {}
    for cell, count in placed.items():
        if cell in of_cell:
            on_socket[of_cell[cell]] = on_socket.get(of_cell[cell], 0) + count
    here = {cell: on_socket[socket] for cell, socket in of_cell.items() if socket in on_socket}
    return here | {cell: count for cell, count in placed.items() if cell not in of_cell}


def _will_do(pool: Pool, request: PciRequest) -> bool:
    """What nobody asked for by name is kept back before anything else is looked at."""
    return (
        any(_matches(pool, spec) for spec in request.specs)
        and not _is_kept_back(pool, request)
        and request.live_migratable in {None, pool.spec.live_migratable}
        and request.parent_ifname in {None, *pool.interfaces}
    )


def _is_kept_back(pool: Pool, request: PciRequest) -> bool:
    kind = pool.first.type
    return (kind in _KEPT_BACK and all(spec.device_type != kind for spec in request.specs)) or (
        pool.tags.get(REMOTE_MANAGED) == "true"
        and not any((spec.tags.get(REMOTE_MANAGED) or "").lower() == "true" for spec in request.specs)
    )


def _matches(pool: Pool, spec: PciSpec) -> bool:
    device = pool.first
    return (
        spec.vendor_id in {None, device.vendor_id}
        and spec.product_id in {None, device.product_id}
        and spec.device_type in {None, device.type}
        and spec.resource_class in {None, pool.resource_class}
        and pool.traits.issuperset(spec.traits)
        # nova's null is met by a device without the tag as well
        and all(pool.tags.get(name) == (None if value is None else value.lower()) for name, value in spec.tags.items())
    )
