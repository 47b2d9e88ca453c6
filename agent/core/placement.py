"""Where a guest goes: the yes of a fit."""

from __future__ import annotations

from types import MappingProxyType

from agent.core.cpuset import CpuSet
from agent.core.pci import PciAddress
from agent.core.values import ReadOnlyMap, Value


class CellPlacement(Value, frozen=True, kw_only=True):
    """One guest cell on its host cell.

    pins: host CPU by vCPU, of those that are pinned. shared_cpus: where its other vCPUs float, empty when there are
    none. page_size_kib: of all its memory; the host's small page when nothing else was asked. idle_cpus: siblings of
    its pins that nobody may use (thread policy isolate).
    """

    guest_cell: int
    host_cell: int
    vcpus: CpuSet
    memory_kib: int
    page_size_kib: int
    pins: ReadOnlyMap[int, int] = MappingProxyType({})
    shared_cpus: CpuSet = CpuSet()
    idle_cpus: CpuSet = CpuSet()

    @property
    def cpus(self) -> CpuSet:
        """Host CPUs that its vCPUs are pinned to."""
        return CpuSet(self.pins.values())


class GivenDevices(Value, frozen=True, kw_only=True):
    """The functions that answer one request, by address."""

    request: str
    devices: tuple[PciAddress, ...]


class Placement(Value, frozen=True, kw_only=True):
    """All that a guest gets. cells: by guest cell, empty when it has none. emulator_cpus: where the emulator's threads
    run, empty when nothing confines them. emulator_own: the CPU among them that nobody else has (emulator threads
    isolate). shared_cpus: of a guest without cells. memory_kib: all of it."""

    memory_kib: int
    cells: tuple[CellPlacement, ...] = ()
    emulator_cpus: CpuSet = CpuSet()
    emulator_own: int | None = None
    vcpus: int
    shared_cpus: CpuSet = CpuSet()
    devices: tuple[GivenDevices, ...] = ()
