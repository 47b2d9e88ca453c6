"""The udev adapter against the kernel's real netlink socket: interfaces come and go, buffers overflow for real."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.adapters.udev import UdevMonitor

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can make interfaces and have the kernel send events"
)

BOUND_S = 20.0
NO_UDEVD = Path("/nonexistent/udev/control")


class Woken:
    """Counts wakes; can hold the monitor's thread up inside its call."""

    def __init__(self) -> None:
        self.wakes: queue.Queue[bool] = queue.Queue()
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, lost: bool) -> None:
        self.wakes.put(lost)
        self.gate.wait(BOUND_S)

    def next(self) -> bool:
        """Whether events were lost, as the next wake says; fails when none comes."""
        return self.wakes.get(timeout=BOUND_S)


def logged(caplog: pytest.LogCaptureFixture, event: str) -> bool:
    """Wait until this event is logged, which only the first of a batch is."""
    end = time.monotonic() + BOUND_S
    while time.monotonic() < end and f"udev event {event}" not in caplog.text:
        time.sleep(0.01)
    return f"udev event {event}" in caplog.text


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
def debug(caplog: pytest.LogCaptureFixture) -> None:
    """Logs the events themselves."""
    caplog.set_level("DEBUG", "agent.adapters.udev")


@contextlib.contextmanager
def veth() -> Iterator[str]:
    """A new pair of interfaces of this machine; gives the name of one end."""
    name = f"va{uuid.uuid4().hex[:8]}"
    subprocess.run(["ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}b"], check=True)
    try:
        yield name
    finally:
        subprocess.run(["ip", "link", "del", name], check=False, capture_output=True)


def announce(count: int, device: str = "class/net/lo") -> None:
    """Have the kernel send this many events of a device, by default of the loopback interface."""
    trigger = Path(f"/sys/{device}/uevent")
    for _ in range(count):
        trigger.write_text("change")


CPU = "devices/system/cpu/cpu0"
"""Its events are nobody else's, while interfaces of other labs on this machine come and go."""


@pytest.mark.usefixtures("debug")
def test_a_new_interface_wakes_a_fresh_look(
    monitor: UdevMonitor, woken: Woken, caplog: pytest.LogCaptureFixture
) -> None:
    assert monitor.problem is None
    with veth():
        assert logged(caplog, "subsystem=net action=add device=va")
        assert not woken.next()


@pytest.mark.usefixtures("debug", "monitor")
def test_an_interface_that_goes_away_wakes_a_fresh_look(woken: Woken, caplog: pytest.LogCaptureFixture) -> None:
    with veth():
        assert not woken.next()
    assert logged(caplog, "subsystem=net action=remove device=va")
    assert not woken.next()


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
    told = [woken.next()]
    announce(5, CPU)
    woken.gate.set()
    told.append(woken.next())
    announce(1, CPU)
    told.append(woken.next())
    cpu_monitor.stop()
    assert (told, woken.wakes.empty()) == ([False] * 3, True)


def test_an_overflown_buffer_is_a_full_look_and_later_events_still_come(woken: Woken) -> None:
    monitor = UdevMonitor(woken, udev_control=NO_UDEVD, receive_buffer_bytes=1)
    monitor.start()
    try:
        woken.gate.clear()
        announce(1)
        assert not woken.next()
        announce(100)  # the kernel's smallest buffer holds one or two; nobody takes them while the gate is shut
        woken.gate.set()
        while not woken.next():
            pass
        assert monitor.problem is None
        announce(1)
        assert not woken.next()
    finally:
        woken.gate.set()
        monitor.stop()


@pytest.mark.usefixtures("debug", "cpu_monitor")
def test_events_of_other_subsystems_do_not_wake(woken: Woken, caplog: pytest.LogCaptureFixture) -> None:
    announce(3)
    announce(1, CPU)
    assert not woken.next()
    assert [record.getMessage() for record in caplog.records if "udev event" in record.getMessage()] == [
        "udev event subsystem=cpu action=change device=cpu0"
    ]


def test_a_stopped_monitor_says_so_and_can_be_started_again(monitor: UdevMonitor, woken: Woken) -> None:
    monitor.stop()
    assert monitor.problem == "stopped"
    monitor.start()
    announce(1)
    assert not woken.next()


def test_a_failure_inside_wake_costs_that_wake_only(caplog: pytest.LogCaptureFixture) -> None:
    wakes: queue.Queue[bool] = queue.Queue()

    def wake(lost: bool) -> None:
        wakes.put(lost)
        if wakes.qsize() == 1:
            raise ZeroDivisionError("a mistake of whoever is woken")

    monitor = UdevMonitor(wake, udev_control=NO_UDEVD, subsystems=("cpu",), retry_s=0.1)
    monitor.start()
    try:
        announce(1, CPU)
        assert [wakes.get(timeout=BOUND_S) for _ in range(2)] == [False, True]
        assert "ZeroDivisionError" in caplog.text
    finally:
        monitor.stop()


def test_udev_is_listened_to_only_where_its_daemon_runs(woken: Woken, tmp_path: Path) -> None:
    (tmp_path / "control").touch()
    assert UdevMonitor(woken, udev_control=tmp_path / "control").source == "udev"
    assert UdevMonitor(woken, udev_control=NO_UDEVD).source == "kernel"
