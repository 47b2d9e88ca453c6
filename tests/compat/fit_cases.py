"""A host, what is used of it, and a guest to come: as plain as nova's side of the comparison needs it."""

from __future__ import annotations

import uuid
from types import MappingProxyType
from typing import Literal

from agent.core.instance import CpuPolicy, EmulatorPolicy, PageWord, ThreadPolicy
from agent.core.pci import DeviceType
from agent.core.pci_request import PciNumaPolicy
from agent.core.values import ReadOnlyMap, Value


class CasePages(Value, frozen=True, kw_only=True):
    """Huge pages of one size; reserved: kept back by the operator."""

    size_kib: int
    total: int
    reserved: int = 0


class CaseCell(Value, frozen=True, kw_only=True):
    """A host cell. memory_mib: huge pages included. socket None: its CPUs are on two."""

    id: int
    cpus: tuple[int, ...]
    memory_mib: int = 4096
    pages: tuple[CasePages, ...] = ()
    socket: int | None = 0


class CaseHost(Value, frozen=True, kw_only=True):
    """siblings: every CPU in one group. dedicated, shared: both None is the legacy mode, both the same vcpu_pin_set."""

    cells: tuple[CaseCell, ...]
    siblings: tuple[tuple[int, ...], ...]
    dedicated: tuple[int, ...] | None = None
    shared: tuple[int, ...] | None = None
    cpu_ratio: float = 4.0
    ram_ratio: float = 1.0
    pack: bool = False


class CaseUsed(Value, frozen=True, kw_only=True):
    """A guest of one cell that is there. pins: host CPUs. floating: vCPUs on the cell's shared CPUs. emulator: its own
    CPU for emulator threads."""

    cell: int
    pins: tuple[int, ...] = ()
    floating: int = 0
    memory_mib: int = 64
    page_kib: int | None = None
    threads: Literal["isolate"] | None = None
    emulator: int | None = None


class CaseDevice(Value, frozen=True, kw_only=True):
    """A PCI function. taken: a guest has it. serial: its card tells its serial number."""

    address: str
    vendor_id: str = "8086"
    product_id: str = "10ed"
    type: DeviceType = "type-PCI"
    cell: int | None = 0
    parent: str | None = None
    taken: bool = False
    serial: bool = True


class CaseGuestCell(Value, frozen=True, kw_only=True):
    """A cell of the guest."""

    id: int
    vcpus: tuple[int, ...]
    pinned: tuple[int, ...] = ()
    memory_mib: int = 64


class CaseGuest(Value, frozen=True, kw_only=True):
    """The guest to come; no cells: it floats over the host."""

    cells: tuple[CaseGuestCell, ...] = ()
    policy: CpuPolicy | None = None
    threads: ThreadPolicy | None = None
    emulator: EmulatorPolicy | None = None
    page: int | PageWord | None = None


class CaseRequest(Value, frozen=True, kw_only=True):
    """Devices asked for. specs: in nova's words, any of them will do."""

    id: str
    specs: tuple[ReadOnlyMap[str, str | None], ...]
    count: int = 1
    policy: PciNumaPolicy = "legacy"


class Case(Value, frozen=True, kw_only=True):
    """One question. offered: [pci] device_spec."""

    host: CaseHost
    guest: CaseGuest
    used: tuple[CaseUsed, ...] = ()
    devices: tuple[CaseDevice, ...] = ()
    offered: tuple[ReadOnlyMap[str, str | None], ...] = (MappingProxyType({}),)
    requests: tuple[CaseRequest, ...] = ()

    @property
    def threads_per_core(self) -> int:
        """Most guest CPUs of one core."""
        return max((len(set(group) & self.usable) for group in self.host.siblings), default=1)

    @property
    def usable(self) -> frozenset[int]:
        """CPUs that guests may have at all."""
        if self.is_legacy:
            return frozenset(cpu for cell in self.host.cells for cpu in cell.cpus)
        return frozenset((*(self.host.dedicated or ()), *(self.host.shared or ())))

    @property
    def is_legacy(self) -> bool:
        """Neither set is configured."""
        return self.host.dedicated is None and self.host.shared is None

    @property
    def has_split(self) -> bool:
        """Pinned and floating guests have CPUs of their own."""
        return self.host.dedicated != self.host.shared


def request_id(number: int) -> str:
    """Nova wants uuids."""
    return str(uuid.UUID(int=number + 1))
