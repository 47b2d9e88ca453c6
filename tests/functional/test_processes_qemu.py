"""QEMU processes of real guests: found, pinned, lost by libvirt, and hidden from who may not see them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.adapters.libvirt import LibvirtConnection, LibvirtHost
from agent.adapters.processes import QemuProcesses
from agent.core.cpuset import CpuSet
from agent.core.guest import VcpuThreads
from tests.functional.lab import Guest, Libvirtd, wait_until

CHECKOUT = Path(__file__).parents[2]


def test_each_running_guest_is_found_by_its_uuid(libvirtd: Libvirtd, guest: Callable[..., Guest]) -> None:
    running = guest("running")
    guest("stopped", start=False)
    found = QemuProcesses(pid_dir=libvirtd.pid_dir).scan()
    assert found.can_see
    ours = [process for process in found.living.values() if process.has_pid_file]
    assert [process.uuid for process in ours] == [running.uuid]
    process = ours[0]
    stat = Path(f"/proc/{running.pid}/stat").read_text().rpartition(") ")[2].split()
    started_at_s = int(stat[19]) / os.sysconf("SC_CLK_TCK")
    assert (process.name, process.run.pid, process.run.started_at_boot_s) == ("running", running.pid, started_at_s)


def test_a_guest_that_is_killed_lives_no_more(guest: Callable[..., Guest]) -> None:
    made = guest("a")
    processes = QemuProcesses()
    before = made.uuid in processes.scan().living
    assert made.pid is not None
    os.kill(made.pid, 9)
    wait_until(lambda: made.uuid not in processes.scan().living, "the guest to be gone")
    assert before


def test_the_cpus_of_pinned_vcpus_are_told_without_those_of_other_threads(guest: Callable[..., Guest]) -> None:
    made = guest("a", vcpus=2, pin={0: "1", 1: "1"}, emulatorpin="0", iothread=["0"])
    assert made.pid is not None
    processes = QemuProcesses()
    assert processes.vcpu_threads(made.pid) == VcpuThreads(cpus=CpuSet([1]), pins=CpuSet([1]))
    floating = guest("b", vcpus=1)
    assert floating.pid is not None
    everywhere = CpuSet(os.sched_getaffinity(floating.pid))
    assert processes.vcpu_threads(floating.pid) == VcpuThreads(cpus=everywhere, pins=CpuSet())


def test_a_guest_that_libvirt_has_lost_still_lives(libvirtd: Libvirtd, guest: Callable[..., Guest]) -> None:
    made = guest("a")
    processes = QemuProcesses(pid_dir=libvirtd.pid_dir)
    before = processes.scan().living[made.uuid]
    libvirtd.kill()
    (libvirtd.pid_dir / "a.xml").unlink()
    libvirtd.start()
    host = LibvirtHost(LibvirtConnection(libvirtd.ro_uri))
    host.connect(30)
    [(_, text)] = host.read_domain_texts([made.uuid])
    assert not isinstance(text, Exception)
    host.close()
    assert (text.state, text.libvirt_id) == ("shut-off", None)
    assert processes.scan().living[made.uuid] == before
    assert before.has_pid_file
    assert QemuProcesses().scan().living[made.uuid].run == before.run


SCAN = """
import json, sys
from pathlib import Path
from agent.adapters.processes import QemuProcesses
found = QemuProcesses(Path(sys.argv[1])).scan()
print(json.dumps([found.can_see, sys.argv[2] in found.living]))
"""

AS_NOBODY = "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
WITHOUT_PTRACE = ("setpriv", "--bounding-set=-sys_ptrace")


def under(options: str) -> tuple[str, ...]:
    """A second procfs on top of the first, as systemd mounts one for a unit."""
    return ("sh", "-c", f'mount -t proc -o {options} proc /mnt && exec "$@"', "sh")


@pytest.mark.parametrize(
    ("options", "program", "privileges", "expected"),
    [
        ("", SCAN, (), True),
        ("", AS_NOBODY, (), True),
        ("hidepid=invisible", SCAN, (), True),
        ("hidepid=invisible", AS_NOBODY, (), False),
        ("hidepid=noaccess", AS_NOBODY, (), False),
        ("hidepid=invisible", SCAN, WITHOUT_PTRACE, False),
        ("", SCAN, WITHOUT_PTRACE, True),
        ("hidepid=invisible", SCAN, (*under("hidepid=off"), *WITHOUT_PTRACE), True),
        ("", SCAN, (*under("hidepid=invisible"), *WITHOUT_PTRACE), False),
    ],
    ids=[
        "root",
        "other user",
        "root, hidden",
        "other user, hidden",
        "other user, closed",
        "root without ptrace, hidden",
        "root without ptrace",
        "root without ptrace, hidden below",
        "root without ptrace, hidden on top",
    ],
)
def test_whether_processes_of_others_can_be_seen_is_told(
    options: str, program: str, privileges: tuple[str, ...], expected: bool, guest: Callable[..., Guest]
) -> None:
    made = guest("a")
    scan = program if program is SCAN else SCAN.replace("found =", AS_NOBODY + "found =")
    # procfs must lie where the other user can go, and the mount ends with its namespace
    mount = f"mount -t proc {f'-o {options}' if options else ''} proc /mnt"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh", *privileges]
        + [sys.executable, "-c", scan, "/mnt", made.uuid],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=CHECKOUT,
    )
    assert done.returncode == 0, done.stderr
    can_see, found = json.loads(done.stdout)
    assert can_see is expected
    assert found or not expected
