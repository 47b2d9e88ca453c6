"""Arbitrary hosts, configurations and guests for generated tests: also such as no real host would show."""

from __future__ import annotations

from types import MappingProxyType

from hypothesis import strategies as st

from agent.core.cpuset import CpuSet
from agent.core.guest import (
    GuestCell,
    GuestDevice,
    MemoryDevice,
    ObservedDomain,
    OtherProcess,
    Pin,
    RunIdentity,
    Sighting,
)
from agent.core.host_config import AcceptRule, DeviceSpec, HostConfig, ReservedPages
from agent.core.pci import MediatedDevice, PciAddress, PciDevice
from agent.core.topology import Cpu, HostCell, HostTopology, PagePool
from agent.core.values import ReadOnlyMap

SMALL = st.integers(-2, 12)
AMOUNT = st.integers(-(2**40), 2**40)
UUIDS = st.sampled_from(("a", "b", "c", "d", "7"))
MDEVS = st.sampled_from(("m1", "M1", "m2"))
CPUS = st.builds(CpuSet, st.lists(st.integers(0, 70), max_size=4))
NODES = st.builds(CpuSet, st.lists(st.integers(0, 4), max_size=2))
ADDRESSES = st.builds(PciAddress, st.just(0), st.just(1), st.integers(0, 2), st.integers(0, 1))
PAGE_KIB = st.sampled_from((0, 4, 2048, 1048576, -1))


def _map(pairs: dict[str, str]) -> ReadOnlyMap[str, str]:
    return MappingProxyType(pairs)


PINS = st.lists(st.builds(Pin, thread=st.integers(0, 5), cpus=CPUS), max_size=4).map(tuple)
GUEST_CELLS = st.builds(
    GuestCell,
    id=st.integers(0, 2),
    vcpus=CPUS,
    memory_kib=AMOUNT,
    mode=st.sampled_from((None, "strict", "preferred", "restrictive")),
    nodeset=NODES,
    page_size_kib=st.none() | PAGE_KIB,
)
MODULES = st.builds(
    MemoryDevice,
    model=st.sampled_from(("dimm", "nvdimm", "")),
    size_kib=AMOUNT,
    guest_cell=st.none() | st.integers(0, 3),
    page_size_kib=st.none() | PAGE_KIB,
    nodeset=NODES,
)
GUEST_DEVICES = st.builds(
    GuestDevice,
    kind=st.sampled_from(("pci", "mdev", "vdpa", "netdev")),
    source=st.just("hostdev"),
    address=st.none() | ADDRESSES,
    mdev=st.none() | MDEVS,
    vdpa=st.none() | st.sampled_from(("vdpa0", "/dev/vdpa0", "other")),
    netdev=st.none() | st.just("eth0"),
)
DOMAINS = st.builds(
    ObservedDomain,
    uuid=UUIDS,
    name=st.sampled_from(("", "a", "b", "-x", "it's")),
    maker=st.sampled_from(("nova", "ovirt", "libvirt", "unknown")),
    vcpus=SMALL,
    vcpus_online=st.builds(CpuSet, st.lists(st.integers(0, 5), max_size=4)),
    memory_kib=AMOUNT,
    cpuset=st.none() | CPUS,
    vcpu_pins=PINS,
    emulator_pin=st.none() | CPUS,
    iothreads=SMALL,
    iothread_pins=PINS,
    mode=st.sampled_from((None, "strict", "preferred")),
    nodeset=NODES,
    cells=st.lists(GUEST_CELLS, max_size=2).map(tuple),
    page_size_kib=st.none() | PAGE_KIB,
    default_huge_pages=st.booleans(),
    memory_devices=st.lists(MODULES, max_size=2).map(tuple),
    devices=st.lists(GUEST_DEVICES, max_size=3).map(tuple),
    facts=st.dictionaries(
        st.just("extra:hw:cpu_thread_policy"), st.sampled_from(("isolate", "prefer")), max_size=1
    ).map(_map),
)
OTHERS = st.builds(OtherProcess, run=st.builds(RunIdentity, pid=st.integers(4, 5)), pins=CPUS)
SIGHTINGS = st.builds(
    Sighting,
    uuid=UUIDS,
    name=st.sampled_from(("", "a", "b", "-x", "it's")),
    state=st.sampled_from(("running", "paused", "shut-off", "unknown", "crashed")),
    begun_at=st.integers(0, 5).map(float),
    connection=st.integers(0, 2),
    persistent=st.none() | st.booleans(),
    run=st.builds(RunIdentity, pid=st.none() | st.integers(1, 3)),
    validity=st.sampled_from(("valid", "last-known", "lost-by-libvirt")),
    memory_elsewhere=NODES,
    domain=st.none() | DOMAINS,
    kernel_cpus=st.none() | CPUS,
    kernel_pins=st.none() | CPUS,
    others=st.lists(OTHERS, max_size=2).map(tuple),
    problem=st.none() | st.just("it cannot be read"),
)
POOLS = st.builds(
    PagePool, size_kib=PAGE_KIB, total=SMALL, free=SMALL, surplus=SMALL, reserved=st.none() | st.integers(0, 3)
)
CELLS = st.builds(
    HostCell, id=st.integers(0, 4), cpus=CPUS, memory_kib=AMOUNT, pages=st.lists(POOLS, max_size=2).map(tuple)
)
HOST_CPUS = st.builds(
    Cpu,
    id=st.integers(0, 70),
    online=st.sampled_from((True, True, True, False, None)),
    allowed=st.sampled_from((True, True, True, False)),
    cell=st.none() | st.integers(0, 4),
    siblings=CPUS,
)
DEVICES = st.builds(
    PciDevice,
    address=ADDRESSES,
    vendor_id=st.just("8086"),
    product_id=st.just("10fb"),
    class_code=st.sampled_from(("0200", "0604", "")),
    cell=st.none() | st.integers(0, 4),
    type=st.sampled_from(("type-PCI", "type-PF", "type-VF", "vdpa")),
    parent=st.none() | ADDRESSES,
    driver=st.sampled_from((None, "vfio-pci", "ixgbe")),
    vdpa=st.sampled_from(((), ("vdpa0",))),
)
TOPOLOGIES = st.builds(
    HostTopology,
    cells=st.lists(CELLS, max_size=3).map(tuple),
    cpus=st.lists(HOST_CPUS, max_size=12).map(tuple),
    pci=st.lists(DEVICES, max_size=4).map(tuple),
    mdevs=st.lists(
        st.builds(MediatedDevice, uuid=MDEVS, type=st.just("t"), parent=st.none() | ADDRESSES), max_size=2
    ).map(tuple),
    memory_kib=AMOUNT,
    page_size_kib=st.sampled_from((4, 64)),
    pages=st.lists(POOLS, max_size=2).map(tuple),
)
CONFIGS = st.builds(
    HostConfig,
    dedicated=st.none() | CPUS,
    shared=st.none() | CPUS,
    reserved_memory_mb=SMALL,
    reserved_pages=st.lists(
        st.builds(ReservedPages, cell=st.integers(0, 4), size_kib=PAGE_KIB, count=SMALL), max_size=2
    ).map(tuple),
    cpu_allocation_ratio=st.floats(),
    ram_allocation_ratio=st.floats(),
    device_spec=st.lists(
        st.builds(DeviceSpec, address=st.none() | st.sampled_from(("*:01:00.*", "0000:01:00.0"))), max_size=1
    ).map(tuple),
    accept=st.lists(
        st.builds(AcceptRule, kind=st.just("cpu-pinned-twice"), guest=st.sampled_from(("a", "*"))), max_size=1
    ).map(tuple),
)
