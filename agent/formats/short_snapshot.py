"""The short form of a snapshot: a host in a few lines, written by hand. docs/fit.md has the form."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec

from agent.core.cpuset import HIGHEST_ID, CpuSet
from agent.core.host_config import DeviceSpec, HostConfig, ReservedPages
from agent.core.instance import Instance
from agent.core.pci import DeviceType, NetInterface, PciAddress, PciDevice
from agent.core.pci_request import Alias
from agent.core.placement import CellPlacement, GivenDevices, Placement
from agent.core.snapshot import Identity, Snapshot, configured, first
from agent.core.topology import Cache, Cpu, HostCell, HostTopology, PagePool
from agent.core.values import ReadOnlyMap, Value
from agent.core.what_if import with_guest
from agent.core.words import brief
from agent.errors import FaultyInput
from agent.formats import device_spec, pci_alias, short_spelling
from agent.formats.validate import entry_path, validated

CpuList = str | tuple[int, ...]
"""A CPU set as people write it: "0-3,8" or [0, 1, 2, 3, 8]."""

MOST_CELLS = 1024
MOST_MB = 1 << 40
MOST_DEVICES = 10_000
MOST_VCPUS = 1 << 20
KIB = 1024
_FOUR_DIGITS = re.compile(r"[0-9a-f]{4}")


class ShortPool(Value, frozen=True, kw_only=True):
    """Huge pages of one size, as agentctl topology tells them. free: all, unless told."""

    size_kib: int
    total: int
    free: int | None = None


class ShortCell(Value, frozen=True, kw_only=True):
    """One NUMA cell. siblings: one list for each core that has several CPUs. memory_mb: huge pages included. pages,
    used_pages: how many, by size in KiB; pages may be a list of pools too, whose free ones tell what is used. socket:
    its own unless told. l3: one list for each cache that is shared. dedicated, shared, pinned, used_memory_mb: of this
    cell, added to those of the host."""

    id: int
    cpus: CpuList = ""
    siblings: tuple[CpuList, ...] = ()
    memory_mb: int = 0
    pages: dict[int, int] | tuple[ShortPool, ...] = ()
    used_pages: ReadOnlyMap[int, int] = MappingProxyType({})
    socket: int | None = None
    distances: ReadOnlyMap[int, int] = MappingProxyType({})
    l3: tuple[CpuList, ...] = ()
    dedicated: CpuList | None = None
    shared: CpuList | None = None
    pinned: CpuList = ""
    used_memory_mb: int = 0

    def by_size(self) -> dict[int, int]:
        """Pages by size."""
        return self.pages if isinstance(self.pages, dict) else {pool.size_kib: pool.total for pool in self.pages}

    def used_by_size(self) -> dict[int, int]:
        """Pages that are used, by size."""
        if isinstance(self.pages, dict):
            return dict(self.used_pages)
        told = {pool.size_kib: pool.total - pool.free for pool in self.pages if pool.free is not None}
        return {**told, **self.used_pages}


class ShortDevice(Value, frozen=True, kw_only=True):
    """One PCI function. tags: it is offered with these, as an entry of device_spec would say; without any device_spec
    every device is offered. ifname: of its network interface. used: a guest has it."""

    address: PciAddress
    vendor_id: str
    product_id: str
    class_code: str = msgspec.field(default="0000", name="class")
    type: DeviceType = "type-PCI"
    cell: int | None = None
    parent: PciAddress | None = None
    parent_ifname: str | None = None
    ifname: str | None = None
    tags: ReadOnlyMap[str, str | None] | None = None
    used: bool = False


class ShortSnapshot(Value, frozen=True, kw_only=True):
    """A host. dedicated, shared: CPUs of pinned and of floating guests; neither: all are both. pinned: dedicated CPUs
    that guests have already. used_memory_mb: of guests that are bound to no cell, or by cell. used_vcpus: floating
    ones. device_spec, alias: as nova's options. The rest as in the agent's configuration."""

    format: Literal["short"]
    cells: tuple[ShortCell, ...]
    dedicated: CpuList | None = None
    shared: CpuList | None = None
    pinned: CpuList = ""
    used_memory_mb: int | dict[int, int] = 0
    used_vcpus: int = 0
    pci: tuple[ShortDevice, ...] = ()
    device_spec: Any = None
    alias: Any = None
    cpu_allocation_ratio: float = 4.0
    ram_allocation_ratio: float = 1.0
    reserved_memory_mb: int = 0
    reserved_pages: tuple[ReservedPages, ...] = ()
    pack_cells: bool = False
    share_cells: bool = False
    page_size_kib: int = 4


class _Cell(NamedTuple):
    """A cell whose CPU lists are read. cores: all of them, lone CPUs too."""

    short: ShortCell
    cpus: CpuSet
    cores: tuple[CpuSet, ...]
    caches: tuple[CpuSet, ...]
    used_mb: int


def from_plain(data: object) -> Snapshot:
    """The snapshot of such a host: what is taken is held by a guest named "taken". Raises FaultyInput."""
    short = validated(short_spelling.spelled(data), ShortSnapshot)
    host = _Reader(short).host()
    topology = _topology(short, host)
    empty = first(Identity(agent_id="", boot_id="", epoch=0), host.config)
    snapshot = configured(msgspec.structs.replace(empty, topology=topology, complete=True), host.config)
    snapshot = msgspec.structs.replace(snapshot, generation=0)
    for number, taken in enumerate((_bound(short, host), _floating(short, host)), 1):
        if taken != Placement(vcpus=0, memory_kib=0):
            snapshot = with_guest(snapshot, Instance(uuid=str(uuid.UUID(int=number)), name="taken"), taken)
    return snapshot


class _Host(NamedTuple):
    """What the short form says, read. used_mb: of guests that are bound to no cell."""

    cells: tuple[_Cell, ...]
    pinned: CpuSet
    used_mb: int
    config: HostConfig


class _Reader:
    """Collects the faults of what types alone do not tell."""

    def __init__(self, short: ShortSnapshot) -> None:
        self.faults: list[str] = []
        self._short = short

    def host(self) -> _Host:
        """All of it. Raises FaultyInput."""
        short = self._short
        by_cell, anywhere = self._used_memory()
        cells = tuple(self._cell(cell, f"cells[{n}]", by_cell.get(cell.id, 0)) for n, cell in enumerate(short.cells))
        known = self._disjoint(((cell.short.id, cell.cpus) for cell in cells), "cells")
        self._check_numbers()
        self._check_devices()
        host = _Host(cells, self._pinned(known), anywhere, self._config(known))
        if self.faults:
            raise FaultyInput(*self.faults)
        return host

    def _cell(self, cell: ShortCell, path: str, used_mb: int) -> _Cell:
        cpus = self._cpus(cell.cpus, f"{path}.cpus")
        cores = self._groups(cell.siblings, f"{path}.siblings", cpus)
        lone = cpus - CpuSet(cpu for core in cores for cpu in core)
        every = sorted((*cores, *(CpuSet((cpu,)) for cpu in lone)), key=lambda core: core.lowest)
        caches = self._groups(cell.l3, f"{path}.l3", cpus)
        for size_kib, used in cell.used_by_size().items():
            if not 0 <= used <= cell.by_size().get(size_kib, 0):
                self.faults.append(f"{entry_path(f'{path}.used_pages', str(size_kib))}: more than there are")
        return _Cell(cell, cpus, tuple(every), caches, cell.used_memory_mb + used_mb)

    def _groups(self, lists: Iterable[CpuList], path: str, within: CpuSet) -> tuple[CpuSet, ...]:
        groups = [self._cpus(text, f"{path}[{n}]") for n, text in enumerate(lists)]
        both = self._disjoint(enumerate(groups), path)
        if not both <= within:
            self.faults.append(f"{path}: CPUs {both - within} are not among the CPUs of the cell")
        return tuple(group for group in groups if group)

    def _disjoint(self, groups: Iterable[tuple[int, CpuSet]], path: str) -> CpuSet:
        seen = CpuSet()
        for number, group in groups:
            if twice := seen & group:
                self.faults.append(f"{path}: CPUs {twice} are in {number} and in another one before it")
            seen |= group
        return seen

    def _cpus(self, given: CpuList, path: str) -> CpuSet:
        try:
            if isinstance(given, str):
                return CpuSet.parse(given)
            return CpuSet.parse(",".join(map(str, given)))
        except ValueError as error:
            self.faults.append(f"{path}: {error}")
            return CpuSet()

    def _pinned(self, known: CpuSet) -> CpuSet:
        return self._of_host("pinned", known) or CpuSet()

    def _of_host(self, name: str, known: CpuSet) -> CpuSet | None:
        """A CPU set that stands at the host, at its cells, or both; None: nowhere."""
        given = [(name, getattr(self._short, name))]
        given += [(f"cells[{n}].{name}", getattr(cell, name)) for n, cell in enumerate(self._short.cells)]
        found = [self._cpus(text, path) for path, text in given if text is not None]
        cpus = CpuSet(cpu for some in found for cpu in some)
        if not cpus <= known:
            self.faults.append(f"{name}: CPUs {cpus - known} are in no cell")
        return cpus if found else None

    def _used_memory(self) -> tuple[Mapping[int, int], int]:
        used, cells = self._short.used_memory_mb, {cell.id for cell in self._short.cells}
        if isinstance(used, int):
            return {}, used
        missing = used.keys() - cells
        self.faults += [f"{entry_path('used_memory_mb', str(cell))}: there is no such cell" for cell in missing]
        return used, 0

    def _check_numbers(self) -> None:
        short = self._short
        if not 1 <= len(short.cells) <= MOST_CELLS:
            self.faults.append(f"cells: not between 1 and {MOST_CELLS}")
        ids = [cell.id for cell in short.cells]
        if len(set(ids)) < len(ids):
            self.faults.append("cells: two have the same id")
        for path, number, least, most in self._numbers():
            if not least <= number <= most:
                self.faults.append(f"{path}: not between {least} and {most}")

    def _numbers(self) -> Iterable[tuple[str, float, int, int]]:
        short, used = self._short, self._short.used_memory_mb
        for n, cell in enumerate(short.cells):
            yield f"cells[{n}].id", cell.id, 0, HIGHEST_ID - 1
            yield f"cells[{n}].memory_mb", cell.memory_mb, 0, MOST_MB
            yield f"cells[{n}].used_memory_mb", cell.used_memory_mb, 0, MOST_MB
            for name, sizes in (("pages", cell.by_size()), ("used_pages", cell.used_pages)):
                yield from ((f"cells[{n}].{name}", size_kib, 1, MOST_MB) for size_kib in sizes)
                yield from ((f"cells[{n}].{name}", count, 0, MOST_MB) for count in sizes.values())
        yield from (("used_memory_mb", mb, 0, MOST_MB) for mb in ([used] if isinstance(used, int) else used.values()))
        yield "used_vcpus", short.used_vcpus, 0, MOST_VCPUS
        yield "cpu_allocation_ratio", short.cpu_allocation_ratio, 0, 1_000_000
        yield "ram_allocation_ratio", short.ram_allocation_ratio, 0, 1_000_000
        yield "reserved_memory_mb", short.reserved_memory_mb, 0, MOST_MB
        yield "page_size_kib", short.page_size_kib, 1, 1024
        yield "pci", len(short.pci), 0, MOST_DEVICES

    def _check_devices(self) -> None:
        seen: set[PciAddress] = set()
        for n, device in enumerate(self._short.pci):
            if device.address in seen:
                self.faults.append(f"pci[{n}].address: {device.address} is there twice")
            seen.add(device.address)
            for name in ("vendor_id", "product_id", "class"):
                text = getattr(device, "class_code" if name == "class" else name)
                if not _FOUR_DIGITS.fullmatch(text):
                    self.faults.append(f'pci[{n}].{name}: "{text}" is not of four hexadecimal digits in lower case')

    def _config(self, known: CpuSet) -> HostConfig:
        short = self._short
        return HostConfig(
            dedicated=self._of_host("dedicated", known),
            shared=self._of_host("shared", known),
            reserved_memory_mb=short.reserved_memory_mb,
            reserved_pages=short.reserved_pages,
            cpu_allocation_ratio=short.cpu_allocation_ratio,
            ram_allocation_ratio=short.ram_allocation_ratio,
            device_spec=(*self._own_specs(), *self._specs(short.device_spec, "device_spec")),
            alias=self._aliases(),
            pack_cells=short.pack_cells,
            share_cells=short.share_cells,
        )

    def _own_specs(self) -> Iterable[DeviceSpec]:
        """For devices that say themselves what they are good for. Addresses of physical functions come last: they stand
        for their virtual ones too."""
        products: dict[tuple[str, str], list[int]] = {}
        for n, device in enumerate(self._short.pci):
            products.setdefault((device.vendor_id, device.product_id), []).append(n)
        entries = [entry for numbers in products.values() for entry in self._entries(numbers)]
        for n, entry in sorted(
            entries, key=lambda row: "address" in row[1] and self._short.pci[row[0]].type != "type-VF"
        ):
            yield from self._specs(entry, f"pci[{n}].tags")

    def _entries(self, numbers: Sequence[int]) -> Iterable[tuple[int, dict[str, str | None]]]:
        """Entries of device_spec for devices of one product: one where all say the same, since thousands of entries
        take minutes to compare; else one for each."""
        first, *others = (self._tags(n) for n in numbers)
        if all(tags == first for tags in others):
            if first is not None:
                device = self._short.pci[numbers[0]]
                yield numbers[0], {"vendor_id": device.vendor_id, "product_id": device.product_id, **first}
            return
        for n in numbers:
            if (tags := self._tags(n)) is not None:
                yield n, {"address": str(self._short.pci[n].address), **tags}

    def _tags(self, number: int) -> Mapping[str, str | None] | None:
        """None: the device says nothing, and others say what is offered."""
        tags = self._short.pci[number].tags
        return {} if tags is None and self._short.device_spec is None else tags

    def _specs(self, data: Any, path: str) -> tuple[DeviceSpec, ...]:
        if data is None:
            return ()
        try:
            specs, _ = device_spec.device_specs(_text(data))
        except (ValueError, msgspec.MsgspecError) as error:
            self.faults.append(f"{path}: {brief(str(error))}")
            return ()
        return specs

    def _aliases(self) -> tuple[Alias, ...]:
        if self._short.alias is None:
            return ()
        try:
            return pci_alias.joined(pci_alias.aliases(_text(self._short.alias)))
        except (ValueError, msgspec.MsgspecError) as error:
            self.faults.append(f"alias: {brief(str(error))}")
            return ()


def _text(data: Any) -> str:
    """JSON text, as the options have it."""
    return data if isinstance(data, str) else msgspec.json.encode(data).decode()


def _topology(short: ShortSnapshot, host: _Host) -> HostTopology:
    return HostTopology(
        cells=tuple(_host_cell(cell) for cell in sorted(host.cells, key=lambda one: one.short.id)),
        cpus=tuple(sorted((cpu for cell in host.cells for cpu in _cell_cpus(cell)), key=lambda one: one.id)),
        caches=tuple(
            Cache(level=3, type="unified", size_kib=0, cpus=cpus) for cell in host.cells for cpus in cell.caches
        ),
        pci=tuple(_device(one, short) for one in sorted(short.pci, key=lambda one: one.address)),
        memory_kib=sum(cell.short.memory_mb for cell in host.cells) * KIB,
        page_size_kib=short.page_size_kib,
    )


def _host_cell(cell: _Cell) -> HostCell:
    short = cell.short
    return HostCell(
        id=short.id,
        cpus=cell.cpus,
        memory_kib=short.memory_mb * KIB,
        pages=tuple(
            PagePool(size_kib=size_kib, total=total, free=total) for size_kib, total in sorted(short.by_size().items())
        ),
        distances=short.distances,
    )


def _cell_cpus(cell: _Cell) -> Iterable[Cpu]:
    socket = cell.short.id if cell.short.socket is None else cell.short.socket
    for core in cell.cores:
        for cpu in core:
            # the lowest CPU names the core: unique within any socket
            yield Cpu(id=cpu, online=True, cell=cell.short.id, socket=socket, core=core.lowest, siblings=core)


def _device(device: ShortDevice, short: ShortSnapshot) -> PciDevice:
    is_physical = device.type == "type-PF"
    functions = sum(one.parent == device.address for one in short.pci) if is_physical else None
    return PciDevice(
        address=device.address,
        vendor_id=device.vendor_id,
        product_id=device.product_id,
        class_code=device.class_code,
        cell=device.cell,
        type=device.type,
        parent=device.parent,
        parent_ifname=device.parent_ifname,
        sriov_totalvfs=functions,
        sriov_numvfs=functions,
        netdevs=() if device.ifname is None else (NetInterface(name=device.ifname),),
    )


def _bound(short: ShortSnapshot, host: _Host) -> Placement:
    """What guests have that is of one cell, and all devices that they have."""
    cells: list[CellPlacement] = []
    first_vcpu = 0
    for cell in host.cells:
        cpus = cell.cpus & host.pinned
        pins = {first_vcpu + n: cpu for n, cpu in enumerate(cpus)}
        first_vcpu += len(pins)
        memory = {short.page_size_kib: cell.used_mb * KIB}
        memory |= {size_kib: size_kib * count for size_kib, count in cell.short.used_by_size().items()}
        for n, (size_kib, memory_kib) in enumerate(memory.items()):
            has_pins = n == 0 and bool(pins)
            if has_pins or memory_kib:
                cells.append(
                    CellPlacement(
                        guest_cell=len(cells),
                        host_cell=cell.short.id,
                        vcpus=CpuSet(pins if has_pins else ()),
                        memory_kib=memory_kib,
                        page_size_kib=size_kib,
                        pins=MappingProxyType(pins if has_pins else {}),
                    )
                )
    devices = tuple(device.address for device in short.pci if device.used)
    return Placement(
        vcpus=first_vcpu,
        memory_kib=sum(cell.memory_kib for cell in cells),
        cells=tuple(cells),
        devices=(GivenDevices(request="taken", devices=devices),) if devices else (),
    )


def _floating(short: ShortSnapshot, host: _Host) -> Placement:
    """What guests have that are bound to no cell."""
    return Placement(vcpus=short.used_vcpus, memory_kib=host.used_mb * KIB)
