"""Wakes a fresh look when the kernel or udev tells that hardware changed.

An event says only "look again": what changed is read from sysfs, so a lost event costs nothing but the time until the
next periodic pass.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import pyudev

LOG = logging.getLogger(__name__)

SUBSYSTEMS = ("cpu", "memory", "node", "pci", "net", "mdev", "vdpa")

Source = Literal["udev", "kernel"]

RECEIVE_BUFFER_BYTES = 16 << 20
"""Room for the events of some thousand virtual functions; the kernel's default of 208 KiB holds about 100."""
RETRY_S = 5.0
_MOST_IN_A_BATCH = 10_000


class UdevMonitor:
    """One thread that calls `wake(lost)` once per batch of events: false when all that happened was told.

    udev's own events come after it has set up a device; where udevd does not run (containers, tests) the kernel's are
    taken. After an overflow, which the kernel reports once, the socket is replaced, then `wake(True)` called: what
    happened in between was lost. wake runs in this thread and may block it; events wait in the buffer meanwhile.
    """

    def __init__(
        self,
        wake: Callable[[bool], None],
        *,
        subsystems: Sequence[str] = SUBSYSTEMS,
        receive_buffer_bytes: int = RECEIVE_BUFFER_BYTES,
        udev_control: Path = Path("/run/udev/control"),
        retry_s: float = RETRY_S,
    ) -> None:
        self._wake = wake
        self._subsystems = tuple(subsystems)
        self._receive_buffer_bytes = receive_buffer_bytes
        self._udev_control = udev_control
        self._retry_s = retry_s
        self._stopping = threading.Event()
        self._listening = threading.Event()
        self._stop_fd = -1
        self._thread: threading.Thread | None = None
        self._problem: str | None = "not started"

    @property
    def problem(self) -> str | None:
        """Why no event would be noticed now; None while listening."""
        return self._problem

    @property
    def source(self) -> Source:
        """Whose events the next monitor takes."""
        return "udev" if self._udev_control.exists() else "kernel"

    def start(self, timeout_s: float = 5.0) -> None:
        """Listen, in a thread. Returns when events are received, or the first try failed and `problem` tells why."""
        if self._thread is not None:
            return
        self._stopping.clear()
        self._listening.clear()
        self._stop_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="udev", daemon=True)
        self._thread.start()
        self._listening.wait(timeout_s)

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the thread; then it may be started again. One that `wake` holds up longer ends when `wake` returns."""
        if self._thread is None:
            return
        self._stopping.set()
        os.eventfd_write(self._stop_fd, 1)
        self._thread.join(timeout_s)
        self._problem = "stopped"
        if not self._thread.is_alive():
            self._thread = None
            os.close(self._stop_fd)

    def _run(self) -> None:
        lost = False
        while not self._stopping.is_set():
            try:
                monitor = self._new_monitor()
                self._told_problem(None)
                self._listening.set()
                if lost:
                    self._wake(True)
                lost = self._receive(monitor)
            except (OSError, ImportError) as error:
                self._pause(f"no {self.source} events: {error}")
                lost = True
            except Exception as error:  # top of the thread: whatever a library raised, events must go on
                LOG.exception("udev thread failed, a new monitor is made")
                self._pause(f"udev thread failed: {error!r}")
                lost = True

    def _new_monitor(self) -> pyudev.Monitor:
        monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source=self.source)
        for subsystem in self._subsystems:
            monitor.filter_by(subsystem)
        try:
            monitor.set_receive_buffer_size(self._receive_buffer_bytes)
        except OSError as error:  # needs CAP_NET_ADMIN; a smaller buffer only overflows earlier
            LOG.debug("udev receive buffer stays at its default: %s", error)
        monitor.start()
        return monitor

    def _receive(self, monitor: pyudev.Monitor) -> bool:
        """Pass events on until told to stop (False), or events were lost (True)."""
        poll = select.poll()
        poll.register(monitor.fileno(), select.POLLIN)
        poll.register(self._stop_fd, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if self._stopping.is_set():
                return False
            state = ready.get(monitor.fileno(), 0)
            told, lost = _drain(monitor) if state == select.POLLIN else (False, state != 0)
            if lost:  # pyudev polls once more by itself and never gets past an error, so this socket is of no more use
                LOG.warning("udev events were lost: the host is read anew")
                return True
            if told:
                self._wake(False)

    def _pause(self, problem: str) -> None:
        self._told_problem(problem)
        self._listening.set()
        self._stopping.wait(self._retry_s)

    def _told_problem(self, problem: str | None) -> None:
        if problem != self._problem and problem is not None:
            LOG.warning("hardware events are not seen, only each periodic pass looks: %s", problem)
        self._problem = problem


def _drain(monitor: pyudev.Monitor) -> tuple[bool, bool]:
    """Whether any event waited, and whether the socket failed (ENOBUFS, or an error state of its own)."""
    count = 0
    try:
        while count < _MOST_IN_A_BATCH and (device := monitor.poll(timeout=0)) is not None:
            if count == 0:
                LOG.debug(
                    "udev event subsystem=%s action=%s device=%s", device.subsystem, device.action, device.sys_name
                )
            count += 1
    except OSError:
        return count > 0, True
    return count > 0, False
