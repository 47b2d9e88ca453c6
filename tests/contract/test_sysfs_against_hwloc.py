"""Discovery says of every recorded machine what hwloc's lstopo, run on the same tree, says of it.

Accepted differences stand in the three tables below, each with its reason; one that is no longer there fails too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from pathlib import Path

import msgspec
import pytest

from agent.adapters.sysfs import discover
from agent.core.cpuset import CpuSet
from agent.core.topology import Cpu, HostTopology
from tests.builders_sysfs import CPU, Node, Pci, build_tree, remove, write
from tests.contract import lstopo
from tests.contract.lstopo import Hwloc
from tests.recorded_hosts import NAMES, recorded_host

FAKE_CELLS = "8em64t-2s2ca2c-buggynuma"
"""Eight cells of 2 GiB that all list CPUs 0-7 at distance 10. hwloc drops seven cells and their memory; they are shown
here, since the kernel allocates from them, the CPUs all in the lowest one, and two problems say so."""

PCI_UNSEEN_BY_HWLOC = {
    "2pa-pcidomain32bits": {
        "10000:00:00.0": "lstopo is built for domains of 16 bits",
        "10000:00:04.0": "lstopo is built for domains of 16 bits",
    },
    "32em64t-2n8c+dax+nvme+mic+dimms": {"0000:00:11.0": "a bridge without a bus behind it, which lstopo drops"},
}

PCI_CELL_OTHER_THAN_HWLOC = {
    ("32em64t-2n8c+dax+nvme+mic+dimms", "0000:00:02.0"): "numa_node is -1; lstopo goes by the bus the device is on",
    ("40intel64-2g2n4c+pcilocality", "0000:43:00.0"): "numa_node is 2; lstopo goes by local_cpus, which names all",
}

KINDS_UNSEEN_BY_HWLOC = {"20em64t-hybrid-1p6c2t+2ca4co1t": "acpi_cppc alone tells them, which lstopo 2.9 does not read"}


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """One machine, seen twice."""

    name: str
    host: HostTopology
    hwloc: Hwloc


@pytest.fixture(scope="module", params=NAMES)
def pair(request: pytest.FixtureRequest) -> Pair:
    name = str(request.param)
    with recorded_host(name) as root:
        return Pair(name=name, host=discover(root), hwloc=lstopo.look(root))


def groups(host: HostTopology, key: Callable[[Cpu], Hashable]) -> set[CpuSet]:
    """The sets of online CPUs that have the same key."""
    found: defaultdict[Hashable, list[int]] = defaultdict(list)
    for cpu in host.cpus:
        if cpu.online:
            found[key(cpu)].append(cpu.id)
    return {CpuSet(cpus) for cpus in found.values()}


def test_the_same_cpus_are_present_online_and_allowed(pair: Pair) -> None:
    assert CpuSet(cpu.id for cpu in pair.host.cpus) == pair.hwloc.present
    assert pair.host.online == pair.hwloc.online
    assert pair.host.usable == pair.hwloc.allowed & pair.hwloc.online


def test_the_same_cells_with_the_same_memory_and_pages_are_there(pair: Pair) -> None:
    cells = pair.host.cells if pair.name != FAKE_CELLS else pair.host.cells[:1]
    seen = {cell.id: (cell.memory_kib, tuple((pool.size_kib, pool.total) for pool in cell.pages)) for cell in cells}
    assert seen == {number: (numa.memory_kib, numa.pages) for number, numa in pair.hwloc.cells.items()}
    assert CpuSet(cell.id for cell in cells if cell.allowed) == pair.hwloc.allowed_cells


def test_the_cpus_of_a_cell_are_the_same(pair: Pair) -> None:
    """To a cell without CPUs lstopo gives those of the cell it is near to, the kernel none."""
    seen = {cell.id: cell.cpus for cell in pair.host.cells if cell.cpus}
    assert seen == {number: numa.cpus for number, numa in pair.hwloc.cells.items() if number in seen}
    assert {cpu.id: cpu.cell for cpu in pair.host.cpus if cpu.online} == {
        c: n for n, cpus in seen.items() for c in cpus
    }


def test_the_same_distances_lie_between_cells(pair: Pair) -> None:
    """Of one cell lstopo has no matrix."""
    rows = {cell.id: dict(cell.distances) for cell in pair.host.cells if cell.distances}
    if pair.name == FAKE_CELLS:
        assert {far for row in rows.values() for far in row.values()} == {10}
        rows = {}
    assert (rows if len(rows) > 1 else {}) == pair.hwloc.distances


def test_the_same_cpus_share_a_socket_and_a_die(pair: Pair) -> None:
    assert groups(pair.host, lambda cpu: cpu.socket) == {cpus for cpus, _ in pair.hwloc.sockets}
    for cpus, number in pair.hwloc.sockets:
        if number is not None:
            assert {cpu.socket for cpu in pair.host.cpus if cpu.id in cpus} == {number}
    several_per_socket = groups(pair.host, lambda cpu: (cpu.socket, cpu.die)) - groups(
        pair.host, lambda cpu: cpu.socket
    )
    assert several_per_socket == pair.hwloc.dies


def test_the_same_cpus_are_threads_of_a_core(pair: Pair) -> None:
    assert groups(pair.host, lambda cpu: (cpu.socket, cpu.core)) == {cpus for cpus, _ in pair.hwloc.cores}
    assert {cpu.siblings for cpu in pair.host.cpus if cpu.online} == {cpus for cpus, _ in pair.hwloc.cores}
    kernel_ids = {cpu.id: cpu.kernel_core_id for cpu in pair.host.cpus}
    named = {(cpus, number) for cpus, number in pair.hwloc.cores if number is not None}
    assert {(cpus, kernel_ids[cpus.lowest]) for cpus, _ in named} == named


def test_the_same_cpus_share_each_cache(pair: Pair) -> None:
    """Instruction caches have another name in lstopo."""
    data = [cache for cache in pair.host.caches if cache.type != "instruction"]
    assert {(cache.level, cache.size_kib, cache.cpus) for cache in data} == pair.hwloc.caches
    assert len(data) == len(pair.hwloc.caches)


def test_the_same_cpus_are_a_cluster(pair: Pair) -> None:
    """There is no object of its own in lstopo for a cluster that is a core, a cache or a socket too."""
    in_one = CpuSet(cpu.id for cpu in pair.host.cpus if cpu.cluster is not None)
    seen = {cpus for cpus in groups(pair.host, lambda cpu: (cpu.socket, cpu.cluster)) if cpus <= in_one}
    assert pair.hwloc.clusters <= seen
    assert seen - pair.hwloc.clusters <= pair.hwloc.others


def kinds_of(host: HostTopology) -> list[CpuSet]:
    """CPUs of each kind, weakest first; none when all are alike."""
    by_kind = {kind: CpuSet(cpu.id for cpu in host.cpus if cpu.kind == kind) for kind in ("efficiency", "performance")}
    return [cpus for cpus in by_kind.values() if cpus]


def test_the_same_cpus_are_of_a_kind(pair: Pair) -> None:
    """Of one kind alone nothing is told."""
    several = list(pair.hwloc.kinds) if len(pair.hwloc.kinds) > 1 else []
    seen = kinds_of(pair.host)
    assert (seen != several) == (pair.name in KINDS_UNSEEN_BY_HWLOC)
    if seen != several:
        assert (seen, several) == ([CpuSet.parse("12-19"), CpuSet.parse("0-11")], [])


def test_the_same_pci_functions_are_in_the_same_cells(pair: Pair) -> None:
    everywhere = CpuSet(cell.id for cell in pair.host.cells)
    seen = {
        str(device.address): lstopo.Function(
            class_code=device.class_code,
            vendor_id=device.vendor_id,
            product_id=device.product_id,
            cells=everywhere if device.cell is None else CpuSet((device.cell,)),
        )
        for device in pair.host.pci
    }
    assert seen.keys() - pair.hwloc.pci.keys() == PCI_UNSEEN_BY_HWLOC.get(pair.name, {}).keys()
    differ = {(pair.name, address) for address, known in pair.hwloc.pci.items() if seen.get(address) != known}
    assert differ == {key for key in PCI_CELL_OTHER_THAN_HWLOC if key[0] == pair.name}
    for _, address in differ:
        assert seen[address].product_id == pair.hwloc.pci[address].product_id


def compare(root: Path) -> HostTopology:
    """Discover a built tree, after lstopo has agreed on CPUs, cells, sockets, cores and caches."""
    host, hwloc = discover(root), lstopo.look(root)
    assert host.online == hwloc.online
    assert {cell.id: cell.memory_kib for cell in host.cells} == {n: numa.memory_kib for n, numa in hwloc.cells.items()}
    assert groups(host, lambda cpu: cpu.socket) == {cpus for cpus, _ in hwloc.sockets}
    assert groups(host, lambda cpu: (cpu.socket, cpu.core)) == {cpus for cpus, _ in hwloc.cores}
    assert {(c.level, c.size_kib, c.cpus) for c in host.caches if c.type != "instruction"} == hwloc.caches
    assert {str(device.address) for device in host.pci} >= hwloc.pci.keys()
    return host


def test_cpu_ids_beyond_a_machine_word_are_seen(tmp_path: Path) -> None:
    nodes = {0: Node(cpus="60-67,252-259", mem_mib=65536), 7: Node(cpus="1020-1027", mem_mib=65536)}
    host = compare(build_tree(tmp_path, nodes=nodes, smt=[f"{60 + n}+{252 + n}" for n in range(8)]))
    assert str(host.online) == "60-67,252-259,1020-1027"
    by_id = {cpu.id: cpu for cpu in host.cpus}
    assert by_id[1024].cell == 7
    assert by_id[64].siblings == CpuSet((64, 256))


def test_cells_without_memory_and_without_cpus_are_cells(tmp_path: Path) -> None:
    nodes = {0: Node(cpus="0-3", mem_mib=4096), 1: Node(cpus="4-7"), 255: Node(mem_mib=16384)}
    host = compare(build_tree(tmp_path, nodes=nodes))
    assert [(cell.id, str(cell.cpus), cell.memory_kib) for cell in host.cells] == [
        (0, "0-3", 4 << 20),
        (1, "4-7", 0),
        (255, "", 16 << 20),
    ]


def test_a_machine_with_most_threads_offline_keeps_the_ids_of_the_others(tmp_path: Path) -> None:
    host = compare(build_tree(tmp_path, nodes={0: Node(cpus="0-31", mem_mib=16384)}, online="0,8,16,24"))
    assert str(host.online) == "0,8,16,24"
    assert str(host.offline) == "1-7,9-15,17-23,25-31"


def test_an_old_kernel_with_hexadecimal_masks_alone_is_understood(tmp_path: Path) -> None:
    caches = [(1, "data", 32, "0,4"), (1, "data", 32, "1,5"), (3, "unified", 4096, "0-7")]
    description = {"nodes": {0: Node(cpus="0-7", mem_mib=4096)}, "smt": ["0+4", "1+5", "2+6", "3+7"], "caches": caches}
    root = build_tree(tmp_path, **description)
    new = compare(root)
    for path in [
        *root.glob("sys/devices/system/cpu/cpu*/**/*_list"),
        *root.glob("sys/devices/system/node/node*/cpulist"),
    ]:
        remove(root, str(path.relative_to(root)))
    for path in root.glob("sys/devices/system/cpu/cpu*/topology/*"):
        if path.name in {"core_cpus", "package_cpus", "die_id", "die_cpus"}:
            remove(root, str(path.relative_to(root)))
    old = compare(root)
    assert old.caches == new.caches
    assert old.cells == new.cells
    assert [(c.socket, c.core, c.siblings) for c in old.cpus] == [(c.socket, c.core, c.siblings) for c in new.cpus]
    assert old.problems == ()


def test_siblings_with_different_core_ids_are_one_core_when_they_share_their_first_cache(tmp_path: Path) -> None:
    root = build_tree(tmp_path, nodes={0: Node(cpus="0-1", mem_mib=1024)}, smt=["0+1"], caches=[(1, "data", 32, "0-1")])
    write(root, "sys/devices/system/cpu/cpu1/topology/core_id", "9")
    host = compare(root)
    assert host.cpus[1].siblings == CpuSet((0, 1))
    assert [problem.values["cpu1/topology/core_id"] for problem in host.problems] == ["9"]


@pytest.mark.parametrize(
    ("name", "strong", "weak"), [("cpu_capacity", 1024, 446), ("cpufreq/cpuinfo_max_freq", 5_000_000, 3_900_000)]
)
def test_kinds_are_told_apart_by_what_each_cpu_can_do(tmp_path: Path, name: str, strong: int, weak: int) -> None:
    root = build_tree(tmp_path, nodes={0: Node(cpus="0-7", mem_mib=1024)})
    for cpu in range(8):
        write(root, f"{CPU}/cpu{cpu}/{name}", str(strong if cpu < 4 else weak))
    assert kinds_of(compare(root)) == list(lstopo.look(root).kinds) == [CpuSet.parse("4-7"), CpuSet.parse("0-3")]


def test_devices_hang_off_their_cells(tmp_path: Path) -> None:
    nodes = {0: Node(cpus="0-3", mem_mib=1024), 1: Node(cpus="4-7", mem_mib=1024)}
    pci = [
        Pci(address="0000:3b:00.0", numa=1),
        Pci(address="0000:5e:00.0", numa=-1),
        Pci(address="10000:e1:00.0", numa=0),
    ]
    host = compare(build_tree(tmp_path, nodes=nodes, pci=pci))
    cells = {str(device.address): device.cell for device in host.pci}
    assert cells == {"0000:3b:00.0": 1, "0000:5e:00.0": None, "10000:e1:00.0": 0}
