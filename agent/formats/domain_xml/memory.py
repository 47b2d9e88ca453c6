"""Memory: how much, in which guest cells, bound to which host cells, in which pages, and modules that were plugged."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from agent.core.cpuset import CpuSet
from agent.core.guest import GuestCell, MemoryDevice
from agent.formats.xml_text import Element, Reader

SMALL_PAGE_KIB = 4
"""Never a huge page on any machine; larger sizes are compared with the host's own small page by whoever knows it."""


class Memory(NamedTuple):
    """The fields of `ObservedDomain` about memory, under the same names."""

    memory_kib: int
    current_memory_kib: int | None
    max_memory_kib: int | None
    mode: str | None
    nodeset: CpuSet
    cells: tuple[GuestCell, ...]
    page_size_kib: int | None
    default_huge_pages: bool
    memory_locked: bool
    memory_devices: tuple[MemoryDevice, ...]


class _Binding(NamedTuple):
    """Policy and host cells of some memory."""

    mode: str | None = None
    nodeset: CpuSet = CpuSet()


class _Pages(NamedTuple):
    """size_kib: for all memory; by_cell: for guest cells that name their own; host_default: <hugepages/>, no size."""

    size_kib: int | None = None
    by_cell: Mapping[int, int] = MappingProxyType({})
    host_default: bool = False


def read_memory(root: Element, reader: Reader) -> Memory:
    """<memory>, <currentMemory>, <maxMemory>, <memoryBacking>, <numatune>, <cpu><numa> and <devices><memory>."""
    backing = root.find("memoryBacking")
    pages = _pages(backing, reader)
    tune = root.find("numatune")
    binding = _binding(None if tune is None else tune.find("memory"), "numatune memory", reader)
    cells = _cells(root, tune, binding, pages, reader)
    devices, unplugged_kib = _devices(root, reader)
    current_kib = reader.kib(root.find("currentMemory"), "currentMemory")
    memory_kib = reader.kib(root.find("memory"), "memory")
    if memory_kib is None:
        plugged = sum(device.size_kib for device in devices)
        memory_kib = max(current_kib or 0, sum(cell.memory_kib for cell in cells) + plugged)
        unplugged_kib = 0
    return Memory(
        memory_kib=max(memory_kib - unplugged_kib, 0),
        current_memory_kib=current_kib,
        max_memory_kib=reader.kib(root.find("maxMemory"), "maxMemory"),
        mode=binding.mode,
        nodeset=binding.nodeset,
        cells=cells,
        page_size_kib=pages.size_kib,
        default_huge_pages=pages.host_default,
        memory_locked=backing is not None and backing.find("locked") is not None,
        memory_devices=devices,
    )


def _pages(backing: Element | None, reader: Reader) -> _Pages:
    huge = None if backing is None else backing.find("hugepages")
    if huge is None:
        return _Pages()
    size_kib: int | None = None
    by_cell: dict[int, int] = {}
    listed = huge.findall("page")
    for page in listed:
        page_kib = reader.size_kib(page.get("size"), page.get("unit"), "hugepages page size")
        if page_kib == 0:
            reader.problems.append("hugepages page size is '0', not a size")
        if not page_kib:
            continue
        if page.get("nodeset") is None:
            size_kib = page_kib
        else:
            cells = reader.cpus(page.get("nodeset"), f"hugepages page of {page_kib} KiB: nodeset")
            by_cell.update(dict.fromkeys(cells or (), page_kib))
    return _Pages(_huge(size_kib), by_cell, host_default=not listed)


def _huge(size_kib: int | None) -> int | None:
    return None if size_kib is None or size_kib <= SMALL_PAGE_KIB else size_kib


def _binding(element: Element | None, where: str, reader: Reader) -> _Binding:
    if element is None:
        return _Binding()
    mode = element.get("mode", "strict")
    if element.get("placement") == "auto":
        return _Binding(mode)
    return _Binding(mode, reader.cpus(element.get("nodeset"), f"{where} nodeset") or CpuSet())


def _cells(
    root: Element, tune: Element | None, binding: _Binding, pages: _Pages, reader: Reader
) -> tuple[GuestCell, ...]:
    numa = root.find("cpu/numa")
    if numa is None:
        return ()
    own = {} if tune is None else _memnodes(tune, reader)
    cells: dict[int, GuestCell] = {}
    for position, element in enumerate(numa.iterfind("cell")):
        number = reader.number(element.get("id"), "numa cell id")
        cell = position if number is None else number
        # A guest cell without a <memnode> follows the policy of the whole guest.
        mode, nodeset = own.get(cell, binding)
        cells[cell] = GuestCell(
            id=cell,
            vcpus=reader.cpus(element.get("cpus"), f"numa cell {cell}: cpus") or CpuSet(),
            memory_kib=reader.size_kib(element.get("memory"), element.get("unit"), f"numa cell {cell}: memory") or 0,
            mode=mode,
            nodeset=nodeset,
            page_size_kib=_huge(pages.by_cell.get(cell, pages.size_kib)),
        )
    return tuple(cells[cell] for cell in sorted(cells))


def _memnodes(tune: Element, reader: Reader) -> dict[int, _Binding]:
    bindings: dict[int, _Binding] = {}
    for element in tune.iterfind("memnode"):
        cell = reader.number(element.get("cellid", ""), "numatune memnode cellid")
        if cell is not None:
            bindings[cell] = _binding(element, f"numatune memnode of cell {cell}:", reader)
    return bindings


def _devices(root: Element, reader: Reader) -> tuple[tuple[MemoryDevice, ...], int]:
    """The modules, and how much of virtio-mem modules is counted in <memory> but not plugged."""
    devices = []
    unplugged_kib = 0
    for element in root.iterfind("devices/memory"):
        model = element.get("model", "dimm")
        size_kib = reader.kib(element.find("target/size"), f"memory {model}: size")
        if size_kib is None:
            continue
        held_kib = _held_kib(element, size_kib, reader)
        unplugged_kib += size_kib - held_kib
        nodemask = element.findtext("source/nodemask")
        devices.append(
            MemoryDevice(
                model=model,
                size_kib=held_kib,
                guest_cell=reader.number(element.findtext("target/node"), f"memory {model}: node"),
                page_size_kib=_huge(reader.kib(element.find("source/pagesize"), f"memory {model}: pagesize")),
                nodeset=reader.cpus(nodemask, f"memory {model}: nodemask") or CpuSet(),
            )
        )
    return tuple(devices), unplugged_kib


def _held_kib(element: Element, size_kib: int, reader: Reader) -> int:
    # A virtio-mem module grows and shrinks between <current> and <requested>; until it arrives it may use the larger.
    asked = [
        kib
        for name in ("requested", "current")
        if (kib := reader.kib(element.find(f"target/{name}"), f"memory {element.get('model')}: {name}")) is not None
    ]
    return min(max(asked), size_kib) if asked else size_kib
