"""Where libvirt's capabilities and sysfs contradict one another: one row for one cause, with both values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

import msgspec

from agent.core.cpuset import CpuSet
from agent.core.topology import Cache, Cpu, HostCell, HostTopology
from agent.core.values import Problem
from agent.core.words import agrees, plural
from agent.formats.host_xml.capabilities import Capabilities, CapabilityCell, CapabilityCpu

SOURCE = "libvirt capabilities"

MEMORY_TOLERANCE = 1 / 64
"""Share of a cell's memory by which two readings may differ: they are taken at different moments, and the total moves
when a balloon inflates (on a host that is a guest itself) or the kernel gives back what booting needed."""

_MOST_GROUPS = 16

_PLACES: tuple[tuple[str, Callable[[Cpu], int | None], Callable[[CapabilityCpu], int | None]], ...] = (
    ("socket", lambda cpu: cpu.socket, lambda cpu: cpu.socket),
    ("die", lambda cpu: cpu.die, lambda cpu: cpu.die),
    ("cluster", lambda cpu: cpu.cluster, lambda cpu: cpu.cluster),
    ("core", lambda cpu: cpu.kernel_core_id, lambda cpu: cpu.core),
)


def disagreements(topology: HostTopology, capabilities: Capabilities) -> tuple[Problem, ...]:
    """What sysfs and libvirt's capabilities say differently, and what of the capabilities could not be read.

    Both are to be read at about the same time. Each row has the values "sysfs" and "libvirt". What one side does not
    say is no disagreement, except cells and CPUs: each side claims to list all of them. sysfs's word counts.
    """
    rows = [Problem(source=SOURCE, what=f"could not be read: {text}") for text in capabilities.problems]
    if capabilities.cells:
        rows += _cells(topology, capabilities)
        rows += _cpus(topology, capabilities)
        shared = _shared_cells(topology, capabilities)
        rows += _memory(shared)
        rows += _pages(shared, topology.page_size_kib)
        rows += _distances(shared)
    else:
        cells = _ids(topology.cells)
        rows.append(
            _row("libvirt names no cell, so it knows neither CPUs nor memory of this host", f"cells {cells}", "-")
        )
    rows += _caches(topology.caches, capabilities.caches, topology.online)
    return tuple(rows)


def _row(what: str, sysfs: str, libvirt: str) -> Problem:
    return Problem(source=SOURCE, what=what, values=MappingProxyType({"sysfs": sysfs, "libvirt": libvirt}))


def _ids(cells: Iterable[HostCell | CapabilityCell]) -> CpuSet:
    return CpuSet(cell.id for cell in cells)


def _shared_cells(topology: HostTopology, capabilities: Capabilities) -> list[tuple[HostCell, CapabilityCell]]:
    said = {cell.id: cell for cell in capabilities.cells}
    return [(cell, said[cell.id]) for cell in topology.cells if cell.id in said]


def _cells(topology: HostTopology, capabilities: Capabilities) -> Iterator[Problem]:
    known, said = _ids(topology.cells), _ids(capabilities.cells)
    if gone := known - said:
        yield _row(
            f"libvirt does not list {plural(gone, 'cell')}, nor what is in {agrees(gone, 'it', 'them')}",
            plural(known, "cell"),
            plural(said, "cell"),
        )
    if more := said - known:
        yield _row(
            f"libvirt lists {plural(more, 'cell')}, which the kernel does not show",
            plural(known, "cell"),
            plural(said, "cell"),
        )


def _cpus(topology: HostTopology, capabilities: Capabilities) -> Iterator[Problem]:
    listed, online = capabilities.cpus, topology.online
    every = CpuSet(cpu.id for cpu in topology.cpus)
    dropped = _ids(topology.cells) - _ids(capabilities.cells)
    in_dropped_cells = CpuSet(cpu.id for cpu in topology.cpus if cpu.cell is not None and cpu.cell in dropped)
    if offline := listed & topology.offline:
        yield _row(
            f"libvirt goes on listing {plural(offline)}, which {agrees(offline, 'is', 'are')} offline",
            f"online {online}",
            f"listed {listed}",
        )
    if unknown := listed - every:
        yield _row(
            f"libvirt lists {plural(unknown)}, which this host does not have", f"present {every}", f"listed {listed}"
        )
    if missing := online - listed - in_dropped_cells:
        yield _row(
            f"libvirt does not list {plural(missing)}, which {agrees(missing, 'is', 'are')} online",
            f"online {online}",
            f"listed {listed}",
        )
    yield from _seats(topology, capabilities)
    yield from _places(topology, capabilities)


def _seats(topology: HostTopology, capabilities: Capabilities) -> Iterator[Problem]:
    seats: defaultdict[int, set[int]] = defaultdict(set)
    for cell in capabilities.cells:
        for cpu in cell.cpus:
            seats[cpu.id].add(cell.id)
    known = {cpu.id: cpu.cell for cpu in topology.cpus if cpu.online and cpu.cell is not None}
    moved = [cpu for cpu in seats if cpu in known and seats[cpu] != {known[cpu]}]
    if moved:
        sysfs = _grouped("cell", ((str(known[cpu]), cpu) for cpu in moved))
        libvirt = _grouped("cell", ((str(CpuSet(seats[cpu])), cpu) for cpu in moved))
        yield _row(
            f"libvirt lists {plural(CpuSet(moved))} in {agrees(moved, 'another cell', 'other cells')}", sysfs, libvirt
        )


def _places(topology: HostTopology, capabilities: Capabilities) -> Iterator[Problem]:
    said = {cpu.id: cpu for cell in capabilities.cells for cpu in cell.cpus}
    pairs = [(cpu, said[cpu.id]) for cpu in topology.cpus if cpu.online and cpu.id in said]
    for name, of_sysfs, of_libvirt in _PLACES:
        differ = {
            cpu.id: (ours, theirs)
            for cpu, other in pairs
            if (ours := of_sysfs(cpu)) is not None and (theirs := of_libvirt(other)) is not None and ours != theirs
        }
        if differ:
            sysfs = _grouped(name, ((str(ours), cpu) for cpu, (ours, _) in differ.items()))
            libvirt = _grouped(name, ((str(theirs), cpu) for cpu, (_, theirs) in differ.items()))
            yield _row(f"libvirt gives {plural(CpuSet(differ))} another {name} id", sysfs, libvirt)
    online = topology.online
    siblings = {
        cpu.id: (cpu.siblings, other.siblings & online)
        for cpu, other in pairs
        if other.siblings is not None and cpu.siblings & online != other.siblings & online
    }
    if siblings:
        sysfs = _joined(dict.fromkeys(str(ours) for ours, _ in siblings.values()))
        libvirt = _joined(dict.fromkeys(str(theirs) for _, theirs in siblings.values()))
        yield _row(f"libvirt gives {plural(CpuSet(siblings))} other siblings", sysfs, libvirt)


def _grouped(name: str, pairs: Iterable[tuple[str, int]]) -> str:
    groups: defaultdict[str, set[int]] = defaultdict(set)
    for value, cpu in pairs:
        groups[value].add(cpu)
    return _joined(f"{name} {value}: {plural(CpuSet(cpus))}" for value, cpus in groups.items())


def _joined(texts: Iterable[str]) -> str:
    told = list(texts)
    more = [f"{len(told) - _MOST_GROUPS} more"] if len(told) > _MOST_GROUPS else []
    return "; ".join(told[:_MOST_GROUPS] + more) or "-"


def _memory(shared: Iterable[tuple[HostCell, CapabilityCell]]) -> Iterator[Problem]:
    for cell, said in shared:
        if said.memory_kib is not None and abs(cell.memory_kib - said.memory_kib) > cell.memory_kib * MEMORY_TOLERANCE:
            what = f"libvirt gives cell {cell.id} another amount of memory"
            yield _row(what, f"{cell.memory_kib} KiB", f"{said.memory_kib} KiB")


def _pages(shared: Iterable[tuple[HostCell, CapabilityCell]], small_kib: int) -> Iterator[Problem]:
    # Small pages are what the huge ones leave of the memory, which is compared above.
    differ: defaultdict[int, dict[int, tuple[int | None, int | None]]] = defaultdict(dict)
    for cell, said in shared:
        pools = {pool.size_kib: pool.total for pool in cell.pages}
        for size_kib in sorted((pools.keys() | said.pages.keys()) - {small_kib}):
            both = pools.get(size_kib), said.pages.get(size_kib)
            if (both[0] or 0) != (both[1] or 0):
                differ[size_kib][cell.id] = both
    for size_kib, cells in sorted(differ.items()):
        sysfs = _joined(f"cell {cell}: {_pool_text(ours)}" for cell, (ours, _) in cells.items())
        libvirt = _joined(f"cell {cell}: {_pool_text(theirs)}" for cell, (_, theirs) in cells.items())
        yield _row(f"libvirt counts other numbers of huge pages of {size_kib} KiB", sysfs, libvirt)


def _pool_text(total: int | None) -> str:
    return "no pool" if total is None else str(total)


def _distances(shared: Iterable[tuple[HostCell, CapabilityCell]]) -> Iterator[Problem]:
    differ = [(cell, said) for cell, said in shared if _compared(cell, said) != dict(said.distances)]
    if differ:
        sysfs = "; ".join(f"cell {cell.id}: {_distance_text(cell.distances)}" for cell, _ in differ)
        libvirt = "; ".join(f"cell {said.id}: {_distance_text(said.distances)}" for _, said in differ)
        yield _row(f"libvirt gives {plural(_ids(cell for cell, _ in differ), 'cell')} other distances", sysfs, libvirt)


def _compared(cell: HostCell, said: CapabilityCell) -> dict[int, int]:
    return {other: cell.distances[other] for other in said.distances if other in cell.distances}


def _distance_text(distances: Mapping[int, int]) -> str:
    return " ".join(f"{other}={value}" for other, value in sorted(distances.items())) or "-"


def _caches(ours: Iterable[Cache], theirs: Iterable[Cache], online: CpuSet) -> Iterator[Problem]:
    said = {msgspec.structs.replace(cache, cpus=cache.cpus & online) for cache in theirs}
    kinds = {(cache.level, cache.type) for cache in said}
    known = {cache for cache in ours if (cache.level, cache.type) in kinds}
    if known != said:
        yield _row("libvirt shows other caches", _cache_text(known - said), _cache_text(said - known))


def _cache_text(caches: Iterable[Cache]) -> str:
    ordered = sorted(caches, key=lambda cache: (cache.level, cache.type, list(cache.cpus)))
    return _joined(f"L{cache.level} {cache.type} {cache.size_kib} KiB: {plural(cache.cpus)}" for cache in ordered)
