"""Hosts and guests in a line or two, in the terms of the field cases: MiB, cpulist text, guests by name."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypedDict, Unpack

import msgspec

from agent.core.conflicts import Conflict
from agent.core.cpuset import CpuSet
from agent.core.guest import DomainState, GuestDevice, Maker, ObservedDomain, Pin, RunIdentity, Sighting, Validity
from agent.core.host_config import DeviceSpec, HostConfig
from agent.core.ledger import Ledger, ListedDomain, Listing, LivingProcess, Processes, account, connect, see_all
from agent.core.pci import DeviceType, MdevType, MediatedDevice, PciAddress, PciDevice
from agent.core.topology import Cpu, HostCell, HostTopology, PagePool
from agent.core.usage import Folded, Usage, fold

KIB_PER_MIB = 1024
CONNECTION = 1
NOT_RUN = RunIdentity()


class Host(NamedTuple):
    """A host and how it is configured."""

    topology: HostTopology
    config: HostConfig

    def folded(self, *guests: Sighting) -> Folded:
        """What the guests make of it."""
        return fold(self.topology, self.config, guests)

    def usage(self, *guests: Sighting) -> Usage:
        """What the guests use of it."""
        return self.folded(*guests).usage

    def conflicts(self, *guests: Sighting) -> tuple[Conflict, ...]:
        """What of the guests contradicts."""
        return self.folded(*guests).conflicts


class Node(NamedTuple):
    """A cell of a host: cpulist text, memory in MiB, huge pages by size in KiB."""

    cpus: str
    mem: int
    pages: Mapping[int, int] = MappingProxyType({})


def host(
    nodes: Mapping[int, Node],
    *,
    dedicated: str | None = None,
    shared: str | None = None,
    smt: Sequence[str] = (),
    online: str | None = None,
    pci: Sequence[PciDevice] = (),
    mdevs: Sequence[MediatedDevice] = (),
    pci_filter: Sequence[str] = (),
    reserve_mem: int = 512,
    ratio_mem: float = 1.0,
) -> Host:
    """A host of these nodes. smt: siblings as "0,4"; None for both CPU sets is the legacy mode."""
    everything = CpuSet(cpu for node in nodes.values() for cpu in CpuSet.parse(node.cpus))
    on = everything if online is None else CpuSet.parse(online)
    siblings = {cpu: group for group in map(CpuSet.parse, smt) for cpu in group}
    config = HostConfig(
        dedicated=None if dedicated is None else CpuSet.parse(dedicated),
        shared=None if shared is None else CpuSet.parse(shared),
        reserved_memory_mb=reserve_mem,
        ram_allocation_ratio=ratio_mem,
        device_spec=tuple(DeviceSpec(address=text) for text in pci_filter),
    )
    cpus = tuple(_cpu(cpu, nodes, siblings.get(cpu, CpuSet([cpu])), is_online=cpu in on) for cpu in everything)
    topology = HostTopology(
        cells=tuple(_cell(number, node, on) for number, node in sorted(nodes.items())),
        cpus=cpus,
        pci=tuple(sorted(pci, key=lambda device: device.address)),
        mdevs=tuple(mdevs),
        memory_kib=sum(node.mem for node in nodes.values()) * KIB_PER_MIB,
    )
    return Host(topology, config)


def h8(
    *,
    online: str | None = None,
    pages: Mapping[int, int] = MappingProxyType({}),
    pci: Sequence[PciDevice] = (),
    mdevs: Sequence[MediatedDevice] = (),
    pci_filter: Sequence[str] = (),
) -> Host:
    """One cell, CPUs 0-7 without siblings, 16 GiB; 2-7 dedicated, 0-1 shared."""
    nodes = {0: Node("0-7", 16384, pages)}
    return host(nodes, dedicated="2-7", shared="0-1", online=online, pci=pci, mdevs=mdevs, pci_filter=pci_filter)


def h2x4(pci: Sequence[PciDevice] = ()) -> Host:
    """Two cells of four CPUs and 8 GiB, all dedicated."""
    return host({0: Node("0-3", 8192), 1: Node("4-7", 8192)}, dedicated="0-7", shared="", pci=pci)


def ht8() -> Host:
    """One cell of four cores with two threads each, all dedicated."""
    return host({0: Node("0-7", 16384)}, dedicated="0-7", shared="", smt=("0,4", "1,5", "2,6", "3,7"))


def configured(before: Host, **options: object) -> Host:
    """The same host under other options."""
    return Host(before.topology, msgspec.structs.replace(before.config, **options))


def function(
    address: str,
    type: DeviceType = "type-PCI",  # noqa: A002 - the field's own name
    *,
    numa: int | None = 0,
    pf: str | None = None,
    driver: str | None = None,
    class_code: str = "0200",
    mdev_types: Mapping[str, int] = MappingProxyType({}),
) -> PciDevice:
    """A PCI function; mdev_types: how many of each can still be made."""
    return PciDevice(
        address=PciAddress.parse(address),
        vendor_id="8086",
        product_id="10fb",
        class_code=class_code,
        cell=numa,
        type=type,
        parent=None if pf is None else PciAddress.parse(pf),
        driver=driver,
        mdev_types=tuple(MdevType(id=name, available=left) for name, left in mdev_types.items()),
    )


class Reading(TypedDict, total=False):
    """How a domain was seen: `_seen` has what is meant by default."""

    at: float
    connection: int
    validity: Validity
    problem: str | None
    persistent: bool | None
    run: RunIdentity


def uuid_of(name: str) -> str:
    """The uuid that `guest` gives a name."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def guest(
    name: str,
    pins: Mapping[int, int | str] = MappingProxyType({}),
    *,
    state: DomainState = "running",
    vcpus: int | None = None,
    online_vcpus: str | None = None,
    cpuset: str | None = None,
    emu: str | None = None,
    iothreads: Mapping[int, str] = MappingProxyType({}),
    mem: int = 512,
    node: int | None = None,
    page: int | None = None,
    dev: Iterable[str] = (),
    mdev: str | None = None,
    maker: Maker = "libvirt",
    facts: Mapping[str, str] = MappingProxyType({}),
    **reading: Unpack[Reading],
) -> Sighting:
    """A domain as libvirt showed it at `at`. pins: host CPU or cpulist text by vCPU; node: all memory bound to it."""
    count = vcpus if vcpus is not None else max(len(pins), 1)
    domain = ObservedDomain(
        uuid=uuid_of(name),
        name=name,
        maker=maker,
        vcpus=count,
        vcpus_online=CpuSet(range(count)) if online_vcpus is None else CpuSet.parse(online_vcpus),
        memory_kib=mem * KIB_PER_MIB,
        cpuset=None if cpuset is None else CpuSet.parse(cpuset),
        vcpu_pins=tuple(Pin(thread=vcpu, cpus=CpuSet.parse(str(cpus))) for vcpu, cpus in pins.items()),
        emulator_pin=None if emu is None else CpuSet.parse(emu),
        iothreads=len(iothreads),
        iothread_pins=tuple(Pin(thread=number, cpus=CpuSet.parse(cpus)) for number, cpus in iothreads.items()),
        mode=None if node is None else "strict",
        nodeset=CpuSet() if node is None else CpuSet([node]),
        page_size_kib=page,
        devices=_devices(dev, mdev),
        facts=MappingProxyType(dict(facts)),
    )
    return _seen(domain, state, **reading)


def unread(
    name: str,
    *,
    kernel_cpus: str | None = None,
    state: DomainState = "running",
    at: float = 1.0,
    problem: str = "the definition is not well-formed",
) -> Sighting:
    """A domain whose XML was not readable."""
    return Sighting(
        uuid=uuid_of(name),
        name=name,
        state=state,
        begun_at=at,
        connection=CONNECTION,
        validity="last-known",
        kernel_cpus=None if kernel_cpus is None else CpuSet.parse(kernel_cpus),
        problem=problem,
    )


def listing(*names: str, at: float, complete: bool = True, connection: int = CONNECTION) -> Listing:
    """The list that libvirt gives: these guests."""
    entries = {uuid_of(name): ListedDomain(uuid=uuid_of(name), name=name) for name in names}
    return Listing(connection=connection, begun_at=at, complete=complete, entries=MappingProxyType(entries))


def processes(*living: LivingProcess, at: float, can_see: bool = True) -> Processes:
    """QEMU processes as seen at `at`."""
    return Processes(
        begun_at=at, can_see=can_see, living=MappingProxyType({process.uuid: process for process in living})
    )


def qemu(name: str, *, pid: int = 1000, started_at_s: float | None = None, cpus: str | None = None) -> LivingProcess:
    """The QEMU process of a guest."""
    run = RunIdentity(pid=pid, started_at_boot_s=started_at_s)
    return LivingProcess(
        uuid=uuid_of(name), name=name, run=run, cpus=None if cpus is None else CpuSet.parse(cpus), has_pid_file=True
    )


def ledger_of(*guests: Sighting) -> Ledger:
    """A ledger on connection 1 that has seen these guests."""
    return see_all(connect(Ledger(), CONNECTION), guests)


def passed(ledger: Ledger, *guests: Sighting, at: float, living: Iterable[LivingProcess] = ()) -> Ledger:
    """The ledger after a full pass in which libvirt showed exactly these guests."""
    seen = see_all(ledger, (msgspec.structs.replace(one, begun_at=at + 0.1) for one in guests))
    listed = listing(*(one.name for one in guests), at=at, connection=ledger.connection)
    return account(seen, listed, processes(*living, at=at + 0.2))


def _seen(
    domain: ObservedDomain,
    state: DomainState,
    *,
    at: float = 1.0,
    connection: int = CONNECTION,
    validity: Validity = "valid",
    problem: str | None = None,
    persistent: bool | None = True,
    run: RunIdentity = NOT_RUN,
) -> Sighting:
    return Sighting(
        uuid=domain.uuid,
        name=domain.name,
        state=state,
        begun_at=at,
        connection=connection,
        persistent=persistent,
        run=run,
        validity=validity,
        domain=domain,
        problem=problem,
    )


def _cpu(cpu: int, nodes: Mapping[int, Node], siblings: CpuSet, *, is_online: bool) -> Cpu:
    if not is_online:
        return Cpu(id=cpu, online=False)
    cell = next(number for number, node in nodes.items() if cpu in CpuSet.parse(node.cpus))
    return Cpu(id=cpu, online=True, cell=cell, socket=cell, die=0, core=siblings.lowest, siblings=siblings)


def _cell(number: int, node: Node, online: CpuSet) -> HostCell:
    pools = tuple(PagePool(size_kib=size, total=total, free=total) for size, total in sorted(node.pages.items()))
    cpus = CpuSet.parse(node.cpus) & online
    return HostCell(id=number, cpus=cpus, memory_kib=node.mem * KIB_PER_MIB, pages=pools)


def _devices(addresses: Iterable[str], mdev: str | None) -> tuple[GuestDevice, ...]:
    functions = [GuestDevice(kind="pci", source="hostdev", address=PciAddress.parse(text)) for text in addresses]
    mediated = [] if mdev is None else [GuestDevice(kind="mdev", source="hostdev", mdev=mdev)]
    return (*functions, *mediated)
