"""The one owner of the snapshot: readers take a reference, every change is a function on the current one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from agent.core.conflicts import Since, dates
from agent.core.host_config import HostConfig
from agent.core.snapshot import (
    Findings,
    Identity,
    Snapshot,
    SourceState,
    configured,
    dated,
    first,
    take_in,
    with_sources,
)

OUTSIDE_TRIES = 3
"""How often a change is computed outside the lock before it is computed under it, so that it cannot starve."""


class Tracker:
    """since: when each conflict was first seen, and whose it was, by id, from the journal; it counts until the first
    complete look.
    now: wall time as RFC 3339 text."""

    def __init__(
        self, *, identity: Identity, config: HostConfig, since: Mapping[str, Since], now: Callable[[], str]
    ) -> None:
        self._lock = threading.Lock()
        self._snapshot = first(identity, config)
        self._stored_since = dict(since)
        self._now = now

    @property
    def snapshot(self) -> Snapshot:
        """The current picture; immutable, so no lock is held while it is read."""
        return self._snapshot

    def take_in(self, found: Findings) -> Snapshot:
        """Apply what a pass found."""
        return self._change(lambda current: take_in(current, found))

    def configure(self, config: HostConfig) -> Snapshot:
        """Apply a reloaded configuration."""
        return self._change(lambda current: configured(current, config))

    def report_source(self, state: SourceState) -> Snapshot:
        """Renew the state of one source."""
        return self._change(lambda current: with_sources(current, state))

    def _change(self, change: Callable[[Snapshot], Snapshot]) -> Snapshot:
        # Folding 500 guests takes 10 ms: it is done outside the lock, on a base that is verified before the swap.
        for _ in range(OUTSIDE_TRIES):
            base = self._snapshot
            made = self._dated(base, change(base))
            with self._lock:
                if self._snapshot is base:
                    return self._swap_in(made)
        with self._lock:
            return self._swap_in(self._dated(self._snapshot, change(self._snapshot)))

    def _swap_in(self, made: Snapshot) -> Snapshot:
        self._snapshot = made
        if made.complete:  # a stored date of what did not show by now is of the past
            self._stored_since = {}
        return made

    def _dated(self, base: Snapshot, made: Snapshot) -> Snapshot:
        if made.conflicts is base.conflicts:
            return made
        return dated(made, self._stored_since | dates(base.conflicts), self._now())
