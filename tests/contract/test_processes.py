"""Finding QEMU processes: against this kernel's /proc with processes that look like QEMU, and against written trees."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import time
import uuid as uuids
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agent.adapters.processes import QemuProcesses
from agent.core.cpuset import CpuSet
from agent.core.guest import OtherProcess, RunIdentity, VcpuThreads
from agent.core.ledger import LivingProcess
from tests.builders_proc import stat_text

PATIENT_S = 60.0
LAST = max(os.sched_getaffinity(0))
SLEEPER = "import time; print(flush=True); time.sleep(600)"
UUID = "7d9ecd8c-0a3a-4f52-b6a1-5f5c2ff8cf0a"


@contextlib.contextmanager
def looks_like_qemu(*arguments: str, program: str = SLEEPER) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
        finally:
            process.kill()


def started_at_boot_s(pid: int) -> float:
    """By psutil, which counts from the epoch; in whole ticks, as the kernel does."""
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    return round((psutil.Process(pid).create_time() - psutil.boot_time()) * ticks_per_s) / ticks_per_s


def test_a_process_is_found_by_uuid_with_name_pid_and_start() -> None:
    uuid = str(uuids.uuid4())
    with looks_like_qemu("-name", "guest=a,,b,debug-threads=on", "-uuid", uuid.upper()) as process:
        found = QemuProcesses().scan()
        assert found.can_see
        assert found.living[uuid] == LivingProcess(
            uuid=uuid, name="a,b", run=RunIdentity(pid=process.pid, started_at_boot_s=started_at_boot_s(process.pid))
        )


def test_a_name_that_is_no_text_can_still_be_written() -> None:
    uuid = str(uuids.uuid4())
    with looks_like_qemu("-name", os.fsdecode(b"guest=\xff\xc3\xa4"), "-uuid", uuid):
        name = QemuProcesses().scan().living[uuid].name
    assert name == "\N{REPLACEMENT CHARACTER}\u00e4"
    assert name.encode()


def test_a_process_that_ended_or_is_a_zombie_does_not_live() -> None:
    uuid = str(uuids.uuid4())
    processes = QemuProcesses()
    with looks_like_qemu("-name", "guest=a", "-uuid", uuid) as process:
        told = [uuid in processes.scan().living]
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and not reaped yet
        told.append(uuid in processes.scan().living)
        process.wait()
        told.append(uuid in processes.scan().living)
    assert told == [True, False, False]


def test_a_process_that_becomes_qemu_later_is_found_then() -> None:
    uuid = str(uuids.uuid4())
    script = f"echo; read -r _; exec {sys.executable} -c '{SLEEPER}' -name guest=a -uuid {uuid}"
    processes = QemuProcesses()
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdout.readline()
            before = processes.scan().living.get(uuid)
            process.stdin.write(b"\n")
            process.stdin.flush()
            process.stdout.readline()
            after = processes.scan().living.get(uuid)
        finally:
            process.kill()
    assert before is None
    assert after is not None
    assert after.run.pid == process.pid


@pytest.mark.parametrize(
    "arguments",
    [
        ("-uuid", UUID),
        ("-name", "guest=a", "-uuid", "not-a-uuid"),
        ("-name", "guest=a"),
        ("-name", "guest=a", "-uuid"),
    ],
)
def test_other_programs_are_no_guests(arguments: tuple[str, ...]) -> None:
    with looks_like_qemu(*arguments) as process:
        assert process.pid not in {living.run.pid for living in QemuProcesses().scan().living.values()}


def test_of_two_processes_of_one_uuid_the_later_is_told_with_the_other_and_where_that_is_pinned() -> None:
    uuid = str(uuids.uuid4())
    arguments = ("-name", "guest=a", "-uuid", uuid)
    vcpus = "(('CPU 0/KVM', {0}), ('CPU 1/KVM', {0, last}), ('worker', {0}))"
    with looks_like_qemu(*arguments, program=THREADS.replace("NAMES", vcpus)) as first:
        time.sleep(2 / os.sysconf("SC_CLK_TCK"))
        with looks_like_qemu(*arguments) as second:
            living = QemuProcesses().scan().living[uuid]
        alone = QemuProcesses().scan().living[uuid]
        started_at_s = started_at_boot_s(first.pid)
    assert living.run.pid == second.pid
    run = RunIdentity(pid=first.pid, started_at_boot_s=started_at_s)
    assert living.others == (OtherProcess(run=run, pins=CpuSet([0] if LAST else [0, LAST])),)
    assert (alone.run, alone.others) == (run, ())


FORKS = """
import os, time
if os.fork():
    print(flush=True)
time.sleep(600)
"""


def test_a_child_of_qemu_is_no_second_copy_of_its_guest() -> None:
    """QEMU can leave a child behind that frees the memory once it has ended (async-teardown)."""
    uuid = str(uuids.uuid4())
    with looks_like_qemu("-name", "guest=a", "-uuid", uuid, program=FORKS) as process:
        (child,) = psutil.Process(process.pid).children()
        told = QemuProcesses().scan().living[uuid]
        child.kill()
    assert (told.run.pid, told.others) == (process.pid, ())


THREADS = """
import os, threading, time
def vcpu(name, cpus):
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as comm:
        comm.write(name)
    os.sched_setaffinity(0, cpus)
    ready.wait()
    time.sleep(600)
ready = threading.Barrier(4)
last = max(os.sched_getaffinity(0))
for name, cpus in NAMES:
    threading.Thread(target=vcpu, args=(name, cpus), daemon=True).start()
ready.wait()
print(flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("names", "cpus", "pins"),
    [
        ("(('CPU 0/KVM', {0}), ('CPU 1/KVM', {0}), ('IO iothread1', {last}))", {0}, {0}),
        ("(('CPU 0/TCG', {last}), ('CPU 11/TCG', {last}), ('worker', {0}))", {LAST}, {LAST}),
        ("(('CPU 0/KVM', {0, last}), ('CPU 1/KVM', {last}), ('worker', {0}))", {0, LAST}, {LAST}),
        ("(('qemu', {0}), ('qemu', {0}), ('qemu', {0}))", os.sched_getaffinity(0), None),
    ],
    ids=["vcpu threads only", "of TCG too", "one thread is bound alone", "all when none is named"],
)
def test_the_cpus_of_a_process_are_those_of_its_vcpu_threads(names: str, cpus: set[int], pins: set[int] | None) -> None:
    expected = VcpuThreads(cpus=CpuSet(cpus), pins=None if pins is None else CpuSet(pins))
    with looks_like_qemu(program=THREADS.replace("NAMES", names)) as process:
        assert QemuProcesses().vcpu_threads(process.pid) == expected


def test_the_cpus_of_a_process_that_has_ended_are_not_known() -> None:
    with looks_like_qemu() as process:
        process.kill()
        process.wait()
        assert QemuProcesses().vcpu_threads(process.pid) is None


def test_the_kernels_first_pid_namespace_is_told_from_another() -> None:
    """The first one alone has the kernel's threads, with their parent at pid 2."""
    here = Path("/proc/2/comm")
    is_first = here.exists() and here.read_text() == "kthreadd\n"
    assert QemuProcesses().scan().sees_host == is_first
    scan = "from agent.adapters.processes import QemuProcesses; print(QemuProcesses().scan().sees_host)"
    command = ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc", sys.executable, "-c", scan]
    assert subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout == "False\n"


# --- written trees -----------------------------------------------------------------------------


def write_process(folder: Path, *arguments: str, started_s: int = 0, state: str = "S", cpus: str = "0") -> None:
    ticks = started_s * os.sysconf("SC_CLK_TCK")
    task = folder / "task" / "1"
    task.mkdir(parents=True, exist_ok=True)
    for place in (folder, task):
        (place / "stat").write_text(stat_text(1, "a (b) c", start_ticks=ticks, state=state))
    (folder / "status").write_text("Name:\ta (b) c\nUid:\t0\t0\t0\t0\n")
    (folder / "cmdline").write_text("".join(f"{argument}\0" for argument in arguments))
    (task / "status").write_text(f"Name:\tCPU 0/KVM\nCpus_allowed_list:\t{cpus}\n")


def qemu(uuid: str = UUID) -> tuple[str, ...]:
    return ("/usr/bin/qemu-kvm", "-name", "guest=a", "-uuid", uuid)


def living(processes: QemuProcesses) -> dict[str, int | None]:
    return {uuid: process.run.pid for uuid, process in processes.scan().living.items()}


def test_a_pid_that_another_program_uses_now_is_read_again(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    write_process(proc / "100", *qemu())
    write_process(tmp_path / "other", "/bin/sh")
    write_process(tmp_path / "later", *qemu(), started_s=5)
    processes = QemuProcesses(proc, boot_clock=lambda: 1000.0)
    told = [living(processes)]
    for number, replacement in enumerate(("other", "later")):
        (proc / "100").rename(tmp_path / f"gone-{number}")
        (tmp_path / replacement).rename(proc / "100")
        told.append(living(processes))
    assert told == [{UUID: 100}, {}, {UUID: 100}]
    assert processes.scan().living[UUID].run.started_at_boot_s == 5.0


def test_a_process_is_read_again_while_young_and_never_once_it_is_old(tmp_path: Path) -> None:
    now = [100.0]
    for started_s in (50, 10):  # at 100 s one is young, the other old
        write_process(tmp_path / str(started_s), "/bin/sh", started_s=started_s)
    processes = QemuProcesses(tmp_path, boot_clock=lambda: now[0])
    told = [living(processes)]
    other = "11111111-2222-4333-8444-555555555555"
    write_process(tmp_path / "50", *qemu(), started_s=50)
    write_process(tmp_path / "10", *qemu(other), started_s=10)
    told.append(living(processes))
    now[0] = 500.0
    told.append(living(processes))
    assert told == [{}, {UUID: 50}, {UUID: 50}]


def test_a_process_that_libvirt_names_is_looked_at_however_old_it_is(tmp_path: Path) -> None:
    proc, pid_dir = tmp_path / "proc", tmp_path / "qemu"
    pid_dir.mkdir()
    write_process(proc / "100", "/bin/sh")
    processes = QemuProcesses(proc, pid_dir, boot_clock=lambda: 1000.0)
    told = [living(processes)]
    write_process(proc / "100", *qemu())
    told.append(living(processes))
    (pid_dir / "a.pid").write_text("100\n")
    (pid_dir / "driver.pid").write_text("no number")
    told.append(living(processes))
    assert told == [{}, {}, {UUID: 100}]
    assert processes.scan().living[UUID].has_pid_file


def test_of_two_processes_of_one_uuid_the_one_that_libvirt_names_is_told_though_it_is_the_earlier(
    tmp_path: Path,
) -> None:
    proc, pid_dir = tmp_path / "proc", tmp_path / "qemu"
    pid_dir.mkdir()
    write_process(proc / "100", *qemu(), started_s=5, cpus="1")
    (pid_dir / "a.pid").write_text("100\n")
    processes = QemuProcesses(proc, pid_dir, boot_clock=lambda: 1000.0)
    assert living(processes) == {UUID: 100}
    write_process(proc / "200", *qemu(), started_s=9, cpus="2")
    told = processes.scan().living[UUID]
    assert (told.run.pid, told.has_pid_file) == (100, True)
    assert told.others == (OtherProcess(run=RunIdentity(pid=200, started_at_boot_s=9.0), pins=CpuSet([2])),)
    (pid_dir / "a.pid").write_text("200\n")
    assert living(processes) == {UUID: 200}


@pytest.mark.parametrize("state", ["Z", "X"])
def test_a_dead_process_does_not_live_in_a_written_tree_either(state: str, tmp_path: Path) -> None:
    write_process(tmp_path / "100", *qemu(), state=state)
    assert living(QemuProcesses(tmp_path)) == {}


@pytest.mark.parametrize("folder", ["none", "."], ids=["no folder", "nothing mounted"])
def test_without_a_procfs_nothing_can_be_seen(folder: str, tmp_path: Path) -> None:
    found = QemuProcesses(tmp_path / folder, clock=lambda: 7.0).scan()
    assert (found.begun_at, found.can_see, dict(found.living)) == (7.0, False, {})


def test_a_process_that_could_not_be_read_for_want_of_files_proves_nothing() -> None:
    uuid = str(uuids.uuid4())
    processes = QemuProcesses()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with looks_like_qemu("-name", "guest=a", "-uuid", uuid):
        told = [uuid in processes.scan().living]
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            blind = processes.scan()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        told.append(uuid in processes.scan().living)
    assert not blind.can_see
    assert told == [True, True]


def test_a_kernel_thread_is_no_guest(tmp_path: Path) -> None:
    write_process(tmp_path / "1", "/sbin/init")
    write_process(tmp_path / "2")
    found = QemuProcesses(tmp_path).scan()
    assert (found.can_see, dict(found.living)) == (True, {})


def test_looking_elsewhere_leaves_psutil_at_this_kernels_proc(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        QemuProcesses(folder).scan()
        QemuProcesses(folder).vcpu_threads(1)
    assert psutil.PROCFS_PATH == "/proc"
    assert os.getpid() in psutil.pids()


def test_without_a_view_of_pid_1_missing_processes_prove_nothing(tmp_path: Path) -> None:
    write_process(tmp_path / "100", *qemu())
    told = [QemuProcesses(tmp_path).scan().can_see]
    write_process(tmp_path / "1", "/sbin/init")
    told.append(QemuProcesses(tmp_path).scan().can_see)
    assert told == [False, True]
    assert QemuProcesses(tmp_path).vcpu_threads(100) == VcpuThreads(cpus=CpuSet([0]), pins=CpuSet([0]))
