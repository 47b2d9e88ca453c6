"""Where the memory of real guests lies, as their control group tells everybody."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.adapters.processes import QemuProcesses
from agent.core.cpuset import CpuSet
from tests.functional.lab import Guest, Libvirtd, wait_until

CHECKOUT = Path(__file__).parents[2]
TELL = """
import json, sys
from agent.adapters.processes import QemuProcesses
told = QemuProcesses().memory_cells(int(sys.argv[1]))
print(json.dumps(None if told is None else dict(told)))
"""
AS_NOBODY = "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"


def has_own_group(pid: int) -> bool:
    """Where control groups cannot be written the private libvirtd runs its guests without them."""
    charged = Path("/sys/fs/cgroup").rglob("*.libvirt-qemu/memory.numa_stat")
    return any(str(pid) in _text(group.with_name("cgroup.procs")).split() for group in charged)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""  # a group of another libvirtd's guest, which ends meanwhile


def anonymous_kib(pid: int) -> int:
    found = re.search(r"^RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1])


def test_a_guests_memory_by_cell_adds_up_to_what_its_process_has(guest: Callable[..., Guest]) -> None:
    made = guest("a", mem=64)
    assert made.pid is not None
    pid, processes = made.pid, QemuProcesses()
    if not has_own_group(pid):
        assert processes.memory_cells(pid) is None
        return
    cells = CpuSet.parse(Path("/sys/devices/system/node/has_memory").read_text())

    def agrees() -> bool:
        told = processes.memory_cells(pid)
        assert told is not None
        # the kernel takes pages to a group in batches, and the guest runs on
        return CpuSet(told) == cells and abs(sum(told.values()) - anonymous_kib(pid)) <= 2048

    wait_until(agrees, "control group and process to tell the same memory")


@pytest.mark.parametrize("privileges", ["", AS_NOBODY], ids=["root", "nobody"])
def test_everybody_may_know_where_a_guests_memory_lies(guest: Callable[..., Guest], privileges: str) -> None:
    pid = guest("a").pid
    assert pid is not None
    program = TELL.replace("told =", privileges + "told =")
    command = [sys.executable, "-c", program, str(pid)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, cwd=CHECKOUT)
    assert (json.loads(done.stdout) is not None) is has_own_group(pid)


def test_a_process_that_shares_its_group_with_others_is_not_told() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            assert QemuProcesses().memory_cells(process.pid) is None
        finally:
            process.kill()


def test_a_guest_that_has_ended_is_not_told(libvirtd: Libvirtd, guest: Callable[..., Guest]) -> None:
    made = guest("a")
    assert made.pid is not None
    libvirtd.virsh("destroy", "a")
    assert QemuProcesses().memory_cells(made.pid) is None
