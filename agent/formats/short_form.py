"""The short form of a snapshot as it is written: a host in a few lines. docs/fit.md has the form."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Literal

import msgspec

from agent.core.host_config import ReservedPages
from agent.core.pci import DeviceType, PciAddress
from agent.core.values import ReadOnlyMap, Value

CpuList = str | tuple[int, ...]
"""A CPU set as people write it: "0-3,8" or [0, 1, 2, 3, 8]."""


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
    """One PCI function. tags: over those that device_spec gives it, and where none are given it is offered only if an
    entry names it; without any device_spec every device is offered. ifname: of its network interface. serial: of its
    card; taken for granted where it is managed from afar. used: a guest has it."""

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
    serial: str | None = None
    used: bool = False


class ShortSnapshot(Value, frozen=True, kw_only=True):
    """A host. dedicated, shared: CPUs of pinned and of floating guests; neither: all are both. pinned: dedicated CPUs
    that guests have already. used_memory_mb: of guests that are bound to no cell, or by cell. used_vcpus: floating
    ones. device_spec, alias: as nova's options. Ratios and reserves mean what nova's options do. page_size_kib: of the
    small page. pack_cells, share_cells: fill up host cells, let several of one guest go to the same."""

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
