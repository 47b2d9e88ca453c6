"""A host on which daemons are started and killed: a recorded machine's /sys, and libvirt's test driver for its guests.

The daemon is what is installed, unchanged. It sees the recorded tree as /sys, in a mount namespace of its own, and asks
a real libvirtd, over its socket, whose test driver starts a domain in no time.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent.adapters.libvirt.binding import load_libvirt
from agent.client import LocalClient
from agent.core.places import FULL_SOCKET, READ_ONLY_SOCKET
from agent.errors import DaemonUnavailable
from agent.formats.envelope import Envelope
from tests.functional.lab import Libvirtd, wait_until
from tests.recorded_hosts import unpack

HOST = "emulated-16cpu-4n-sriov"
"""Four cells of four CPUs, huge pages of two sizes, virtual functions."""

CHECKOUT = Path(__file__).parents[2]

START_S = 60.0

CONFIG = """
[tracker]
interval = 2
[compute]
cpu_dedicated_set = 1-3,5-7,9-11,13-15
cpu_shared_set = 0,4,8,12
[pci]
device_spec = {"address": "*:51:*.*"}
alias = {"name": "vf", "vendor_id": "1b36", "product_id": "0010", "device_type": "type-VF"}
[claims]
settle = 0
restart_grace = 0
overdue_grace = 0
"""


class Stage:
    """dir: short, for paths of sockets; what is mounted below it is seen by the daemons too."""

    def __init__(self, libvirtd: Libvirtd) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="kill-", dir="/tmp"))
        self._undo = contextlib.ExitStack()
        self._undo.callback(shutil.rmtree, self.dir)
        with contextlib.ExitStack() as undo:
            undo.push(self._undo)
            self._share()
            self.libvirt = self._guests(libvirtd)
            self.uri = f"test+unix:///default?socket={libvirtd.dir}/run/libvirt/libvirt-sock-ro"
            self._launcher = self._start_launcher()
            undo.pop_all()
        self._number = 0

    def close(self) -> None:
        """End all that was started."""
        self._undo.close()

    def folder(self) -> Path:
        """A new one."""
        self._number += 1
        made = self.dir / str(self._number)
        made.mkdir()
        return made

    def order(self, **what: object) -> int:
        """The launcher's answer."""
        orders, answers = self._launcher.stdin, self._launcher.stdout
        assert orders is not None
        assert answers is not None
        orders.write(f"{json.dumps(what)}\n")
        orders.flush()
        return int(answers.readline())

    # --- guests ----------------------------------------------------------------------------------

    def empty(self) -> None:
        """No domain is there."""
        for domain in self.libvirt.listAllDomains():
            if domain.isActive():
                domain.destroy()
            if domain.isPersistent():
                domain.undefine()

    def has(self, uuid: str) -> bool:
        """A domain of it is defined or active."""
        return any(domain.UUIDString() == uuid for domain in self.libvirt.listAllDomains())

    def boot(self, uuid: str, placement: Mapping[str, Any]) -> None:
        """Define and start a domain as it was promised; it may be there already."""
        if not self.has(uuid):
            self.libvirt.defineXML(domain_xml(uuid, placement)).create()

    def switch_off(self, uuid: str) -> None:
        """Stop it; it may be off already."""
        domain = self.libvirt.lookupByUUIDString(uuid)
        if domain.isActive():
            domain.destroy()

    def remove(self, uuid: str) -> None:
        """Stop and undefine it; it may be gone already."""
        for domain in self.libvirt.listAllDomains():
            if domain.UUIDString() == uuid:
                if domain.isActive():
                    domain.destroy()
                domain.undefine()

    # --- what it is made of ------------------------------------------------------------------------

    def _share(self) -> None:
        """What is mounted below our folder from now on shows in the namespace that is made of this one."""
        _run("mount", "--bind", str(self.dir), str(self.dir))
        self._undo.callback(_run, "umount", "--recursive", "--lazy", str(self.dir))
        _run("mount", "--make-shared", str(self.dir))

    def _guests(self, libvirtd: Libvirtd) -> Any:
        """A connection; the test driver forgets its domains when the last one is closed."""
        libvirt = load_libvirt()
        made = libvirt.open(f"test+unix:///default?socket={libvirtd.dir}/run/libvirt/libvirt-sock")
        self._undo.callback(made.close)
        return made

    def _start_launcher(self) -> subprocess.Popen[str]:
        (self.dir / "host").mkdir()
        unpack(HOST, self.dir / "host")
        inside = f"mount --bind {self.dir}/host/sys /sys && exec {sys.executable} -m tests.crash.launcher"
        started = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "slave", "sh", "-c", inside],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
        )
        self._undo.callback(_end, started)
        return started


UNKNOWN = "No complete look at the host"
"""How a reason begins until nothing but the disk can keep claims from being made."""


class Agent:
    """A daemon's folders, and the daemon while it runs. state: may be a disk of its own."""

    def __init__(self, stage: Stage, config: str = CONFIG, state: Path | None = None) -> None:
        self.stage = stage
        self.dir = stage.folder()
        self.state = state or self.dir / "state"
        self.config_file = self.dir / "agent.conf"
        self.config_file.write_text(config)
        self.environ: dict[str, str] = {}
        self._pid: int | None = None
        self._pidfd: int | None = None

    def start(self, kill_at: int | None = None, *, is_watched: bool = True) -> None:
        """Start it. kill_at: the point at which it ends."""
        self.points_file.unlink(missing_ok=True)
        words = ["--config-file", str(self.config_file), "--state-path", str(self.state)]
        words += ["--socket-dir", str(self.dir / "sock"), "--connection-uri", self.stage.uri]
        self._pid = self.stage.order(
            arguments=words,
            log=str(self.dir / "log"),
            points=str(self.points_file) if is_watched else "",
            kill_at=kill_at,
            replies=f".{FULL_SOCKET}.",
            environ=self.environ,
        )
        self._pidfd = os.pidfd_open(self._pid)

    @property
    def points_file(self) -> Path:
        """Where the points of the last start are noted."""
        return self.dir / "points"

    def points(self) -> list[str]:
        """Those of the last start, in their order."""
        return self.points_file.read_text().splitlines()

    def has_ended(self) -> bool:
        """It is no more."""
        return self._pidfd is None or bool(select.select([self._pidfd], [], [], 0)[0])

    def wait_ready(self) -> bool:
        """It has looked at its host, and so decides about claims; False: it has ended first."""

        def look() -> bool:
            if self.has_ended():
                return True
            told = self.ask("GET", "/v1/health")
            return told is not None and not any(UNKNOWN in reason for reason in told.result["reasons"])

        wait_until(look, f"the daemon to be ready, log: {self.dir / 'log'}", START_S)
        return not self.has_ended()

    def kill(self) -> int:
        """End it with SIGKILL; its exit code."""
        return self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it with SIGTERM; its exit code."""
        return self._end(signal.SIGTERM)

    def ended(self) -> int:
        """The exit code, once it has ended."""
        assert self._pid is not None
        assert self._pidfd is not None
        assert select.select([self._pidfd], [], [], START_S)[0], f"it does not end, log: {self.dir / 'log'}"
        os.close(self._pidfd)
        pid, self._pid, self._pidfd = self._pid, None, None
        return self.stage.order(reap=pid)

    def log(self) -> str:
        """All that it has printed."""
        return (self.dir / "log").read_text()

    def ask(self, method: str, path: str, document: object = None, *, timeout_s: float = START_S) -> Envelope | None:
        """The answer; None: there came none."""
        client = LocalClient(self.dir / "sock" / (READ_ONLY_SOCKET if method == "GET" else FULL_SOCKET), timeout_s)
        with contextlib.suppress(DaemonUnavailable):
            if method == "GET":
                return client.get(path)
            return client.post(path, document) if method == "POST" else client.put(path, document)
        return None

    def result(self, path: str) -> Any:
        """What is told of it; it must be."""
        told = self.ask("GET", path)
        assert told is not None, f"no answer, log: {self.log()}"
        assert told.ok, told.refusal
        return told.result

    def _end(self, number: int) -> int:
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)
            return self.ended()
        return 0


@contextlib.contextmanager
def agent_on(stage: Stage, config: str = CONFIG, state: Path | None = None) -> Iterator[Agent]:
    """An agent that is not started yet; killed at the end."""
    made = Agent(stage, config, state)
    try:
        yield made
    finally:
        made.kill()


def domain_xml(uuid: str, placement: Mapping[str, Any]) -> str:
    """A domain with the CPUs, pages and memory of a placement."""
    cells = placement["cells"]
    pins = "".join(
        f"<vcpupin vcpu='{vcpu}' cpuset='{cpu}'/>" for cell in cells for vcpu, cpu in sorted(cell["pins"].items())
    )
    emulator = placement["emulator_cpus"]
    tune = f"<cputune>{pins}<emulatorpin cpuset='{emulator}'/></cputune>" if pins else ""
    nodes = ",".join(str(cell["host_cell"]) for cell in cells)
    memory = f"<numatune><memory mode='strict' nodeset='{nodes}'/></numatune>" if nodes else ""
    return (
        f"<domain type='test'><name>{uuid}</name><uuid>{uuid}</uuid>"
        f"<memory unit='KiB'>{placement['memory_kib']}</memory><vcpu>{placement['vcpus']}</vcpu>{tune}{memory}"
        "<os><type>hvm</type></os></domain>"
    )


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def _end(process: subprocess.Popen[str]) -> None:
    with process:
        process.kill()
