"""One request for devices, as this host can serve it."""

from __future__ import annotations

from types import MappingProxyType

from agent.core.fit.devices import REMOTE_MANAGED, Pool
from agent.core.fit.host import HostFacts, Offer
from agent.core.pci import DeviceType
from agent.core.pci_request import PciRequest, PciSpec
from agent.core.values import ReadOnlyMap, Value

_KEPT_BACK: tuple[DeviceType, ...] = ("type-PF", "vdpa")
"""Only for requests that name the type."""


class Need(Value, frozen=True, kw_only=True):
    """pools: numbers of the pools (of `DeviceFacts`) whose devices will do, before any look at cells. free: of each of
    these pools, what is free of it. is_hard: the policy can rule out host cells. near: by host cell, at most how many
    free devices are near to a guest there (policy socket: anywhere on its socket); elsewhere: at most how many it may
    have wherever it is (preferred: near ones are among these)."""

    request: PciRequest
    pools: tuple[int, ...]
    free: tuple[int, ...] = ()
    is_hard: bool
    near: ReadOnlyMap[int, int] = MappingProxyType({})
    elsewhere: int = 0


def needs(requests: tuple[PciRequest, ...], offer: Offer) -> tuple[Need, ...]:
    """What of the offer would do for each request, looked at alone."""
    return tuple(_need(request, offer) for request in requests)


def free_by_cell(need: Need, offer: Offer) -> dict[int | None, int]:
    """Free devices that would do, by the cell that the kernel names for them."""
    pools = offer.facts.devices.pools
    counts: dict[int | None, int] = {}
    for number, free in zip(need.pools, need.free, strict=True):
        if free:
            cell = pools[number].first.cell
            counts[cell] = counts.get(cell, 0) + free.bit_count()
    return counts


def sockets(facts: HostFacts) -> dict[int, int]:
    """The socket of each host cell that is on one."""
    return {cell.id: cell.socket for cell in facts.cells if cell.socket is not None}


def _need(request: PciRequest, offer: Offer) -> Need:
    numbers = tuple(n for n, pool in enumerate(offer.facts.devices.pools) if _will_do(pool, request))
    need = Need(
        request=request,
        pools=numbers,
        free=tuple(offer.devices & offer.facts.devices.pools[n].devices for n in numbers),
        is_hard=False,
    )
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
    return Need(
        request=need.request,
        pools=need.pools,
        free=need.free,
        is_hard=is_hard,
        near=MappingProxyType(near),
        elsewhere=elsewhere,
    )


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
        and request.parent_ifname in {None, pool.first.parent_ifname, *_own_names(pool)}
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


def _own_names(pool: Pool) -> tuple[str, ...]:
    return tuple(net.name for net in pool.first.netdevs) if pool.first.type == "type-PF" else ()
