"""The emulated machine of tests/lab/numahost, and the daemon in it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from agent.core.conflicts import Conflict
from agent.core.topology import HostTopology
from agent.formats import wire
from agent.formats.envelope import Envelope
from tests.functional.lab import LAB, wait_until

T = TypeVar("T")

BOUND_S = 300.0
"""Nothing in the machine takes more than a few seconds; so much less than INTERVAL_S that no timed pass comes in."""
INTERVAL_S = 3600
START_S = 1800
"""The first time the machine's disk is made."""

CONFIG = f"""
[DEFAULT]
debug = true
[tracker]
interval = {INTERVAL_S}
deep_interval = {24 * 3600}
"""
START = """
export PYTHONPATH=/cargo:/cargo/site-packages
printf %s "$1" > /tmp/agent.conf
setsid python3 -m agent.service --config-file /tmp/agent.conf --state-path /tmp/state --socket-dir /tmp/sock \
    > /tmp/log 2>&1 &
echo $! > /tmp/pid
"""
LIVES = 'test -d "/proc/$(cat /tmp/pid)"'


class Machine:
    """One machine; its files are in `dir`."""

    def __init__(self, directory: Path) -> None:
        self.dir = directory

    def up(self) -> None:
        """Start it and wait until its udevd has settled."""
        self._lab("up", timeout_s=START_S)

    def down(self) -> None:
        """End it."""
        self._lab("down")

    def run(self, *words: str) -> str:
        """What a command prints in there; AssertionError when it fails."""
        return self._lab("exec", *words)

    def shell(self, script: str, *arguments: str) -> str:
        """The same for a shell script with its arguments."""
        return self.run("sh", "-c", script, "sh", *arguments)

    def monitor(self, line: str) -> None:
        """Plug or pull something: a line for QEMU's monitor."""
        self._lab("monitor", line)

    def _lab(self, verb: str, *words: str, timeout_s: float = 2 * BOUND_S) -> str:
        command = [sys.executable, str(LAB / "numahost"), verb, str(self.dir), *words]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=timeout_s)
        assert done.returncode == 0, f"{verb} {words} ended with {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout


class Agent:
    """The daemon in the machine, with an hour between its passes: whatever it sees sooner, an event has told it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def start(self) -> None:
        """Start it and wait until it is ready."""
        self.machine.shell(START, CONFIG)
        try:
            wait_until(self._is_ready, "the daemon to be ready", BOUND_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; log:\n{self.log()}") from error

    def get(self, path: str, kind: type[T]) -> T:
        """A result of its local API."""
        body = self.machine.run("curl", "-sS", "--unix-socket", "/tmp/sock/agent-ro.sock", f"http://agent{path}")
        return wire.from_builtins(wire.from_json(body, Envelope).result, kind)

    def topology(self) -> HostTopology:
        """What the host has."""
        return self.get("/v1/topology", HostTopology)

    def conflicts(self) -> dict[str, Conflict]:
        """Conflicts by id."""
        return {row.id: row for row in self.get("/v1/conflicts", tuple[Conflict, ...])}

    def log(self) -> str:
        """All that it has printed."""
        return self.machine.run("cat", "/tmp/log")

    def tells(self, ask: Callable[[], object], told: object) -> None:
        """Wait until this is what it answers."""
        try:
            wait_until(lambda: ask() == told, f"{told}", BOUND_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; told is {ask()}; log:\n{self.log()}") from error

    def heard(self, event: str, begin: int) -> bool:
        """Whether udev has told it this since its log was so long; of events that come together the first is logged."""
        return f"udev event {event} " in self.log()[begin:]

    def _is_ready(self) -> bool:
        self.machine.shell(f"{LIVES} || {{ cat /tmp/log; false; }}")
        answer = self.machine.shell("curl -sf --unix-socket /tmp/sock/agent-ro.sock http://agent/readyz || true")
        return answer.strip() == "ok"
