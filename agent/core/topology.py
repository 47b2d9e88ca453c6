"""What a host has: cells, CPUs, caches, pages, devices. Sparse ids and memory-only cells are normal."""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

import msgspec

from agent.core.cpuset import CpuSet
from agent.core.pci import MediatedDevice, PciDevice
from agent.core.values import Problem, ReadOnlyMap, Value

CacheType = Literal["data", "instruction", "unified"]


class PagePool(Value, frozen=True, kw_only=True):
    """Huge pages of one size in one cell, in pages. reserved: promised by the kernel and not yet touched (host-wide
    counter, so None in a cell where the kernel does not say)."""

    size_kib: int
    total: int
    free: int
    surplus: int = 0
    reserved: int | None = None


class HostCell(Value, frozen=True, kw_only=True):
    """A NUMA node. cpus: its online CPUs (empty for memory-only cells). memory_kib: all its memory (0 is possible),
    huge pages included. distances: by cell id, empty when the kernel has none.
    allowed: no cpuset withholds its memory from this machine's guests."""

    id: int
    cpus: CpuSet
    memory_kib: int
    pages: tuple[PagePool, ...] = ()
    distances: ReadOnlyMap[int, int] = MappingProxyType({})
    allowed: bool = True


class Cpu(Value, frozen=True, kw_only=True):
    """One CPU number of the kernel.

    online: None when it could not be read; such a CPU is not offered. allowed: no cpuset withholds it from this
    machine's guests. core: unique within a socket; kernel_core_id: what the kernel said. Of an offline CPU the kernel
    tells the cell at most, so the rest of its place is None. kind: "performance", "efficiency" or None on CPUs that are
    all alike.
    """

    id: int
    online: bool | None
    isolated: bool = False
    nohz_full: bool = False
    allowed: bool = True
    cell: int | None = None
    socket: int | None = None
    die: int | None = None
    cluster: int | None = None
    core: int | None = None
    kernel_core_id: int | None = None
    siblings: CpuSet = CpuSet()
    kind: str | None = None


class Cache(Value, frozen=True, kw_only=True):
    """One cache and the CPUs that share it."""

    level: int
    type: CacheType
    size_kib: int
    cpus: CpuSet


class HostTopology(Value, frozen=True, kw_only=True):
    """All that the host has. Every tuple is sorted by id (caches: level, type, lowest CPU; devices: address).

    has_cells is False when the kernel has no NUMA: the host is then shown as the one cell 0.
    memory_kib: of the whole host. page_size_kib: the small page. pages: host-wide pools, for kernels that give no pool
    per cell.
    """

    cells: tuple[HostCell, ...]
    cpus: tuple[Cpu, ...]
    caches: tuple[Cache, ...] = ()
    pci: tuple[PciDevice, ...] = ()
    mdevs: tuple[MediatedDevice, ...] = ()
    memory_kib: int = 0
    page_size_kib: int = 4
    pages: tuple[PagePool, ...] = ()
    has_cells: bool = True
    problems: tuple[Problem, ...] = ()

    @property
    def online(self) -> CpuSet:
        """CPUs that are online for certain."""
        return CpuSet(cpu.id for cpu in self.cpus if cpu.online)

    @property
    def offline(self) -> CpuSet:
        """CPUs that are present and offline for certain."""
        return CpuSet(cpu.id for cpu in self.cpus if cpu.online is False)

    @property
    def usable(self) -> CpuSet:
        """Online CPUs that no cpuset withholds: the most that guests of this host can run on."""
        return CpuSet(cpu.id for cpu in self.cpus if cpu.online and cpu.allowed)

    @property
    def isolated(self) -> CpuSet:
        """CPUs that the kernel keeps its scheduler away from (isolcpus)."""
        return CpuSet(cpu.id for cpu in self.cpus if cpu.isolated)

    @property
    def is_partial(self) -> bool:
        """Something was left out that the next look may find, whether or not anything changes until then."""
        return any(problem.is_transient for problem in self.problems)


def huge_pools_only(topology: HostTopology) -> HostTopology:
    """The same without pools of the small page: libvirt lists such, and who writes a host by hand follows it. That
    memory counts as small-page memory anyhow."""
    small = topology.page_size_kib
    every = (topology.pages, *(cell.pages for cell in topology.cells))
    if all(pool.size_kib != small for pools in every for pool in pools):
        return topology
    cells = tuple(msgspec.structs.replace(cell, pages=_huge(cell.pages, small)) for cell in topology.cells)
    return msgspec.structs.replace(topology, cells=cells, pages=_huge(topology.pages, small))


def _huge(pools: tuple[PagePool, ...], small_kib: int) -> tuple[PagePool, ...]:
    return tuple(pool for pool in pools if pool.size_kib != small_kib)


EMPTY = HostTopology(cells=(), cpus=())
"""Before the first look."""


def replace_problems(topology: HostTopology, problems: tuple[Problem, ...]) -> HostTopology:
    """The same topology with these problems."""
    return msgspec.structs.replace(topology, problems=problems)
