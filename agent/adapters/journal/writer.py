"""The journal's own thread: whatever the disk does, nobody else waits for it."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from agent.adapters.journal.backlog import Backlog, OnDone, Rows, Write, rows_of
from agent.core.claim.values import Record, Step
from agent.core.conflicts import Since
from agent.errors import JournalError, WireError
from agent.formats.journal_rows import Row, StepRow

LOG = logging.getLogger(__name__)

HANGS_AFTER_S = 10.0
"""A write that takes longer is told of: the disk, or the network it is on, hangs."""

LAZY_S = 5.0
"""So long a write that may wait for another does wait."""

RETRY_S = 5.0
"""So long after a write that failed the next one is tried, be it only to see whether the disk takes any."""

HANGS = (
    "The disk of the state folder does not answer, so claims wait and dates of conflicts are not kept: see the kernel's"
    " log; passes go on without it."
)
ENDED = (
    "The journal's thread has ended of a fault of ours (see the log), so no claim is taken and dates are not kept:"
    " restart compute-agent."
)


class Keeps(Protocol):
    """Stores durably before it returns; `Store` is one, and tells what is raised."""

    @property
    def problem(self) -> str | None:
        """Why nothing is kept; None: all is."""
        ...

    def write(self, rows: Sequence[Row], steps: Sequence[StepRow]) -> None:
        """Store all of these or none."""
        ...

    def check_room(self) -> None:
        """Raises JournalError where there is no room for more than what frees."""
        ...

    def make_room(self) -> None:
        """Have room for what frees, though there is none."""
        ...

    def remember_conflicts(self, since: Mapping[str, Since]) -> None:
        """Store exactly these rows."""
        ...

    def accept_damage(self) -> None:
        """Forget that a damaged journal was replaced."""
        ...

    def check(self) -> None:
        """Raises JournalError when what it stores in has been taken away."""
        ...

    def upkeep(self) -> float | None:
        """Begin what is due; seconds until it is to be called again."""
        ...

    def close(self) -> None:
        """No more comes."""
        ...


class _Turn(NamedTuple):
    """What the thread does next, in this order."""

    writes: tuple[Write, ...]
    accepted: tuple[OnDone, ...]
    since: Mapping[str, Since] | None
    is_to_check: bool


class Journal:
    """Has what is to outlive the daemon stored by a thread of its own, which owns the store from now on.

    All writes that wait go into one transaction, in the order of the calls.
    """

    def __init__(self, store: Keeps, clock: Callable[[], float] = time.monotonic, *, lazy_s: float = LAZY_S) -> None:
        """clock: monotonic seconds. lazy_s: so long a write that may wait for another does wait."""
        self._store, self._clock, self._lazy_s = store, clock, lazy_s
        self._changed = threading.Condition()
        self._queue: list[Write] = []
        self._accepted: list[OnDone] = []
        self._wanted: Mapping[str, Since] | None = None
        self._is_to_check = False
        self._closing = False
        self._lazy_at: float | None = None
        self._retry_at: float | None = None
        self._upkeep_at: float | None = None
        self._storing_since: float | None = None
        self._problem = store.problem
        self._write_problem: str | None = None
        self._room_problem: str | None = None
        self._owed = Backlog()
        self._untold: deque[OnDone] = deque()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    @property
    def problem(self) -> str | None:
        """Why nothing is kept now, one sentence; None: what was asked for is stored, or soon will be."""
        since = self._storing_since
        if since is not None and self._clock() - since > HANGS_AFTER_S:
            return HANGS
        return self._write_problem or self._room_problem or self._problem

    # --- for every thread ----------------------------------------------------------------------

    def write(
        self,
        records: tuple[Record, ...],
        steps: tuple[Step, ...],
        *,
        is_taker: bool,
        on_done: OnDone,
        is_lazy: bool = False,
    ) -> None:
        """Have a change of the books stored: rows replaced, or deleted where they have no value, and steps added.

        Never waits, whatever the disk does. on_done is called once, on the journal's thread, after the disk has it and
        in the order of the calls: with None, or with one sentence when it could not be stored. A taker is dropped then,
        and its caller queues, not as a taker, what undoes it: that is on the disk no later than whatever comes after.
        Of any other the rows are kept and are in the next transaction that succeeds, unless a newer row of the same
        kind and key takes their place; those of a dropped taker never do. is_lazy: it may wait LAZY_S for another
        write. Raises JournalError once closed.
        """
        with self._open():
            self._queue.append(Write(records, steps, is_taker, is_lazy, on_done))
            if is_lazy:
                self._lazy_at = self._lazy_at or self._clock() + self._lazy_s

    def accept_damage(self, on_done: OnDone) -> None:
        """Have it stored that claims may be missing and that this is known (`Store.accept_damage`).

        Never waits; on_done as with `write`. Not tried again when it fails. Raises JournalError once closed.
        """
        with self._open():
            self._accepted.append(on_done)

    def remember_conflicts(self, since: Mapping[str, Since]) -> None:
        """Have exactly these rows stored in place of those before. Never waits; only the newest call counts.

        A write that failed shows in `problem` and is not tried again by itself. Raises JournalError once closed.
        """
        with self._open():
            self._wanted = since

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

    @contextlib.contextmanager
    def _open(self) -> Iterator[None]:
        """Change what is asked for. Raises JournalError once closed, but to those who are told by our own thread."""
        with self._changed:
            if self._closing and threading.current_thread() is not self._thread:
                raise JournalError("The journal is closed, the agent ends.")
            yield
            self._changed.notify_all()

    # --- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (turn := self._next()) is not None:
                self._do(turn)
            self._end()
        except Exception:
            LOG.exception("the journal's thread has ended")
            self._problem = self._write_problem = ENDED
            self._refuse()

    def _end(self) -> None:
        if self._owed:
            self._write(())
        if self._owed:
            LOG.warning("what has been freed is not stored: %s", self._write_problem)
        self._store.close()

    def _refuse(self) -> None:
        """Whoever waits for the disk must not wait for ever."""
        self._retry_at = self._upkeep_at = None
        while True:
            while self._untold:
                self._tell(ENDED)
            if self._next() is None:
                return

    def _next(self) -> _Turn | None:
        """Waits for what is to be done next; None: closed, and nothing is left to be done."""
        with self._changed:
            while not self._is_up():
                self._changed.wait(self._wait_s())
            if self._closing and not (self._queue or self._accepted or self._wanted is not None):
                return None
            turn = _Turn(
                tuple(self._queue), tuple(self._accepted), self._wanted, self._is_to_check and not self._closing
            )
            self._queue, self._accepted, self._wanted, self._is_to_check = [], [], None, False
            self._lazy_at = None
        self._untold.extend([*(write.on_done for write in turn.writes), *turn.accepted])
        return turn

    def _is_up(self) -> bool:
        return (
            self._closing
            or self._is_to_check
            or self._wanted is not None
            or bool(self._accepted)
            or any(not write.is_lazy for write in self._queue)
            or self._wait_s() == 0
        )

    def _wait_s(self) -> float | None:
        """Until something is due by the clock; None: nothing will be."""
        due = [at for at in (self._lazy_at, self._retry_at, self._upkeep_at) if at is not None]
        return max(0.0, min(due) - self._clock()) if due else None

    def _do(self, turn: _Turn) -> None:
        is_retry_due = self._retry_at is not None and self._retry_at <= self._clock()
        if turn.writes or is_retry_due:
            self._write(turn.writes)
        for _ in turn.accepted:
            self._tell(self._told(self._store.accept_damage))
        if turn.since is not None:
            self._remember(turn.since)
        elif turn.is_to_check:
            self._problem = self._told(self._store.check) or self._problem
        wait_s = self._store.upkeep()
        self._upkeep_at = None if wait_s is None else self._clock() + wait_s

    def _remember(self, since: Mapping[str, Since]) -> None:
        error = self._told(partial(self._store.remember_conflicts, since))
        self._problem = error or self._store.problem
        if error is not None and self._closing:  # no pass comes any more that would tell
            LOG.warning("%s", error)

    def _told(self, act: Callable[[], None]) -> str | None:
        """What went wrong; None: nothing. `problem` sees how long it takes."""
        self._storing_since = self._clock()
        try:
            act()
        except JournalError as error:
            return str(error)
        finally:
            self._storing_since = None
        return None

    def _tell(self, outcome: str | None) -> None:
        """The next of those who wait for an answer."""
        on_done = self._untold.popleft()
        try:
            on_done(outcome)
        except Exception:  # a fault of one who asked must not cost the others their answer
            LOG.exception("whoever asked the journal for a write has failed on its answer")

    # --- changes of the books ------------------------------------------------------------------

    def _write(self, writes: Sequence[Write]) -> None:
        """Commit these with what is owed, and tell each; without any, to see whether the disk takes what is owed."""
        asked = [_Asked(write, *_rows_or_fault(write)) for write in writes]
        sound = [one for one in asked if one.rows is not None]
        error = self._why_no_taker(sound) or self._commit(Backlog(self._owed.all(), *_rows(sound)))
        freed_error = error
        if error is None:
            self._owed.clear()
        else:
            for rows in _rows(one for one in sound if not one.write.is_taker):
                self._owed.add(rows)
            freed_error = self._write_owed(error, is_less=any(one.write.is_taker for one in sound))
        for write, _, fault in asked:
            self._tell(fault or (error if write.is_taker else freed_error) or self._store.problem)

    def _why_no_taker(self, asked: Iterable[_Asked]) -> str | None:
        """Why nobody may take now, where one of them does; `problem` has it as long as it is so."""
        self._room_problem = self._told(self._store.check_room)
        if self._room_problem is not None:
            self._retry_at = self._clock() + RETRY_S
        return (self._store.problem or self._room_problem) if any(one.write.is_taker for one in asked) else None

    def _write_owed(self, before: str, *, is_less: bool) -> str | None:
        """What only frees may have room where takers had none. before: why the last try failed, of which this is less
        or all."""
        if not self._owed:
            return None
        error: str | None = before
        if is_less:
            error = self._commit(self._owed)
        if error is not None and self._told(self._store.make_room) is None:
            error = self._commit(self._owed)
        if error is None:
            self._owed.clear()
        return error

    def _commit(self, backlog: Backlog) -> str | None:
        rows, steps = backlog.all()
        error = self._told(partial(self._store.write, rows, steps))
        self._write_problem = error
        is_well = error is None and self._room_problem is None
        self._retry_at = None if is_well else self._clock() + RETRY_S
        return error


class _Asked(NamedTuple):
    """rows: None: it cannot be written, as fault says."""

    write: Write
    rows: Rows | None
    fault: str | None


def _rows_or_fault(write: Write) -> tuple[Rows | None, str | None]:
    try:
        return rows_of(write), None
    except WireError as error:
        LOG.error("not stored: %s", error)
        return None, f"It cannot be stored: {error}."


def _rows(asked: Iterable[_Asked]) -> Iterator[Rows]:
    return (one.rows for one in asked if one.rows is not None)
