"""One request for devices, as this host can serve it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from agent.core.cpuset import CpuSet, union
from agent.core.fit.devices.facts import REMOTE_MANAGED, DeviceFacts, Pool
from agent.core.fit.devices.supply import Supply, supply
from agent.core.fit.host import HostFacts, Offer
from agent.core.pci import DeviceType
from agent.core.pci_request import PciNumaPolicy, PciRequest, PciSpec
from agent.core.values import ReadOnlyMap

KEPT_BACK: tuple[DeviceType, ...] = ("type-PF", "vdpa")
"""Only for requests that name the type."""


class Need(NamedTuple):
    """One request on this host, for as long as one fit takes.

    pools: numbers of the pools (of `DeviceFacts`) whose devices will do, before any look at cells. free: bit n for
    device n of these that is free. reach: by host cell, which of them the policy lets a guest have when it is there
    (also); under None those that it may have wherever it is. supply: what it competes for with the other requests of
    its guest.
    """

    request: PciRequest
    pools: tuple[int, ...]
    free: int
    reach: Mapping[int | None, int] = MappingProxyType({})
    supply: Supply = Supply()

    @property
    def is_hard(self) -> bool:
        """The policy can rule out host cells."""
        return bool(self.free & ~self.reach.get(None, 0))

    def within(self, cells: CpuSet | None, *, near_only: bool = False) -> int:
        """What a guest on these host cells may have; None: it has none, and no policy has an effect. near_only: without
        what it may have wherever it is."""
        if cells is None:
            return self.free
        anywhere = 0 if near_only else self.reach.get(None, 0)
        return anywhere | union(self.reach.get(cell, 0) for cell in cells)


def needs(requests: tuple[PciRequest, ...], offer: Offer) -> tuple[Need, ...]:
    """What of the offer would do for each request, looked at alone."""
    devices = offer.facts.devices
    pools = [_pools(request, devices) for request in requests]
    common = supply(pools, devices, offer.free_devices)
    return tuple(
        Need(
            request=request,
            pools=some,
            free=union(devices.pools[n].devices for n in some) & offer.free_devices,
            reach=_reach(request.numa_policy, [devices.pools[n] for n in some], offer),
            supply=common,
        )
        for request, some in zip(requests, pools, strict=True)
    )


def common_supply(needs: Sequence[Need], offer: Offer) -> Supply:
    """What they all compete for."""
    if needs and all(need.supply is needs[0].supply for need in needs):
        return needs[0].supply
    return supply([need.pools for need in needs], offer.facts.devices, offer.free_devices)


def sockets(facts: HostFacts) -> dict[int, int]:
    """The socket of each host cell that is on one."""
    return {cell.id: cell.socket for cell in facts.cells if cell.socket is not None}


def _pools(request: PciRequest, devices: DeviceFacts) -> tuple[int, ...]:
    """Pools that are alike in all that a request asks about are looked at once."""
    return tuple(sorted(n for some in devices.alike if _will_do(devices.pools[some[0]], request) for n in some))


def _reach(policy: PciNumaPolicy, pools: Iterable[Pool], offer: Offer) -> ReadOnlyMap[int | None, int]:
    facts = offer.facts
    is_one_cell, on_socket = facts.is_one_cell, sockets(facts) if policy == "socket" else {}
    reach: dict[int | None, int] = {}
    for cell, free in _free_by_cell(pools, offer.free_devices).items():
        if is_one_cell:
            cells = {None, *(one.id for one in facts.cells)}
        else:
            cells = _from_where(policy, cell, on_socket)
        for one in cells:
            reach[one] = reach.get(one, 0) | free
    return MappingProxyType(reach)


def _free_by_cell(pools: Iterable[Pool], free_devices: int) -> dict[int | None, int]:
    by_cell: dict[int | None, int] = {}
    for pool in pools:
        if free := pool.devices & free_devices:
            by_cell[pool.first.cell] = by_cell.get(pool.first.cell, 0) | free
    return by_cell


def _from_where(policy: PciNumaPolicy, cell: int | None, on_socket: Mapping[int, int]) -> set[int | None]:
    """The host cells from which a guest may have a device of this cell, or None for anywhere."""
    itself: set[int | None] = {cell} - {None}
    match policy:
        case "required":
            return itself
        case "socket":
            own = None if cell is None else on_socket.get(cell)
            return itself.union(one for one, socket in on_socket.items() if socket == own)
        case "legacy":
            return itself or {None}
        case "preferred":
            return itself | {None}


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
    return (kind in KEPT_BACK and all(spec.device_type != kind for spec in request.specs)) or (
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
