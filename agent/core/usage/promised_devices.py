"""Promised functions and mediated devices in the rows of devices: nobody else can have them, nor what excludes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

import msgspec

from agent.core.claim.holding import Promise
from agent.core.conflicts import Owner, by_name
from agent.core.pci import PciAddress, PciDevice
from agent.core.topology import HostTopology
from agent.core.usage.books import SeenBooks
from agent.core.usage.rows import DeviceUsage, MdevUsage
from agent.core.words import agrees, some

NOT_OFFERED = "not in the filter (device_spec): it is not offered again once it is free"

Claimants = dict[PciAddress, list[Owner]]


def promised_devices(
    rows: tuple[DeviceUsage, ...],
    promises: Sequence[Promise],
    seen: SeenBooks,
    topology: HostTopology,
) -> tuple[DeviceUsage, ...]:
    """The rows in which promised functions are not free, nor those that cannot be given away beside them."""
    claimants: Claimants = {}
    for promise in promises:
        for address in promise.extra.devices:
            claimants.setdefault(address, []).append(promise.claimant)
    parents = _mdev_parents(promises, topology)
    if not claimants and not parents:
        return rows
    made = list(rows)
    for address, owners in claimants.items():
        place = seen.row_of.get(address)
        if place is None:
            made.append(_new_row(address, seen.devices.devices.get(address), owners))
        else:
            made[place] = _promised(made[place], owners)
    for address, remark in (*_relatives(claimants, seen), *parents):
        place = seen.row_of.get(address)
        if place is not None and made[place].free:
            made[place] = msgspec.structs.replace(made[place], free=False, remark=remark)
    return tuple(made) if len(made) == len(rows) else tuple(sorted(made, key=attrgetter("address")))


def promised_mdevs(rows: tuple[MdevUsage, ...], promises: Iterable[Promise]) -> tuple[MdevUsage, ...]:
    """The rows of mediated devices with those that are promised."""
    claimants: dict[str, list[Owner]] = {}
    for promise in promises:
        for uuid in promise.extra.mdevs:
            claimants.setdefault(uuid, []).append(promise.claimant)
    if not claimants:
        return rows
    made = {row.uuid: row for row in rows}
    for uuid, owners in claimants.items():
        row = made.get(uuid) or MdevUsage(uuid=uuid, type=None, parent=None, exists=False)
        made[uuid] = msgspec.structs.replace(row, owners=_both(row.owners, owners))
    return tuple(made[uuid] for uuid in sorted(made))


def _both(owners: Iterable[Owner], more: Iterable[Owner]) -> tuple[Owner, ...]:
    return (*owners, *sorted(more, key=by_name))


def _promised(row: DeviceUsage, owners: Sequence[Owner]) -> DeviceUsage:
    remark = row.remark if row.offered or row.remark else NOT_OFFERED
    return msgspec.structs.replace(row, free=False, owners=_both(row.owners, owners), remark=remark)


def _new_row(address: PciAddress, device: PciDevice | None, owners: Sequence[Owner]) -> DeviceUsage:
    """Of a function that is not offered, or not there, and that no domain has."""
    return DeviceUsage(
        address=address,
        type="type-PCI" if device is None else device.type,
        vendor_id="" if device is None else device.vendor_id,
        product_id="" if device is None else device.product_id,
        cell=None if device is None else device.cell,
        offered=False,
        free=False,
        owners=_both((), owners),
        remark="not on this host (any more)" if device is None else NOT_OFFERED,
    )


def _relatives(claimants: Claimants, seen: SeenBooks) -> Iterable[tuple[PciAddress, str]]:
    """Functions that exclude a promised one, with the reason."""
    taken: Claimants = {}
    for address, owners in claimants.items():
        device = seen.devices.devices.get(address)
        if device is not None and device.parent is not None:
            taken.setdefault(device.parent, []).append(owners[0])
        if children := seen.devices.children.get(address):
            remark = f"its physical function {address} is promised to {_names(owners)}"
            yield from ((child, remark) for child in children)
    for parent, owners in taken.items():
        is_or_are = agrees(owners, "is", "are")
        yield parent, f"{len(owners)} of its virtual functions {is_or_are} promised to {_names(owners)}"


def _mdev_parents(promises: Iterable[Promise], topology: HostTopology) -> list[tuple[PciAddress, str]]:
    owners = {uuid: promise.claimant for promise in promises for uuid in promise.extra.mdevs}
    if not owners:
        return []
    return [
        (mdev.parent, f"a mediated device of it is promised to {owners[mdev.uuid.lower()].label}")
        for mdev in topology.mdevs
        if mdev.parent is not None and mdev.uuid.lower() in owners
    ]


def _names(owners: Iterable[Owner]) -> str:
    return some(sorted({owner.label for owner in owners}))
