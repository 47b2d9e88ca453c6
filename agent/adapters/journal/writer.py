"""The journal's own thread: whatever the disk does, nobody else waits for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from agent.core.conflicts import Since
from agent.errors import JournalError

LOG = logging.getLogger(__name__)

HANGS_AFTER_S = 10.0
"""A write that takes longer is told of: the disk, or the network it is on, hangs."""

HANGS = (
    "The disk of the state folder does not answer, so dates of conflicts are not kept: see the kernel's log;"
    " passes go on without it."
)
ENDED = "The journal's thread has ended of a fault of ours (see the log), so dates are not kept: restart compute-agent."


class Keeps(Protocol):
    """Stores durably before it returns; `Store` is one, and tells what is raised."""

    @property
    def problem(self) -> str | None:
        """Why nothing is kept; None: all is."""
        ...

    def remember_conflicts(self, since: Mapping[str, Since]) -> None:
        """Store exactly these rows."""
        ...

    def check(self) -> None:
        """Raises JournalError when what it stores in has been taken away."""
        ...

    def close(self) -> None:
        """No more comes."""
        ...


class Journal:
    """Has the newest of what is to be remembered stored by a thread of its own, which owns the store from now on."""

    def __init__(self, store: Keeps, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: monotonic seconds."""
        self._store, self._clock = store, clock
        self._changed = threading.Condition()
        self._wanted: Mapping[str, Since] | None = None
        self._is_to_check = False
        self._closing = False
        self._storing_since: float | None = None
        self._problem = store.problem
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    @property
    def problem(self) -> str | None:
        """Why nothing is kept now, one sentence; None: what was asked for is stored, or soon will be."""
        since = self._storing_since
        if since is not None and self._clock() - since > HANGS_AFTER_S:
            return HANGS
        return self._problem

    def remember_conflicts(self, since: Mapping[str, Since]) -> None:
        """Have exactly these rows stored in place of those before. Never waits; only the newest call counts.

        A write that failed shows in `problem` and is not tried again by itself. Raises JournalError once closed.
        """
        with self._changed:
            if self._closing:
                raise JournalError("The journal is closed, the agent ends.")
            self._wanted = since
            self._changed.notify_all()

    def check(self) -> None:
        """Have it looked whether the folder is still ours, which then shows in `problem`. Never waits."""
        with self._changed:
            self._is_to_check = True
            self._changed.notify_all()

    def close(self, timeout_s: float) -> None:
        """Store what was asked for last and close the store, within timeout_s or not at all. Fine to repeat."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            LOG.warning("the journal is left as it is, its disk does not answer")

    def _run(self) -> None:
        try:
            while (step := self._next()) is not None:
                self._do(step)
            self._store.close()
        except Exception:
            LOG.exception("the journal's thread has ended")
            self._problem = ENDED

    def _next(self) -> Callable[[], None] | None:
        """Waits for what is to be done next; None: nothing more comes."""
        with self._changed:
            self._changed.wait_for(lambda: self._wanted is not None or self._is_to_check or self._closing)
            since, self._wanted = self._wanted, None
            is_to_check, self._is_to_check = self._is_to_check, False
        if since is not None:
            return partial(self._remember, since)
        return self._store.check if is_to_check and not self._closing else None

    def _do(self, step: Callable[[], None]) -> None:
        self._storing_since = self._clock()
        try:
            step()
        except JournalError as error:
            self._problem = str(error)
            if self._closing:  # no pass comes any more that would tell
                LOG.warning("%s", error)
        finally:
            self._storing_since = None

    def _remember(self, since: Mapping[str, Since]) -> None:
        self._store.remember_conflicts(since)
        self._problem = self._store.problem
