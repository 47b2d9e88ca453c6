"""The NUMA cells of a guest: how many, and which vCPUs and how much memory each has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from agent.core.cpuset import CpuSet
from agent.core.flavor.faults import FaultKind, Property
from agent.core.flavor.reading import UNREAD, Reading, Unread, cpu_list, whole
from agent.core.instance import CellRequest
from agent.core.values import Value
from agent.core.words import some

_NUMBERED = re.compile(r"numa_(cpus|mem)\.(?P<cell>0|[1-9]\d{0,2})", re.ASCII)
_MOST_MB = 2**31 - 1


class Size(Value, frozen=True, kw_only=True):
    """Of the whole guest. memory_mb: MiB."""

    vcpus: int
    memory_mb: int

    def __str__(self) -> str:
        return f"vcpus={self.vcpus} and memory_mb={self.memory_mb} of the flavor"


_Numbered = dict[int, Property]
"""Properties of one kind, by guest cell."""


def count(reading: Reading) -> int | Unread | None:
    """hw:numa_nodes of flavor or image; None: not said."""
    flavor, image = reading.both("numa_nodes")
    if flavor is not None and image is not None:
        return _refuse_twice(reading, "cells-twice", flavor, image)
    said = flavor or image
    if said is None:
        return None
    number = whole(said.value, 1, _MOST_MB)
    if number is not None:
        return number
    return reading.refuse(
        "cells-number",
        said,
        found=f"{said} is not a number of cells from 1 on.",
        change=f"Set {said.name} to a whole number from 1 on, or take it off.",
    )


def cells(reading: Reading, size: Size, cell_count: int | None, pinned: CpuSet) -> tuple[CellRequest, ...]:
    """The guest's cells when it has any; () when there was a fault. cell_count None: one."""
    cpus = _one_side(reading, "numa_cpus", "cell-cpus-twice")
    memory = _one_side(reading, "numa_mem", "cell-memory-twice")
    if cpus is UNREAD or memory is UNREAD:
        return ()
    nodes = cell_count or 1
    said = _count_said(reading)
    if not cpus and not memory:
        return _even(reading, size, nodes, said, pinned)
    wanted = set(range(min(nodes, len(cpus) + len(memory) + 1)))
    if set(cpus) != wanted or set(memory) != wanted or len(wanted) != nodes:
        _refuse_incomplete(reading, nodes, said, cpus, memory)
        return ()
    return _by_hand(reading, size, cpus, memory, pinned)


def without_cells(reading: Reading) -> None:
    """Note what is said about cells of a guest that gets none."""
    found = [*_numbered(reading, "numa_cpus"), *_numbered(reading, "numa_mem")]
    names = [said.name for side in found for said in side.values()]
    if names:
        reading.note(f"{some(names)} have no effect: the guest gets no cells without hw:numa_nodes, pins or pages.")


def _even(reading: Reading, size: Size, nodes: int, said: Property, pinned: CpuSet) -> tuple[CellRequest, ...]:
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


def _by_hand(
    reading: Reading, size: Size, cpus: _Numbered, memory: _Numbered, pinned: CpuSet
) -> tuple[CellRequest, ...]:
    lists = [_cell_cpus(reading, cpus[node], size.vcpus) for node in range(len(cpus))]
    amounts = [_cell_memory(reading, memory[node]) for node in range(len(memory))]
    read = [one for one in lists if one is not UNREAD]
    if len(read) == len(lists):
        _check_cover(reading, size.vcpus, read, cpus)
    megabytes = [one for one in amounts if one is not UNREAD]
    if len(megabytes) == len(amounts) and sum(megabytes) != size.memory_mb:
        said = [memory[node] for node in sorted(memory)]
        total = Property(name="memory_mb", value=str(size.memory_mb), where="flavor")
        reading.refuse(
            "cell-memory-sum",
            *said,
            total,
            found=f"{_listed(said)} make {sum(megabytes)} MiB together, but there is {total}.",
            change="Change hw:numa_mem.N of a cell so that all together are the flavor's memory.",
        )
    return tuple(
        CellRequest(id=node, vcpus=vcpus, memory_kib=memory_mb * 1024, pinned=vcpus & pinned)
        for node, (vcpus, memory_mb) in enumerate(zip(read, megabytes, strict=False))
    )


def _cell_cpus(reading: Reading, said: Property, vcpus: int) -> CpuSet | Unread:
    try:
        found = cpu_list(said.value)
    except ValueError as error:
        return reading.refuse(
            "cell-cpus-list",
            said,
            found=f"{said} cannot be read: {error}.",
            change=f"Write {said.name} as in 0-3 or 0,2.",
        )
    if not found:
        return reading.refuse(
            "cell-cpus-empty",
            said,
            found=f"{said} leaves the cell without a vCPU.",
            change=f"Name a vCPU in {said.name}, or have fewer cells.",
        )
    if found <= CpuSet.from_mask((1 << vcpus) - 1):
        return found
    return reading.refuse(
        "cell-cpu-range",
        said,
        Property(name="vcpus", value=str(vcpus), where="flavor"),
        found=f"{said} names vCPUs beyond the last, {vcpus - 1}, with vcpus={vcpus} of the flavor.",
        change=f"Name only vCPUs from 0 to {vcpus - 1} in {said.name}, or change vcpus.",
    )


def _cell_memory(reading: Reading, said: Property) -> int | Unread:
    number = whole(said.value, 1, _MOST_MB)
    if number is not None:
        return number
    return reading.refuse(
        "cell-memory-number",
        said,
        found=f"{said} is not a number of MiB from 1 on.",
        change=f"Set {said.name} to the MiB of the cell.",
    )


def _check_cover(reading: Reading, vcpus: int, lists: Sequence[CpuSet], said: Mapping[int, Property]) -> None:
    """Each vCPU in exactly one cell."""
    seen = CpuSet()
    for node, found in enumerate(lists):
        if not found.isdisjoint(seen):
            other = next(n for n in range(node) if not lists[n].isdisjoint(found))
            reading.refuse(
                "cell-cpu-shared",
                said[other],
                said[node],
                found=f"{said[other]} and {said[node]} both have vCPU {lists[other] & found}.",
                change="Take it off one of them: a vCPU is in one cell.",
            )
        seen |= found
    missing = CpuSet.from_mask((1 << vcpus) - 1) - seen
    if missing:
        reading.refuse(
            "cell-cpu-unassigned",
            *(said[node] for node in range(len(lists))),
            Property(name="vcpus", value=str(vcpus), where="flavor"),
            found=f"No cell has vCPU {missing} of vcpus={vcpus} of the flavor: {_listed(said.values())}.",
            change="Add it to hw:numa_cpus.N of a cell.",
        )


def _one_side(reading: Reading, name: str, kind: FaultKind) -> _Numbered | Unread:
    flavor, image = _numbered(reading, name)
    if flavor and image:
        return _refuse_twice(reading, kind, next(iter(flavor.values())), next(iter(image.values())))
    return flavor or image


def _numbered(reading: Reading, name: str) -> tuple[_Numbered, _Numbered]:
    flavor = {_cell(key, "hw:"): reading.flavor(key[3:]) for key in reading.flavor_words if _is(key, f"hw:{name}.")}
    image = {_cell(key, "hw_"): reading.image(key[3:]) for key in reading.image_words if _is(key, f"hw_{name}.")}
    return _by_cell(flavor), _by_cell(image)


def _is(key: str, start: str) -> bool:
    return key.startswith(start) and _NUMBERED.fullmatch(key[3:]) is not None


def _cell(key: str, start: str) -> int:
    return int(key.removeprefix(start).partition(".")[2])


def _by_cell(found: Mapping[int, Property | None]) -> _Numbered:
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


def _refuse_incomplete(reading: Reading, nodes: int, said: Property, cpus: _Numbered, memory: _Numbered) -> None:
    given = [*cpus.values(), *memory.values()]
    reading.refuse(
        "cells-incomplete",
        said,
        *given,
        found=f"With {said}, vCPUs and memory of each of {nodes} cells are needed, but there is {_listed(given)}.",
        change=f"Give hw:numa_cpus.N and hw:numa_mem.N for each N from 0 to {nodes - 1}, or for none.",
    )
