"""The udev adapter against the kernel's real netlink socket: interfaces come and go, buffers overflow for real."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.adapters.udev import OVERFLOW, UdevMonitor

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can make interfaces and have the kernel send events"
)

BOUND_S = 20.0
NO_UDEVD = Path("/nonexistent/udev/control")


class Woken:
    """Collects reasons; can hold the monitor's thread up inside its call."""

    def __init__(self) -> None:
        self.reasons: queue.Queue[str] = queue.Queue()
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, reason: str) -> None:
        self.reasons.put(reason)
        self.gate.wait(BOUND_S)

    def until(self, wanted: Callable[[str], bool]) -> str:
        """The first reason that is wanted; fails after the bound."""
        end = time.monotonic() + BOUND_S
        seen: list[str] = []
        while (left := end - time.monotonic()) > 0:
            try:
                seen.append(self.reasons.get(timeout=left))
            except queue.Empty:
                break
            if wanted(seen[-1]):
                return seen[-1]
        raise AssertionError(f"only {seen} in {BOUND_S} s")


@pytest.fixture
def woken() -> Woken:
    return Woken()


@pytest.fixture
def monitor(woken: Woken) -> Iterator[UdevMonitor]:
    made = UdevMonitor(woken, udev_control=NO_UDEVD)
    made.start()
    yield made
    woken.gate.set()
    made.stop()


@pytest.fixture
def veth() -> Iterator[str]:
    """A new pair of interfaces of this machine; gives the name of one end."""
    name = f"va{uuid.uuid4().hex[:8]}"
    subprocess.run(["ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}b"], check=True)
    yield name
    subprocess.run(["ip", "link", "del", name], check=False, capture_output=True)


def announce(count: int, device: str = "class/net/lo") -> None:
    """Have the kernel send this many events of a device, by default of the loopback interface."""
    trigger = Path(f"/sys/{device}/uevent")
    for _ in range(count):
        trigger.write_text("change")


CPU = "devices/system/cpu/cpu0"
"""Its events are nobody else's, while interfaces of other labs on this machine come and go."""


def test_a_new_interface_wakes_a_fresh_look(monitor: UdevMonitor, woken: Woken, veth: str) -> None:
    assert monitor.problem is None
    assert woken.until(lambda reason: reason.startswith("net add va")).startswith("net add va")


def test_an_interface_that_goes_away_wakes_a_fresh_look(monitor: UdevMonitor, woken: Woken, veth: str) -> None:
    subprocess.run(["ip", "link", "del", veth], check=True)
    assert woken.until(lambda reason: reason.startswith("net remove va"))


@pytest.fixture
def cpu_monitor(woken: Woken) -> Iterator[UdevMonitor]:
    made = UdevMonitor(woken, udev_control=NO_UDEVD, subsystems=("cpu",))
    made.start()
    yield made
    woken.gate.set()
    made.stop()


def test_events_that_wait_together_are_one_wake(cpu_monitor: UdevMonitor, woken: Woken) -> None:
    woken.gate.clear()
    announce(1, CPU)
    assert woken.until(lambda reason: reason == "cpu change cpu0")
    announce(5, CPU)
    woken.gate.set()
    assert woken.until(lambda reason: reason == "cpu change cpu0 and 4 more")


def test_an_overflown_buffer_is_a_full_look_and_later_events_still_come(woken: Woken) -> None:
    monitor = UdevMonitor(woken, udev_control=NO_UDEVD, receive_buffer_bytes=1)
    monitor.start()
    try:
        woken.gate.clear()
        announce(1)
        woken.until(lambda reason: reason == "net change lo")
        announce(100)  # the kernel's smallest buffer holds one or two; nobody takes them while the gate is shut
        woken.gate.set()
        assert woken.until(lambda reason: reason == OVERFLOW)
        assert monitor.problem is None
        announce(1)
        assert woken.until(lambda reason: reason == "net change lo")
    finally:
        woken.gate.set()
        monitor.stop()


def test_events_of_other_subsystems_do_not_wake(cpu_monitor: UdevMonitor, woken: Woken) -> None:
    announce(3)
    announce(1, CPU)
    assert woken.until(lambda reason: True) == "cpu change cpu0"


def test_a_stopped_monitor_says_so_and_can_be_started_again(monitor: UdevMonitor, woken: Woken) -> None:
    monitor.stop()
    assert monitor.problem == "stopped"
    monitor.start()
    announce(1)
    assert woken.until(lambda reason: reason == "net change lo")


def test_a_failure_inside_wake_costs_that_wake_only(caplog: pytest.LogCaptureFixture) -> None:
    reasons: queue.Queue[str] = queue.Queue()

    def wake(reason: str) -> None:
        reasons.put(reason)
        if reasons.qsize() == 1:
            raise ZeroDivisionError("a mistake of whoever is woken")

    monitor = UdevMonitor(wake, udev_control=NO_UDEVD, subsystems=("cpu",), retry_s=0.1)
    monitor.start()
    try:
        announce(1, CPU)
        end = time.monotonic() + BOUND_S
        while reasons.qsize() < 2 and time.monotonic() < end:
            time.sleep(0.01)
        assert list(reasons.queue) == ["cpu change cpu0", OVERFLOW]
        assert "ZeroDivisionError" in caplog.text
    finally:
        monitor.stop()


def test_udev_is_listened_to_only_where_its_daemon_runs(woken: Woken, tmp_path: Path) -> None:
    (tmp_path / "control").touch()
    assert UdevMonitor(woken, udev_control=tmp_path / "control").source == "udev"
    assert UdevMonitor(woken, udev_control=NO_UDEVD).source == "kernel"
