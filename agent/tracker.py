"""The one owner of the snapshot: readers take a reference, every change is a function on the current one."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from agent.core.claim.book import Book, Change, Draft
from agent.core.claim.judge import judged
from agent.core.claim.values import ClaimRules, Moment, Record, Step
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
    rebased,
    take_in,
    with_book,
    with_sources,
)
from agent.errors import JournalError

OUTSIDE_TRIES = 3
"""How often a change is computed outside the lock before it is computed under it, so that it cannot starve."""

Answer = TypeVar("Answer")


class Writes(Protocol):
    """Has rows stored in the order of the calls; `agent.adapters.journal.Journal` is one."""

    def write(
        self,
        records: tuple[Record, ...],
        steps: tuple[Step, ...],
        *,
        is_taker: bool,
        on_done: Callable[[str | None], None],
        is_lazy: bool = False,
    ) -> None:
        """Never blocks. on_done: with None once they are on the disk, with a sentence when they are not. is_lazy: they
        may wait for others, since they may be lost in a crash."""
        ...


class Tracker:
    """since: when each conflict was first seen, and whose it was, by id, from the journal; it counts until the first
    complete look.
    moment: now, by every clock. journal: None: nothing is kept (a single look). book: as the journal had it. lock: for
    whoever measures how long it is held."""

    def __init__(
        self,
        *,
        identity: Identity,
        config: HostConfig,
        since: Mapping[str, Since],
        moment: Callable[[], Moment],
        journal: Writes | None = None,
        book: Book | None = None,
        rules: ClaimRules | None = None,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self._lock = threading.Lock() if lock is None else lock
        self._snapshot = first(identity, config, book=book or Book(), rules=rules or ClaimRules())
        self._stored_since = dict(since)
        self._moment, self._journal = moment, journal
        self._judged_at_s: float | None = None

    @property
    def snapshot(self) -> Snapshot:
        """The current picture; immutable, so no lock is held while it is read."""
        return self._snapshot

    def moment(self) -> Moment:
        """Now."""
        return self._moment()

    def take_in(self, found: Findings) -> Snapshot:
        """Apply what a pass found, and to the claims what that shows."""
        start = self._snapshot
        looked = take_in(start, found)
        now = self._moment()
        since_last_s = None if self._judged_at_s is None else now.monotonic_s - self._judged_at_s
        self._judged_at_s = now.monotonic_s

        def next_on(base: Snapshot) -> tuple[Snapshot, Change]:
            made, change = judged(rebased(looked, start, base, found), now, since_last_s)
            return self._dated(base, made), change

        for _ in range(OUTSIDE_TRIES):
            base = self._snapshot
            made, change = next_on(base)
            with self._lock:
                if self._snapshot is base:
                    return self._seen(made, change)
        with self._lock:
            return self._seen(*next_on(self._snapshot))

    def transact(
        self,
        make: Callable[[Snapshot, Draft], Answer],
        *,
        on_done: Callable[[str | None], None] | None = None,
    ) -> Answer:
        """Change the claims under the lock and queue what the journal needs for it, in the same order.

        make: quick; what it raises is raised here, and then nothing has changed. on_done: as of `Writes`; not called
        when nothing was to be written.
        """
        with self._lock:
            base = self._snapshot
            draft = Draft(base.book, self._moment(), base.rules)
            answer = make(base, draft)
            change = draft.done()
            if change.book is not base.book:
                made = with_book(base, change.book, change.touched)
                self._keep(self._dated(base, made), change, on_done)
        return answer

    def configure(self, config: HostConfig, rules: ClaimRules | None = None) -> Snapshot:
        """Apply a reloaded configuration."""
        return self._change(lambda current: configured(current, config, rules))

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

    def _seen(self, made: Snapshot, change: Change) -> Snapshot:
        with contextlib.suppress(JournalError):  # closed: this pass has outlived a stop that did not wait for it
            return self._keep(made, change)
        return self._swap_in(made)

    def _keep(self, made: Snapshot, change: Change, on_done: Callable[[str | None], None] | None = None) -> Snapshot:
        if self._journal is not None and (change.records or change.steps):
            self._journal.write(
                change.records,
                change.steps,
                is_taker=change.takes,
                is_lazy=change.is_lazy,
                on_done=on_done or _ignore,
            )
        return self._swap_in(made)

    def _swap_in(self, made: Snapshot) -> Snapshot:
        self._snapshot = made
        if made.complete:  # a stored date of what did not show by now is of the past
            self._stored_since = {}
        return made

    def _dated(self, base: Snapshot, made: Snapshot) -> Snapshot:
        if made.conflicts is base.conflicts:
            return made
        return dated(made, self._stored_since | dates(base.conflicts), self._moment().wall)


def _ignore(_problem: str | None) -> None:
    """What is not stored shows in the journal's own problem."""
