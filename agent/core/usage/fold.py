"""Topology, configuration and what is seen, folded into rows and contradictions. Total: never raises."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import MappingProxyType
from typing import NamedTuple

from agent.core.conflicts import Conflict, ConflictKind, Resource, conflict, settled
from agent.core.cpuset import CpuSet, union
from agent.core.guest import Sighting
from agent.core.holds import GuestHolds, HostSets, guests_of, host_sets
from agent.core.host_config import HostConfig
from agent.core.topology import HostCell, HostTopology, huge_pools_only
from agent.core.usage.books import CpuBooks, DeviceBooks, SeenBooks
from agent.core.usage.cpus import cpu_amount, cpu_books, cpu_conflicts, cpu_holders, room_of
from agent.core.usage.devices import device_books, device_conflicts, device_rows, mdev_rows
from agent.core.usage.memory import (
    MemoryBooks,
    amount,
    cell_memory,
    cell_pages,
    host_memory,
    host_pages,
    memory_books,
    memory_conflicts,
)
from agent.core.usage.rows import CellUsage, CpuHolder, DeviceUsage, Folded, HostUsage, Remark, Usage
from agent.core.words import plural

REMARKED: frozenset[ConflictKind] = frozenset({"shared-on-dedicated", "device-missing"})
"""Kinds of conflict that say why a guest is not as its definition says, so that they stand beside the numbers too."""


def fold(topology: HostTopology, config: HostConfig, sightings: Iterable[Sighting]) -> Folded:
    """Everything that is held, free and contradictory, the same for any order of the sightings (LEDGER R5).

    Each CPU counts once, whoever holds it; of two holders the one that is left holds on. dedicated.total is what is
    configured, online and not withheld; held CPUs beyond that are among the holders alone.
    """
    topology = huge_pools_only(topology)
    sets = host_sets(topology, config)
    guests = guests_of(sightings, sets)
    cpus, memory, devices = cpu_books(guests), memory_books(guests), device_books(guests, topology)
    books = _Books(cpus, memory, cpu_holders(cpus))
    cells = tuple(_cell_usage(cell, config, sets, books) for cell in sorted(topology.cells, key=lambda one: one.id))
    host = _host_usage(topology, config, sets, books)
    room = room_of(cpus, sets)
    found = [
        *cpu_conflicts(guests, cpus, topology, sets, room),
        # a host that shows no CPU could not be looked at, so that it has no memory either is no fact
        *(memory_conflicts(guests, cells, host) if topology.cpus else ()),
        *device_conflicts(devices, topology),
        *_lost_by_libvirt(guests),
    ]
    conflicts = settled(found, config.accept)
    pci = device_rows(devices, config)
    usage = Usage(
        cells=cells,
        host=host,
        pci=pci,
        mdevs=mdev_rows(devices, topology),
        remarks=tuple(_remarks(guests, cpus, conflicts)),
        free_is_uncertain=any(guest.holds.uncertain for guest in guests),
        is_legacy=config.is_legacy,
        has_device_filter=bool(config.device_spec),
    )
    holds = MappingProxyType({guest.sighting.uuid: guest.holds for guest in guests})
    seen = _seen(guests, cpus, devices, pci)._replace(proposed=room.free.proposed)
    return Folded(usage=usage, conflicts=conflicts, holds=holds, seen=seen)


def _seen(guests: Sequence[GuestHolds], cpus: CpuBooks, devices: DeviceBooks, rows: Sequence[DeviceUsage]) -> SeenBooks:
    row_of = {row.address: place for place, row in enumerate(rows)}
    parents: list[int] = []
    children: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        device = devices.devices.get(row.address)
        parent = -1 if device is None or device.parent is None else row_of.get(device.parent, -1)
        parents.append(parent)
        if parent >= 0:
            children.setdefault(parent, []).append(place)
    return SeenBooks(guests, cpus, devices, row_of, parents, children)


class _Books(NamedTuple):
    cpus: CpuBooks
    memory: MemoryBooks
    holders: dict[int, CpuHolder]


def _cell_usage(cell: HostCell, config: HostConfig, sets: HostSets, books: _Books) -> CellUsage:
    usable = cell.cpus.mask & sets.usable
    shared = CpuSet.from_mask(usable & sets.shared)
    return CellUsage(
        id=cell.id,
        dedicated=cpu_amount(usable & sets.dedicated, books.cpus),
        shared_cpus=shared,
        shared=amount(len(shared), config.cpu_allocation_ratio, books.memory.cell_shared.get(cell.id, 0)),
        memory_kib=cell_memory(cell, books.memory, config, small_kib=sets.page_size_kib),
        pages=cell_pages(cell, books.memory, config),
        holders=tuple(books.holders[cpu] for cpu in CpuSet.from_mask(cell.cpus.mask & books.cpus.taken)),
    )


def _host_usage(topology: HostTopology, config: HostConfig, sets: HostSets, books: _Books) -> HostUsage:
    shared = CpuSet.from_mask(sets.usable & sets.shared)
    in_cells = union(sets.cells.values())
    floating = sum(books.memory.cell_shared.values()) + books.memory.host_shared
    return HostUsage(
        dedicated=cpu_amount(sets.usable & sets.dedicated, books.cpus),
        shared_cpus=shared,
        shared=amount(len(shared), config.cpu_allocation_ratio, floating),
        memory_kib=host_memory(topology, books.memory, config),
        pages=host_pages(topology, books.memory, config),
        holders=tuple(books.holders[cpu] for cpu in CpuSet.from_mask(books.cpus.taken & ~in_cells)),
    )


def _lost_by_libvirt(guests: Iterable[GuestHolds]) -> Iterator[Conflict]:
    for guest in guests:
        seen = guest.sighting
        if seen.others:
            yield _runs_twice(guest)
        if seen.others or seen.validity != "lost-by-libvirt":
            continue
        pid = "" if seen.run.pid is None else f" {seen.run.pid}"
        yield conflict(
            "domain-lost-by-libvirt",
            Resource(kind="guest", id=seen.uuid),
            (guest.owner,),
            cause=f"QEMU process{pid} of {seen.label} lives and uses its CPUs, memory and devices, but "
            "libvirt does not know that it runs",
            severity="critical",
            action=f"Shut the guest down from inside, wait until process{pid} has ended, then start it with virsh; "
            "starting it before is dangerous: two copies would write to one disk",
        )


def _runs_twice(guest: GuestHolds) -> Conflict:
    seen = guest.sighting
    unknown = {other.run.pid for other in seen.others}
    pids = sorted(pid for pid in unknown | {seen.run.pid} if pid is not None)
    known = f"{seen.run.pid} alone" if seen.validity == "valid" else "one at most"
    to_end = [pid for pid in pids if pid in unknown or seen.validity != "valid"]
    return conflict(
        "domain-lost-by-libvirt",
        Resource(kind="guest", id=seen.uuid),
        (guest.owner,),
        cause=f"{len(seen.others) + 1} QEMU processes of {seen.label} live at once (pids {', '.join(map(str, pids))}), "
        f"of which libvirt knows {known}: two copies of this guest use its memory, devices and disks",
        severity="critical",
        action="This is dangerous, since two copies that write to one disk destroy what is on it: end one of them now, "
        f"from inside the guest or with {' or '.join(f'`kill {pid}`' for pid in to_end)}, then check the disks before "
        "they are used again",
    )


def _remarks(guests: Iterable[GuestHolds], cpus: CpuBooks, conflicts: Iterable[Conflict]) -> Iterator[Remark]:
    causes: dict[str | None, list[str]] = {}
    for row in conflicts:
        for owner in row.owners if row.kind in REMARKED else ():
            causes.setdefault(owner.uuid, []).append(row.cause)
    for guest in guests:
        uuid, name = guest.sighting.uuid, guest.sighting.name
        for text in (_reading(guest, cpus), _idle_siblings(guest), *causes.get(uuid, ())):
            if text is not None:
                yield Remark(uuid=uuid, name=name, text=text)


def _reading(guest: GuestHolds, cpus: CpuBooks) -> str | None:
    """What to know of a guest that was not read in full now."""
    seen, holds = guest.sighting, guest.holds
    because = f": {seen.problem}" if seen.problem else ""
    if seen.validity == "valid":
        return seen.problem
    if not seen.is_active:
        return f"definition unreadable{because}"
    if seen.domain is not None:
        held = f"last known pins used ({plural(holds.cpus)})" if holds.cpus else "no pins as last known"
        return f"definition unreadable, {held}{because}"
    if holds.uncertain:
        return f"pins unknown, so free CPUs are uncertain{because}"
    kept = CpuSet.from_mask(holds.cpus.mask & ~cpus.pinned)
    held = f"{plural(kept)} held, since its threads may run there" if kept else "its threads run on no free CPU"
    return f"pins unknown, {held}{because}"


def _idle_siblings(guest: GuestHolds) -> str | None:
    idle = guest.holds.sibling_cpus
    return f"thread policy isolate keeps {plural(idle)} idle, not offered to others" if idle else None
