"""Why there are too few devices of a kind, wherever they are: who has them, or what the host has in their place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.core.conflicts import Owner
from agent.core.cpuset import CpuSet
from agent.core.fit.devices.facts import REMOTE_MANAGED, Pool
from agent.core.fit.devices.needs import KEPT_BACK, Need
from agent.core.fit.host import Offer
from agent.core.pci import PciDevice
from agent.core.pci_request import PciRequest, PciSpec
from agent.core.reasons import DevicesShort, KeptBack, NotOffered, SaidElse

_MOST_NAMED = 3
_FOR_PORTS = ("02", "00")
"""Classes of what a port can be on: network cards, and what nobody knows the class of."""


def short(need: Need, offer: Offer) -> DevicesShort:
    """With the numbers, the holders, and where nothing of the kind is offered what there is."""
    devices = offer.facts.devices
    offered = 0
    for number in need.pools:
        offered |= devices.pools[number].devices
    taken = offered & ~offer.free_devices
    return DevicesShort(
        request=need.request.id,
        asked=need.request.count,
        free=most_at_once(need.pools, need.free, offer),
        offered=offered.bit_count(),
        holders=_owners(CpuSet.from_mask(taken), offer),
        kept_back=tuple(_kept_back(taken, offer)),
        specs=need.request.specs,
        instead=None if offered else _not_offered(need.request, offer),
    )


def most_at_once(numbers: Iterable[int], free: int, offer: Offer) -> int:
    """Of these free devices of these pools, how many can be given at once: a physical function counts only where its
    virtual ones would not do."""
    pools = offer.facts.devices.pools
    some = [pools[n] for n in numbers if pools[n].devices & free]
    of_vfs = {pool.family for pool in some if not pool.is_pf}
    return sum((pool.devices & free).bit_count() for pool in some if not (pool.is_pf and pool.family in of_vfs))


def _owners(numbers: Iterable[int], offer: Offer) -> tuple[Owner, ...]:
    """Of these devices, each once."""
    return tuple(dict.fromkeys(owner for number in numbers for owner in offer.device_holders.get(number, ())))


def _kept_back(taken: int, offer: Offer) -> Iterator[KeptBack]:
    """Those of these devices that nobody has, together where the same relatives keep them from everybody."""
    facts, holders = offer.facts.devices, offer.device_holders
    kept: dict[tuple[int, ...], list[int]] = {}
    for number in CpuSet.from_mask(taken):
        held = tuple(n for n in CpuSet.from_mask(facts.relatives.get(number, 0)) if holders.get(n))
        if held and not holders.get(number):
            kept.setdefault(held, []).append(number)
    pfs = {one.family for one in facts.pools if one.family is not None}
    for held, numbers in kept.items():
        yield KeptBack(
            devices=tuple(facts.addresses[n] for n in numbers),
            by=tuple(facts.addresses[n] for n in held),
            is_by_pf=numbers[0] not in pfs,
            owners=_owners(held, offer),
        )


def _not_offered(request: PciRequest, offer: Offer) -> NotOffered:
    facts = offer.facts.devices
    named = [pool for pool in facts.pools if _is_any(pool.first, request)]
    # a port that says no more than its network does not mean every other network card
    may_name = not named or any(spec.vendor_id or spec.product_id for spec in request.specs)
    unnamed = [one for one in facts.unnamed if may_name and _is_any(one, request)]
    entries = (_entry(one, spec) for one in unnamed for spec in request.specs if _is(one, spec))
    ids = {_ids(one): None for one in (*(pool.first for pool in facts.pools), *facts.unnamed) if _is_near(one, request)}
    return NotOffered(
        named=sum(pool.devices.bit_count() for pool in named),
        differs=tuple(_said_else(named, request)),
        unnamed=len(unnamed),
        entries=tuple({repr(entry): entry for entry in entries}.values())[:_MOST_NAMED],
        same_vendor=() if named or unnamed else tuple(sorted(ids))[:_MOST_NAMED],
        flaw=next((flaw for one, flaw in facts.flawed if _is_any(one, request)), None),
    )


def _is_any(device: PciDevice, request: PciRequest) -> bool:
    return any(_is(device, spec) for spec in request.specs)


def _is(device: PciDevice, spec: PciSpec) -> bool:
    """It is what is asked for, but for what device_spec says of it."""
    names_it = spec.vendor_id or spec.product_id
    # said for ports alone, and a plain function is none for a port
    kinds = {"type-VF"} if REMOTE_MANAGED in spec.tags else {"type-PCI", "type-VF"}
    return (
        spec.vendor_id in {None, device.vendor_id}
        and spec.product_id in {None, device.product_id}
        and (device.type == spec.device_type if spec.device_type else device.type in kinds)
        and bool(names_it or device.class_code.startswith(_FOR_PORTS) or "physical_network" not in spec.tags)
    )


def _is_near(device: PciDevice, request: PciRequest) -> bool:
    return any(spec.vendor_id == device.vendor_id for spec in request.specs)


def _ids(device: PciDevice) -> str:
    ids = f"{device.vendor_id}:{device.product_id}"
    if device.type in KEPT_BACK:
        return f"{ids} ({device.type}, which has to be asked for)"
    return ids if device.type == "type-PCI" else f"{ids} ({device.type})"


def _entry(device: PciDevice, spec: PciSpec) -> PciSpec:
    return PciSpec(
        vendor_id=device.vendor_id,
        product_id=device.product_id,
        tags=spec.tags,
        resource_class=spec.resource_class,
        traits=spec.traits,
    )


def _said_else(pools: Iterable[Pool], request: PciRequest) -> Iterator[SaidElse]:
    """What device_spec and the host say of such devices where the request says another, by name."""
    found: dict[tuple[str, str | None], dict[str | None, None]] = {}
    for pool in pools:
        for spec in request.specs:
            for name, asked, said in _differences(pool, spec, request) if _is(pool.first, spec) else ():
                found.setdefault((name, asked), {})[said] = None
    for (name, asked), values in found.items():
        yield SaidElse(name=name, asked=asked, found=tuple(values))


def _differences(pool: Pool, spec: PciSpec, request: PciRequest) -> Iterator[tuple[str, str | None, str | None]]:
    tags = {REMOTE_MANAGED: "false", **spec.tags} if pool.tags.get(REMOTE_MANAGED) == "true" else spec.tags
    for name, value in tags.items():
        if pool.tags.get(name) != (None if value is None else value.lower()):
            yield name, value, pool.tags.get(name)
    if spec.resource_class not in {None, pool.resource_class}:
        yield "resource_class", spec.resource_class, pool.resource_class
    for trait in sorted(set(spec.traits) - pool.traits):
        yield "trait", trait, None
    if request.live_migratable not in {None, pool.spec.live_migratable}:
        said = pool.spec.live_migratable
        yield "live_migratable", str(request.live_migratable).lower(), None if said is None else str(said).lower()
    if request.parent_ifname not in {None, *pool.interfaces}:
        yield "interface", request.parent_ifname, ", ".join(pool.interfaces) or None
