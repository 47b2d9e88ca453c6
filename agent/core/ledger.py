"""What is known of each domain, and when a reading may change it (LEDGER R1, R2)."""

from __future__ import annotations

from types import MappingProxyType

from agent.core.cpuset import CpuSet
from agent.core.guest import RunIdentity, Sighting
from agent.core.pci import PciAddress
from agent.core.values import ReadOnlyMap, Value


class Listing(Value, frozen=True, kw_only=True):
    """libvirt's list of all domains, defined or active. complete: the call succeeded on a connection that has settled."""

    connection: int
    begun_at: float
    complete: bool
    uuids: frozenset[str]


class LivingProcess(Value, frozen=True, kw_only=True):
    """A QEMU process of a domain. cpus: union of what its threads are bound to; None: not read."""

    uuid: str
    name: str
    run: RunIdentity
    cpus: CpuSet | None = None


class Processes(Value, frozen=True, kw_only=True):
    """QEMU processes, by domain uuid. can_see: processes of other users are visible, so a missing one is really gone."""

    begun_at: float
    can_see: bool
    living: ReadOnlyMap[str, LivingProcess] = MappingProxyType({})


class Ledger(Value, frozen=True, kw_only=True):
    """connection: number of the current libvirt connection; sightings by uuid."""

    connection: int = 0
    sightings: ReadOnlyMap[str, Sighting] = MappingProxyType({})


class PageHold(Value, frozen=True, kw_only=True):
    """Huge pages of one size. cell: host cell, None when no cell can be named."""

    cell: int | None
    size_kib: int
    count: int


class Holds(Value, frozen=True, kw_only=True):
    """What one guest holds (LEDGER 4). cpus: exclusive, emulator's included; emulator_cpus: the part that only the
    emulator and iothreads have. confined: CPUs that floating vCPUs are confined to (they hold none of them).
    cell_* by host cell; host_*: what no single cell can be named for. memory is small-page memory. uncertain: the CPUs
    could not be read at all.
    """

    uuid: str
    cpus: CpuSet = CpuSet()
    emulator_cpus: CpuSet = CpuSet()
    confined: CpuSet = CpuSet()
    cell_memory_kib: ReadOnlyMap[int, int] = MappingProxyType({})
    host_memory_kib: int = 0
    pages: tuple[PageHold, ...] = ()
    cell_shared: ReadOnlyMap[int, int] = MappingProxyType({})
    host_shared: int = 0
    devices: tuple[PciAddress, ...] = ()
    mdevs: tuple[str, ...] = ()
    uncertain: bool = False
