"""The daemon as its users meet it: a process, its two sockets, its log, and agentctl."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from agent.client import LocalClient
from agent.core.conflicts import Conflict
from agent.core.report import Health, Report
from agent.errors import DaemonUnavailable
from tests.functional.lab import wait_until

T = TypeVar("T")

START_S = 60.0
"""Far more than a start takes; a loaded machine may be slow."""


class Daemon:
    """compute-agent on one libvirtd, with state folder and sockets of its own; quick passes unless options say else."""

    def __init__(
        self,
        uri: str | None,
        *,
        config: str = "",
        environ: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        """Without a uri its libvirt is not there. arguments: further ones of the command line."""
        self.dir = Path(tempfile.mkdtemp(prefix="ca-", dir="/tmp"))
        self.uri = uri or f"qemu:///system?socket={self.dir}/libvirt/libvirt-sock-ro"
        self.arguments = list(arguments)
        self.environ = dict(os.environ) | dict(environ or {})
        self.config_file = self.dir / "agent.conf"
        self.configure(config)
        self.log_file = self.dir / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def configure(self, text: str) -> None:
        """Write the configuration file; a running daemon takes it at its next reload."""
        self.config_file.write_text(text or "[tracker]\ninterval = 2\n")

    @property
    def command(self) -> list[str]:
        """The command line."""
        words = ["--config-file", str(self.config_file), "--state-path", str(self.dir / "state")]
        words += ["--socket-dir", str(self.dir / "sock"), "--connection-uri", self.uri]
        return [sys.executable, "-X", "faulthandler", "-m", "agent.service", *words, *self.arguments]

    def start(self, *, wait: bool = True) -> None:
        """Start it; with `wait` until it answers with a complete look."""
        with self.log_file.open("ab") as log:
            # a run of the tests that is killed takes its daemons along
            command = ["setpriv", "--pdeathsig", "KILL", *self.command]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=self.environ)
        if wait:
            wait_until(self._answers, "the daemon to make its first look", START_S)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The running process."""
        assert self._process is not None
        return self._process

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(START_S)

    def clean(self) -> None:
        """End it, whatever its state, and delete its folder."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.dir)

    def reload(self) -> None:
        """SIGHUP."""
        self.process.send_signal(signal.SIGHUP)

    def log(self) -> str:
        """All that it has printed."""
        return self.log_file.read_text()

    def get(self, path: str, kind: type[T]) -> T:
        """A result of the local API."""
        return LocalClient(self.dir / "sock/agent-ro.sock", timeout_s=START_S).value(path, kind)

    def report(self) -> Report:
        """Everything."""
        return self.get("/v1/report", Report)

    def health(self) -> Health:
        """How it is."""
        return self.get("/v1/health", Health)

    def conflicts(self) -> dict[str, Conflict]:
        """Conflicts by id."""
        return {row.id: row for row in self.get("/v1/conflicts", tuple[Conflict, ...])}

    def wait_for(self, is_so: Callable[[Report], bool], what: str, timeout_s: float = 60.0) -> Report:
        """The first report of which `is_so` is true."""

        last: list[Report] = []

        def look() -> Report | None:
            last[:] = [self.report()]
            return last[0] if is_so(last[0]) else None

        try:
            found = wait_until(look, what, timeout_s)
        except AssertionError as error:
            told = [(row.id, row.cause) for one in last for row in one.conflicts]
            raise AssertionError(f"{error}; conflicts: {told}; log:\n{self._last_words()}") from error
        assert found is not None
        return found

    def _last_words(self) -> str:
        """What it has printed, and where each of its threads is; it ends with that."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self.process.send_signal(signal.SIGABRT)
            self.process.wait(START_S)
        return self.log()

    def agentctl(self, *arguments: str, code: int = 0) -> str:
        """What agentctl prints, asking this daemon; asserts the exit code."""
        done = agentctl([*arguments, "--socket", str(self.dir / "sock/agent-ro.sock")])
        assert done.returncode == code, done.stderr + done.stdout
        return done.stdout

    def agentctl_json(self, *arguments: str, code: int = 0) -> Any:
        """The same as JSON."""
        return json.loads(self.agentctl(*arguments, "-f", "json", code=code))

    def _answers(self) -> bool:
        assert self.process.poll() is None, f"the daemon ended with {self.process.returncode}:\n{self.log()}"
        try:
            return any(source.name == "sysfs" for source in self.health().sources)
        except DaemonUnavailable:
            return False


def agentctl(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run agentctl as a process of its own."""
    command = [sys.executable, "-m", "agent.cli.main", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
