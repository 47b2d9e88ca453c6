"""QEMU processes as the kernel shows them: the proof that a guest lives, or does not, whatever libvirt says.

Reads /proc itself: psutil tells a reused pid only by reading stat of every process, which costs more than a whole scan
may; the inode of /proc/PID, which readdir gives away, tells it for nothing.
"""

from __future__ import annotations

import itertools
import os
import re
import time
import uuid as uuids
from collections.abc import Callable, Iterable
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from agent.core.cpuset import CpuSet
from agent.core.guest import RunIdentity
from agent.core.ledger import LivingProcess, Processes

YOUNG_S = 60.0
"""A process younger than this is read again at each scan: libvirt forks first and becomes QEMU a moment later."""

CAP_SYS_PTRACE = 1 << 19

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_VCPU_THREAD = re.compile(r"CPU \d+/|ALL CPUs/")
_DEAD_STATES = ("Z", "X", "x")
_READ_BYTES = 1 << 20


class _Stat(NamedTuple):
    state: str
    start_ticks: int


class _Qemu(NamedTuple):
    uuid: str
    name: str


class _Seen(NamedTuple):
    """A process that was looked at. inode: of its folder; a reused pid has another. qemu: None for any other program.
    is_final: it need not be looked at again."""

    inode: int
    start_ticks: int
    qemu: _Qemu | None
    is_final: bool


class QemuProcesses:
    """Finds QEMU by its command line (-uuid, -name guest=), which libvirt always gives; remembers what it has read.

    proc: where procfs is. pid_dir: libvirt's pid files; the processes they name are looked at again each time.
    boot_clock: seconds since boot, as the start times of processes count. Not to be shared between threads.
    """

    def __init__(
        self,
        proc: Path = Path("/proc"),
        pid_dir: Path | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        boot_clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._proc = str(proc)
        self._pid_dir = pid_dir
        self._clock = clock
        self._boot_clock = boot_clock
        self._seen: dict[int, _Seen] = {}
        self._pid_files: dict[str, int] = {}
        self._denied = False

    def scan(self) -> Processes:
        """The living QEMU processes by domain uuid; never raises, a procfs that cannot be read is `can_see` False.

        A zombie does not live. Two living processes of one uuid are told as the later one, with the CPUs of both.
        """
        begun_at = self._clock()
        self._denied = False
        try:
            with os.scandir(self._proc) as entries:
                inodes = {int(entry.name): entry.inode() for entry in entries if entry.name.isdecimal()}
        except OSError:
            return Processes(begun_at=begun_at, can_see=False)
        self._seen = {pid: seen for pid, seen in self._seen.items() if inodes.get(pid) == seen.inode}
        named = self._pids_of_files()
        for pid, inode in inodes.items():
            seen = self._seen.get(pid)
            if seen is None or not seen.is_final or (seen.qemu is None and pid in named):
                self._look_at(pid, inode)
        living = self._living(named)
        return Processes(begun_at=begun_at, can_see=self._can_see(), living=MappingProxyType(living))

    def thread_cpus(self, pid: int) -> CpuSet | None:
        """Host CPUs that the vCPU threads of a process may run on, as one set; None when it has ended or is hidden.

        vCPU threads are those QEMU names so ("CPU 0/KVM", "CPU 0/TCG"; libvirt switches the names on). The emulator's
        and I/O threads mostly float, and their CPUs are not the guest's. When no thread is named so, all threads count:
        rather too much than too little. Source: Name and Cpus_allowed_list of task/TID/status.
        """
        vcpus, others = CpuSet(), CpuSet()
        try:
            with os.scandir(f"{self._proc}/{pid}/task") as entries:
                threads = [entry.name for entry in entries]
        except OSError:
            return None
        for thread in threads:
            status = self._read(f"{pid}/task/{thread}/status")
            if status is None:
                continue
            fields = _status_fields(status)
            cpus = CpuSet.parse(fields.get("Cpus_allowed_list", ""))
            if _VCPU_THREAD.match(fields.get("Name", "")):
                vcpus |= cpus
            else:
                others |= cpus
        return vcpus or others or None

    # --- one process -------------------------------------------------------------------------

    def _look_at(self, pid: int, inode: int) -> None:
        stat = self._stat(pid)
        cmdline = self._read(f"{pid}/cmdline")
        if stat is None or cmdline is None:
            self._seen.pop(pid, None)
            return
        age_s = self._boot_clock() - stat.start_ticks / _TICKS_PER_S
        qemu = _qemu_of(cmdline.split("\0"))
        self._seen[pid] = _Seen(inode, stat.start_ticks, qemu, age_s >= YOUNG_S)

    def _living(self, named: frozenset[int]) -> dict[str, LivingProcess]:
        living: dict[str, LivingProcess] = {}
        found = [(seen.start_ticks, pid, seen.qemu) for pid, seen in self._seen.items() if seen.qemu is not None]
        for start_ticks, pid, qemu in sorted(found):
            stat = self._stat(pid)
            if stat is None or stat.state in _DEAD_STATES or stat.start_ticks != start_ticks:
                continue
            cpus = None
            earlier = living.get(qemu.uuid)
            if earlier is not None and earlier.run.pid is not None:
                cpus = _union((earlier.cpus or self.thread_cpus(earlier.run.pid), self.thread_cpus(pid)))
            run = RunIdentity(pid=pid, start_ticks=start_ticks)
            ours = pid in named or (earlier is not None and earlier.has_pid_file)
            living[qemu.uuid] = LivingProcess(uuid=qemu.uuid, name=qemu.name, run=run, cpus=cpus, has_pid_file=ours)
        return living

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
        if seen is not None and seen.qemu is not None:
            return known
        text = _read_text(f"{self._pid_dir}/{name}").strip()
        return int(text) if text.isdecimal() else 0

    # --- what can be seen --------------------------------------------------------------------

    def _can_see(self) -> bool:
        """Processes of other users are visible: pid 1 is, and it is another user's, or nothing hides processes."""
        if self._denied or self._stat(1) is None:
            return False
        try:
            if Path(f"{self._proc}/1").stat().st_uid != os.geteuid():
                return True
        except OSError:
            return False
        return not self._hides() or bool(self._capabilities() & CAP_SYS_PTRACE)

    def _hides(self) -> bool:
        # systemd's ProtectProc= mounts a procfs of its own for the unit
        for line in _read_text(f"{self._proc}/self/mountinfo").splitlines():
            fields, _, system = line.partition(" - ")
            if system.startswith("proc ") and fields.split(" ")[4] == self._proc:
                hidden = re.search(r"hidepid=(\w+)", system)
                return hidden is not None and hidden[1] not in ("0", "off")
        return False

    def _capabilities(self) -> int:
        fields = _status_fields(_read_text(f"{self._proc}/self/status"))
        return int(fields.get("CapEff", "0"), 16)

    # --- files -------------------------------------------------------------------------------

    def _stat(self, pid: int) -> _Stat | None:
        text = self._read(f"{pid}/stat")
        if not text:
            return None
        # the program's name stands in brackets and may hold brackets and blanks itself
        fields = text[text.rindex(")") + 2 :].split(" ", 20)
        return _Stat(state=fields[0], start_ticks=int(fields[19]))

    def _read(self, name: str) -> str | None:
        """Text of a file of a process; None when the process has ended. Remembers that one was hidden from us."""
        try:
            descriptor = os.open(f"{self._proc}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError:
            self._denied = True
            return None
        except OSError:
            return None
        try:
            return os.read(descriptor, _READ_BYTES).decode(errors="replace")
        except OSError:
            return None
        finally:
            os.close(descriptor)


def _qemu_of(arguments: list[str]) -> _Qemu | None:
    """A guest's uuid and name from QEMU's command line; None for any other program."""
    uuid = _value_of(arguments, "-uuid")
    name = _value_of(arguments, "-name") or ""
    program = arguments[0].rpartition("/")[2]
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


def _union(sets: Iterable[CpuSet | None]) -> CpuSet:
    union = CpuSet()
    for cpus in sets:
        union |= cpus or CpuSet()
    return union


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
