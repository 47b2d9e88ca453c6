"""A /proc with QEMU processes in it, for `QemuProcesses(proc=...)`."""

from __future__ import annotations

import shutil
from pathlib import Path


def empty_proc(proc: Path) -> Path:
    """A /proc where pid 1 is visible and nothing else runs; gives its path."""
    _write_process(proc, 1, "init", start_ticks=1, arguments=("/sbin/init",))
    return proc


def add_qemu(proc: Path, pid: int, *, uuid: str, name: str, start_ticks: int = 100, vcpus: str | None = None) -> None:
    """A QEMU process of a guest. vcpus: cpulist text that its vCPU thread may run on; None: no thread is shown."""
    arguments = ("/usr/bin/qemu-system-x86_64", "-name", f"guest={name},debug-threads=on", "-uuid", uuid)
    _write_process(proc, pid, "qemu-system-x86", start_ticks=start_ticks, arguments=arguments)
    if vcpus is not None:
        thread = proc / str(pid) / "task" / str(pid + 1)
        thread.mkdir(parents=True)
        (thread / "stat").write_text(stat_text(pid + 1, "CPU 0/KVM", start_ticks=start_ticks))
        (thread / "status").write_text(f"Name:\tCPU 0/KVM\nCpus_allowed_list:\t{vcpus}\n")


def remove_process(proc: Path, pid: int) -> None:
    """The process has ended."""
    shutil.rmtree(proc / str(pid))


def _write_process(proc: Path, pid: int, program: str, *, start_ticks: int, arguments: tuple[str, ...]) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "stat").write_text(stat_text(pid, program, start_ticks=start_ticks))
    (folder / "status").write_text(f"Name:\t{program}\nUid:\t0\t0\t0\t0\n")
    (folder / "cmdline").write_bytes("\0".join([*arguments, ""]).encode())


def stat_text(pid: int, program: str, *, start_ticks: int, state: str = "S") -> str:
    """One line with the 52 fields of proc_pid_stat(5): the state is the third, the start time the 22nd."""
    fields = [state, "1", *["0"] * 17, str(start_ticks), *["0"] * 30]
    return f"{pid} ({program}) {' '.join(fields)}\n"
