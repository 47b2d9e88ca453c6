"""Which signals end the daemon, and that being stopped and continued does not."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from tests.functional.daemon import Daemon
from tests.functional.lab import wait_until
from tests.functional.test_daemon_systemd import PATIENCE_S, QUICK, Manager, probe

STOPPED_S = 2.5
"""More than the main thread waits for a signal at a time, where a watchdog wants to be fed each second."""


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


def test_a_daemon_that_was_stopped_and_continued_goes_on(daemon: Daemon, manager: Manager) -> None:
    """CPython's sigtimedwait, interrupted when its time is over, gives back a signal that nobody has sent."""
    daemon.start()
    manager.wait_for("READY=1")
    for _ in range(3):
        daemon.process.send_signal(signal.SIGSTOP)
        time.sleep(STOPPED_S)
        manager.drain()
        daemon.process.send_signal(signal.SIGCONT)
        manager.wait_for("WATCHDOG=1", times=3)
    assert daemon.process.poll() is None
    assert probe(daemon, "/livez") == (200, "ok")
    assert "stopping" not in daemon.log()
    assert "reloaded" not in daemon.log()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_log_says_which_signal_has_ended_it(daemon: Daemon, number: signal.Signals) -> None:
    daemon.start()
    daemon.reload()
    wait_until(lambda: "reloaded the configuration" in daemon.log(), "the reload", PATIENCE_S)
    assert daemon.stop(number) == 0
    assert f"asked to end signal={number.name}\n" in daemon.log()
