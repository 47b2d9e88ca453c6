"""Tells systemd what the daemon is doing, in datagrams: EXTEND_TIMEOUT_USEC, READY, STATUS, RELOADING, WATCHDOG and
STOPPING (sd_notify(3))."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping

LOG = logging.getLogger(__name__)


class Notifier:
    """Sends to the service manager; without one every call does nothing. No call ever blocks or raises: a manager that
    is gone or slow must not hold up a pass."""

    def __init__(
        self,
        address: str | None,
        watchdog_interval_s: float | None = None,
        clock: Callable[[], int] = lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC),
    ) -> None:
        """address: path, or "@name" for an abstract socket; None: no manager. clock: CLOCK_MONOTONIC in nanoseconds."""
        self.watchdog_interval_s = watchdog_interval_s
        """How often `watchdog` is due, seconds: half of what the manager allows. None: it does not watch us."""
        self._address = address
        self._clock = clock
        self._failing = False

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Notifier:
        """Read NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. Nothing usable there: a notifier that does nothing."""
        return cls(environ.get("NOTIFY_SOCKET") or None, _watchdog_interval_s(environ))

    @property
    def is_managed(self) -> bool:
        """A service manager started us."""
        return self._address is not None

    def starting(self, for_s: float) -> None:
        """The start still goes on, and may take this much longer (seconds) before it counts as failed."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(for_s * 1e6)}")

    def ready(self, status: str) -> None:
        """The daemon serves (also after a reload). status: one line for `systemctl status`."""
        self._send("READY=1", _status_line(status))

    def status(self, status: str) -> None:
        """One line for `systemctl status`."""
        self._send(_status_line(status))

    def reloading(self) -> None:
        """A reload begins; `ready` ends it. Carries the time, without which Type=notify-reload refuses it."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={self._clock() // 1000}")

    def stopping(self) -> None:
        """A clean stop begins."""
        self._send("STOPPING=1")

    def watchdog(self) -> None:
        """The tracker is alive."""
        self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        if self._address is None:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
                manager.setblocking(False)
                manager.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            self._complain(lines[0], error)
        else:
            self._failing = False

    def _complain(self, what: str, error: OSError) -> None:
        if not self._failing:
            LOG.warning("systemd cannot be told %s over NOTIFY_SOCKET=%s: %s", what, self._address, error)
        self._failing = True


def _status_line(status: str) -> str:
    # a line break would begin another assignment
    return "STATUS=" + " ".join(status.split())


def _watchdog_interval_s(environ: Mapping[str, str]) -> float | None:
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    allowed_us = environ.get("WATCHDOG_USEC", "")
    return int(allowed_us) / 2e6 if allowed_us.isdecimal() and int(allowed_us) > 0 else None
