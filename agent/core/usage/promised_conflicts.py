"""What contradicts between claims, and between claims and what is seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import msgspec

from agent.core import advice
from agent.core.claim.holding import Promise
from agent.core.claim.way_out import all_described, ending_way
from agent.core.conflicts import Conflict, ConflictKind, Owner, Resource, by_name, conflict, id_of
from agent.core.cpuset import CpuSet
from agent.core.holds import GuestHolds, HostSets, cell_of
from agent.core.pci import PciAddress
from agent.core.topology import HostTopology
from agent.core.usage.books import SeenBooks
from agent.core.usage.memory import KIB_PER_MIB
from agent.core.usage.promised_devices import DeviceLoad, Promised
from agent.core.usage.rows import CellUsage, DeviceUsage, HostUsage, PageAmount, Usage
from agent.core.words import agrees, count, some


class Scene(NamedTuple):
    """promises: those that add something. known: conflicts of what is seen, by id. rows: of devices as
    they are seen. told: the rows with the promises."""

    promises: Sequence[Promise]
    seen: SeenBooks
    known: Mapping[str, Conflict]
    rows: Sequence[DeviceUsage]
    topology: HostTopology
    sets: HostSets
    told: Usage


class Found(NamedTuple):
    """One contradiction. promises: that are in it; guests: that are seen in it. cause: of a row of its own; beside what
    is told already, `also` is added. harm: what comes of doing nothing."""

    kind: ConflictKind
    resource: Resource
    promises: Promised
    guests: Sequence[GuestHolds]
    cause: str
    also: str
    harm: str = ""


def promise_conflicts(scene: Scene, devices: DeviceLoad) -> tuple[Conflict, ...]:
    """Every contradiction that a promise is in; it takes the place of a row of guests alone about the same thing."""
    found = [*_of_cpus(scene), *_of_devices(scene, devices), *_of_amounts(scene)]
    return tuple(_row(one, scene.known) for one in found)


def _row(found: Found, known: Mapping[str, Conflict]) -> Conflict:
    row = known.get(id_of(found.kind, found.resource))
    owners = _owners(found)
    if row is not None:
        both = {owner.uuid: owner for owner in (*owners, *row.owners)}
        everybody = tuple(sorted(both.values(), key=by_name))
        return msgspec.structs.replace(row, owners=everybody, cause=f"{row.cause}; {found.also}")
    return conflict(
        found.kind,
        found.resource,
        owners,
        cause=found.cause,
        severity="warning",
        action=f"{_way_out(found)}; left alone {found.harm}",
    )


def _owners(found: Found) -> list[Owner]:
    guests = [guest.owner for guest in found.guests]
    here = {owner.uuid for owner in guests}
    return guests + [promise.claimant for promise in found.promises if promise.instance not in here]


def _way_out(found: Found) -> str:
    ways = [ending_way(claim) for promise in found.promises for claim in promise.claims[-1:]]
    move = f"Take it from {advice.names(found.guests)}, or end" if found.guests else "End"
    what = "the claim" if len(ways) == 1 else "one of the claims"
    return f"{move} {what} with {some(ways, between=' or ')}"


def _of_cpus(scene: Scene) -> Iterator[Found]:
    books = scene.seen.cpus
    pinned = twice = idle = 0
    for promise in scene.promises:
        mask = promise.extra.cpus.mask
        twice |= pinned & mask
        pinned |= mask
        idle |= promise.extra.sibling_cpus.mask
    for cpu in CpuSet.from_mask(pinned & books.taken | idle & (books.pinned | pinned) | twice):
        pins = tuple(one for one in scene.promises if cpu in one.extra.cpus)
        yield from _pinned_twice(cpu, pins, scene)
        yield from _sibling_of_isolated(cpu, pins, scene)
    if lost := pinned & ~scene.sets.usable:
        yield from _offline(lost, scene)


def _each_once(promises: Iterable[Promise]) -> Promised:
    return tuple({promise.instance: promise for promise in promises}.values())


def _others(guests: Iterable[GuestHolds], promises: Promised) -> list[GuestHolds]:
    """Those guests of which none of the promises is."""
    instances = {promise.instance for promise in promises}
    return [guest for guest in guests if guest.sighting.uuid not in instances]


def _pinned_twice(cpu: int, promises: Promised, scene: Scene) -> Iterator[Found]:
    books = scene.seen.cpus
    holders = [
        guest for guest in books.holders.get(cpu, ()) if not guest.holds.guessed or cpu in guest.holds.kernel_pins
    ]
    guests = _others(holders, promises)
    if not promises or len(promises) + len(guests) < 2:
        return
    # As among guests: without CPU sets of their own, emulators alone may meet on one CPU.
    by_vcpus = books.by_vcpus >> cpu & 1 or any(cpu not in one.extra.emulator_cpus for one in promises)
    if not scene.sets.has_split and not by_vcpus and not any(guest.holds.guessed for guest in guests):
        return
    yield _met("cpu-pinned-twice", _cpu(cpu, scene), promises, guests, f"CPU {cpu}")._replace(
        harm="the guests share the time of one CPU once the one that was promised it runs"
    )


def _sibling_of_isolated(cpu: int, pins: Promised, scene: Scene) -> Iterator[Found]:
    books = scene.seen.cpus
    idle = tuple(one for one in scene.promises if cpu in one.extra.sibling_cpus)
    waiting = books.waiting_for.get(cpu, [])
    known = [guest for guest in books.holders.get(cpu, ()) if not guest.holds.guessed]
    keepers = {guest.sighting.uuid for guest in waiting} | {promise.instance for promise in idle}
    intruders = {guest.sighting.uuid for guest in known} | {promise.instance for promise in pins}
    if not any(keepers - {intruder} for intruder in intruders) or not (idle or (pins and waiting)):
        return
    promises = _each_once((*idle, *pins))
    guests = _others([*waiting, *(guest for guest in known if guest not in waiting)], promises)
    if not guests and len(promises) < 2:
        return
    keeper = [guest.sighting.label for guest in waiting] + [promise.claimant.label for promise in idle]
    what = f"CPU {cpu}, a thread sibling of a CPU of {some(sorted(set(keeper)))}, which asked to share no core,"
    yield _met("sibling-of-isolated", _cpu(cpu, scene), promises, guests, what)._replace(
        harm="nothing breaks, but the core is not that guest's own"
    )


def _offline(cpus: int, scene: Scene) -> Iterator[Found]:
    # of a host that shows no CPU nothing is known, and of one that could not be read whether it is online
    unreadable = CpuSet(cpu.id for cpu in scene.topology.cpus if cpu.online is None)
    for cpu in CpuSet.from_mask(cpus & ~unreadable.mask if scene.topology.cpus else 0):
        promises = tuple(one for one in scene.promises if cpu in one.extra.cpus)
        what = f"CPU {cpu}, which guests cannot use now (offline, withheld or not on this host),"
        yield _met("pinned-to-offline", _cpu(cpu, scene), promises, (), what)._replace(
            harm=f"{_labels(promises)} {agrees(promises, 'does', 'do')} not start until the CPU is back"
        )


def _cpu(cpu: int, scene: Scene) -> Resource:
    return Resource(kind="cpu", id=str(cpu), cell=cell_of(CpuSet([cpu]).mask, scene.sets.cells))


def _met(kind: ConflictKind, resource: Resource, promises: Promised, guests: Sequence[GuestHolds], what: str) -> Found:
    """Those who are in each other's way about something; the harm is still to be said."""
    to = all_described(claim for promise in promises for claim in promise.claims)
    held = f" is held by {advice.names(guests)} and" if guests else ""
    return Found(kind, resource, promises, guests, f"{what}{held} is promised to {to}", f"it is promised to {to} too")


def _of_devices(scene: Scene, load: DeviceLoad) -> Iterator[Found]:
    if not any(load):
        return
    rows, seen = scene.rows, scene.seen
    met = {rows[place].address: on for place, on in load.by_row.items() if len(on) > 1 or rows[place].owners}
    for address, promises in sorted((met | load.others).items()):
        yield from _device_twice(address, promises, scene)
    if scene.topology.pci:
        gone = {rows[place].address: on for place, on in load.by_row.items() if not rows[place].offered} | load.others
        for address, promises in sorted(gone.items()):
            if address not in seen.devices.devices:
                yield _missing(_pci(address, scene), promises, f"PCI function {address}")
    yield from _pf_and_vf(load, scene)
    for uuid, promises in sorted(load.mdevs.items()):
        yield from _mdev(uuid, promises, scene)


def _pci(address: PciAddress, scene: Scene) -> Resource:
    device = scene.seen.devices.devices.get(address)
    return Resource(kind="pci", id=str(address), cell=device.cell if device else None)


def _device_twice(address: PciAddress, promises: Promised, scene: Scene) -> Iterator[Found]:
    guests = _others(scene.seen.devices.holders.get(address, ()), promises)
    if len(promises) + len(guests) > 1:
        yield _met("device-twice", _pci(address, scene), promises, guests, f"Device {address}")._replace(
            harm="only the guest that starts first gets the device"
        )


def _missing(resource: Resource, promises: Promised, what: str) -> Found:
    return _met("device-missing", resource, promises, (), f"{what} is not on this host (any more), and")._replace(
        harm=f"{_labels(promises)} {agrees(promises, 'does', 'do')} not start without it"
    )


def _pf_and_vf(load: DeviceLoad, scene: Scene) -> Iterator[Found]:
    books, rows = scene.seen.devices, scene.rows
    wholes = sorted(_maybe_given_twice(load, scene))
    promised = {rows[place].address: on for place, on in load.by_row.items()} | load.others if wholes else {}
    for address in wholes:
        parts = [child for child in books.children.get(address, ()) if child in promised or child in books.holders]
        whole = books.holders.get(address, [])
        if not parts or not (whole or address in promised):
            continue
        promises = _each_once(one for function in (address, *parts) for one in promised.get(function, ()))
        users = [guest for child in parts for guest in books.holders.get(child, ())]
        guests = _others({one.sighting.uuid: one for one in (*whole, *users)}.values(), promises)
        what = f"Physical function {address} or a virtual function of it"
        yield _met("pf-and-vf", _pci(address, scene), promises, guests, what)._replace(
            harm="the one that starts later fails, or takes the other's device from it"
        )


def _maybe_given_twice(load: DeviceLoad, scene: Scene) -> set[PciAddress]:
    """Physical functions that may be given away beside a virtual one, and all that are."""
    books, rows, seen = scene.seen.devices, scene.rows, scene.seen
    wholes = {rows[place].address for place in load.by_row if place in seen.child_rows}
    parents = {seen.parent_row[place] for place in load.by_row} - {-1}
    wholes |= {rows[parent].address for parent in parents if rows[parent].owners}
    for address in load.others:
        device = books.devices.get(address)
        wholes |= {address} if address in books.children else set()
        if device is not None and device.parent is not None:
            wholes.add(device.parent)
    return wholes


def _mdev(uuid: str, promises: Promised, scene: Scene) -> Iterator[Found]:
    resource, what = Resource(kind="mdev", id=uuid), f"Mediated device {uuid}"
    guests = _others(scene.seen.devices.mdev_holders.get(uuid, ()), promises)
    if len(promises) + len(guests) > 1:
        yield _met("device-twice", resource, promises, guests, what)._replace(
            harm="only the guest that starts first gets the device"
        )
    exists = any(mdev.uuid.lower() == uuid for mdev in scene.topology.mdevs)
    if not exists and scene.topology.cpus:
        yield _missing(resource, promises, what)


def _of_amounts(scene: Scene) -> Iterator[Found]:
    for cell in scene.told.cells:
        yield from _cell_memory(cell, scene)
        yield from _pages(cell.id, cell, scene)
    yield from _host_memory(scene.told.host, scene)
    short = {row.size_kib for cell in scene.told.cells for row in cell.pages if _is_short(row)}
    yield from _pages(None, scene.told.host, scene, besides=short)


def _cell_memory(cell: CellUsage, scene: Scene) -> Iterator[Found]:
    row = cell.memory_kib
    if row.promised and row.used + row.promised > max(row.total, 0):
        promises = tuple(one for one in scene.promises if one.extra.cell_memory_kib.get(cell.id))
        resource = Resource(kind="memory", id=str(cell.id), cell=cell.id)
        has = f"Cell {cell.id} has {_mib(row.total)} MiB besides huge pages, {_mib(row.used)} MiB of them used"
        yield _too_much("memory-over-commit", resource, promises, has, f"{_mib(row.promised)} MiB")


def _host_memory(host: HostUsage, scene: Scene) -> Iterator[Found]:
    row = host.memory_kib
    if row.promised and row.used + row.promised > max(row.limit, row.total - row.reserved, 0):
        promises = tuple(one for one in scene.promises if one.extra.cell_memory_kib or one.extra.host_memory_kib)
        has = f"Guests may have {_mib(row.limit)} MiB of small-page memory and use {_mib(row.used)} MiB"
        resource = Resource(kind="memory", id="host")
        yield _too_much("memory-over-commit", resource, promises, has, f"{_mib(row.promised)} MiB")


def _is_short(row: PageAmount) -> bool:
    return row.promised > 0 > row.free


def _pages(
    cell: int | None, part: CellUsage | HostUsage, scene: Scene, besides: AbstractSet[int] = frozenset()
) -> Iterator[Found]:
    for row in part.pages:
        if not _is_short(row) or row.size_kib in besides:
            continue
        promises = tuple(one for one in scene.promises if _holds_pages(one, cell, row.size_kib))
        place, away = "The host" if cell is None else f"Cell {cell}", row.total - row.promised - row.free
        has = f"{place} has {count(row.total, 'page')} of {row.size_kib} KiB, {away} of them used or kept for others"
        resource = Resource(kind="pages", id=str(row.size_kib), cell=cell)
        yield _too_much("pages-over-commit", resource, promises, has, f"{row.promised}")


def _too_much(kind: ConflictKind, resource: Resource, promises: Promised, has: str, promised: str) -> Found:
    to = all_described(claim for promise in promises for claim in promise.claims)
    harm = f"{_labels(promises)} may not start, or others lack the memory"
    more = f"{promised} more are promised to {to}"
    return Found(kind, resource, promises, (), f"{has}, and {more}", more, harm)


def _holds_pages(promise: Promise, cell: int | None, size_kib: int) -> bool:
    return any(hold.size_kib == size_kib and cell in {None, hold.cell} for hold in promise.extra.pages)


def _labels(promises: Iterable[Promise]) -> str:
    return some(sorted({promise.claimant.label for promise in promises}))


def _mib(kib: int) -> int:
    return round(kib / KIB_PER_MIB)
