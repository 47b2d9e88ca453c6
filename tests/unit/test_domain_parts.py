"""The parts of a domain that a placement becomes: read back they hold exactly what was promised, whatever it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import MappingProxyType

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.arrival import arrived
from agent.core.cpuset import CpuSet
from agent.core.fit.decide import fit
from agent.core.guest import Sighting
from agent.core.holds import HostSets, hold, host_sets
from agent.core.host_config import HostConfig
from agent.core.instance import GuestCpuTopology, Instance, InstanceRequest
from agent.core.ledger import Holds
from agent.core.pci import PciAddress
from agent.core.placement import CellPlacement, GivenDevices, Placement
from agent.core.topology import Cpu, HostCell, HostTopology
from agent.formats.domain_xml import read_domain
from agent.formats.xml_text import Element, parse_xml
from agent.render.domain_parts import domain_parts, merged, xml_text
from tests.fit.guests import seeded

WEB = Instance(uuid="6b0e7d9c-6d55-4bd4-9d3c-6f6c3f9b9d31", name="web")
CPUS, CELLS = 32, 4
GUEST_CELLS = st.lists(st.integers(0, CELLS - 1), max_size=3)
FEW = st.lists(st.integers(0, CPUS - 1), max_size=4).map(CpuSet)
ADDRESSES = st.builds(PciAddress, st.integers(0, 0x1FFFF), st.integers(0, 255), st.integers(0, 31), st.integers(0, 7))
WHOLE = Placement(
    vcpus=4,
    memory_kib=3 * 1048576,
    cells=(
        CellPlacement(
            guest_cell=0,
            host_cell=1,
            vcpus=CpuSet([0, 1]),
            memory_kib=1048576,
            page_size_kib=2048,
            pins=MappingProxyType({0: 8, 1: 9}),
            idle_cpus=CpuSet([24, 25]),
        ),
        CellPlacement(
            guest_cell=1,
            host_cell=0,
            vcpus=CpuSet([2, 3]),
            memory_kib=2 * 1048576,
            page_size_kib=4,
            pins=MappingProxyType({2: 4}),
            shared_cpus=CpuSet([0, 1]),
        ),
    ),
    emulator_cpus=CpuSet([10]),
    emulator_own=10,
    devices=(GivenDevices(request="alias:nic", devices=(PciAddress.parse("0000:3b:00.1"),)),),
)
BY_HAND = """\
<domain xmlns:compute-agent="urn:compute-agent:placement:1">
  <name>web</name>
  <uuid>6b0e7d9c-6d55-4bd4-9d3c-6f6c3f9b9d31</uuid>
  <metadata>
    <compute-agent:placement cpu_thread_policy="isolate" />
  </metadata>
  <memory unit="KiB">3145728</memory>
  <memoryBacking>
    <hugepages>
      <page size="2048" unit="KiB" nodeset="0" />
    </hugepages>
    <locked />
  </memoryBacking>
  <vcpu placement="static" cpuset="0-1">4</vcpu>
  <cputune>
    <vcpupin vcpu="0" cpuset="8" />
    <vcpupin vcpu="1" cpuset="9" />
    <vcpupin vcpu="2" cpuset="4" />
    <vcpupin vcpu="3" cpuset="0-1" />
    <emulatorpin cpuset="10" />
    <vcpusched vcpus="2" scheduler="fifo" priority="1" />
  </cputune>
  <numatune>
    <memory mode="strict" nodeset="0-1" />
    <memnode cellid="0" mode="strict" nodeset="1" />
    <memnode cellid="1" mode="strict" nodeset="0" />
  </numatune>
  <cpu>
    <topology sockets="2" cores="1" threads="2" />
    <numa>
      <cell id="0" cpus="0-1" memory="1048576" unit="KiB" />
      <cell id="1" cpus="2-3" memory="2097152" unit="KiB" />
    </numa>
  </cpu>
  <devices>
    <hostdev mode="subsystem" type="pci" managed="yes">
      <source>
        <address domain="0x0000" bus="0x3b" slot="0x00" function="0x1" />
      </source>
    </hostdev>
  </devices>
</domain>
"""
FULL_DOMAIN = """\
<domain type="kvm">
  <name>other</name><uuid>00000000-0000-0000-0000-000000000001</uuid><title>kept</title>
  <metadata><mine xmlns="urn:mine"/></metadata>
  <memory unit="GiB">9</memory><currentMemory unit="GiB">8</currentMemory>
  <memoryBacking><hugepages/><access mode="shared"/></memoryBacking>
  <vcpu current="1">9</vcpu><vcpus><vcpu id="0" enabled="yes"/></vcpus><iothreads>1</iothreads>
  <cputune><shares>2048</shares><vcpupin vcpu="8" cpuset="31"/><iothreadpin iothread="1" cpuset="30"/></cputune>
  <numatune><memory mode="preferred" nodeset="3"/></numatune>
  <os><type arch="x86_64" machine="q35">hvm</type></os>
  <cpu mode="host-passthrough"><topology sockets="9" cores="1" threads="1"/><cache mode="passthrough"/></cpu>
  <devices>
    <disk type="file"><source file="/d"/></disk>
    <hostdev mode="subsystem" type="pci"><source><address domain="0" bus="1" slot="2" function="3"/></source></hostdev>
    <hostdev mode="subsystem" type="usb"/>
  </devices>
</domain>
"""


@st.composite
def placements(draw: st.DrawFn) -> Placement:
    """Any that could be thought of, sensible or not: pins anywhere, cells twice, floating vCPUs without a CPU."""
    hosts = draw(GUEST_CELLS)
    left = list(range(draw(st.integers(len(hosts) or 1, 8))))
    vcpus = len(left)
    cells = []
    for number, host_cell in enumerate(hosts):
        mine = left if number == len(hosts) - 1 else left[: draw(st.integers(0, len(left)))]
        left = left[len(mine) :]
        pinned = draw(st.sets(st.sampled_from(mine))) if mine else set()
        page_kib = draw(st.sampled_from((4, 4, 2048, 1048576)))
        cells.append(
            CellPlacement(
                guest_cell=number,
                host_cell=host_cell,
                vcpus=CpuSet(mine),
                memory_kib=page_kib * draw(st.integers(1, 5)),
                page_size_kib=page_kib,
                pins=MappingProxyType({vcpu: draw(st.integers(0, CPUS - 1)) for vcpu in sorted(pinned)}),
                shared_cpus=draw(FEW) if len(pinned) < len(mine) else CpuSet(),
                idle_cpus=draw(st.sampled_from((CpuSet(), CpuSet(), CpuSet([3])))),
            )
        )
    devices = draw(st.lists(st.lists(ADDRESSES, max_size=2).map(tuple), max_size=2))
    return Placement(
        vcpus=vcpus,
        memory_kib=sum(cell.memory_kib for cell in cells) or draw(st.integers(1, 4096)),
        cells=tuple(cells),
        emulator_cpus=draw(FEW),
        shared_cpus=CpuSet() if cells else draw(FEW),
        devices=tuple(GivenDevices(request=f"r{n}", devices=given) for n, given in enumerate(devices)),
    )


@st.composite
def any_sets(draw: st.DrawFn) -> HostSets:
    """Four cells of four cores with two threads; split, legacy, or only one set configured."""
    per_cell = CPUS // CELLS
    cpus = tuple(Cpu(id=n, online=True, cell=n // per_cell, siblings=CpuSet([n, n ^ 1])) for n in range(CPUS))
    cells = tuple(
        HostCell(id=n, cpus=CpuSet(range(n * per_cell, (n + 1) * per_cell)), memory_kib=1 << 24) for n in range(CELLS)
    )
    splits: Sequence[tuple[str | None, str | None]] = (
        (None, None), ("8-31", "0-7"), ("0-31", None), (None, "0-31"), ("1-31", "0"), ("0-31", "0-31"),
    )  # fmt: skip
    dedicated, shared = (None if text is None else CpuSet.parse(text) for text in draw(st.sampled_from(splits)))
    return host_sets(HostTopology(cells=cells, cpus=cpus), HostConfig(dedicated=dedicated, shared=shared))


def held(xml: str, sets: HostSets) -> Holds:
    """What the books say of a running guest whose definition this is; nothing of it may be unreadable."""
    read = read_domain(xml)
    assert read.problems == ()
    domain = read.domain
    return hold(Sighting(uuid=domain.uuid, name=domain.name, state="running", begun_at=1.0, domain=domain), sets)


def texts(root: Element, path: str) -> list[str | None]:
    return [one.text for one in root.findall(path)]


def real_placements() -> Iterator[tuple[int, Placement, HostSets, InstanceRequest]]:
    """What a fit gave a guest on each numbered host that had room."""
    for seed in range(1500):
        case = seeded(seed)
        found = fit(case.request, case.host.offer(), case.how)
        if isinstance(found, Placement):
            yield seed, found, host_sets(case.host.topology, case.host.config), case.request


def test_a_placement_with_everything_in_it_is_this_domain() -> None:
    binding = InstanceRequest(
        vcpus=4,
        memory_kib=3 * 1048576,
        realtime=CpuSet([2]),
        cpu_topology=GuestCpuTopology(sockets=2, cores=1, threads=2),
    )
    assert xml_text(domain_parts(WEB, WHOLE, binding)) == BY_HAND


def test_a_guest_without_cells_is_bound_to_the_shared_cpus_and_to_nothing_else() -> None:
    placement = Placement(vcpus=2, memory_kib=1024, shared_cpus=CpuSet([0, 1]))
    root = domain_parts(WEB, placement)
    assert {one.tag for one in root} == {"name", "uuid", "memory", "vcpu"}
    assert root.find("vcpu[@cpuset='0-1']") is not None


@settings(max_examples=300, deadline=None)
@given(placement=placements(), sets=any_sets())
def test_read_back_the_parts_hold_exactly_what_the_placement_does(placement: Placement, sets: HostSets) -> None:
    promised = hold(arrived(WEB, placement), sets)
    assert held(xml_text(domain_parts(WEB, placement)), sets) == promised


def test_the_same_holds_for_every_placement_that_a_fit_gives() -> None:
    found = {
        seed: held(xml_text(domain_parts(WEB, placement, request)), sets)
        == hold(arrived(WEB, placement, request), sets)
        for seed, placement, sets, request in real_placements()
    }
    assert len(found) > 150
    assert [seed for seed, same in found.items() if not same] == []


@settings(max_examples=100, deadline=None)
@given(placement=placements(), sets=any_sets())
def test_put_into_a_domain_with_places_of_its_own_they_alone_count(placement: Placement, sets: HostSets) -> None:
    domain = merged(parse_xml(FULL_DOMAIN, "it"), domain_parts(WEB, placement))
    assert held(xml_text(domain), sets) == hold(arrived(WEB, placement), sets)


def test_put_into_a_domain_they_leave_what_says_nothing_of_its_place() -> None:
    before = parse_xml(FULL_DOMAIN, "it")
    untouched = xml_text(before)
    domain = merged(before, domain_parts(WEB, WHOLE))
    assert xml_text(before) == untouched
    assert (domain.get("type"), texts(domain, "name"), texts(domain, "uuid")) == ("kvm", ["other"], [WEB.uuid])
    assert texts(domain, "title") + texts(domain, "cputune/shares") == ["kept", "2048"]
    kept = ("metadata/{urn:mine}mine", "memoryBacking/access", "cpu/cache", "os/type", "devices/disk", "iothreads")
    assert [path for path in kept if domain.find(path) is None] == []
    assert [one.get("type") for one in domain.findall("devices/hostdev")] == ["usb", "pci"]
    once = merged(domain, domain_parts(WEB, WHOLE))
    assert read_domain(xml_text(once)) == read_domain(xml_text(domain))


def test_a_name_that_xml_cannot_hold_is_left_to_whoever_defines_the_guest() -> None:
    root = domain_parts(msgspec.structs.replace(WEB, name="a\x1b[31m"), WHOLE)
    assert root.find("name") is None
    parse_xml(xml_text(root), "it")
