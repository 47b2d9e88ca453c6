"""How files of the host are read: busy ones again and again for a bounded time, a bad one costs only its own fact."""

from __future__ import annotations

import errno
import os
from collections import Counter
from pathlib import Path

import pytest

from agent.adapters.sysfs import discover
from agent.adapters.sysfs.files import PATIENCE_S, Files, read_file
from agent.core.cpuset import HIGHEST_ID, CpuSet
from tests.builders_sysfs import Node, build_tree, remove, write

CPU = "sys/devices/system/cpu"


class Failing:
    """Reads files for real, but gives an error for some paths, for ever or a number of times."""

    def __init__(self, number: int, *endings: str, times: int = 1_000_000) -> None:
        self._number = number
        self._endings = endings
        self._times = times
        self.tries: Counter[str] = Counter()

    def __call__(self, path: str) -> bytes:
        if path.endswith(self._endings):
            self.tries[path] += 1
            if self.tries[path] <= self._times:
                raise OSError(self._number, os.strerror(self._number), path)
        return read_file(path)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    return build_tree(tmp_path, nodes={0: Node(cpus="0-7", mem_mib=16384)}, online="0-6")


def test_a_file_that_is_busy_three_times_is_read_in_the_end(host: Path) -> None:
    slept: list[float] = []
    read = Failing(errno.EBUSY, "cpu3/online", times=3)
    seen = discover(host, sleep=slept.append, read=read)
    assert seen.online == CpuSet.parse("0-6")
    assert seen.problems == ()
    assert len(slept) == 3
    assert sum(slept) < 2


def test_a_cpu_that_stays_busy_is_unknown_and_not_offered_and_the_rest_is_told(host: Path) -> None:
    slept: list[float] = []
    seen = discover(host, sleep=slept.append, read=Failing(errno.EBUSY, "cpu3/online"))
    assert [cpu.id for cpu in seen.cpus if cpu.online is None] == [3]
    assert seen.usable == CpuSet.parse("0-2,4-6")
    assert seen.is_partial
    assert not discover(host).is_partial
    assert seen.offline == CpuSet((7,))
    assert seen.cells[0].memory_kib == 16 << 20
    assert [(problem.source, problem.values["error"]) for problem in seen.problems] == [
        (f"{CPU}/cpu3/online", "Device or resource busy (EBUSY)")
    ]


def test_however_many_files_are_busy_the_look_waits_less_than_two_seconds(host: Path) -> None:
    slept: list[float] = []
    read = Failing(errno.EBUSY, "/online", "core_id", "nr_hugepages", "meminfo")
    seen = discover(host, sleep=slept.append, read=read)
    assert PATIENCE_S < 2
    assert sum(slept) == pytest.approx(PATIENCE_S)
    assert max(read.tries.values()) <= 2 * 5
    assert seen.usable == CpuSet((0,))
    assert len(seen.problems) < 20


def test_a_refused_file_is_not_tried_twice(host: Path) -> None:
    slept: list[float] = []
    read = Failing(errno.EACCES, "cpu3/topology/core_id")
    seen = discover(host, sleep=slept.append, read=read)
    assert (slept, sum(read.tries.values())) == ([], 1)
    assert seen.cpus[3].socket == 0
    assert seen.cpus[3].kernel_core_id is None
    assert [problem.values["error"] for problem in seen.problems] == ["Permission denied (EACCES)"]
    assert not seen.is_partial


def test_a_missing_file_is_no_problem_of_its_own(host: Path) -> None:
    remove(host, f"{CPU}/isolated")
    remove(host, f"{CPU}/nohz_full")
    remove(host, f"{CPU}/cpu3/topology/die_id")
    seen = discover(host)
    assert seen.problems == ()
    assert seen.cpus[3].die == 0  # of the die's mask in the folder of CPU 0


def test_rows_that_differ_by_their_numbers_alone_are_counted_after_the_first_few(tmp_path: Path) -> None:
    root = build_tree(tmp_path, nodes={0: Node(cpus="0-63", mem_mib=1024)})
    seen = discover(root, read=Failing(errno.EIO, "/topology/core_id"))
    assert [problem.source for problem in seen.problems] == [
        f"{CPU}/cpu{cpu}/topology/core_id" for cpu in (0, 1, 2, 63)
    ]
    assert (
        seen.problems[-1].what
        == "61 more rows like the ones before, the last: could not be read, so this fact is left out"
    )


def test_one_busy_file_among_many_refused_ones_is_looked_for_again(tmp_path: Path) -> None:
    root = build_tree(tmp_path, nodes={0: Node(cpus="0-63", mem_mib=1024)})

    def read(path: str) -> bytes:
        if path.endswith("/topology/core_id"):
            number = errno.EBUSY if "cpu40" in path else errno.EACCES
            raise OSError(number, os.strerror(number), path)
        return read_file(path)

    assert discover(root, sleep=lambda _: None, read=read).is_partial


def test_a_file_that_holds_no_number_is_quoted(host: Path) -> None:
    write(host, f"{CPU}/cpu3/online", "maybe")
    seen = discover(host)
    assert seen.cpus[3].online is True  # the mask of all CPUs says so
    assert [problem.values["text"] for problem in seen.problems] == ["maybe"]


def test_a_pipe_or_a_folder_where_a_file_should_be_holds_nothing_up(host: Path) -> None:
    remove(host, f"{CPU}/cpu3/online")
    os.mkfifo(host / CPU / "cpu3/online")
    remove(host, f"{CPU}/cpu4/topology/core_id")
    (host / CPU / "cpu4/topology/core_id").mkdir()
    seen = discover(host)
    assert seen.online == CpuSet.parse("0-6")
    assert {problem.source for problem in seen.problems} == {f"{CPU}/cpu3/online", f"{CPU}/cpu4/topology/core_id"}


def test_a_file_that_goes_on_for_ever_is_cut_off() -> None:
    assert 4 << 20 <= len(read_file("/dev/zero")) < 8 << 20


def test_a_long_file_of_proc_comes_whole(tmp_path: Path) -> None:
    long = tmp_path / "mounts"
    long.write_bytes(b"tmpfs /mnt tmpfs rw 0 0\n" * 9000)
    assert read_file(str(long)) == long.read_bytes()
    with Path("/proc/kallsyms").open("rb") as lines:
        assert len(read_file("/proc/kallsyms")) >= min(4 << 20, sum(len(line) for line in lines))


def test_a_name_that_is_no_text_is_left_out_and_told(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "eth0").touch()
    (tmp_path / "net" / os.fsdecode(b"\xff\xfe")).touch()
    files = Files(tmp_path, sleep=float)
    assert files.names("net") == {"eth0"}
    assert [problem.values["name"] for problem in files.problems()] == ["'\\udcff\\udcfe'"]


def test_a_folder_beyond_any_kernels_size_is_no_cpu_and_no_cell(host: Path) -> None:
    before = discover(host)
    (host / f"{CPU}/cpu{HIGHEST_ID}").mkdir()
    (host / f"sys/devices/system/node/node{HIGHEST_ID}").mkdir()
    assert discover(host) == before


def test_a_set_beyond_any_kernels_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("0-70000\n")
    (tmp_path / "mask").write_text("1" + ",00000000" * 4000)
    files = Files(tmp_path, sleep=float)
    assert files.cpulist("list") is None
    assert files.twins("", "mask", "none") is None
    assert len(files.problems()) == 2


def test_a_tree_is_recorded_unless_its_sys_is_that_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "container").mkdir()
    (tmp_path / "container/sys").symlink_to("/sys")
    (tmp_path / "recorded/sys").mkdir(parents=True)
    roots = [Path("/"), tmp_path / "container", tmp_path / "recorded", tmp_path / "nothing"]
    assert [Files(root, sleep=lambda _s: None).recorded for root in roots] == [False, False, True, True]


def test_an_empty_root_gives_an_empty_host_with_its_reasons(tmp_path: Path) -> None:
    seen = discover(tmp_path)
    assert (seen.cpus, seen.pci, seen.has_cells, seen.memory_kib) == ((), (), False, 0)
    assert [problem.source for problem in seen.problems] == ["proc/meminfo"]
