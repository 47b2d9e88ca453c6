"""What a guest asks for: the words of its flavor, image and ports, and the request that these become."""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

from agent.core.cpuset import CpuSet, union
from agent.core.pci_request import PciNumaPolicy, PciRequest
from agent.core.values import ReadOnlyMap, Value

CpuPolicy = Literal["shared", "dedicated", "mixed"]
ThreadPolicy = Literal["prefer", "require", "isolate"]
EmulatorPolicy = Literal["share", "isolate"]
PageWord = Literal["small", "large", "any"]
GroupPolicy = Literal["affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"]

VnicType = Literal[
    "normal",
    "direct",
    "direct-physical",
    "macvtap",
    "vdpa",
    "remote-managed",
    "accelerator-direct",
    "accelerator-direct-physical",
    "baremetal",
    "smart-nic",
    "virtio-forwarder",
]
"""neutron's kinds of ports."""

LARGEST_NUMBER = 2**31 - 1
"""nova's database holds no greater one."""

MOST_VCPUS = 1 << 12
"""No kernel gives one guest more."""

MOST_MEMORY_MB = MOST_DISK_GB = MOST_SWAP_MB = LARGEST_NUMBER
MOST_PORTS = 256
MOST_MEMBERS = 1000
"""Of a server group; nova's quota allows 10 unless it is raised."""

LARGEST_GENERATION = 2**63 - 1
"""Of a server group."""


class Instance(Value, frozen=True, kw_only=True):
    """Which guest. uuid: also the domain's."""

    uuid: str
    name: str = ""


class Flavor(Value, frozen=True, kw_only=True):
    """As nova has it. swap_mb MiB, root_gb and ephemeral_gb GiB of disk, which are carried and not decided on here."""

    vcpus: int
    memory_mb: int
    name: str = ""
    root_gb: int = 0
    ephemeral_gb: int = 0
    swap_mb: int = 0
    extra_specs: ReadOnlyMap[str, str] = MappingProxyType({})


class Image(Value, frozen=True, kw_only=True):
    """An image's properties ("hw_cpu_policy" and so on)."""

    properties: ReadOnlyMap[str, str] = MappingProxyType({})


class Port(Value, frozen=True, kw_only=True):
    """A neutron port. physical_network None: an overlay network. hardware_offload: its binding profile has the
    capability "switchdev". trusted: as in its binding profile. parent_ifname: the interface of the physical function
    that its bandwidth was promised on."""

    id: str
    vnic_type: VnicType = "normal"
    physical_network: str | None = None
    numa_affinity_policy: PciNumaPolicy | None = None
    hardware_offload: bool = False
    trusted: bool | None = None
    parent_ifname: str | None = None


class Group(Value, frozen=True, kw_only=True):
    """The server group of a guest. members: instance uuids. policy None: no rule. hosts: names of the hosts that have
    members besides this guest, as far as whoever asks knows. generation: counts the changes of the group; None: nobody
    counts them, so that nobody can tell which of two lists of members is the newer one."""

    id: str
    policy: GroupPolicy | None = None
    max_server_per_host: int = 1
    members: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    generation: int | None = None


class RequestSpec(Value, frozen=True, kw_only=True):
    """A guest as whoever orders it describes it; docs/fit.md has the form."""

    instance: Instance
    flavor: Flavor
    image: Image = Image()
    ports: tuple[Port, ...] = ()
    group: Group | None = None


class CellRequest(Value, frozen=True, kw_only=True):
    """One NUMA cell of the guest. vcpus: guest numbers. pinned: those of them that each get a host CPU of their own;
    the others float over the shared CPUs of the host cell."""

    id: int
    vcpus: CpuSet
    memory_kib: int
    pinned: CpuSet = CpuSet()


class GuestCpuTopology(Value, frozen=True, kw_only=True):
    """What the guest shall see; the product is its number of vCPUs."""

    sockets: int
    cores: int
    threads: int


class InstanceRequest(Value, frozen=True, kw_only=True):
    """What must be found on a host; all that counts for it of flavor, image and ports (DESIGN's `binding`).

    cells: none when the guest has no NUMA needs: it then floats over all shared CPUs. cpu_policy, thread_policy,
    emulator_policy None: nothing said (so: shared, prefer, beside the vCPUs). realtime: vCPUs with a realtime
    scheduler. page_size: KiB, a word, or None: nothing said.
    """

    vcpus: int
    memory_kib: int
    cells: tuple[CellRequest, ...] = ()
    cpu_policy: CpuPolicy | None = None
    thread_policy: ThreadPolicy | None = None
    emulator_policy: EmulatorPolicy | None = None
    realtime: CpuSet = CpuSet()
    page_size: int | PageWord | None = None
    memory_locked: bool = False
    cpu_topology: GuestCpuTopology | None = None
    devices: tuple[PciRequest, ...] = ()

    @property
    def pinned(self) -> CpuSet:
        """The vCPUs with a host CPU of their own."""
        return CpuSet.from_mask(union(cell.pinned.mask for cell in self.cells))
