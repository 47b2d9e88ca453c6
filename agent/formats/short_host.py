"""A host in the short form, whose CPU lists are read, as a look would find it, and what its guests have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from agent.core.cpuset import CpuSet
from agent.core.host_config import HostConfig
from agent.core.pci import NetInterface, PciAddress, PciDevice
from agent.core.placement import CellPlacement, GivenDevices, Placement
from agent.core.topology import Cache, Cpu, HostCell, HostTopology, PagePool
from agent.formats.short_form import ShortCell, ShortDevice, ShortSnapshot

KIB = 1024


class CheckedCell(NamedTuple):
    """A cell whose CPU lists are read. cores: all of them, lone CPUs too."""

    short: ShortCell
    cpus: CpuSet
    cores: tuple[CpuSet, ...]
    caches: tuple[CpuSet, ...]
    used_mb: int


class CheckedHost(NamedTuple):
    """What the short form says, read. devices: by address. used_mb: of guests that are bound to no cell."""

    cells: tuple[CheckedCell, ...]
    devices: tuple[PciDevice, ...]
    pinned: CpuSet
    used_mb: int
    config: HostConfig


def topology_of(short: ShortSnapshot, host: CheckedHost) -> HostTopology:
    """What a look at such a host would find."""
    return HostTopology(
        cells=tuple(_host_cell(cell) for cell in sorted(host.cells, key=lambda one: one.short.id)),
        cpus=tuple(sorted((cpu for cell in host.cells for cpu in _cell_cpus(cell)), key=lambda one: one.id)),
        caches=tuple(
            Cache(level=3, type="unified", size_kib=0, cpus=cpus) for cell in host.cells for cpus in cell.caches
        ),
        pci=host.devices,
        memory_kib=sum(cell.short.memory_mb for cell in host.cells) * KIB,
        page_size_kib=short.page_size_kib,
    )


def _host_cell(cell: CheckedCell) -> HostCell:
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


def _cell_cpus(cell: CheckedCell) -> Iterable[Cpu]:
    socket = cell.short.id if cell.short.socket is None else cell.short.socket
    for core in cell.cores:
        for cpu in core:
            # the lowest CPU names the core: unique within any socket
            yield Cpu(id=cpu, online=True, cell=cell.short.id, socket=socket, core=core.lowest, siblings=core)


def pci_devices(short: ShortSnapshot) -> tuple[PciDevice, ...]:
    """Its PCI functions, by address."""
    functions = Counter(one.parent for one in short.pci)
    return tuple(_device(one, functions) for one in sorted(short.pci, key=lambda one: one.address))


def _device(device: ShortDevice, functions: Mapping[PciAddress | None, int]) -> PciDevice:
    count = functions.get(device.address, 0) if device.type == "type-PF" else None
    return PciDevice(
        address=device.address,
        vendor_id=device.vendor_id,
        product_id=device.product_id,
        class_code=device.class_code,
        cell=device.cell,
        type=device.type,
        parent=device.parent,
        parent_ifname=device.parent_ifname,
        sriov_totalvfs=count,
        sriov_numvfs=count,
        netdevs=() if device.ifname is None else (NetInterface(name=device.ifname),),
        serial=device.serial,
    )


def bound(short: ShortSnapshot, host: CheckedHost) -> Placement:
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


def floating(short: ShortSnapshot, host: CheckedHost) -> Placement:
    """What guests have that are bound to no cell."""
    return Placement(vcpus=short.used_vcpus, memory_kib=host.used_mb * KIB)
