"""The NUMA cells of a guest: how many, and which vCPUs and how much memory each has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from agent.core.cpuset import CpuSet
from agent.core.flavor.reading import UNREAD, Reading, Unread, cpu_list, whole
from agent.core.instance import LARGEST_NUMBER, MOST_MEMORY_MB, CellRequest
from agent.core.request_faults import FaultKind, Property
from agent.core.values import ReadOnlyMap, Value
from agent.core.words import some

NUMBERED = re.compile(r"hw[:_](?P<name>numa_cpus|numa_mem)\.(?P<cell>0|[1-9]\d{0,2})", re.ASCII)
"""Names of properties that say of one cell, by its number, what it has."""


class Size(Value, frozen=True, kw_only=True):
    """Of the whole guest. memory_mb: MiB."""

    vcpus: int
    memory_mb: int

    def __str__(self) -> str:
        return f"vcpus={self.vcpus} and memory_mb={self.memory_mb} of the flavor"


class ExplicitCells(Value, frozen=True, kw_only=True):
    """What numbered properties say of cells, by guest cell, and where: also what could not be read."""

    cpus: ReadOnlyMap[int, CpuSet] = MappingProxyType({})
    memory_mb: ReadOnlyMap[int, int] = MappingProxyType({})
    cpus_said: ReadOnlyMap[int, Property] = MappingProxyType({})
    memory_said: ReadOnlyMap[int, Property] = MappingProxyType({})

    @property
    def said(self) -> list[Property]:
        """All of it, vCPUs first."""
        return [*self.cpus_said.values(), *self.memory_said.values()]


def cell_count(reading: Reading) -> int | Unread | None:
    """hw:numa_nodes of flavor or image; None: not said."""
    flavor, image = reading.both("numa_nodes")
    numbers = [_count(reading, said) for said in (flavor, image) if said is not None]
    if flavor is not None and image is not None:
        return _refuse_twice(reading, "cells-twice", flavor, image)
    return numbers[0] if numbers else None


def explicit_cells(reading: Reading) -> ExplicitCells:
    """hw:numa_cpus.N and hw:numa_mem.N, each of flavor or image; text that is none is refused, used or not."""
    cpus_said = _one_side(reading, "numa_cpus", "cell-cpus-twice")
    memory_said = _one_side(reading, "numa_mem", "cell-memory-twice")
    cpus = {cell: _cell_cpus(reading, said) for cell, said in cpus_said.items()}
    memory = {cell: _cell_memory(reading, said) for cell, said in memory_said.items()}
    return ExplicitCells(
        cpus=MappingProxyType({cell: found for cell, found in cpus.items() if found is not UNREAD}),
        memory_mb=MappingProxyType({cell: found for cell, found in memory.items() if found is not UNREAD}),
        cpus_said=MappingProxyType(cpus_said),
        memory_said=MappingProxyType(memory_said),
    )


def cells(
    reading: Reading, size: Size, explicit: ExplicitCells, nodes: int | None, pinned: CpuSet
) -> tuple[CellRequest, ...]:
    """The guest's cells when it has any; () when there was a fault. nodes None: one."""
    nodes = nodes or 1
    if not explicit.said:
        return _even(reading, size, nodes, pinned)
    # no more cells are wanted than properties are there: the number of cells may be anything
    wanted = set(range(min(nodes, len(explicit.said))))
    if not wanted == set(explicit.cpus_said) == set(explicit.memory_said):
        _refuse_incomplete(reading, nodes, explicit)
        return ()
    are_within = [_is_within(reading, explicit.cpus_said[cell], found, size) for cell, found in explicit.cpus.items()]
    if len(explicit.cpus) == nodes and all(are_within):
        _check_cover(reading, size.vcpus, explicit)
    if len(explicit.memory_mb) == nodes:
        _check_sum(reading, size, explicit)
    return tuple(
        CellRequest(id=cell, vcpus=vcpus, memory_kib=explicit.memory_mb.get(cell, 0) * 1024, pinned=vcpus & pinned)
        for cell, vcpus in explicit.cpus.items()
    )


def without_cells(reading: Reading, explicit: ExplicitCells) -> None:
    """Note what is said about cells of a guest that gets none."""
    if explicit.said:
        names = some([said.name for said in explicit.said])
        reading.note(f"The guest gets no cells without hw:numa_nodes, pins or a page size: no effect of {names}.")


def _count(reading: Reading, said: Property) -> int | Unread:
    number = whole(said.value, 1, LARGEST_NUMBER)
    if number is not None:
        return number
    return reading.refuse(
        "cells-number",
        said,
        found=f"{said} is not a number of cells from 1 on.",
        change=f"Set {said.name} to a whole number from 1 on, or take it off.",
    )


def _even(reading: Reading, size: Size, nodes: int, pinned: CpuSet) -> tuple[CellRequest, ...]:
    said = _count_said(reading)
    if size.vcpus % nodes or size.memory_mb % nodes:
        reading.refuse(
            "cells-uneven",
            said,
            *_size_said(size),
            found=f"{said} does not divide both {size}.",
            change="Set hw:numa_nodes to a divisor of both, or give each cell its hw:numa_cpus.N and hw:numa_mem.N.",
        )
        return ()
    share, memory_kib = size.vcpus // nodes, size.memory_mb // nodes * 1024
    split = [CpuSet.from_mask(((1 << share) - 1) << share * node) for node in range(nodes)]
    return tuple(
        CellRequest(id=node, vcpus=vcpus, memory_kib=memory_kib, pinned=vcpus & pinned)
        for node, vcpus in enumerate(split)
    )


def _is_within(reading: Reading, said: Property, found: CpuSet, size: Size) -> bool:
    last = size.vcpus - 1
    if found <= CpuSet.from_mask((1 << size.vcpus) - 1):
        return True
    reading.refuse(
        "cell-cpu-range",
        said,
        _size_said(size)[0],
        found=f"{said} names vCPUs beyond the last, {last}, with vcpus={size.vcpus} of the flavor.",
        change=f"Name only vCPUs from 0 to {last} in {said.name}, or change vcpus.",
    )
    return False


def _check_sum(reading: Reading, size: Size, explicit: ExplicitCells) -> None:
    together = sum(explicit.memory_mb.values())
    if together == size.memory_mb:
        return
    total = _size_said(size)[1]
    reading.refuse(
        "cell-memory-sum",
        *explicit.memory_said.values(),
        total,
        found=f"{_listed(explicit.memory_said.values())} make {together} MiB together, but there is {total}.",
        change=f"Change {explicit.memory_said[0].name} or that of another cell, or memory_mb.",
    )


def _cell_cpus(reading: Reading, said: Property) -> CpuSet | Unread:
    try:
        found = cpu_list(said.value)
    except ValueError as error:
        return reading.refuse(
            "cell-cpus-list",
            said,
            found=f"{said} cannot be read: {error}.",
            change=f"Write {said.name} as in 0-3 or 0,2.",
        )
    if found:
        return found
    return reading.refuse(
        "cell-cpus-empty",
        said,
        found=f"{said} leaves the cell without a vCPU.",
        change=f"Name a vCPU in {said.name}, or have fewer cells.",
    )


def _cell_memory(reading: Reading, said: Property) -> int | Unread:
    number = whole(said.value, 1, MOST_MEMORY_MB)
    if number is not None:
        return number
    return reading.refuse(
        "cell-memory-number",
        said,
        found=f"{said} is not a number of MiB from 1 on.",
        change=f"Set {said.name} to the MiB of the cell.",
    )


def _check_cover(reading: Reading, vcpus: int, explicit: ExplicitCells) -> None:
    """Each vCPU in exactly one cell."""
    seen = CpuSet()
    for cell, found in explicit.cpus.items():
        if not found.isdisjoint(seen):
            other = next(one for one, earlier in explicit.cpus.items() if not earlier.isdisjoint(found))
            pair = explicit.cpus_said[other], explicit.cpus_said[cell]
            reading.refuse(
                "cell-cpu-shared",
                *pair,
                found=f"{pair[0]} and {pair[1]} both have vCPU {explicit.cpus[other] & found}.",
                change=f"Take it off {pair[0].name} or {pair[1].name}: a vCPU is in one cell.",
            )
        seen |= found
    missing = CpuSet.from_mask((1 << vcpus) - 1) - seen
    if missing:
        reading.refuse(
            "cell-cpu-unassigned",
            *explicit.cpus_said.values(),
            Property(name="vcpus", value=str(vcpus), where="flavor"),
            found=f"No cell has vCPU {missing} of vcpus={vcpus} of the flavor: {_listed(explicit.cpus_said.values())}.",
            change=f"Add it to {explicit.cpus_said[0].name} or that of another cell, or change vcpus.",
        )


def _one_side(reading: Reading, name: str, kind: FaultKind) -> dict[int, Property]:
    """The flavor's or the image's, by cell; both together are a fault."""
    flavor, image = _numbered(reading, name)
    if flavor and image:
        _refuse_twice(reading, kind, next(iter(flavor.values())), next(iter(image.values())))
    return flavor or image


def _numbered(reading: Reading, name: str) -> tuple[dict[int, Property], dict[int, Property]]:
    return _by_cell(reading.flavor, reading.flavor_words, name), _by_cell(reading.image, reading.image_words, name)


def _by_cell(side: Callable[[str], Property | None], words: Mapping[str, str], name: str) -> dict[int, Property]:
    matches = (NUMBERED.fullmatch(key) for key in words)
    found = {int(one["cell"]): side(f"{name}.{one['cell']}") for one in matches if one and one["name"] == name}
    return {cell: said for cell, said in sorted(found.items()) if said is not None}


def _count_said(reading: Reading) -> Property:
    flavor, image = reading.both("numa_nodes")
    return flavor or image or Property(name="hw:numa_nodes", value=None, where="flavor")


def _size_said(size: Size) -> tuple[Property, Property]:
    return (
        Property(name="vcpus", value=str(size.vcpus), where="flavor"),
        Property(name="memory_mb", value=str(size.memory_mb), where="flavor"),
    )


def _listed(said: Iterable[Property]) -> str:
    return some([str(one) for one in said])


def _refuse_twice(reading: Reading, kind: FaultKind, flavor: Property, image: Property) -> Unread:
    return reading.refuse(
        kind,
        flavor,
        image,
        found=f"{flavor} and {image} both say how the guest is parted.",
        change=f"Take {image.name} off the image, or {flavor.name} off the flavor.",
    )


def _refuse_incomplete(reading: Reading, nodes: int, explicit: ExplicitCells) -> None:
    said = _count_said(reading)
    reading.refuse(
        "cells-incomplete",
        said,
        *explicit.said,
        found=f"With {said}, vCPUs and memory of each of {nodes} cells are needed, but there is "
        f"{_listed(explicit.said)}.",
        change=f"Give hw:numa_cpus.N and hw:numa_mem.N for all N from 0 to {nodes - 1}, or change {said.name}.",
    )
