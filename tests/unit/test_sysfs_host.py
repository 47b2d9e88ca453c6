"""What discovery tells of CPUs, memory, pages and cpusets of hosts of every shape."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import MappingProxyType

import pytest

from agent.adapters.sysfs import discover
from agent.adapters.sysfs.cpus import Masks, read_kinds
from agent.adapters.sysfs.files import Files, read_file
from agent.core.cpuset import CpuSet
from agent.core.topology import PagePool
from tests.builders_sysfs import Flat, Node, build_tree, remove, write

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
TWO = {0: Node(cpus="0-3", mem_mib=8192), 1: Node(cpus="4-7", mem_mib=8192)}


def test_pools_of_each_cell_and_size_are_told(tmp_path: Path) -> None:
    nodes = {
        0: Node(
            cpus="0-3", mem_mib=8192, pages={2048: 512, 1048576: 2}, free_pages={2048: 100}, surplus_pages={2048: 12}
        ),
        1: Node(cpus="4-7", mem_mib=8192, pages={2048: 0}),
    }
    seen = discover(build_tree(tmp_path, nodes=nodes, reserved_pages={2048: 7}))
    assert seen.cells[0].pages == (
        PagePool(size_kib=2048, total=512, free=100, surplus=12),
        PagePool(size_kib=1048576, total=2, free=2),
    )
    assert seen.cells[1].pages == (PagePool(size_kib=2048, total=0, free=0),)
    assert seen.pages[0] == PagePool(size_kib=2048, total=512, free=100, surplus=12, reserved=7)


def test_the_only_cell_knows_what_is_reserved(tmp_path: Path) -> None:
    nodes = {0: Node(cpus="0-3", mem_mib=8192, pages={2048: 512})}
    seen = discover(build_tree(tmp_path, nodes=nodes, reserved_pages={2048: 7}))
    assert seen.cells[0].pages == (PagePool(size_kib=2048, total=512, free=512, reserved=7),)


def test_a_kernel_without_numa_is_one_cell_with_everything(tmp_path: Path) -> None:
    seen = discover(build_tree(tmp_path, flat=Flat(cpus="0-7", mem_mib=16384, pages={2048: 64})))
    assert (seen.has_cells, [cell.id for cell in seen.cells]) == (False, [0])
    assert (str(seen.cells[0].cpus), seen.cells[0].memory_kib) == ("0-7", 16 << 20)
    assert seen.cells[0].pages == (PagePool(size_kib=2048, total=64, free=64, reserved=0),)
    assert {cpu.cell for cpu in seen.cpus} == {0}
    assert seen.problems == ()


def test_pages_of_a_kernel_that_does_not_tell_their_cell_are_a_problem(tmp_path: Path) -> None:
    root = build_tree(tmp_path, nodes={0: Node(cpus="0-3", mem_mib=1024, pages={2048: 8}), 1: Node(mem_mib=1024)})
    remove(root, f"{NODE}/node0/hugepages")
    seen = discover(root)
    assert [cell.pages for cell in seen.cells] == [(), ()]
    assert [pool.total for pool in seen.pages] == [8]
    assert [dict(problem.values) for problem in seen.problems] == [{"nr_hugepages": "8"}]


def test_isolated_and_tickless_cpus_are_told(tmp_path: Path) -> None:
    seen = discover(build_tree(tmp_path, nodes=TWO, isolated="2-3,6", nohz_full="6-7"))
    assert str(seen.isolated) == "2-3,6"
    assert [cpu.id for cpu in seen.cpus if cpu.nohz_full] == [6, 7]


def test_an_old_kernel_names_isolated_cpus_on_its_command_line_only(tmp_path: Path) -> None:
    root = build_tree(tmp_path, nodes=TWO)
    remove(root, f"{CPU}/isolated")
    write(root, f"{CPU}/nohz_full", "  (null)")
    write(root, "proc/cmdline", "root=/dev/sda isolcpus=1 quiet isolcpus=domain,managed_irq,2-3,7 nohz_full=5")
    seen = discover(root)
    assert str(seen.isolated) == "2-3,7"
    assert not any(cpu.nohz_full for cpu in seen.cpus)
    assert seen.problems == ()


def test_a_hybrid_cpu_has_performance_and_efficiency_cores(tmp_path: Path) -> None:
    root = build_tree(tmp_path, nodes=TWO)
    write(root, "sys/devices/cpu_core/cpus", "0-3")
    write(root, "sys/devices/cpu_atom/cpus", "4-7")
    assert [cpu.kind for cpu in discover(root).cpus] == ["performance"] * 4 + ["efficiency"] * 4


def test_capacities_tell_big_from_little(tmp_path: Path) -> None:
    big = build_tree(tmp_path, nodes=TWO, capacities={cpu: 1024 if cpu < 2 else 446 for cpu in range(8)})
    assert [cpu.kind for cpu in discover(big).cpus] == ["performance"] * 2 + ["efficiency"] * 6
    same = build_tree(tmp_path, nodes=TWO, capacities=dict.fromkeys(range(8), 1024))
    assert {cpu.kind for cpu in discover(same).cpus} == {None}


@pytest.mark.parametrize(("slow_khz", "kinds"), [(3_600_000, {"performance", "efficiency"}), (4_800_000, {None})])
def test_favoured_cores_are_not_another_kind(tmp_path: Path, slow_khz: int, kinds: set[str | None]) -> None:
    root = build_tree(tmp_path, nodes=TWO)
    for cpu in range(8):
        write(root, f"{CPU}/cpu{cpu}/cpufreq/cpuinfo_max_freq", str(5_000_000 if cpu < 4 else slow_khz))
    assert {cpu.kind for cpu in discover(root).cpus} == kinds


def test_nothing_is_read_that_interrupts_another_cpu(tmp_path: Path) -> None:
    asked: list[str] = []

    def read(path: str) -> bytes:
        asked.append(path)
        return read_file(path)

    root = build_tree(tmp_path, nodes=TWO)
    for name in (
        "cpufreq/scaling_cur_freq",
        "cpufreq/cpuinfo_cur_freq",
        "cpufreq/base_frequency",
        "acpi_cppc/nominal_perf",
    ):
        write(root, f"{CPU}/cpu1/{name}", "1")
    write(root, "proc/cpuinfo", "processor : 0")
    discover(root, read=read)
    forbidden = ("_cur_freq", "base_frequency", "proc/cpuinfo", "scaling_governor")
    assert asked
    assert not [path for path in asked if any(part in path for part in forbidden)]


def test_nominal_performance_tells_kinds_of_a_recorded_tree(tmp_path: Path) -> None:
    root = build_tree(tmp_path, nodes=TWO)
    for cpu in range(8):
        write(root, f"{CPU}/cpu{cpu}/acpi_cppc/nominal_perf", str(24 if cpu < 6 else 19))
    assert [cpu.kind for cpu in discover(root).cpus] == ["performance"] * 6 + ["efficiency"] * 2


def test_a_live_host_is_never_asked_for_its_nominal_performance() -> None:
    """Each such read interrupts the CPU it asks about."""
    asked: list[str] = []

    def read(path: str) -> bytes:
        asked.append(path)
        if "acpi_cppc" in path:
            return b"24\n" if "/cpu0/" in path else b"19\n"
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    both = CpuSet((0, 1))
    masks = Masks(
        present=both,
        online=both,
        unknown=CpuSet(),
        isolated=CpuSet(),
        nohz_full=CpuSet(),
        entries=MappingProxyType(dict.fromkeys(both, frozenset(("acpi_cppc", "topology")))),
    )
    kinds = [read_kinds(Files(Path(root), sleep=lambda _s: None, read=read), masks) for root in ("/recorded", "/")]
    assert kinds == [{0: "performance", 1: "efficiency"}, {}]
    assert [path for path in asked if "acpi_cppc" in path and not path.startswith("/recorded/")] == []


@pytest.mark.parametrize("version", ["cpuset_v1", "cpuset_v2"])
def test_a_cpu_that_a_cpuset_withholds_from_guests_is_not_allowed(tmp_path: Path, version: str) -> None:
    root = build_tree(tmp_path, nodes=TWO, **{version: "0-4,6-7"})
    seen = discover(root)
    assert [cpu.id for cpu in seen.cpus if not cpu.allowed] == [5]
    assert str(seen.usable) == "0-4,6-7"
    group = "cpuset/machine/cpuset.cpus" if version == "cpuset_v1" else "machine.slice/cpuset.cpus.effective"
    assert [dict(problem.values) for problem in seen.problems] == [
        {"online": "0-7", f"sys/fs/cgroup/{group}": "0-4,6-7"}
    ]


def test_a_group_that_was_never_given_a_set_has_its_parents(tmp_path: Path) -> None:
    root = build_tree(tmp_path, nodes=TWO, cpuset_v1="0-3")
    write(root, "sys/fs/cgroup/cpuset/machine/cpuset.cpus", "")
    write(root, "sys/fs/cgroup/cpuset/cpuset.cpus", "0-6")
    assert str(discover(root).usable) == "0-6"


def test_without_a_group_of_guests_the_root_of_the_hierarchy_counts(tmp_path: Path) -> None:
    root = build_tree(tmp_path, nodes=TWO, cpuset_v2="0-3")
    remove(root, "sys/fs/cgroup/machine.slice")
    write(root, "sys/fs/cgroup/cpuset.cpus.effective", "0-5")
    assert str(discover(root).usable) == "0-5"


def test_a_cell_whose_memory_a_cpuset_withholds_is_not_allowed(tmp_path: Path) -> None:
    root = build_tree(tmp_path, nodes=TWO, cpuset_v2="0-7")
    write(root, "sys/fs/cgroup/machine.slice/cpuset.mems.effective", "0")
    seen = discover(root)
    assert [cell.allowed for cell in seen.cells] == [True, False]
    assert [problem.what for problem in seen.problems] == ["memory of cell 1 is withheld from guests"]


@pytest.mark.parametrize("group", ["/a\0b", "/../../outside", "/machine/../../../../outside", "/.."])
def test_a_recorded_group_that_is_no_place_in_the_tree_is_left_out_and_told(tmp_path: Path, group: str) -> None:
    asked: list[str] = []

    def read(path: str) -> bytes:
        asked.append(os.path.normpath(path))
        return read_file(path)

    write(tmp_path, "outside/cpuset.cpus.effective", "0")
    root = build_tree(tmp_path / "root", nodes=TWO)
    write(root, "proc/self/cpuset", group)
    write(root, "proc/mounts", f"cgroup2 /sys/fs/cgroup{group} cgroup2 rw 0 0\nnone {group} cpuset rw 0 0")
    seen = discover(root, read=read)
    assert str(seen.usable) == "0-7"
    assert [path for path in asked if not path.startswith(f"{root}/")] == []
    assert {problem.source for problem in seen.problems} == {"proc/self/cpuset", "proc/mounts"}
    assert {problem.what for problem in seen.problems} == {"names no place in this tree, so it is left out"}


def test_an_offline_cpu_is_withheld_by_no_cpuset(tmp_path: Path) -> None:
    seen = discover(build_tree(tmp_path, nodes=TWO, online="0-6", cpuset_v2="0-6"))
    assert (seen.cpus[7].online, seen.cpus[7].allowed) == (False, True)
    assert seen.problems == ()


def test_dies_divide_a_socket(tmp_path: Path) -> None:
    nodes = {0: Node(cpus="0-7", mem_mib=8192)}
    seen = discover(build_tree(tmp_path, nodes=nodes, dies=["0-3", "4-7"]))
    assert [(cpu.socket, cpu.die) for cpu in seen.cpus] == [(0, 0)] * 4 + [(0, 1)] * 4


def test_the_same_root_may_be_given_with_a_slash_at_its_end(tmp_path: Path) -> None:
    build_tree(tmp_path, nodes=TWO)
    assert discover(Path(f"{tmp_path}/")) == discover(tmp_path)


def test_the_machine_this_runs_on_is_seen(tmp_path: Path) -> None:
    seen = discover(Path("/"))
    assert seen.online == CpuSet.parse(Path("/sys/devices/system/cpu/online").read_text())
    assert seen.memory_kib > 0
    assert seen.page_size_kib in {4, 16, 64}
