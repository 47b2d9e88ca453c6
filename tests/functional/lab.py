"""A private libvirtd and its guests, from tests/lab, for tests that want to stop, kill or freeze it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

LAB = Path(__file__).parents[1] / "lab"
COMMAND_TIMEOUT_S = 120

T = TypeVar("T")


class Guest(NamedTuple):
    """A guest on the private libvirtd. pid: of its QEMU, None when it was only defined."""

    name: str
    uuid: str
    pid: int | None


class Libvirtd:
    """One private libvirtd. `dir` is its folder: pid files in dir/run/libvirt/qemu, definitions in dir/etc/libvirt."""

    def __init__(self, directory: Path) -> None:
        self.dir = directory
        self.uri = f"qemu:///system?socket={directory}/run/libvirt/libvirt-sock"
        self.ro_uri = f"qemu:///system?socket={directory}/run/libvirt/libvirt-sock-ro"

    @property
    def pid_dir(self) -> Path:
        """Where libvirt keeps the guests' pid files and status XML."""
        return self.dir / "run/libvirt/qemu"

    def up(self) -> None:
        """Make it and wait until it answers."""
        self._daemon("up")

    def start(self) -> None:
        """Start it again; fine if it runs."""
        self._daemon("start")

    def stop(self) -> None:
        """End it with SIGTERM; guests run on."""
        self._daemon("stop")

    def kill(self) -> None:
        """End it with SIGKILL; guests run on, its sockets stay behind."""
        self._daemon("kill")

    def pause(self) -> None:
        """Freeze it with SIGSTOP."""
        self._daemon("pause")

    def resume(self) -> None:
        """Let a frozen one go on."""
        self._daemon("resume")

    def down(self) -> None:
        """End it and its guests, delete its folder."""
        self._daemon("down")

    def pid(self) -> int:
        """Process id of the daemon."""
        return int(self._daemon("pid"))

    def is_running(self) -> bool:
        """The daemon lives, frozen or not."""
        return _run(LAB / "libvirtd", "pid", self.dir, check=False).returncode == 0

    def owns(self, pid: int) -> bool:
        """The process lives in this libvirtd's mount namespace: its daemon or one of its guests."""
        try:
            return os.path.samefile(f"/proc/{pid}/root/run/libvirt", self.dir / "run/libvirt")  # noqa: PTH121
        except OSError:
            return False

    def virsh(self, *arguments: str) -> str:
        """What `virsh` prints, over the read and write socket."""
        return _run("virsh", "-q", "-c", self.uri, *arguments).stdout.strip()

    def guest(
        self,
        name: str,
        *,
        start: bool = True,
        pin: Mapping[int, str] | None = None,
        iothread: Iterable[str] = (),
        cell: Iterable[str] = (),
        **options: str | int,
    ) -> Guest:
        """Make a tiny guest; options as of tests/lab/guest (vcpus=2, mem=16, uuid=..., shared_cpus="0-1", numa=...)."""
        given = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
        given += [f"--pin={vcpu}={cpus}" for vcpu, cpus in (pin or {}).items()]
        given += [f"--iothread={cpus}" for cpus in iothread]
        given += [f"--cell={one}" for one in cell]
        _run(sys.executable, LAB / "guest", "start" if start else "define", self.dir, name, *given)
        uuid = self.virsh("domuuid", name)
        return Guest(name, uuid, self.pid_of(name) if start else None)

    def pid_of(self, name: str) -> int:
        """Process id of a guest's QEMU, from libvirt's pid file."""
        return int((self.pid_dir / f"{name}.pid").read_text())

    def make_good(self) -> None:
        """Running, not frozen, without guests, whatever a test did to it."""
        if self.is_running():
            self.resume()
        self.start()
        # killed, not destroyed: quicker, and it reaches a guest that libvirt has lost
        guests = [pid for pid in _pids() if _command(pid).startswith("qemu") and self.owns(pid)]
        for pid in guests:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(self.owns(pid) for pid in guests), f"the guests {guests} to end")
        wait_until(lambda: not self.virsh("list", "--name"), "libvirt to see that its guests have ended")
        for name in self.virsh("list", "--all", "--name").split():
            self.virsh("undefine", name)

    def _daemon(self, command: str) -> str:
        return _run(LAB / "libvirtd", command, self.dir).stdout.strip()


def wait_until(is_so: Callable[[], T], what: str, timeout_s: float = 30.0) -> T:
    """The first true answer of `is_so`, asked 50 times a second; AssertionError after `timeout_s`."""
    end = time.monotonic() + timeout_s
    while True:
        answer = is_so()
        if answer:
            return answer
        assert time.monotonic() < end, f"waited {timeout_s:g} s in vain for {what}"
        time.sleep(0.02)


def _run(*command: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}")
    return done


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
