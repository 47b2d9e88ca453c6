"""Reports for the tests of the commands and pictures, built by hand so that every number is known."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import msgspec

from agent.core.conflicts import Conflict, ConflictKind, Owner, Resource, Severity
from agent.core.cpuset import CpuSet
from agent.core.guest import DomainState, GuestDevice, ObservedDomain, Pin, RunIdentity, Sighting
from agent.core.ledger import Holds, PageHold
from agent.core.pci import NetInterface, PciAddress, PciDevice
from agent.core.report import GuestReport, Health, Report, SourceReport
from agent.core.topology import Cache, Cpu, HostCell, HostTopology, PagePool
from agent.core.usage import Amount, CellUsage, CpuAmount, CpuHolder, DeviceUsage, HostUsage, PageAmount, Usage
from agent.core.values import Problem

WEB = "11111111-2222-3333-4444-555555555555"
DATABASE = "11111111-9999-3333-4444-555555555555"
CELL_KIB = 16 * 1024 * 1024
SINCE = "2026-11-30T12:00:00Z"


def owner(name: str, uuid: str) -> Owner:
    """A guest that virsh made."""
    return Owner(type="domain", uuid=uuid, name=name, maker="libvirt")


WEB_OWNER = owner("web", WEB)
DATABASE_OWNER = owner("database", DATABASE)


def smt_topology(cells: int = 2, cores: int = 4, threads: int = 2, **more: object) -> HostTopology:
    """One socket per cell; CPU numbers as Linux gives them: first all first threads, then all second ones."""
    total = cells * cores
    cpus = []
    for number in range(total * threads):
        index = number % total
        siblings = CpuSet(index + total * thread for thread in range(threads))
        cell = index // cores
        cpus.append(Cpu(id=number, online=True, cell=cell, socket=cell, die=0, core=index % cores, siblings=siblings))
    host_cells = tuple(
        HostCell(
            id=cell,
            cpus=CpuSet(cpu.id for cpu in cpus if cpu.cell == cell),
            memory_kib=CELL_KIB,
            pages=(PagePool(size_kib=2048, total=512, free=64),),
            distances=MappingProxyType({other: 10 if other == cell else 21 for other in range(cells)}),
        )
        for cell in range(cells)
    )
    caches = tuple(Cache(level=3, type="unified", size_kib=16384, cpus=cell.cpus) for cell in host_cells)
    made = HostTopology(cells=host_cells, cpus=tuple(cpus), caches=caches, memory_kib=cells * CELL_KIB)
    return msgspec.structs.replace(made, **more)


def with_cpu(topology: HostTopology, number: int, **facts: object) -> HostTopology:
    """The same host with other facts of one CPU."""
    cpus = tuple(msgspec.structs.replace(cpu, **facts) if cpu.id == number else cpu for cpu in topology.cpus)
    return msgspec.structs.replace(topology, cpus=cpus)


def amount(total: int, used: int, reserved: int = 0) -> Amount:
    """An amount with ratio 1."""
    return Amount(total=total, reserved=reserved, limit=total - reserved, used=used, free=total - reserved - used)


def usage_of(
    topology: HostTopology,
    *,
    dedicated: str = "",
    shared: str = "",
    holders: dict[int, tuple[Owner, ...]] | None = None,
    conflicts: tuple[Conflict, ...] = (),
    pci: tuple[DeviceUsage, ...] = (),
) -> Usage:
    """What the fold makes of these holders: no arithmetic but the difference of sets."""
    held = tuple(CpuHolder(cpu=cpu, owners=owners) for cpu, owners in sorted((holders or {}).items()))
    used = CpuSet(holder.cpu for holder in held)

    def cpus(within: CpuSet) -> CpuAmount:
        total = CpuSet.parse(dedicated) & within
        return CpuAmount(total=total, used=used & within, free=total - used)

    cells = tuple(
        CellUsage(
            id=cell.id,
            dedicated=cpus(cell.cpus),
            shared_cpus=CpuSet.parse(shared) & cell.cpus,
            shared=amount(len(CpuSet.parse(shared) & cell.cpus) * 4, 1 if shared else 0),
            memory_kib=amount(cell.memory_kib - 1048576, 2097152, 524288),
            pages=(PageAmount(size_kib=2048, total=512, used=448, free=64, kernel_free=64),),
            holders=tuple(holder for holder in held if holder.cpu in cell.cpus),
        )
        for cell in topology.cells
    )
    everything = CpuSet(cpu.id for cpu in topology.cpus)
    host = HostUsage(
        dedicated=cpus(everything),
        shared_cpus=CpuSet.parse(shared),
        shared=amount(len(CpuSet.parse(shared)) * 4, 2),
        memory_kib=amount(topology.memory_kib, 40 * 1048576, 524288),
        holders=held,
    )
    return Usage(cells=cells, host=host, conflicts=conflicts, pci=pci)


def cpu_conflict(
    cpu: int = 2,
    kind: ConflictKind = "cpu-pinned-twice",
    severity: Severity = "error",
    owners: tuple[Owner, ...] = (WEB_OWNER, DATABASE_OWNER),
    accepted: bool = False,
) -> Conflict:
    """Two guests on one CPU, unless told otherwise."""
    return Conflict(
        id=f"{kind}:{cpu}",
        kind=kind,
        resource=Resource(kind="cpu", id=str(cpu), cell=0),
        owners=owners,
        cause=f"CPU {cpu} is pinned by web (vCPU 0) and database (vCPU 1).",
        severity=severity,
        action="Move one of them away: virsh vcpupin database 1 CPU; free in cell 0: 3. Left alone, both run slower.",
        since=SINCE,
        accepted=accepted,
    )


def guest(
    name: str, uuid: str, pins: dict[int, str], *, state: DomainState = "running", devices: Sequence[str] = ()
) -> GuestReport:
    """A running guest with 2 GiB of huge pages on cell 0, its vCPUs pinned so."""
    addresses = tuple(PciAddress.parse(text) for text in devices)
    domain = ObservedDomain(
        uuid=uuid,
        name=name,
        maker="libvirt",
        vcpus=len(pins),
        vcpus_online=CpuSet(pins),
        memory_kib=2097152,
        vcpu_pins=tuple(Pin(thread=vcpu, cpus=CpuSet.parse(cpus)) for vcpu, cpus in pins.items()),
        mode="strict",
        nodeset=CpuSet([0]),
        page_size_kib=2048,
        devices=tuple(
            GuestDevice(kind="pci", source="hostdev", address=address, managed=True) for address in addresses
        ),
    )
    run = RunIdentity(libvirt_id=3, pid=4711, start_ticks=360000) if state == "running" else RunIdentity()
    sighting = Sighting(
        uuid=uuid, name=name, state=state, begun_at=100.0, connection=1, persistent=True, run=run, domain=domain
    )
    held = CpuSet(cpu for cpus in pins.values() for cpu in CpuSet.parse(cpus))
    if state == "shut-off":
        return GuestReport(sighting=sighting, holds=Holds(uuid=uuid, devices=addresses), age_s=4.0)
    pages = (PageHold(cell=0, size_kib=2048, count=1024),)
    return GuestReport(sighting=sighting, holds=Holds(uuid=uuid, cpus=held, pages=pages, devices=addresses), age_s=4.0)


def devices() -> tuple[PciDevice, ...]:
    """A card with three virtual functions on cell 1, a disk on cell 0, a bridge without a cell."""
    card = PciAddress.parse("0000:3b:00.0")
    functions = tuple(
        PciDevice(
            address=PciAddress(0, 0x3B, 2, n),
            vendor_id="8086",
            product_id="154c",
            class_code="0200",
            cell=1,
            type="type-VF",
            parent=card,
            driver="vfio-pci" if n == 0 else "iavf",
        )
        for n in range(3)
    )
    return (
        PciDevice(address=PciAddress.parse("0000:00:1f.0"), vendor_id="8086", product_id="a1c1", class_code="0601"),
        PciDevice(
            address=PciAddress.parse("0000:01:00.0"),
            vendor_id="144d",
            product_id="a808",
            class_code="0108",
            cell=0,
            driver="nvme",
        ),
        PciDevice(
            address=card,
            vendor_id="8086",
            product_id="1572",
            class_code="0200",
            cell=1,
            type="type-PF",
            driver="i40e",
            sriov_totalvfs=64,
            sriov_numvfs=3,
            netdevs=(NetInterface(name="ens1f0", mac="3c:fd:fe:00:00:01"),),
        ),
        *functions,
    )


def device_usage(topology: HostTopology, held: dict[str, tuple[Owner, ...]]) -> tuple[DeviceUsage, ...]:
    """Every device but bridges is offered; those in `held` have these owners."""
    return tuple(
        DeviceUsage(
            address=device.address,
            type=device.type,
            vendor_id=device.vendor_id,
            product_id=device.product_id,
            cell=device.cell,
            offered=True,
            free=str(device.address) not in held,
            owners=held.get(str(device.address), ()),
        )
        for device in topology.pci
        if not device.class_code.startswith("06")
    )


def sources(**problems: str) -> tuple[SourceReport, ...]:
    """All sources read 4 s ago, except those with a problem."""
    names = ("sysfs", "libvirt", "domains", "processes")
    return tuple(
        SourceReport(
            name=name, ok=name not in problems, age_s=None if name in problems else 4.0, problem=problems.get(name)
        )
        for name in names
    )


def report(
    topology: HostTopology | None = None,
    usage: Usage | None = None,
    guests: tuple[GuestReport, ...] = (),
    **health: object,
) -> Report:
    """All of it, in one piece."""
    host = topology or smt_topology()
    folded = usage or usage_of(host)
    open_rows = sum(not row.accepted for row in folded.conflicts)
    well = Health(
        status="degraded" if open_rows else "ok",
        ready=True,
        reasons=(f"{open_rows} conflicts are open",) if open_rows else (),
        sources=sources(),
        guests_active=sum(g.sighting.is_active for g in guests),
        guests_defined=len(guests),
        conflicts=open_rows,
        conflicts_accepted=len(folded.conflicts) - open_rows,
        problems=len(host.problems),
    )
    return Report(
        agent_id="5b0c1f0e-0000-4000-8000-000000000001",
        epoch=7,
        generation=42,
        topology=host,
        guests=guests,
        usage=folded,
        conflicts=folded.conflicts,
        health=msgspec.structs.replace(well, **health),
    )


def contended() -> Report:
    """Two guests that share CPU 2 of a small host, one of them with a virtual function; one guest shut off."""
    topology = smt_topology(
        pci=devices(),
        problems=(
            Problem(
                source="sys/devices/system/cpu/cpu9/cache",
                what="the L3 cache could not be read, so it is missing here",
                values=MappingProxyType({"sysfs": "EIO"}),
            ),
        ),
    )
    vf = "0000:3b:02.0"
    usage = usage_of(
        topology,
        dedicated="2-7,10-15",
        shared="0-1,8-9",
        holders={2: (WEB_OWNER, DATABASE_OWNER), 3: (WEB_OWNER,), 10: (DATABASE_OWNER,)},
        conflicts=(cpu_conflict(),),
        pci=device_usage(topology, {vf: (WEB_OWNER,)}),
    )
    guests = (
        guest("database", DATABASE, {0: "10", 1: "2"}),
        guest("web", WEB, {0: "2", 1: "3"}, devices=(vf,)),
        guest("old", "77777777-0000-4000-8000-000000000000", {0: "5"}, state="shut-off"),
    )
    return report(topology, usage, guests)
