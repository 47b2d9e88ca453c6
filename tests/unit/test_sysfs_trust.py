"""Where two files of sysfs contradict each other the more direct one is taken and both values are told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.adapters.sysfs import discover
from agent.core.cpuset import CpuSet
from agent.core.topology import HostTopology
from agent.core.values import Problem
from tests.builders_sysfs import Node, build_tree, remove, write

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    nodes = {0: Node(cpus="0-3", mem_mib=8192), 1: Node(cpus="4-7", mem_mib=8192)}
    caches = [(1, "data", 32, text) for text in ("0,2", "1,3", "4,6", "5,7")] + [
        (3, "unified", 8192, "0-3"),
        (3, "unified", 8192, "4-7"),
    ]
    return build_tree(tmp_path, nodes=nodes, smt=["0+2", "1+3", "4+6", "5+7"], caches=caches)


def only_problem(seen: HostTopology) -> Problem:
    assert len(seen.problems) == 1
    return seen.problems[0]


def told(seen: HostTopology) -> Mapping[str, str]:
    return dict(only_problem(seen).values)


def test_a_tree_without_contradictions_has_no_problems(root: Path) -> None:
    assert discover(root).problems == ()


def test_a_cpus_own_online_file_beats_the_mask_of_all(root: Path) -> None:
    write(root, f"{CPU}/online", "0-5,7")
    write(root, f"{CPU}/cpu5/online", "0")
    seen = discover(root)
    assert str(seen.online) == "0-4,6-7"
    assert told(seen) == {
        f"{CPU}/online": "0-5,7",
        f"{CPU}/cpu*/online = 1": "1-4,6-7",
        f"{CPU}/cpu*/online = 0": "5",
    }


def test_a_cpu_that_comes_between_two_reads_is_no_contradiction(root: Path) -> None:
    from agent.adapters.sysfs.files import read_file

    stale = iter((b"0-5\n",))

    def read(path: str) -> bytes:
        return next(stale, read_file(path)) if path.endswith("cpu/online") else read_file(path)

    seen = discover(root, read=read)
    assert str(seen.online) == "0-7"
    assert seen.problems == ()


def test_a_cpu_that_is_online_and_not_present_is_shown(root: Path) -> None:
    write(root, f"{CPU}/present", "0-6")
    seen = discover(root)
    assert str(seen.online) == "0-7"
    assert told(seen) == {f"{CPU}/present": "0-6", f"{CPU}/online": "0-7"}


def test_a_mask_beats_the_list_beside_it(root: Path) -> None:
    write(root, f"{NODE}/node1/cpulist", "4-5")
    seen = discover(root)
    assert str(seen.cells[1].cpus) == "4-7"
    assert told(seen) == {"cpumap": "4-7", "cpulist": "4-5"}


def test_a_cells_list_beats_a_cpus_link(root: Path) -> None:
    (root / CPU / "cpu3/node0").rename(root / CPU / "cpu3/node1")
    seen = discover(root)
    assert seen.cpus[3].cell == 0
    assert told(seen) == {"cpu3": "list: node0, link: node1"}


def test_a_cpu_in_two_cells_goes_where_its_own_link_leads(root: Path) -> None:
    write(root, f"{NODE}/node0/cpulist", "0-4")
    write(root, f"{NODE}/node0/cpumap", "1f")
    seen = discover(root)
    assert [str(cell.cpus) for cell in seen.cells] == ["0-3", "4-7"]
    assert told(seen) == {"node0/cpulist": "0-4", "node1/cpulist": "4-7"}


def test_an_online_cpu_that_no_cell_lists_goes_where_its_own_link_leads(root: Path) -> None:
    write(root, f"{NODE}/node1/cpulist", "4-6")
    write(root, f"{NODE}/node1/cpumap", "70")
    seen = discover(root)
    assert seen.cpus[7].cell == 1
    assert 7 in seen.cells[1].cpus
    assert told(seen) == {"cpu7": "link: node1"}


def test_an_online_cpu_that_nothing_places_has_no_cell(root: Path) -> None:
    write(root, f"{NODE}/node1/cpulist", "4-6")
    write(root, f"{NODE}/node1/cpumap", "70")
    remove(root, f"{CPU}/cpu7/node1")
    seen = discover(root)
    assert seen.cpus[7].cell is None
    assert told(seen) == {"cpu7": "link: none"}


def test_cells_without_list_and_mask_are_known_by_links(root: Path) -> None:
    remove(root, f"{NODE}/node1/cpulist")
    remove(root, f"{NODE}/node1/cpumap")
    seen = discover(root)
    assert str(seen.cells[1].cpus) == "4-7"
    assert told(seen) == {"links": "4-7"}


def test_cells_that_all_list_the_same_cpus_leave_them_to_the_lowest(tmp_path: Path) -> None:
    root = build_tree(tmp_path, nodes={n: Node(mem_mib=1024, distances=[10] * 3) for n in range(3)}, present="0-3")
    for node in range(3):
        write(root, f"{NODE}/node{node}/cpulist", "0-3")
        write(root, f"{NODE}/node{node}/cpumap", "f")
    seen = discover(root)
    assert [(str(cell.cpus), cell.memory_kib) for cell in seen.cells] == [
        ("0-3", 1 << 20),
        ("", 1 << 20),
        ("", 1 << 20),
    ]
    assert ["listed in several cells" in p.what or "lies about distances" in p.what for p in seen.problems] == [
        True
    ] * 2


def test_the_list_of_cells_is_less_direct_than_their_folders(root: Path) -> None:
    write(root, f"{NODE}/online", "0")
    seen = discover(root)
    assert [cell.id for cell in seen.cells] == [0, 1]
    assert seen.cells[1].distances == {0: 20, 1: 10}
    assert told(seen) == {f"{NODE}/online": "0", f"{NODE}/node*": "0-1"}


def test_distances_that_do_not_fit_the_cells_are_left_out(root: Path) -> None:
    write(root, f"{NODE}/node1/distance", "20 10 30")
    seen = discover(root)
    assert (dict(seen.cells[0].distances), dict(seen.cells[1].distances)) == ({0: 10, 1: 20}, {})
    assert told(seen) == {"text": "20 10 30"}


def test_siblings_that_one_side_names_are_siblings(root: Path) -> None:
    for name in ("core_cpus", "thread_siblings"):
        write(root, f"{CPU}/cpu2/topology/{name}", "04")
        write(root, f"{CPU}/cpu2/topology/{name}_list", "2")
    seen = discover(root)
    assert (str(seen.cpus[0].siblings), str(seen.cpus[2].siblings)) == ("0,2", "0,2")
    assert seen.cpus[0].core == seen.cpus[2].core
    assert {dict(problem.values)["cpu2/topology"] for problem in seen.problems} == {"2"}
    assert {dict(problem.values)["cpu0/topology"] for problem in seen.problems} == {"0,2"}


def test_two_names_of_one_mask_that_differ_are_told(root: Path) -> None:
    write(root, f"{CPU}/cpu0/topology/core_siblings", "03")
    write(root, f"{CPU}/cpu0/topology/core_siblings_list", "0-1")
    seen = discover(root)
    assert [cpu.socket for cpu in seen.cpus] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert told(seen) == {"package_cpus": "0-3", "core_siblings": "0-1"}


def test_the_mask_of_a_socket_beats_a_cpus_socket_id(root: Path) -> None:
    write(root, f"{CPU}/cpu3/topology/physical_package_id", "1")
    seen = discover(root)
    assert [cpu.socket for cpu in seen.cpus] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert told(seen) == {"package_cpus": "0-3", "physical_package_id = 0": "0-2", "physical_package_id = 1": "3"}


def test_two_sockets_of_one_id_stay_two(root: Path) -> None:
    for cpu in range(4, 8):
        write(root, f"{CPU}/cpu{cpu}/topology/physical_package_id", "0")
    seen = discover(root)
    assert [cpu.socket for cpu in seen.cpus] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert told(seen) == {"CPUs 4-7": "0", "CPUs 0-3": "0"}


def test_sockets_without_an_id_are_numbered(root: Path) -> None:
    for cpu in range(4):
        write(root, f"{CPU}/cpu{cpu}/topology/physical_package_id", "-1")
    for cpu in range(4, 8):
        write(root, f"{CPU}/cpu{cpu}/topology/physical_package_id", "0")
    seen = discover(root)
    assert [cpu.socket for cpu in seen.cpus] == [1, 1, 1, 1, 0, 0, 0, 0]
    assert seen.problems == ()


def test_siblings_in_two_sockets_are_a_core_in_each(root: Path) -> None:
    for cpu in (0, 2, 4, 6):
        for name in ("core_cpus", "thread_siblings"):
            write(root, f"{CPU}/cpu{cpu}/topology/{name}", "55")
            write(root, f"{CPU}/cpu{cpu}/topology/{name}_list", "0,2,4,6")
    seen = discover(root)
    assert [str(cpu.siblings) for cpu in seen.cpus] == ["0,2", "1,3", "0,2", "1,3", "4,6", "5,7", "4,6", "5,7"]
    assert told(seen) == {"thread_siblings": "0,2,4,6", "socket 0": "0,2", "socket 1": "4,6"}


def test_core_ids_that_repeat_within_a_socket_are_made_unique(root: Path) -> None:
    for cpu in (1, 3):
        write(root, f"{CPU}/cpu{cpu}/topology/core_id", "0")
    seen = discover(root)
    assert [cpu.core for cpu in seen.cpus] == [0, 1, 0, 1, 0, 1, 0, 1]
    assert [cpu.kernel_core_id for cpu in seen.cpus] == [0, 0, 0, 0, 0, 1, 0, 1]
    assert seen.problems == ()


def test_unique_core_ids_are_the_kernels(root: Path) -> None:
    for cpu in (1, 3):
        write(root, f"{CPU}/cpu{cpu}/topology/core_id", "17")
    assert [cpu.core for cpu in discover(root).cpus][:4] == [0, 17, 0, 17]


def test_an_online_cpu_without_topology_is_a_core_of_its_own(root: Path) -> None:
    for cpu in range(8):
        remove(root, f"{CPU}/cpu{cpu}/topology")
    seen = discover(root)
    assert {(cpu.online, cpu.socket) for cpu in seen.cpus} == {(True, None)}
    assert [str(cpu.siblings) for cpu in seen.cpus] == [str(cpu.id) for cpu in seen.cpus]
    assert len({cpu.core for cpu in seen.cpus}) == 8
    assert told(seen) == {"cpus": "0-7"}


def test_what_others_say_of_a_cpu_without_topology_is_taken(root: Path) -> None:
    remove(root, f"{CPU}/cpu6/topology")
    seen = discover(root)
    lonely = seen.cpus[6]
    assert (lonely.socket, lonely.cell, str(lonely.siblings), lonely.online) == (1, 1, "4,6", True)
    assert {problem.source for problem in seen.problems} == {f"{CPU}/cpu6/topology", f"{CPU}/cpu4/topology"}


def test_the_lowest_cpus_word_stands_on_who_shares_a_cache(root: Path) -> None:
    write(root, f"{CPU}/cpu0/cache/index1/shared_cpu_map", "07")
    write(root, f"{CPU}/cpu0/cache/index1/shared_cpu_list", "0-2")
    seen = discover(root)
    assert [str(cache.cpus) for cache in seen.caches if cache.level == 3] == ["0-2", "4-7"]
    assert told(seen) == {"cpu0/cache": "0-2", "cpu1/cache": "0-3"}


def test_a_cell_whose_memory_is_unreadable_counts_as_empty(root: Path) -> None:
    remove(root, f"{NODE}/node1/meminfo")
    seen = discover(root)
    assert [cell.memory_kib for cell in seen.cells] == [8 << 20, 0]
    assert seen.memory_kib == 16 << 20  # proc/meminfo says so of the host
    assert only_problem(seen).source == f"{NODE}/node1/meminfo"


def test_siblings_that_are_offline_are_nobodys_siblings(root: Path) -> None:
    write(root, f"{CPU}/online", "0-1,3-7")
    write(root, f"{CPU}/cpu2/online", "0")
    seen = discover(root)
    assert str(seen.cpus[0].siblings) == "0"
    offline = seen.cpus[2]
    assert (offline.online, offline.socket, offline.core, offline.siblings) == (False, None, None, CpuSet())
    assert 2 not in seen.cells[0].cpus
