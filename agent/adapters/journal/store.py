"""An open journal: who this agent is, since when each conflict stands, what was promised (sqlite)."""

from __future__ import annotations

import contextlib
import gc
import logging
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import time
from typing import NamedTuple

from agent.adapters.journal.files import (
    FILE,
    LAST_GOOD_FILE,
    RESERVE_BYTES,
    Damaged,
    give_reserve,
    open_sound,
    primary_code,
    read_from,
    says_damage,
    take_reserve,
    write_copy,
)
from agent.adapters.journal.last_good import LastGood
from agent.adapters.journal.lock import StateLock
from agent.adapters.journal.mark import Mark
from agent.adapters.journal.place import Place
from agent.adapters.journal.schema import (
    DROP_DATE,
    DROP_RECORD,
    DROP_STEPS,
    MARK_DAMAGED,
    PUT_DATE,
    PUT_IDENTITY,
    PUT_RECORD,
    PUT_SEQUENCE,
    PUT_STEP,
    identity_row,
    one_line,
    row_crc,
)
from agent.adapters.journal.wholeness import Wholeness
from agent.core.claim.values import Record
from agent.core.conflicts import Since
from agent.core.snapshot import Identity
from agent.errors import JournalError, JournalTooNew, WireError
from agent.formats.journal_rows import Row, StepRow, from_row
from agent.formats.wall_time import rfc3339

LOG = logging.getLogger(__name__)

STEPS_KEPT, STEPS_KEPT_S = 100_000, 7 * 86400.0
"""History is at most so long, and so old; the oldest go with the writes that add to it."""

_ALWAYS_TOO = 10
"""Old steps that go with a write beyond twice those that it adds, so that a history that is too long gets shorter."""


class Stored(NamedTuple):
    """What a journal had when it was opened. records: in the order in which they were first stored. sequence: of the
    newest step. damaged: one sentence, when a copy or a new journal took the place of a damaged one, so that claims may
    be missing; it stays, over restarts, until `accept_damage`."""

    records: tuple[Record, ...]
    sequence: int
    damaged: str | None


class Store:
    """One open journal; whoever has it calls from one thread at a time.

    A method that writes has written durably when it returns; when it raises JournalError, with the cause (disk full,
    read-only, ...), nothing of it is stored and what was stored before is intact.
    """

    def __init__(
        self,
        database: sqlite3.Connection,
        folder: Path | None,
        problem: str | None,
        lock: StateLock | None,
        wall: Callable[[], float],
    ) -> None:
        """For `open` and `unstored`. Raises OSError when the database is gone already."""
        self.problem = problem
        """Why nothing is kept on the disk, one sentence; None: all is."""
        self._database = database
        self._folder = folder
        self._lock = lock
        self._place = None if folder is None else Place(folder / FILE)
        self._since: dict[str, Since] | None = None
        self._wall = wall
        self._is_closed = self._is_begun = False
        self._is_log_doubtful = False
        self._damage: str | None = None
        self._whole = None if folder is None else Wholeness(folder / FILE)
        self._last_good = None if folder is None else LastGood(folder, self._check_place, self._note_damage)
        self._mark = None if folder is None else Mark(folder)

    @classmethod
    def open(cls, state_path: Path, wall: Callable[[], float] = time, *, lock: StateLock | None = None) -> Store:
        """Open or make the journal of this folder. wall: seconds since 1970, for names and ages.

        lock: of the folder; looked after together with the database, see `check`.

        A damaged file is moved aside and kept; the last good copy takes its place, else a new one; the log tells.
        Raises JournalError when the folder cannot be used, JournalTooNew when a newer release wrote the file.
        """
        file = state_path / FILE
        with _told(f"open {file}"):
            state_path.mkdir(mode=0o750, parents=True, exist_ok=True)
            database, repaired = open_sound(file, wall())
            if repaired is not None:
                LOG.error("journal %s", repaired)
            store = cls(database, state_path, None, lock, wall)
            try:
                store._find_missing()
            except sqlite3.Error:
                database.close()
                store._end_looking()
                raise
            return store

    @classmethod
    def unstored(
        cls, state_path: Path, why: str, wall: Callable[[], float] = time, *, lock: StateLock | None = None
    ) -> Store:
        """A journal of this run alone, for a disk that takes no writes (`why`): it begins with what can be read there.

        Its epoch may come again after a restart; `problem` says that nothing is kept. Raises JournalTooNew.
        """
        database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        read_from(state_path, database)
        problem = f"{why} Nothing is kept until it is restarted on a disk that takes writes."
        return cls(database, None, problem, lock, wall)

    def begin(self, boot_id: str) -> Identity:
        """Count a start: the same agent_id for ever, an epoch that no earlier start had. Raises JournalError."""
        with self._told("store that the agent started"), self._transaction() as write:
            agent_id, epoch = identity_row(write) or (str(uuid.uuid4()), 0)
            write.execute(PUT_IDENTITY, (agent_id, epoch + 1))
        self._is_begun = True
        try:
            self._save_copy()
        except JournalError as error:
            LOG.warning("journal has no fresh copy: %s", error)  # the start itself is stored
        return Identity(agent_id=agent_id, boot_id=boot_id, epoch=epoch + 1)

    def conflict_since(self) -> dict[str, Since]:
        """Since when each conflict stands, and of whom, by its id. Raises JournalError."""
        with self._told("read since when conflicts stand"):
            return dict(self._stored_since())

    def check(self) -> None:
        """Raises JournalError when lock or database are no longer what is at their paths, or when the database is
        damaged, which it stays. Writes nothing."""
        self._check_place()
        if self._whole is not None:
            with self._told("be looked after"):
                fault = self._whole.fault()
            if fault is not None:
                self._note_damage(fault)
                self._check_place()

    def _check_place(self) -> None:
        """The same without a look at the database. From any thread."""
        if self._lock is not None:
            self._lock.check()
        if self._place is not None:
            self._place.check()
        if self._damage is not None:
            raise JournalError(self._damage)

    def _note_damage(self, what: str) -> None:
        """Nothing is written any more until a restart has made it sound. From any thread."""
        if self._damage is None and self._folder is not None:
            self._damage = (
                f"The journal {self._folder / FILE} was damaged under the agent ({one_line(what)}): nothing is kept and"
                " nothing new is promised. To go on from what is sound of it, or from its last good copy, restart"
                " compute-agent."
            )
            LOG.error("%s", self._damage)

    def remember_conflicts(self, since: Mapping[str, Since]) -> None:
        """Store exactly these rows in place of those before; the same rows again cost no write. Raises JournalError."""
        self.check()
        with self._told("store since when conflicts stand"):
            before = self._stored_since()
            gone = [(row,) for row in before.keys() - since.keys()]
            new = [(row, its.at, " ".join(its.owners)) for row, its in since.items() - before.items()]
            if gone or new:
                with self._transaction() as write:
                    write.executemany(DROP_DATE, gone)
                    write.executemany(PUT_DATE, sorted(new))
                self._since = dict(since)

    # --- what was promised ---------------------------------------------------------------------

    def load(self) -> Stored:
        """All that is kept of promises.

        Raises JournalError; JournalTooNew, naming row and field, for a row that is as it was written and that this
        release does not understand.
        """
        with self._told("read what was promised"):
            rows = self._database.execute("SELECT kind, key, value FROM record ORDER BY rowid").fetchall()
            (damaged,) = self._database.execute("SELECT damaged FROM seal").fetchone()
            sequence = self._newest_step()
        try:
            with _no_garbage():
                return Stored(tuple(from_row(*row) for row in rows), sequence, damaged)
        except WireError as error:
            raise JournalTooNew(
                f"The journal was written by a compute-agent that knows more: {error}. Install that release again, or "
                "give this one another folder with --state-path."
            ) from error

    def write(self, rows: Sequence[Row], steps: Sequence[StepRow]) -> None:
        """Store all of these or none. rows: a text of None deletes. steps: are added. Raises JournalError."""
        self.check()
        gone = [(row.kind, row.key) for row in rows if row.text is None]
        new = [(kind, key, text, row_crc(kind, key, text)) for kind, key, text in rows if text is not None]
        with self._told("store what was promised"), self._transaction() as write:
            write.executemany(DROP_RECORD, gone)
            write.executemany(PUT_RECORD, new)
            self._add_steps(write, steps)
        if self._mark is not None and steps:
            self._mark.put(max(step.sequence for step in steps))
        if self._last_good is not None:
            self._last_good.wrote(sum(len(row.text or "") for row in rows))

    def check_room(self) -> None:
        """Raises JournalError while the room that is set aside for what frees is in use, or cannot be set aside."""
        if self._folder is None:
            return
        self.check()
        with self._told("set room aside"):
            is_set_aside = take_reserve(self._folder)
        if not is_set_aside:
            raise JournalError(
                f"The disk of {self._folder} is full, what room there is is for what frees: nothing new is promised. "
                f"Make room there, {2 * RESERVE_BYTES >> 10} KiB at least; the agent goes on."
            )

    def make_room(self) -> None:
        """Let go of the room that is set aside, and fold the log into the file, so that it begins anew.

        Raises JournalError.
        """
        self.check()
        with self._told("make room"):
            if self._folder is not None:
                give_reserve(self._folder)
            self._fold_log()

    def accept_damage(self) -> None:
        """Whoever runs the host knows that claims may be missing; `Stored.damaged` is None from now on.

        Raises JournalError.
        """
        self.check()
        with self._told("store that its damage was accepted"), self._transaction() as write:
            write.execute(MARK_DAMAGED, (None,))

    def upkeep(self) -> float | None:
        """Have the log folded in and the last good copy made, beside, when that is due. Never waits.

        Seconds until this is to be called again; None: only once something was written.
        """
        return None if self._last_good is None else self._last_good.upkeep()

    def _newest_step(self) -> int:
        """Its number."""
        newest: int
        (newest,) = self._database.execute(
            "SELECT max(sequence) FROM (SELECT sequence FROM seal UNION ALL SELECT max(sequence) FROM step)"
        ).fetchone()
        return newest

    def _find_missing(self) -> None:
        """Mark the journal as damaged where it lacks steps that were stored: sqlite itself takes a log that was cut
        short for a whole one. Raises sqlite3.Error."""
        if self._mark is None or self._folder is None:
            return
        marked, newest = self._mark.read(), self._newest_step()
        if newest >= marked:
            return
        sentence = (
            f"{self._folder / FILE} ends with step {newest}, and step {marked} had been stored: its log was cut short, "
            "or an older file took its place."
        )
        LOG.error("journal %s", sentence)
        with self._transaction() as write:
            write.execute("UPDATE seal SET damaged = coalesce(damaged, ?)", (sentence,))
            write.execute(PUT_SEQUENCE, (marked,))

    def _add_steps(self, write: sqlite3.Connection, steps: Sequence[StepRow]) -> None:
        # Also without steps: a write that changes no page would not show whether the disk takes any.
        newest = max((step.sequence for step in steps), default=0)
        write.execute(PUT_SEQUENCE, (newest,))
        write.executemany(PUT_STEP, [(*step, row_crc(step.text)) for step in steps])
        if steps:
            oldest, before = 2 * len(steps) + _ALWAYS_TOO, rfc3339(self._wall() - STEPS_KEPT_S)
            write.execute(DROP_STEPS, (oldest, before, newest - STEPS_KEPT))

    # --- its end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Close, after a last good copy where the folder is ours and the disk allows one. Fine to repeat."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._last_good is not None:
            self._last_good.end()
        try:
            self._save_copy()
        except JournalError as error:
            LOG.warning("journal closed without a copy: %s", error)
        # where the database is not at its path any more, sqlite too leaves the log beside it alone (HAS_MOVED)
        self._database.close()
        self._end_looking()
        if self._mark is not None:
            self._mark.close()

    def _end_looking(self) -> None:
        if self._whole is not None:
            self._whole.close()

    def _save_copy(self) -> None:
        """Fold the write-ahead log into the file and make the last good copy anew. Raises JournalError."""
        if self._folder is None:
            return
        self.check()  # by its path the copy may be another agent's
        with self._told(f"write {self._folder / LAST_GOOD_FILE}"):
            self._fold_log()
            write_copy(self._database, self._folder / LAST_GOOD_FILE, is_begun=self._is_begun)

    def _stored_since(self) -> dict[str, Since]:
        if self._since is None:
            rows = self._database.execute("SELECT id, since, owners FROM conflict")
            self._since = {row: Since(at=at, owners=tuple(owners.split())) for row, at, owners in rows}
        return self._since

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if self._is_log_doubtful:
            self._begin_log_anew()
        if self._database.in_transaction:  # the disk did not even take that the one before was rolled back
            self._database.execute("ROLLBACK")
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield self._database
            self._database.execute("COMMIT")
            if self._whole is not None:
                self._whole.log_grew()
        except sqlite3.Error as error:
            self._is_log_doubtful = self._is_log_doubtful or primary_code(error) == sqlite3.SQLITE_IOERR
            # after a full disk sqlite may have rolled back on its own
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    def _begin_log_anew(self) -> None:
        """Write nothing more over blocks whose write has failed. Raises sqlite3.Error.

        ext4 may leave such a block marked as never written, also when a later fsync of it has succeeded: after a power
        cut it is zeros, and the log ends there.
        """
        if self._fold_log():
            raise sqlite3.OperationalError("after an I/O error its log has to begin anew, and somebody else reads it")
        self._is_log_doubtful = False

    def _fold_log(self) -> bool:
        """Whether the log could not begin anew, since somebody reads it. Raises sqlite3.Error."""
        if self._whole is not None:
            self._whole.log_begins_anew()
        (is_busy, _, _) = self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return bool(is_busy)

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """`_told`, and what shows damage is remembered."""
        try:
            with _told(what):
                yield
        except JournalError as error:
            cause = error.__cause__
            if isinstance(error, Damaged) or (isinstance(cause, sqlite3.Error) and says_damage(cause)):
                self._note_damage(str(cause or error))
                raise JournalError(self._damage) from error
            raise


@contextlib.contextmanager
def _no_garbage() -> Iterator[None]:
    """Nothing but values comes to be: looking for cycles among them again and again is a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """Make a JournalError of what sqlite or the kernel says about our disk."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except (sqlite3.Error, OSError) as error:
        raise JournalError(
            f"The journal cannot {what}: {error}. Check space, permissions and mount options of the state folder; "
            "the agent goes on."
        ) from error
