"""What the daemon tells a service manager, over a real notification socket, in good and bad times."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from pathlib import Path

import pytest

from agent.core.report import Report
from tests.functional.daemon import Daemon
from tests.functional.lab import Guest, Libvirtd, wait_until

MakeGuest = Callable[..., Guest]
PATIENCE_S = 60.0
WATCHDOG_S = 1.0
FROZEN_S = 8.0
"""Passes may take six, as QUICK has it."""

QUICK = "[tracker]\ninterval=1\n[libvirt]\ncall_timeout=1\nkeepalive_interval=1\nkeepalive_count=2\n"


class Manager:
    """The other end of NOTIFY_SOCKET. heard: all messages so far."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="nt-", dir="/tmp"))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self._folder / "notify"))
        self.environ = {"NOTIFY_SOCKET": str(self._folder / "notify"), "WATCHDOG_USEC": str(int(WATCHDOG_S * 1e6))}
        self.heard: list[str] = []

    def next(self, timeout_s: float) -> str | None:
        """The next message, None when none came in time."""
        if not select.select([self._socket], [], [], timeout_s)[0]:
            return None
        message = self._socket.recv(4096).decode()
        self.heard.append(message)
        return message

    def wait_for(self, start: str, times: int = 1) -> str:
        """The last of the next so many messages that begin so."""
        message = ""
        for _ in range(times):
            end = time.monotonic() + PATIENCE_S
            while not (message := self.next(max(0.0, end - time.monotonic())) or "").startswith(start):
                assert time.monotonic() < end, f"waited in vain for {start}; heard {self.heard[-20:]}"
        return message

    def drain(self) -> None:
        """Forget what has come until now."""
        while self.next(0.0) is not None:
            pass

    def close(self) -> None:
        """Go away; fine to repeat."""
        self._socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)


@pytest.fixture
def manager() -> Iterator[Manager]:
    made = Manager()
    yield made
    made.close()


@pytest.fixture
def daemon(manager: Manager) -> Iterator[Daemon]:
    """Managed, and without a libvirt."""
    made = Daemon(None, config=QUICK, environ=manager.environ)
    yield made
    made.clean()


def probe(daemon: Daemon, path: str) -> tuple[int, str]:
    """Status and body of a probe."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(PATIENCE_S)
        client.connect(str(daemon.dir / "sock/agent-ro.sock"))
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: agent\r\n\r\n".encode())
        answer = HTTPResponse(client)
        answer.begin()
        return answer.status, answer.read().decode().strip()


def test_a_managed_run_from_ready_to_stopping(daemon: Daemon, manager: Manager) -> None:
    daemon.start()
    ready = manager.wait_for("READY=1")
    assert re.fullmatch(
        r"READY=1\nSTATUS=0 active of 0 guests, no conflicts, free dedicated CPUs? \S+; cannot read: .*libvirt.*", ready
    )
    manager.wait_for("WATCHDOG=1", times=5)
    daemon.configure(QUICK + "[compute]\ncpu_dedicated_set=1\ncpu_shared_set=0\n")
    before_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    daemon.reload()
    reloading = manager.wait_for("RELOADING=1")
    after_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    match = re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=(\d+)", reloading)
    assert match is not None
    assert before_us <= int(match[1]) <= after_us
    assert "free dedicated CPU 1;" in manager.wait_for("READY=1")
    manager.wait_for("WATCHDOG=1", times=3)
    assert daemon.stop() == 0
    assert manager.wait_for("STOPPING=1") == "STOPPING=1"
    manager.drain()
    assert set(manager.heard[manager.heard.index("STOPPING=1") + 1 :]) <= {"WATCHDOG=1"}
    assert "Ctrl-C" not in daemon.log()


def test_a_reload_that_is_refused_ends_with_ready_too(daemon: Daemon, manager: Manager) -> None:
    daemon.start()
    manager.wait_for("READY=1")
    daemon.configure("[tracker]\ninterval=0\n")
    daemon.reload()
    manager.wait_for("RELOADING=1")
    manager.wait_for("READY=1")


def test_the_status_is_sent_when_it_changes_and_not_with_every_pass(
    libvirtd: Libvirtd, guest: MakeGuest, manager: Manager
) -> None:
    daemon = Daemon(libvirtd.ro_uri, config=QUICK, environ=manager.environ)
    try:
        daemon.start()
        ready = manager.wait_for("READY=1")
        generation = daemon.report().generation
        daemon.wait_for(lambda told: told.generation > generation + 3, "some passes")
        manager.drain()
        assert set(manager.heard[manager.heard.index(ready) + 1 :]) <= {"WATCHDOG=1"}
        guest("one", pin={0: "1"})
        status = manager.wait_for("STATUS=1 active of 1 guest,")
        assert status == "STATUS=1 active of 1 guest, no conflicts, free dedicated CPU 0"
    finally:
        daemon.clean()


def test_a_pass_that_hangs_stops_the_watchdog_and_the_probe_says_why(daemon: Daemon, manager: Manager) -> None:
    """A FIFO where libvirt keeps a pid file: opening it blocks the watching thread for real."""
    pid_dir = Path(daemon.dir / "libvirt/qemu")
    pid_dir.mkdir(parents=True)
    daemon.start()
    manager.wait_for("WATCHDOG=1")
    assert probe(daemon, "/livez") == (200, "ok")

    os.mkfifo(pid_dir / "stuck.pid")
    wait_until(lambda: probe(daemon, "/livez")[0] == 503, "the hang to be noticed", PATIENCE_S)
    status, why = probe(daemon, "/livez")
    assert status == 503
    assert re.fullmatch(r"no pass has ended for \d+ s: see the log for the call that hangs, restart compute-agent", why)
    assert probe(daemon, "/healthz") == probe(daemon, "/readyz") == probe(daemon, "/livez")
    manager.drain()
    assert manager.next(4 * WATCHDOG_S) is None

    with (pid_dir / "stuck.pid").open("w"):
        (pid_dir / "stuck.pid").unlink()
    manager.wait_for("WATCHDOG=1", times=3)
    wait_until(lambda: probe(daemon, "/livez") == (200, "ok"), "the daemon to live again", PATIENCE_S)


def stuck(daemon: Daemon) -> Path:
    """The path of a FIFO that holds up whoever looks for QEMU's pid files, until it is written to."""
    path = daemon.dir / "libvirt/qemu/stuck.pid"
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    return path


def go_on(fifo: Path) -> None:
    """Let the held-up pass go on, and no later one be held up."""
    with fifo.open("w"):
        fifo.unlink()


def test_a_pass_that_only_takes_long_does_not_stop_the_watchdog(daemon: Daemon, manager: Manager) -> None:
    daemon.configure("[tracker]\ninterval=1\n[libvirt]\ncall_timeout=60\n")
    daemon.start()
    manager.wait_for("READY=1")
    stuck(daemon)
    daemon.wait_for(lambda told: any(one.name == "sysfs" and not one.ok for one in told.health.sources), "a late pass")
    manager.drain()
    manager.wait_for("WATCHDOG=1", times=8)
    assert probe(daemon, "/livez") == (200, "ok")


def test_a_daemon_that_was_frozen_feeds_the_watchdog_first_of_all(daemon: Daemon, manager: Manager) -> None:
    """systemd/systemd#20284. It is frozen in a pass, and for longer than a pass may take."""
    daemon.start()
    manager.wait_for("READY=1")
    manager.wait_for("WATCHDOG=1")
    fifo = stuck(daemon)
    daemon.process.send_signal(signal.SIGSTOP)
    time.sleep(FROZEN_S)
    manager.drain()
    daemon.process.send_signal(signal.SIGCONT)
    assert manager.next(PATIENCE_S) == "WATCHDOG=1"
    go_on(fifo)
    manager.wait_for("WATCHDOG=1", times=3)
    assert probe(daemon, "/livez") == (200, "ok")


def test_until_the_first_look_has_ended_it_serves_asks_for_time_and_is_not_ready(
    daemon: Daemon, manager: Manager
) -> None:
    fifo = stuck(daemon)
    daemon.start(wait=False)
    for _ in range(3):
        assert re.fullmatch(r"EXTEND_TIMEOUT_USEC=\d+", manager.wait_for("EXTEND_TIMEOUT_USEC="))
    assert probe(daemon, "/livez") == (200, "ok")
    assert probe(daemon, "/readyz")[0] == 503
    assert daemon.health().ready is False
    daemon.configure(QUICK + "[compute]\ncpu_dedicated_set=1\ncpu_shared_set=0\n")
    daemon.reload()
    wait_until(lambda: "reloaded the configuration" in daemon.log(), "the reload", PATIENCE_S)
    assert {message.partition("=")[0] for message in manager.heard} == {"EXTEND_TIMEOUT_USEC"}
    go_on(fifo)
    assert "free dedicated CPU 1;" in manager.wait_for("READY=1")
    manager.wait_for("WATCHDOG=1", times=3)
    manager.drain()
    assert sum(message.startswith("READY=1") for message in manager.heard) == 1


def test_a_first_look_that_hangs_is_no_longer_waited_for(daemon: Daemon, manager: Manager) -> None:
    stuck(daemon)
    daemon.start(wait=False)
    manager.wait_for("EXTEND_TIMEOUT_USEC=")
    wait_until(lambda: probe(daemon, "/livez")[0] == 503, "the hang to be noticed", PATIENCE_S)
    manager.drain()
    assert manager.next(4 * WATCHDOG_S) is None


def test_it_can_be_ended_before_its_first_look_has_ended(daemon: Daemon, manager: Manager) -> None:
    stuck(daemon)
    daemon.start(wait=False)
    manager.wait_for("EXTEND_TIMEOUT_USEC=")
    assert daemon.stop() == 0
    manager.wait_for("STOPPING=1")
    assert not any("READY" in message for message in manager.heard)
    assert list((daemon.dir / "sock").iterdir()) == []


def test_a_daemon_whose_pass_hangs_still_ends_cleanly(daemon: Daemon, manager: Manager) -> None:
    pid_dir = Path(daemon.dir / "libvirt/qemu")
    pid_dir.mkdir(parents=True)
    daemon.start()
    os.mkfifo(pid_dir / "stuck.pid")
    manager.wait_for("READY=1")
    wait_until(lambda: probe(daemon, "/livez")[0] == 503, "the hang to be noticed", PATIENCE_S)
    manager.drain()  # a full socket takes no more
    assert daemon.stop() == 0
    manager.wait_for("STOPPING=1")
    assert "the running pass does not end" in daemon.log()
    assert list((daemon.dir / "sock").iterdir()) == []


def test_a_frozen_libvirtd_does_not_stop_the_watchdog(libvirtd: Libvirtd, guest: MakeGuest, manager: Manager) -> None:
    guest("stays", pin={0: "1"})
    daemon = Daemon(libvirtd.ro_uri, config=QUICK, environ=manager.environ)

    def is_noticed(told: Report) -> bool:
        return any(source.name == "libvirt" and source.problem is not None for source in told.health.sources)

    try:
        daemon.start()
        manager.wait_for("READY=1")
        libvirtd.pause()
        daemon.wait_for(is_noticed, "the freeze to be noticed")
        manager.drain()
        manager.wait_for("WATCHDOG=1", times=10)
        assert is_noticed(daemon.report())
        assert probe(daemon, "/livez") == (200, "ok")
        libvirtd.resume()
        daemon.wait_for(lambda told: not is_noticed(told), "libvirt to be well again")
        manager.wait_for("WATCHDOG=1", times=3)
    finally:
        daemon.clean()


def test_a_manager_that_went_away_does_not_disturb_the_daemon(daemon: Daemon, manager: Manager) -> None:
    daemon.start()
    manager.wait_for("WATCHDOG=1")
    manager.close()
    generation = daemon.report().generation
    daemon.wait_for(lambda told: told.generation > generation + 4, "passes to go on")
    assert daemon.log().count("systemd cannot be told") == 1
    assert daemon.stop(signal.SIGINT) == 0
