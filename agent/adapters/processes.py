"""QEMU processes as the kernel shows them: the proof that a guest lives, or does not, whatever libvirt says.

psutil reads them. What it does not tell, or tells less exactly, is read here, each with its reason beside it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import threading
import time
import uuid as uuids
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import psutil

from agent.core.cpuset import CpuSet
from agent.core.guest import OtherProcess, RunIdentity, VcpuThreads
from agent.core.ledger import LivingProcess, Processes
from agent.core.values import ReadOnlyMap
from agent.formats.cgroup import memory_by_cell, memory_groups

YOUNG_S = 60.0
"""A process younger than this is read again at each scan: libvirt forks first and becomes QEMU a moment later."""

CAP_SYS_PTRACE = 1 << 19

FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""The kernel's first namespaces have fixed numbers (PROC_PID_INIT_INO, since Linux 3.8)."""

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024
_VCPU_THREAD = re.compile(r"CPU \d+/|ALL CPUs/")
_DEAD = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
_GONE = (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError)
_ONE_PROCFS = threading.RLock()


class _Qemu(NamedTuple):
    uuid: str
    name: str


class _Run(NamedTuple):
    """A process that is QEMU, and what psutil says of it now."""

    qemu: _Qemu
    parent: int
    started_at_boot_s: float
    process: psutil.Process

    @property
    def identity(self) -> RunIdentity:
        return RunIdentity(pid=self.process.pid, started_at_boot_s=self.started_at_boot_s)


class _Seen(NamedTuple):
    """A process that was looked at. inode: of its folder; a reused pid has another. run: None for any other program.
    is_final: it need not be looked at again."""

    inode: int
    run: _Run | None
    is_final: bool


class QemuProcesses:
    """Finds QEMU by its command line (-uuid, -name guest=), which libvirt always gives; remembers what it has read.

    proc: where procfs is. pid_dir: libvirt's pid files; the processes they name are looked at again each time.
    boot_clock: seconds since boot, as the start times of processes count. cgroups: where their hierarchies are mounted.
    Not to be shared between threads.
    """

    def __init__(
        self,
        proc: Path = Path("/proc"),
        pid_dir: Path | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        boot_clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        cgroups: Path = Path("/sys/fs/cgroup"),
    ) -> None:
        self._proc = str(proc)
        self._pid_dir = pid_dir
        self._clock = clock
        self._boot_clock = boot_clock
        self._cgroups = cgroups
        self._seen: dict[int, _Seen] = {}
        self._pid_files: dict[str, int] = {}
        self._missed = False

    def scan(self) -> Processes:
        """The living QEMU processes by domain uuid; never raises, a procfs that cannot be read is `can_see` False.

        A zombie does not live. Of several processes of one uuid the one that libvirt's pid file names, else the latest,
        is told with the `others`.
        """
        begun_at = self._clock()
        self._missed = False
        with _procfs(self._proc):
            inodes = self._inodes()
            self._seen = {pid: seen for pid, seen in self._seen.items() if inodes.get(pid) == seen.inode}
            named = self._pids_of_files()
            for pid, inode in inodes.items():
                seen = self._seen.get(pid)
                if seen is None or not seen.is_final or (seen.run is None and pid in named):
                    self._look_at(pid, inode)
            living = self._living(named)
            can_see = self._can_see()
        return Processes(
            begun_at=begun_at, can_see=can_see, sees_host=self._sees_host(), living=MappingProxyType(living)
        )

    def vcpu_threads(self, pid: int) -> VcpuThreads | None:
        """Host CPUs that the vCPU threads of a process may run on; None when it has ended or is hidden.

        vCPU threads are those QEMU names so ("CPU 0/KVM", "CPU 0/TCG"; libvirt switches the names on). The emulator's
        and I/O threads mostly float, and their CPUs are not the guest's. When no thread is named so, all threads count:
        rather too much than too little. Source: Name and Cpus_allowed_list of task/TID/status; psutil names processes
        only, and its cpu_affinity() leaves out CPUs that are offline.
        """
        with _procfs(self._proc):
            try:
                threads = psutil.Process(pid).threads()
            except (psutil.Error, OSError):
                return None
        vcpus, pins, others = CpuSet(), CpuSet(), CpuSet()
        for thread in threads:
            fields = _status_fields(_read_text(f"{self._proc}/{pid}/task/{thread.id}/status"))
            cpus = CpuSet.parse(fields.get("Cpus_allowed_list", ""))
            if _VCPU_THREAD.match(fields.get("Name", "")):
                vcpus |= cpus
                pins |= cpus if len(cpus) == 1 else CpuSet()
            else:
                others |= cpus
        if vcpus:
            return VcpuThreads(cpus=vcpus, pins=pins)
        return VcpuThreads(cpus=others) if others else None

    def memory_cells(self, pid: int) -> ReadOnlyMap[int, int] | None:
        """KiB of small-page memory that a guest has in each host cell, QEMU's own included; None: cannot be told.

        Huge pages are not among it: they are charged elsewhere. None when QEMU has no control group of its own (libvirt
        without the memory controller, or another cgroup namespace), or has ended. Source: memory.numa_stat, readable
        for everybody, where /proc/PID/numa_maps needs CAP_SYS_PTRACE.
        """
        unified = self._cgroups / "unified"
        for group in memory_groups(_read_text(f"{self._proc}/{pid}/cgroup")):
            root = self._cgroups / "memory" if group.is_v1 else unified if unified.is_dir() else self._cgroups
            # threads have groups of their own, which are charged for nothing and have no such file
            if text := _read_text(str(root / group.path / "memory.numa_stat")):
                return memory_by_cell(text, is_v1=group.is_v1, page_kib=_PAGE_KIB)
        return None

    # --- one process -------------------------------------------------------------------------

    def _inodes(self) -> dict[int, int]:
        """Inode of each process's folder, by pid; none when procfs cannot be read.

        It tells a reused pid at 1 us a process; psutil's is_running(), which reads its start time again, takes 16.
        """
        inodes: dict[int, int] = {}
        try:
            pids = psutil.pids()
        except (OSError, IndexError):  # psutil wants one process at least, which an unmounted /proc has not
            self._missed = True
            return inodes
        for pid in pids:
            try:
                inodes[pid] = os.stat(f"{self._proc}/{pid}").st_ino  # noqa: PTH116 - a Path takes four times as long
            except _GONE:
                continue
            except OSError:
                self._missed = True
        return inodes

    def _look_at(self, pid: int, inode: int) -> None:
        self._seen.pop(pid, None)
        try:
            process = psutil.Process(pid)
            qemu = _qemu_of(_arguments(process))
            parent, started_at_s = self._parent_and_start(pid)
        except _GONE:
            return
        except (psutil.AccessDenied, OSError):
            self._missed = True
        else:
            age_s = self._boot_clock() - started_at_s
            run = None if qemu is None else _Run(qemu, parent, started_at_s, process)
            self._seen[pid] = _Seen(inode, run, age_s >= YOUNG_S)

    def _parent_and_start(self, pid: int) -> tuple[int, float]:
        """Pid of the parent, and the start since boot, which a run is known by; psutil's create_time() moves with the
        wall clock.

        Source: fields 4 and 22 of /proc/PID/stat, the start in clock ticks.
        """
        text = Path(f"{self._proc}/{pid}/stat").read_text(errors="replace")
        # the program's name stands in brackets and may hold brackets and blanks itself
        fields = text[text.rindex(")") + 2 :].split(" ", 20)
        return int(fields[1]), int(fields[19]) / _TICKS_PER_S

    def _living(self, named: frozenset[int]) -> dict[str, LivingProcess]:
        runs: dict[str, list[_Run]] = {}
        for seen in self._seen.values():
            if seen.run is not None and self._lives(seen.run.process):
                runs.setdefault(seen.run.qemu.uuid, []).append(seen.run)
        copies = [_copies(same) for same in runs.values()]
        if any(len(same) > 1 for same in copies):
            # a remembered pid file may name the earlier one, which lives, though libvirt has written it anew
            self._pid_files.clear()
            named = self._pids_of_files()
        return {same[0].qemu.uuid: self._told(same, named) for same in copies}

    def _told(self, copies: list[_Run], named: frozenset[int]) -> LivingProcess:
        copies.sort(key=lambda run: (run.process.pid in named, run.started_at_boot_s, run.process.pid))
        *others, main = copies
        return LivingProcess(
            uuid=main.qemu.uuid,
            name=main.qemu.name,
            run=main.identity,
            has_pid_file=main.process.pid in named,
            others=tuple(self._other(run) for run in others),
        )

    def _other(self, run: _Run) -> OtherProcess:
        threads = self.vcpu_threads(run.process.pid)
        pins = CpuSet() if threads is None or threads.pins is None else threads.pins
        return OtherProcess(run=run.identity, pins=pins)

    def _lives(self, process: psutil.Process) -> bool:
        try:
            return process.status() not in _DEAD
        except _GONE:
            return False
        except (psutil.AccessDenied, OSError):
            self._missed = True
            return False

    def _pids_of_files(self) -> frozenset[int]:
        if self._pid_dir is None:
            return frozenset()
        try:
            names = [path.name for path in self._pid_dir.glob("*.pid")]
        except OSError:
            return frozenset()  # no libvirt of this kind here, or closed to us: the command lines tell
        self._pid_files = {name: self._pid_of_file(name) for name in names}
        return frozenset(self._pid_files.values())

    def _pid_of_file(self, name: str) -> int:
        known = self._pid_files.get(name, 0)
        seen = self._seen.get(known)
        if seen is not None and seen.run is not None:
            return known
        text = _read_text(f"{self._pid_dir}/{name}").strip()
        return int(text) if text.isdecimal() else 0

    # --- what can be seen --------------------------------------------------------------------

    def _can_see(self) -> bool:
        """Nothing was missed, and processes of other users are visible: pid 1 is, and it is another user's, or nothing
        hides processes."""
        if self._missed:
            return False
        try:
            owner = psutil.Process(1).uids().effective
        except (psutil.Error, OSError):
            return False
        return owner != os.geteuid() or bool(self._capabilities() & CAP_SYS_PTRACE) or not self._hides()

    def _sees_host(self) -> bool:
        try:
            return os.readlink(f"{self._proc}/self/ns/pid") == FIRST_PID_NAMESPACE  # noqa: PTH115 - no path, a name
        except OSError:
            return False

    def _hides(self) -> bool:
        """Whether procfs is mounted with hidepid. psutil's disk_partitions() reads /etc/mtab, which may be a plain file
        without the kernel's own options."""
        hidden = None
        for line in _read_text(f"{self._proc}/self/mountinfo").splitlines():
            fields, _, system = line.partition(" - ")
            if system.startswith("proc ") and fields.split(" ")[4] == self._proc:
                # systemd's ProtectProc= mounts a procfs of its own for the unit; the last one lies on top
                hidden = re.search(r"hidepid=(\w+)", system)
        return hidden is not None and hidden[1] not in ("0", "off")

    def _capabilities(self) -> int:
        """This process's effective capabilities, of which psutil knows nothing."""
        fields = _status_fields(_read_text(f"{self._proc}/self/status"))
        return int(fields.get("CapEff", "0"), 16)


@contextlib.contextmanager
def _procfs(root: str) -> Iterator[None]:
    """Where psutil reads meanwhile. Its setting is the whole program's, hence one at a time. The agent knows only
    /proc; a test may have a tree of its own."""
    with _ONE_PROCFS:
        before, psutil.PROCFS_PATH = psutil.PROCFS_PATH, root
        try:
            yield
        finally:
            psutil.PROCFS_PATH = before


def _copies(runs: list[_Run]) -> list[_Run]:
    """A guest's processes without QEMU's own child, which is no second copy: it clears the memory once QEMU has ended,
    or is about to become another program."""
    pids = {run.process.pid for run in runs}
    return [run for run in runs if run.parent not in pids] or runs


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.ZombieProcess:
        return []


def _qemu_of(arguments: list[str]) -> _Qemu | None:
    """A guest's uuid and name from QEMU's command line; None for any other program."""
    uuid = _value_of(arguments, "-uuid")
    # psutil keeps bytes that are no text as surrogates, which no codec writes
    name = os.fsencode(_value_of(arguments, "-name") or "").decode(errors="replace")
    program = arguments[0].rpartition("/")[2] if arguments else ""  # kernel threads and zombies have none
    if uuid is None or not (name.startswith("guest=") or "qemu" in program or "kvm" in program):
        return None
    try:
        canonical = str(uuids.UUID(uuid))
    except ValueError:
        return None
    # QEMU doubles a comma that belongs to a value
    whole = re.split(r"(?<!,),(?:,,)*(?!,)", name)[0] if "," in name else name
    return _Qemu(uuid=canonical, name=whole.removeprefix("guest=").replace(",,", ","))


def _value_of(arguments: list[str], option: str) -> str | None:
    for found, value in itertools.pairwise(arguments):
        if found == option:
            return value
    return None


def _status_fields(text: str) -> dict[str, str]:
    return {key: value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
