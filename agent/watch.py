"""The watching thread: a pass at each interval and soon after each event, one at a time, bursts taken together."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from agent.core.claim.evidence import to_read
from agent.core.snapshot import Findings, Snapshot, Wish

LOG = logging.getLogger(__name__)

SETTLE_S = 1.0
"""When the list on a new connection is not yet proof of absence, look again so much later, not at the next interval."""

GATHER_S = 0.1
"""After an event, wait this long for the rest of its burst (64 VFs appear as hundreds of events)."""


class Looks(Protocol):
    """Reads the host; `agent.look.HostLook` is one."""

    def findings(self, snapshot: Snapshot, wish: Wish) -> Findings:
        """What is there now."""
        ...


class Watch:
    """on_pass is called after each pass, on the watching thread, with what was told last and what is so now, so that
    nothing falls between two passes."""

    def __init__(
        self,
        *,
        look: Looks,
        current: Callable[[], Snapshot],
        take_in: Callable[[Findings], Snapshot],
        on_pass: Callable[[Snapshot, Snapshot], None],
        clock: Callable[[], float],
        interval_s: float,
    ) -> None:
        self._look, self._current, self._take_in = look, current, take_in
        self._on_pass = on_pass
        self._clock = clock
        self._interval_s = interval_s
        self._told = current()
        self._wanted = threading.Condition()
        self._marked: set[str] = set()
        self._domains_wanted = False
        self._host_wanted = False
        self._woken = False
        self._stopped = False
        self._next_at = clock()
        self._thread: threading.Thread | None = None

    def mark(self, uuid: str) -> None:
        """This domain must be read again. Called from libvirt's event thread, so it never blocks."""
        with self._wanted:
            self._marked.add(uuid)
            self._woken = True
            self._wanted.notify()

    def wake(self, *, host: bool = False) -> None:
        """Look again soon; host: at all of the host, even what seems unchanged (events were lost)."""
        with self._wanted:
            self._host_wanted |= host
            self._woken = True
            self._wanted.notify()

    def set_interval(self, interval_s: float) -> None:
        """Make a timed pass this often from now on; the next is no further away than one such interval."""
        with self._wanted:
            self._interval_s = interval_s
            self._next_at = min(self._next_at, self._clock() + interval_s)
            self._wanted.notify()

    def start(self, prepare: Callable[[], None]) -> None:
        """Begin to watch in a thread of its own, where `prepare` runs before the first pass and may take its time."""
        self._thread = threading.Thread(target=self._run, args=(prepare,), name="watch", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """End after the pass that runs now; False when it did not end in time (a call to the host hangs)."""
        with self._wanted:
            self._stopped = True
            self._wanted.notify()
        if self._thread is not None:
            self._thread.join(timeout_s)
        return self._thread is None or not self._thread.is_alive()

    def one_pass(self) -> Snapshot:
        """Look, take in what was found, report it; returns the new snapshot. For one thread: the watching one."""
        wish = self._take_wish()
        found = self._look.findings(self._current(), wish)
        if found.listing is None:
            self._put_back(wish)  # libvirt gave no list, so nothing of this was read
        elif not found.listing.complete:
            self._look_again_in(SETTLE_S)
        after = self._take_in(found)
        self._on_pass(self._told, after)
        self._told = after
        return after

    def _take_wish(self) -> Wish:
        now = self._clock()
        with self._wanted:
            periodic = now >= self._next_at
            if periodic:
                self._next_at = now + self._interval_s
            wish = Wish(
                marked=frozenset(self._marked) | to_read(self._current().book),
                domains=self._domains_wanted,
                host=self._host_wanted,
                periodic=periodic,
            )
            self._marked.clear()
            self._domains_wanted = self._host_wanted = self._woken = False
        return wish

    def _put_back(self, wish: Wish) -> None:
        with self._wanted:
            self._marked |= wish.marked
            self._domains_wanted |= wish.domains

    def _look_again_in(self, seconds: float) -> None:
        with self._wanted:
            self._next_at = min(self._next_at, self._clock() + seconds)

    def _run(self, prepare: Callable[[], None]) -> None:
        self._guarded(prepare)
        while not self._stopped:
            self._guarded(self._pass_when_due)

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception:
            LOG.exception("a pass failed; everything is read again at the next interval; please report this")
            with self._wanted:
                self._domains_wanted = self._host_wanted = True

    def _pass_when_due(self) -> None:
        with self._wanted:
            while not self._stopped and not self._woken and (due_in_s := self._next_at - self._clock()) > 0:
                self._wanted.wait(due_in_s)
            if self._woken:
                self._wanted.wait_for(lambda: self._stopped, GATHER_S)
            if self._stopped:
                return
        self.one_pass()
