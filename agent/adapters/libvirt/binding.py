"""The libvirt binding of this process: loaded when first needed, silenced, and its one event loop."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from agent.errors import LibvirtUnavailable

LOG = logging.getLogger(__name__)

BEAT_MS = 5000
BEAT_LATE_S = 6 * BEAT_MS / 1000
"""How long the loop's own timer may be late before the loop counts as stuck."""


@functools.cache
def load_libvirt() -> Any:
    """The libvirt module, imported here only, so that what needs no libvirt works without it.

    Raises LibvirtUnavailable when the client library is not installed.
    """
    try:
        import libvirt
    except ImportError as error:
        raise LibvirtUnavailable(
            f"libvirt's client library cannot be loaded ({error}). Install it: apt-get install libvirt0, "
            "and libvirt-python into the virtualenv of the agent"
        ) from error
    # else libvirt prints every error on stderr, also those that are an answer (no such domain)
    libvirt.registerErrorHandler(_print_nothing, None)
    return libvirt


def _print_nothing(_context: object, _error: object) -> None:
    """Errors come as exceptions; nothing is to be printed."""


class EventLoop:
    """Runs libvirt's default event loop in one daemon thread, and knows whether it still turns.

    run_once: one turn of the loop. watch: called with (milliseconds, function) to have the loop call it so often.
    """

    def __init__(
        self,
        run_once: Callable[[], object],
        watch: Callable[[int, Callable[..., None]], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run_once = run_once
        self._watch = watch
        self._clock = clock
        self._ended: str | None = None
        self._beat_at = clock()
        self._thread = threading.Thread(target=self._run, name="libvirt-events", daemon=True)

    def start(self) -> None:
        """Begin to turn; once."""
        self._watch(BEAT_MS, self._beat)
        self._beat_at = self._clock()
        self._thread.start()

    @property
    def problem(self) -> str | None:
        """Why no event will come any more; None: the loop turns."""
        if self._ended is not None:
            return f"libvirt's event loop has ended ({self._ended}); restart the agent"
        late_s = self._clock() - self._beat_at
        if late_s > BEAT_LATE_S:
            return f"libvirt's event loop has not turned for {late_s:.0f} s; restart the agent"
        return None

    def _beat(self, *_: object) -> None:
        self._beat_at = self._clock()

    def _run(self) -> None:
        try:
            while True:
                self._run_once()
        except Exception as error:
            LOG.exception("libvirt's event loop has ended")
            self._ended = str(error) or type(error).__name__


_loop_lock = threading.Lock()


def event_loop() -> EventLoop:
    """The process's loop, running; libvirt wants it registered before the first connection is opened."""
    with _loop_lock:
        return _started_loop()


@functools.cache
def _started_loop() -> EventLoop:
    libvirt = load_libvirt()
    libvirt.virEventRegisterDefaultImpl()
    loop = EventLoop(
        libvirt.virEventRunDefaultImpl, lambda period_ms, beat: libvirt.virEventAddTimeout(period_ms, beat, None)
    )
    loop.start()
    return loop
