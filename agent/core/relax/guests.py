"""Which guests have what somebody else lacks, and what would be free without them at best."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from agent.core.cpuset import CpuMask, CpuSet, union
from agent.core.fit.devices.facts import DeviceFacts
from agent.core.fit.host import CellOffer, Offer
from agent.core.ledger import Holds
from agent.core.reasons import (
    CpusShort,
    CpusUncertain,
    DevicesApart,
    DevicesContended,
    DevicesFar,
    DevicesShort,
    EmulatorCpuShort,
    GroupViolated,
    MemoryShort,
    PagesShort,
    Reason,
    SharedOverRatio,
    ThreadsShort,
)
from agent.core.relax.values import Leaving
from agent.core.snapshot import Snapshot

_ABOUT_CPUS = (CpusShort, ThreadsShort, EmulatorCpuShort)
_ABOUT_DEVICES = (DevicesShort, DevicesFar, DevicesContended, DevicesApart)


def at_best(offer: Offer, gone: Collection[Holds]) -> Offer:
    """At least what `what_if.without_guests` would, without adding up the whole host: what these guests hold, as if
    nobody else held any of it."""
    cpus = union((holds.cpus | holds.sibling_cpus).mask for holds in gone)
    floating = sum(holds.host_shared + sum(holds.cell_shared.values()) for holds in gone)
    memory_kib = sum(holds.host_memory_kib + sum(holds.cell_memory_kib.values()) for holds in gone)
    uncertain = () if any(holds.uncertain for holds in gone) else offer.uncertain
    return msgspec.structs.replace(
        offer,
        cells=tuple(_room_at_best(room, cpus, gone) for room in offer.cells),
        free_devices=offer.free_devices | _devices_at_best(offer.facts.devices, gone),
        floating=offer.floating + floating,
        free_by_ratio_kib=offer.free_by_ratio_kib + memory_kib,
        free_kib=offer.free_kib + memory_kib,
        uncertain=uncertain,
    )


def _room_at_best(room: CellOffer, cpus: int, gone: Collection[Holds]) -> CellOffer:
    cell = room.facts.id
    back = {(pages.cell, pages.size_kib): 0 for holds in gone for pages in holds.pages}
    for holds in gone:
        for pages in holds.pages:
            back[pages.cell, pages.size_kib] += pages.count
    memory_kib = sum(holds.cell_memory_kib.get(cell, 0) for holds in gone)
    return msgspec.structs.replace(
        room,
        free_cpus=CpuMask(room.free_cpus | cpus & room.facts.dedicated),
        floating=room.floating + sum(holds.cell_shared.get(cell, 0) for holds in gone),
        free_kib=room.free_kib + memory_kib,
        free_by_ratio_kib=room.free_by_ratio_kib + memory_kib,
        pages=tuple(
            msgspec.structs.replace(pool, free=pool.free + back.get((cell, pool.size_kib), 0)) for pool in room.pages
        ),
    )


def _devices_at_best(facts: DeviceFacts, gone: Collection[Holds]) -> int:
    """What is offered of their devices and of the relatives of these; all that is offered where one has a mediated
    device, whose function it does not name."""
    offered = union(pool.devices for pool in facts.pools)
    if any(holds.mdevs for holds in gone):
        return offered
    mask = 0
    for holds in gone:
        for number in (facts.number[address] for address in holds.devices if address in facts.number):
            mask |= 1 << number | facts.relatives.get(number, 0)
    # a card whose function they have is kept from others by it, and so are its other functions by the card
    for number in CpuSet.from_mask(mask):
        mask |= facts.relatives.get(number, 0)
    return mask & offered


def who_could_help(snapshot: Snapshot, reasons: Iterable[Reason]) -> tuple[Leaving, ...]:
    """Guests that hold any of what is lacking, or that the new one must keep apart from; those with the least first."""
    kinds = tuple(reasons)
    able = [holds for holds in snapshot.holds.values() if _holds_any(holds, kinds)]
    sizes = {holds.uuid: _size(holds) for holds in able}
    guests = [_leaving(snapshot, holds) for holds in able]
    return tuple(sorted(guests, key=lambda guest: (sizes[guest.uuid], guest.label, guest.uuid)))


def _holds_any(holds: Holds, reasons: Iterable[Reason]) -> bool:
    return any(_could_help(holds, reason) for reason in reasons)


def _could_help(holds: Holds, reason: Reason) -> bool:
    if isinstance(reason, _ABOUT_CPUS):
        return bool(holds.cpus or holds.sibling_cpus)
    if isinstance(reason, GroupViolated):
        return any(holds.uuid == member.uuid for member in reason.members)
    if isinstance(reason, CpusUncertain):
        return holds.uncertain
    if isinstance(reason, MemoryShort):
        return bool(holds.cell_memory_kib or holds.host_memory_kib)
    if isinstance(reason, PagesShort):
        return any(pages.size_kib == reason.size_kib for pages in holds.pages)
    if isinstance(reason, SharedOverRatio):
        return bool(holds.cell_shared or holds.host_shared)
    return isinstance(reason, _ABOUT_DEVICES) and bool(holds.devices or holds.mdevs)


def _size(holds: Holds) -> tuple[int, int]:
    """Dedicated CPUs count most: they are what pinned guests wait for."""
    memory_kib = sum(holds.cell_memory_kib.values()) + holds.host_memory_kib
    pages_kib = sum(pages.size_kib * pages.count for pages in holds.pages)
    return len(holds.cpus | holds.sibling_cpus), memory_kib + pages_kib


def _leaving(snapshot: Snapshot, holds: Holds) -> Leaving:
    cpus = holds.cpus | holds.sibling_cpus
    cells = {cell.id for cell in snapshot.topology.cells if not cell.cpus.isdisjoint(cpus)}
    cells.update(holds.cell_memory_kib, holds.cell_shared)
    cells.update(pages.cell for pages in holds.pages if pages.cell is not None)
    return Leaving(uuid=holds.uuid, name=snapshot.ledger.sightings[holds.uuid].name, cells=CpuSet(cells))
