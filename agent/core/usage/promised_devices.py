"""Promised functions and mediated devices in the rows of devices: nobody else can have them, nor what excludes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec

from agent.core.claim.holding import Promise
from agent.core.conflicts import Owner, by_name
from agent.core.pci import PciAddress, PciDevice
from agent.core.topology import HostTopology
from agent.core.usage.books import SeenBooks
from agent.core.usage.rows import DeviceUsage, MdevUsage
from agent.core.words import agrees, some

NOT_OFFERED = "not in the filter (device_spec): it is not offered again once it is free"

Promised = tuple[Promise, ...]


class DeviceLoad(NamedTuple):
    """Who is promised what, beyond what is seen. by_row: by the place of the function's row; others: functions without
    a row, since they are not offered and no domain has them, or not there."""

    by_row: dict[int, Promised]
    others: dict[PciAddress, Promised]
    mdevs: dict[str, Promised]


def device_load(promises: Iterable[Promise], seen: SeenBooks) -> DeviceLoad:
    """Add up who is promised which device."""
    load, row_of = DeviceLoad({}, {}, {}), seen.row_of
    for promise in promises:
        mine = (promise,)
        for address in promise.extra.devices:
            place = row_of.get(address)
            if place is None:
                load.others[address] = load.others.get(address, ()) + mine
            else:
                load.by_row[place] = load.by_row.get(place, ()) + mine
        for uuid in promise.extra.mdevs:
            load.mdevs[uuid] = load.mdevs.get(uuid, ()) + mine
    return load


def promised_devices(
    rows: tuple[DeviceUsage, ...], load: DeviceLoad, seen: SeenBooks, topology: HostTopology
) -> tuple[DeviceUsage, ...]:
    """The rows in which promised functions are not free, nor those that cannot be given away beside them."""
    if not any(load):
        return rows
    made = list(rows)
    for place, promises in load.by_row.items():
        made[place] = _promised(rows[place], promises)
    for place, remark in _excluded(load, seen, rows, topology):
        if made[place].free:
            made[place] = msgspec.structs.replace(made[place], free=False, remark=remark)
    made += [_new_row(address, seen.devices.devices.get(address), on) for address, on in load.others.items()]
    return tuple(made) if not load.others else tuple(sorted(made, key=attrgetter("address")))


def promised_mdevs(rows: tuple[MdevUsage, ...], load: DeviceLoad) -> tuple[MdevUsage, ...]:
    """The rows of mediated devices with those that are promised."""
    if not load.mdevs:
        return rows
    made = {row.uuid: row for row in rows}
    for uuid, promises in load.mdevs.items():
        row = made.get(uuid) or MdevUsage(uuid=uuid, type=None, parent=None, exists=False)
        made[uuid] = msgspec.structs.replace(row, owners=_with(row.owners, promises))
    return tuple(made[uuid] for uuid in sorted(made))


def _with(owners: tuple[Owner, ...], promises: Promised) -> tuple[Owner, ...]:
    if len(promises) == 1:
        return (*owners, promises[0].claimant)
    return (*owners, *sorted((promise.claimant for promise in promises), key=by_name))


def _promised(row: DeviceUsage, promises: Promised) -> DeviceUsage:
    remark = row.remark if row.offered or row.remark else NOT_OFFERED
    return msgspec.structs.replace(row, free=False, owners=_with(row.owners, promises), remark=remark)


def _new_row(address: PciAddress, device: PciDevice | None, promises: Promised) -> DeviceUsage:
    """Of a function that is not offered, or not there, and that no domain has."""
    return DeviceUsage(
        address=address,
        type="type-PCI" if device is None else device.type,
        vendor_id="" if device is None else device.vendor_id,
        product_id="" if device is None else device.product_id,
        cell=None if device is None else device.cell,
        offered=False,
        free=False,
        owners=_with((), promises),
        remark="not on this host (any more)" if device is None else NOT_OFFERED,
    )


def _excluded(
    load: DeviceLoad, seen: SeenBooks, rows: Sequence[DeviceUsage], topology: HostTopology
) -> Iterator[tuple[int, str]]:
    """Rows of functions that cannot be given away beside what is promised, with the reason."""
    taken: dict[int, list[Promise]] = {}
    for place, promises in load.by_row.items():
        if (parent := seen.parent_row[place]) >= 0:
            taken.setdefault(parent, []).append(promises[0])
        if children := seen.child_rows.get(place):
            yield from _of_whole(rows[place].address, promises, children)
    for address, promises in load.others.items():
        device = seen.devices.devices.get(address)
        if device is not None and device.parent is not None and device.parent in seen.row_of:
            taken.setdefault(seen.row_of[device.parent], []).append(promises[0])
        children = [seen.row_of[one] for one in seen.devices.children.get(address, ()) if one in seen.row_of]
        yield from _of_whole(address, promises, children)
    for parent, functions in taken.items():
        is_or_are = agrees(functions, "is", "are")
        yield parent, f"{len(functions)} of its virtual functions {is_or_are} promised to {_names(functions)}"
    yield from _with_mdevs(load, seen, topology)


def _of_whole(address: PciAddress, promises: Promised, children: Iterable[int]) -> Iterator[tuple[int, str]]:
    remark = f"its physical function {address} is promised to {_names(promises)}"
    return ((child, remark) for child in children)


def _with_mdevs(load: DeviceLoad, seen: SeenBooks, topology: HostTopology) -> Iterator[tuple[int, str]]:
    for mdev in topology.mdevs if load.mdevs else ():
        promises = load.mdevs.get(mdev.uuid.lower())
        if promises and mdev.parent is not None and mdev.parent in seen.row_of:
            yield seen.row_of[mdev.parent], f"a mediated device of it is promised to {_names(promises)}"


def _names(promises: Iterable[Promise]) -> str:
    return some(sorted({promise.claimant.label for promise in promises}))
