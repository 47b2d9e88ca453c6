"""Reports for the tests of commands and pictures: hosts and guests by hand, their books by the real fold."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType

import msgspec

from agent.adapters.http import READ_ONLY_SOCKET, LocalApi
from agent.core.conflicts import Conflict, ConflictKind, Owner, Resource, Severity
from agent.core.cpuset import CpuSet
from agent.core.guest import RunIdentity, Sighting
from agent.core.host_config import AcceptRule, DeviceSpec, HostConfig
from agent.core.pci import NetInterface, PciAddress, PciDevice
from agent.core.report import Report
from agent.core.report import report as report_of_snapshot
from agent.core.snapshot import Findings, Identity, Snapshot, SourceState, dated, first, take_in, with_sources
from agent.core.topology import Cache, Cpu, HostCell, HostTopology, PagePool
from agent.core.usage import Usage, fold
from agent.core.values import Problem
from agent.formats.envelope import ApiRequest, ApiResponse, respond, success
from tests.builders import guest, listing
from tests.builders_http import refuse

CELL_KIB = 16 * 1024 * 1024
SINCE = "2026-11-30T12:00:00Z"
NOW_S = 104.0
SOURCES = ("domains", "libvirt", "processes", "sysfs")
SPLIT = HostConfig(dedicated=CpuSet.parse("2-7,10-15"), shared=CpuSet.parse("0-1,8-9"))
VF = "0000:3b:02.0"


def smt_topology(cells: int = 2, cores: int = 4, threads: int = 2) -> HostTopology:
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
    return HostTopology(cells=host_cells, cpus=tuple(cpus), caches=caches, memory_kib=cells * CELL_KIB)


def with_cpu(topology: HostTopology, number: int, **facts: object) -> HostTopology:
    """The same host with other facts of one CPU; one that is not online leaves its cell."""
    cpus = tuple(msgspec.structs.replace(cpu, **facts) if cpu.id == number else cpu for cpu in topology.cpus)
    online = CpuSet(cpu.id for cpu in cpus if cpu.online)
    cells = tuple(msgspec.structs.replace(cell, cpus=cell.cpus & online) for cell in topology.cells)
    return msgspec.structs.replace(topology, cpus=cpus, cells=cells)


def usage_of(
    topology: HostTopology, *guests: Sighting, config: HostConfig = SPLIT
) -> tuple[Usage, tuple[Conflict, ...]]:
    """What these guests use, and what contradicts."""
    made = fold(topology, config, guests)
    return made.usage, made.conflicts


def devices() -> tuple[PciDevice, ...]:
    """A card with three virtual functions on cell 1, a disk on cell 0, a bridge without a cell."""
    card = PciAddress.parse("0000:3b:00.0")
    functions = tuple(
        PciDevice(
            address=PciAddress(0, 0x3B, 2, number),
            vendor_id="8086",
            product_id="154c",
            class_code="0200",
            cell=1,
            type="type-VF",
            parent=card,
            driver="iavf" if number else "vfio-pci",
        )
        for number in range(3)
    )
    bridge = PciDevice(address=PciAddress.parse("0000:00:1f.0"), vendor_id="8086", product_id="a1c1", class_code="0601")
    disk = PciDevice(
        address=PciAddress.parse("0000:01:00.0"),
        vendor_id="144d",
        product_id="a808",
        class_code="0108",
        cell=0,
        driver="nvme",
    )
    physical = PciDevice(
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
    )
    return (bridge, disk, physical, *functions)


def host_report(
    topology: HostTopology,
    *guests: Sighting,
    config: HostConfig = SPLIT,
    problems: Mapping[str, str] = MappingProxyType({}),
    epoch: int = 7,
) -> Report:
    """What a daemon on this host would tell, 4 s after its pass. problems: of sources, which were then never read."""
    snapshot = host_snapshot(topology, *guests, config=config, problems=problems, epoch=epoch)
    return report_of_snapshot(snapshot, now_s=NOW_S, interval_s=10.0)


def host_snapshot(
    topology: HostTopology,
    *guests: Sighting,
    config: HostConfig = SPLIT,
    problems: Mapping[str, str] = MappingProxyType({}),
    epoch: int = 7,
) -> Snapshot:
    """What a daemon has after its first pass."""
    states = tuple(
        SourceState(name=name, read_at=None if name in problems else NOW_S - 4, problem=problems.get(name))
        for name in SOURCES
    )
    listed = listing(*(one.name for one in guests), at=99)
    found = Findings(topology=topology, listing=listed, sightings=guests, sources=states)
    identity = Identity(agent_id="5b0c1f0e-0000-4000-8000-000000000001", boot_id="boot", epoch=epoch)
    return dated(take_in(first(identity, config), found), {}, SINCE)


WEB_RUN = RunIdentity(pid=4711, started_at_boot_s=0.0)
WEB = guest("web", {0: 2, 1: 3}, mem=2048, node=0, page=2048, dev=(VF,), run=WEB_RUN, at=100)
DATABASE = guest("database", {0: 10, 1: 2}, mem=1024, node=0, at=100)
CPU_2 = Resource(kind="cpu", id="2", cell=0)
WEB_OWNER = Owner(type="domain", uuid=WEB.uuid, name="web", maker="libvirt")
OLD = guest("old", {0: 5}, state="shut-off", at=100)


def contended(config: HostConfig = SPLIT) -> Report:
    """Two guests that share CPU 2 of a small host, one of them with a virtual function; one guest shut off."""
    unread_cache = Problem(
        source="sys/devices/system/cpu/cpu9/cache",
        what="the L3 cache could not be read, so it is missing here",
        values=MappingProxyType({"sysfs": "EIO"}),
    )
    topology = msgspec.structs.replace(smt_topology(), pci=devices(), problems=(unread_cache,))
    return host_report(topology, WEB, DATABASE, OLD, config=config)


def accepting() -> Report:
    """The same, with the configuration saying that it is intended."""
    rules = tuple(AcceptRule(kind=row.kind, guest="*") for row in contended().conflicts)
    return contended(msgspec.structs.replace(SPLIT, accept=rules))


def filtered() -> Report:
    """The same, with only the virtual functions offered to guests."""
    return contended(msgspec.structs.replace(SPLIT, device_spec=(DeviceSpec(product_id="154c"),)))


def calm() -> Report:
    """One guest that contradicts nothing."""
    return host_report(smt_topology(), guest("calm", {0: 4, 1: 12}, mem=1024, node=1, at=100))


def blind() -> Report:
    """Libvirt never answered."""
    return host_report(
        smt_topology(), problems={"libvirt": "libvirt is not running. Start it.", "domains": "not reached"}
    )


def lost() -> Report:
    """Libvirt answered a minute ago and no more; one guest is known."""
    snapshot = host_snapshot(smt_topology(), guest("calm", {0: 4, 1: 12}, mem=1024, node=1, at=100))
    gone = SourceState(name="libvirt", problem="libvirt is not running. Start it.")
    rest = [SourceState(name=name, read_at=NOW_S + 58) for name in SOURCES if name != "libvirt"]
    return report_of_snapshot(with_sources(snapshot, gone, *rest), now_s=NOW_S + 60, interval_s=10.0)


def conflict(
    severity: Severity = "error",
    *,
    kind: ConflictKind = "cpu-pinned-twice",
    resource: Resource = CPU_2,
    owners: tuple[Owner, ...] = (WEB_OWNER,),
    cause: str = "CPU 2 is taken twice.",
    accepted: bool = False,
    since: str | None = SINCE,
) -> Conflict:
    """A row of any kind and severity, with short sentences."""
    return Conflict(
        id=f"{kind}:{resource.kind}:{resource.id}",
        kind=kind,
        resource=resource,
        owners=owners,
        cause=cause,
        severity=severity,
        action="Move one of them.",
        since=since,
        accepted=accepted,
    )


def with_conflicts(report: Report, *conflicts: Conflict) -> Report:
    """The same report with exactly these rows."""
    return msgspec.structs.replace(report, conflicts=conflicts)


@contextlib.contextmanager
def served(report: Report) -> Iterator[Path]:
    """The read-only socket of a daemon that tells this report, over the real server."""

    def answer(request: ApiRequest) -> ApiResponse:
        if request.path != "/v1/report":
            return refuse("InvalidRequest", f"there is no {request.path}", HTTPStatus.NOT_FOUND)
        identity = Identity(agent_id=report.agent_id, boot_id="boot", epoch=report.epoch)
        return respond(success(identity, report.generation, SINCE, report))

    with tempfile.TemporaryDirectory(prefix="cli-", dir="/tmp") as folder:  # pytest's paths are too long for a socket
        api = LocalApi(answer, refuse, Path(folder))
        api.start()
        try:
            yield Path(folder, READ_ONLY_SOCKET)
        finally:
            api.stop()
