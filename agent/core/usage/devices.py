"""Which PCI functions and mediated devices guests hold or could have, and what contradicts about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from agent.core import advice
from agent.core.conflicts import Conflict, Resource, Severity, conflict
from agent.core.holds import GuestHolds
from agent.core.host_config import HostConfig, SpecIndex
from agent.core.pci import PciAddress, PciDevice
from agent.core.topology import HostTopology
from agent.core.usage.books import DeviceBooks
from agent.core.usage.rows import DeviceUsage, MdevUsage
from agent.core.words import agrees

BRIDGE_CLASS = "06"


def device_books(guests: Iterable[GuestHolds], topology: HostTopology) -> DeviceBooks:
    """Add up who names which device."""
    holders: dict[PciAddress, list[GuestHolds]] = {}
    mdev_holders: dict[str, list[GuestHolds]] = {}
    for guest in guests:
        for address in guest.holds.devices:
            holders.setdefault(address, []).append(guest)
        for uuid in guest.holds.mdevs:
            mdev_holders.setdefault(uuid, []).append(guest)
    parents: dict[PciAddress, list[GuestHolds]] = {}
    for mdev in topology.mdevs:
        if mdev.parent is not None and mdev.uuid.lower() in mdev_holders:
            parents.setdefault(mdev.parent, []).extend(mdev_holders[mdev.uuid.lower()])
    children: dict[PciAddress, list[PciAddress]] = {}
    for device in topology.pci:
        if device.parent is not None:
            children.setdefault(device.parent, []).append(device.address)
    return DeviceBooks({one.address: one for one in topology.pci}, holders, mdev_holders, parents, children)


def device_rows(books: DeviceBooks, config: HostConfig) -> tuple[DeviceUsage, ...]:
    """Every function that the configuration names or that a guest does; without a filter all but bridges."""
    rows = []
    offering = config.offering() if config.device_spec else None
    for address in sorted(books.devices.keys() | books.holders.keys()):
        device = books.devices.get(address)
        if device is None:
            rows.append(_absent_row(address, books.holders[address]))
            continue
        offered = _is_offered(device, books, offering)
        flaw = None if offered or offering is None else offering.flaw_of(device, _parent(device, books))
        if offered or flaw or address in books.holders:
            rows.append(_row(device, books, offered=offered, flaw=flaw))
    return tuple(rows)


def mdev_rows(books: DeviceBooks, topology: HostTopology) -> tuple[MdevUsage, ...]:
    """Every mediated device that exists or that a guest names."""
    existing = {mdev.uuid.lower(): mdev for mdev in topology.mdevs}
    rows = []
    for uuid in sorted(existing.keys() | books.mdev_holders.keys()):
        mdev = existing.get(uuid)
        rows.append(
            MdevUsage(
                uuid=uuid,
                type=mdev.type if mdev else None,
                parent=mdev.parent if mdev else None,
                exists=mdev is not None,
                owners=tuple(guest.owner for guest in books.mdev_holders.get(uuid, ())),
            )
        )
    return tuple(rows)


def device_conflicts(books: DeviceBooks, topology: HostTopology) -> Iterator[Conflict]:
    """Every contradiction about devices."""
    for address, guests in sorted(books.holders.items()):
        resource = _pci(address, books)
        if len(guests) > 1:
            yield _twice(resource, guests)
        device = books.devices.get(address)
        if device is None and topology.pci:
            yield _missing(resource, guests, f"the host has no PCI function {address} (any more)")
        elif device is not None and (lost := _lost_to_host_driver(device, guests)):
            yield _missing(resource, lost, f"host driver {device.driver} has it again (new VF count, or a rebind)")
        yield from _pf_and_vf(address, guests, books)
    existing = {mdev.uuid.lower(): mdev for mdev in topology.mdevs}
    for uuid, guests in sorted(books.mdev_holders.items()):
        resource = Resource(kind="mdev", id=uuid)
        if len(guests) > 1:
            yield _twice(resource, guests)
        if uuid not in existing and topology.cpus:
            yield _missing(resource, guests, f"mediated device {uuid} does not exist (they are gone after a reboot)")


def _is_offered(device: PciDevice, books: DeviceBooks, offering: SpecIndex | None) -> bool:
    if offering is None:
        return not device.class_code.startswith(BRIDGE_CLASS)
    return offering.spec_of(device, _parent(device, books)) is not None


def _parent(device: PciDevice, books: DeviceBooks) -> PciDevice | None:
    return None if device.parent is None else books.devices.get(device.parent)


def _row(device: PciDevice, books: DeviceBooks, *, offered: bool, flaw: str | None) -> DeviceUsage:
    holders = books.holders.get(device.address, [])
    remark = f"not offered: {flaw}" if flaw else _remark(device, books, holders, offered=offered)
    return DeviceUsage(
        address=device.address,
        type=device.type,
        vendor_id=device.vendor_id,
        product_id=device.product_id,
        cell=device.cell,
        offered=offered,
        free=offered and not holders and remark is None,
        owners=tuple(guest.owner for guest in holders),
        remark=remark,
    )


def _remark(device: PciDevice, books: DeviceBooks, holders: Sequence[GuestHolds], *, offered: bool) -> str | None:
    if holders and not offered:
        return "not in the filter (device_spec): it is not offered again once it is free"
    if lost := _lost_to_host_driver(device, holders):
        return f"re-created or rebound under {advice.names(lost)}: the host's driver {device.driver} has it again"
    if holders:
        return None
    if device.parent is not None and (whole := _given_whole(device.parent, books.holders.get(device.parent, ()))):
        return f"its physical function {device.parent} is held by {advice.names(whole)}"
    taken = [address for address in books.children.get(device.address, ()) if address in books.holders]
    if taken:
        first = advice.names(books.holders[taken[0]])
        return f"{len(taken)} of its virtual functions {agrees(taken, 'is', 'are')} held, {taken[0]} by {first}"
    if device.address in books.mdev_parents:
        return f"a mediated device of it is held by {advice.names(books.mdev_parents[device.address])}"
    return None


def _absent_row(address: PciAddress, holders: Sequence[GuestHolds]) -> DeviceUsage:
    return DeviceUsage(
        address=address,
        type="type-PCI",
        vendor_id="",
        product_id="",
        cell=None,
        offered=False,
        free=False,
        owners=tuple(guest.owner for guest in holders),
        remark="not on this host (any more)",
    )


def _lost_to_host_driver(device: PciDevice, holders: Sequence[GuestHolds]) -> list[GuestHolds]:
    """Active guests that were given the function itself while a driver that is no VFIO driver has it."""
    # No driver at all may also be one that could not be read.
    if device.driver is None or "vfio" in device.driver:
        return []
    given = _given_whole(device.address, holders)
    return [guest for guest in given if guest.sighting.is_active and guest.sighting.state != "unknown"]


def _given_whole(address: PciAddress, holders: Iterable[GuestHolds]) -> list[GuestHolds]:
    """Guests that have the function itself; vDPA devices and interfaces (macvtap) leave it with the host's driver."""
    return [
        guest
        for guest in holders
        if guest.sighting.domain is not None
        and any(device.kind == "pci" and device.address == address for device in guest.sighting.domain.devices)
    ]


def _pci(address: PciAddress, books: DeviceBooks) -> Resource:
    device = books.devices.get(address)
    return Resource(kind="pci", id=str(address), cell=device.cell if device else None)


def _active(guests: Iterable[GuestHolds]) -> list[GuestHolds]:
    return [guest for guest in guests if guest.sighting.is_active]


def _twice(resource: Resource, guests: Sequence[GuestHolds]) -> Conflict:
    active = _active(guests)
    severity: Severity = "error" if len(active) > 1 else "info"
    return conflict(
        "device-twice",
        resource,
        (guest.owner for guest in guests),
        cause=f"Device {resource.id} is named by {len(guests)} guests: {advice.names(guests)}; "
        f"{advice.names(active) if active else 'none'} {'are' if len(active) > 1 else 'is'} active",
        severity=severity,
        action="Find out which of the running guests has it and remove it from the "
        f"{'others' if len(active) > 2 else 'other'} with virsh detach-device; left alone "
        "only one of them works with its device"
        if severity == "error"
        else "Give one of them another device if both shall run at once; left alone the second does not start",
    )


def _missing(resource: Resource, guests: Sequence[GuestHolds], why: str) -> Conflict:
    active = _active(guests)
    return conflict(
        "device-missing",
        resource,
        (guest.owner for guest in guests),
        cause=f"{advice.names(guests)} {agrees(guests, 'names', 'name')} a device that is not there: {why}",
        severity="error" if active else "warning",
        action=f"Detach it from {advice.names(active)} and attach it anew; left alone "
        f"{agrees(active, 'the guest works', 'the guests work')} without it"
        if active
        else "Bring the device back or take it out of the "
        f"{agrees(guests, 'definition before the guest is', 'definitions before the guests are')} started; left alone "
        f"{agrees(guests, 'it does', 'they do')} not start",
    )


def _pf_and_vf(address: PciAddress, guests: Sequence[GuestHolds], books: DeviceBooks) -> Iterator[Conflict]:
    taken = [child for child in books.children.get(address, ()) if child in books.holders]
    # one guest may have several of them
    users = list({guest.sighting.uuid: guest for child in taken for guest in books.holders[child]}.values())
    whole = _given_whole(address, guests)
    if not users or not whole:
        return
    is_real = bool(_active(whole)) and bool(_active(users))
    yield conflict(
        "pf-and-vf",
        _pci(address, books),
        (guest.owner for guest in (*whole, *users)),
        cause=f"Physical function {address} is held by {advice.names(whole)}, and its virtual function {taken[0]}"
        f"{f' and {len(taken) - 1} more' if len(taken) > 1 else ''} by {advice.names(users)}",
        severity="error" if is_real else "info",
        action="Give the guests of the virtual functions other devices; left alone these lose them when the physical "
        "function is reset"
        if is_real
        else "Let only one side run at a time; left alone the one that starts later fails",
    )
