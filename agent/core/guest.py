"""A domain as libvirt or the kernel showed it."""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

from agent.core.cpuset import CpuSet
from agent.core.pci import PciAddress
from agent.core.values import ReadOnlyMap, Value

DomainState = Literal[
    "running", "paused", "pmsuspended", "crashed", "shutting-down", "blocked", "shut-off", "no-state", "unknown"
]
"""libvirt's states. "no-state" is libvirt's own word; "unknown" is ours: the state could not be read."""

Maker = Literal["nova", "ovirt", "libvirt", "unknown"]
"""Who made the domain, by its metadata: "libvirt" when it has none of a known manager (virsh, virt-install, ...)."""

Validity = Literal["valid", "last-known", "lost-by-libvirt"]


class Pin(Value, frozen=True, kw_only=True):
    """A thread of the guest (a vCPU or an iothread, by its number in the guest) and the host CPUs it may run on."""

    thread: int
    cpus: CpuSet


class GuestCell(Value, frozen=True, kw_only=True):
    """A NUMA cell of the guest. nodeset: the host cells its memory is bound to; empty when nothing says so.
    page_size_kib: None for small pages."""

    id: int
    vcpus: CpuSet
    memory_kib: int
    mode: str | None = None
    nodeset: CpuSet = CpuSet()
    page_size_kib: int | None = None


class MemoryDevice(Value, frozen=True, kw_only=True):
    """A hot-plugged or virtual memory module (<memory>). page_size_kib and nodeset from its <source>."""

    model: str
    size_kib: int
    guest_cell: int | None = None
    page_size_kib: int | None = None
    nodeset: CpuSet = CpuSet()


class GuestDevice(Value, frozen=True, kw_only=True):
    """A host device given to the guest.

    kind: "pci" (<hostdev type=pci>, or an interface with a host device), "mdev" (by uuid), "vdpa" (by /dev path),
    "netdev" (by the host's interface name: macvtap in mode passthrough takes the whole interface, so its function).
    source: the element that named it, for people ("hostdev", "interface hostdev", "interface network NAME").
    Exactly the field of its kind is set; a "pci" device from a network's pool has address None until libvirt chose.
    """

    kind: Literal["pci", "mdev", "vdpa", "netdev"]
    source: str
    address: PciAddress | None = None
    mdev: str | None = None
    vdpa: str | None = None
    netdev: str | None = None
    managed: bool | None = None


class ObservedDomain(Value, frozen=True, kw_only=True):
    """What a domain's XML says.

    vcpus: the maximum; vcpus_online: guest numbers of those plugged now. cpuset: <vcpu cpuset>, the default for threads
    without a pin of their own (None: not given). memory_kib: all memory that the guest can use now, devices included.
    current_memory_kib: what the balloon leaves it; max_memory_kib: up to which modules can be plugged. mode, nodeset:
    numatune's memory element (nodeset empty: not given, or left to libvirt with placement "auto").
    page_size_kib: huge pages for all guest memory that no guest cell names another size for; None: small pages, or
    with default_huge_pages those of the host's default size, which the XML does not name.
    facts: what the maker wrote (nova: flavor, project, user; extra specs as "extra:NAME").
    """

    uuid: str
    name: str
    maker: Maker
    vcpus: int
    vcpus_online: CpuSet
    memory_kib: int
    cpuset: CpuSet | None = None
    vcpu_pins: tuple[Pin, ...] = ()
    emulator_pin: CpuSet | None = None
    iothreads: int = 0
    iothread_pins: tuple[Pin, ...] = ()
    mode: str | None = None
    nodeset: CpuSet = CpuSet()
    cells: tuple[GuestCell, ...] = ()
    page_size_kib: int | None = None
    default_huge_pages: bool = False
    current_memory_kib: int | None = None
    max_memory_kib: int | None = None
    memory_locked: bool = False
    memory_devices: tuple[MemoryDevice, ...] = ()
    devices: tuple[GuestDevice, ...] = ()
    facts: ReadOnlyMap[str, str] = MappingProxyType({})


class RunIdentity(Value, frozen=True, kw_only=True):
    """Which run of a domain: libvirt's id, QEMU's pid, and when QEMU began, in seconds since boot (CLOCK_BOOTTIME,
    which a suspend of the host does not stop)."""

    libvirt_id: int | None = None
    pid: int | None = None
    started_at_boot_s: float | None = None


class VcpuThreads(Value, frozen=True, kw_only=True):
    """Where the kernel lets the vCPU threads of one QEMU process run.

    cpus: host CPUs of all of them. pins: those that one thread is bound to alone; None where no thread is known to be
    a vCPU's and cpus are those of all threads.
    """

    cpus: CpuSet
    pins: CpuSet | None = None


class OtherProcess(Value, frozen=True, kw_only=True):
    """A QEMU process that lives beside another of the same guest. pins: host CPUs that one of its vCPU threads is bound
    to alone."""

    run: RunIdentity
    pins: CpuSet = CpuSet()


class Sighting(Value, frozen=True, kw_only=True):
    """What was last seen of a uuid, and how far it can be trusted (LEDGER 1 in docs/ledger.md).

    memory_elsewhere: host cells that have much of its memory though it is bound to others (`core/guest_memory`), read
    with its XML; empty also where that cannot be told.
    begun_at: monotonic seconds at which the reading began. connection: number of the libvirt connection it came over
    (0: from the kernel alone). domain: None as long as its XML was never readable. xml_at: when that XML was read,
    None: with this sighting. kernel_cpus: CPUs that the QEMU threads are bound to, read only where the XML is not, or
    may be another run's; kernel_pins: those that one vCPU thread is bound to alone (None: not known). others: QEMU
    processes of this uuid that live beside the one of `run`, the earliest first; libvirt knows one at most.
    problem: why this is not "valid", one sentence; also a valid sighting can carry one (a field that was
    left out).
    """

    uuid: str
    name: str
    state: DomainState
    begun_at: float
    connection: int = 0
    reason: str | None = None
    persistent: bool | None = None
    run: RunIdentity = RunIdentity()
    validity: Validity = "valid"
    domain: ObservedDomain | None = None
    memory_elsewhere: CpuSet = CpuSet()
    xml_at: float | None = None
    kernel_cpus: CpuSet | None = None
    kernel_pins: CpuSet | None = None
    others: tuple[OtherProcess, ...] = ()
    problem: str | None = None

    @property
    def label(self) -> str:
        """The guest in a sentence: its name, or its uuid where the name is empty or shows nothing."""
        return self.name if self.name.strip() else self.uuid

    @property
    def is_active(self) -> bool:
        """A QEMU process of it lives, or may: what is not certainly off holds."""
        return self.validity == "lost-by-libvirt" or self.state != "shut-off"
