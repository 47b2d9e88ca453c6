"""The rows of what is used, sorted by id throughout."""

from __future__ import annotations

import itertools
from types import MappingProxyType

from agent.core.conflicts import Conflict, Owner
from agent.core.cpuset import CpuSet
from agent.core.ledger import Holds
from agent.core.pci import DeviceType, PciAddress
from agent.core.usage.books import SeenBooks
from agent.core.values import ReadOnlyMap, Value


class CpuHolder(Value, frozen=True, kw_only=True):
    """Who holds one host CPU, by name."""

    cpu: int
    owners: tuple[Owner, ...]


class CpuAmount(Value, frozen=True, kw_only=True):
    """Sets of host CPUs. free = total - taken and what cannot be used (offline, withheld, uncertain)."""

    total: CpuSet
    used: CpuSet
    promised: CpuSet = CpuSet()
    free: CpuSet


class Amount(Value, frozen=True, kw_only=True):
    """A countable resource. free may be negative: more is used than there is. limit: what total, reserve and ratio
    allow; free = limit - used - promised."""

    total: int
    reserved: int = 0
    limit: int
    used: int
    promised: int = 0
    free: int


class PageAmount(Value, frozen=True, kw_only=True):
    """Huge pages of one size, in pages. kernel_free: what the kernel says is free now, which other users lower too."""

    size_kib: int
    total: int
    reserved: int = 0
    used: int
    promised: int = 0
    free: int
    kernel_free: int | None = None


class CellUsage(Value, frozen=True, kw_only=True):
    """One host cell. memory_kib: small-page memory. shared: vCPUs that float and are confined to this cell. holders: of
    its CPUs."""

    id: int
    dedicated: CpuAmount
    shared_cpus: CpuSet
    shared: Amount
    memory_kib: Amount
    pages: tuple[PageAmount, ...] = ()
    holders: tuple[CpuHolder, ...] = ()


class HostUsage(Value, frozen=True, kw_only=True):
    """The host as a whole: sums over the cells plus guests that no cell can be named for. holders: of CPUs that are in
    no cell now (offline, or not on this host)."""

    dedicated: CpuAmount
    shared_cpus: CpuSet
    shared: Amount
    memory_kib: Amount
    pages: tuple[PageAmount, ...] = ()
    holders: tuple[CpuHolder, ...] = ()


class DeviceUsage(Value, frozen=True, kw_only=True):
    """One PCI function that a guest has or could have. offered: the configuration lets guests have it. remark: one
    sentence, None when there is nothing to say. kept_back: it was for one use, and would be free but for that."""

    address: PciAddress
    type: DeviceType
    vendor_id: str
    product_id: str
    cell: int | None
    offered: bool
    free: bool
    owners: tuple[Owner, ...] = ()
    remark: str | None = None
    kept_back: bool = False


class MdevUsage(Value, frozen=True, kw_only=True):
    """A mediated device that exists or that a guest names."""

    uuid: str
    type: str | None
    parent: PciAddress | None
    exists: bool
    owners: tuple[Owner, ...] = ()


class Remark(Value, frozen=True, kw_only=True):
    """What to know of one guest beside the numbers: its XML cannot be read, its thread policy keeps CPUs idle; or the
    cause of a conflict that it is in."""

    uuid: str
    name: str
    text: str


class Usage(Value, frozen=True, kw_only=True):
    """The whole result, sorted by id throughout. free_is_uncertain: a guest's CPUs are unknown, so dedicated CPUs
    called free may not be. is_legacy: no CPU set is configured, so all usable CPUs are dedicated and shared.
    has_device_filter: the configuration says which devices guests may have; without it "offered" says nothing."""

    cells: tuple[CellUsage, ...]
    host: HostUsage
    pci: tuple[DeviceUsage, ...] = ()
    mdevs: tuple[MdevUsage, ...] = ()
    remarks: tuple[Remark, ...] = ()
    free_is_uncertain: bool = False
    is_legacy: bool = False
    has_device_filter: bool = False

    @property
    def holders(self) -> tuple[CpuHolder, ...]:
        """Every CPU that is held or kept idle, in a cell or not, lowest first."""
        everywhere = itertools.chain(self.host.holders, *(cell.holders for cell in self.cells))
        by_cpu = {holder.cpu: holder for holder in everywhere}
        return tuple(by_cpu[cpu] for cpu in sorted(by_cpu))


class Folded(Value, frozen=True, kw_only=True):
    """What `fold` makes of a host. conflicts: in order, each id once. holds: what is seen of every guest, by its uuid.
    seen: who holds what, for `with_promises`."""

    usage: Usage
    conflicts: tuple[Conflict, ...] = ()
    holds: ReadOnlyMap[str, Holds] = MappingProxyType({})
    seen: SeenBooks
