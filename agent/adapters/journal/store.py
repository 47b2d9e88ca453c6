"""The journal's tables: who this agent is, how often it started, since when each conflict stands (sqlite)."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import time

from agent.adapters.journal.files import (
    FILE,
    LAST_GOOD_FILE,
    connect,
    identity_row,
    repair,
    taken_over,
    upgrade,
    write_copy,
)
from agent.adapters.journal.lock import StateLock
from agent.adapters.journal.place import Place
from agent.core.conflicts import Since
from agent.core.snapshot import Identity
from agent.errors import JournalError

LOG = logging.getLogger(__name__)


class Store:
    """One open journal; whoever has it calls from one thread at a time.

    A method that writes has written durably when it returns; when it raises JournalError, with the cause (disk full,
    read-only, ...), nothing of it is stored and what was stored before is intact.
    """

    def __init__(
        self, database: sqlite3.Connection, folder: Path | None, problem: str | None, lock: StateLock | None
    ) -> None:
        """For `open` and `unstored`. Raises OSError when the database is gone already."""
        self.problem = problem
        """Why nothing is kept on the disk, one sentence; None: all is."""
        self._database = database
        self._folder = folder
        self._lock = lock
        self._place = None if folder is None else Place(folder / FILE)
        self._since: dict[str, Since] | None = None

    @classmethod
    def open(cls, state_path: Path, wall: Callable[[], float] = time, *, lock: StateLock | None = None) -> Store:
        """Open or make the journal of this folder. wall: seconds since 1970, names what is moved aside.

        lock: of the folder; looked after together with the database, see `check`.

        A damaged file is moved aside and kept; the last good copy takes its place, else a new one; the log tells.
        Raises JournalError when the folder cannot be used, JournalTooNew when a newer release wrote the file.
        """
        file = state_path / FILE
        with _told(f"open {file}"):
            state_path.mkdir(mode=0o750, parents=True, exist_ok=True)
            repaired = repair(file, wall())
            if repaired is not None:
                LOG.error("journal %s", repaired)
            return cls(connect(file), state_path, None, lock)

    @classmethod
    def unstored(cls, state_path: Path, why: str, *, lock: StateLock | None = None) -> Store:
        """A journal of this run alone, for a disk that takes no writes (`why`): it begins with what can be read there.

        Its epoch may come again after a restart; `problem` says that nothing is kept.
        """
        database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        if not any(taken_over(state_path / name, database) for name in (FILE, LAST_GOOD_FILE)):
            upgrade(database)
        problem = f"{why} Nothing is kept until it is restarted on a disk that takes writes."
        return cls(database, None, problem, lock)

    def begin(self, boot_id: str) -> Identity:
        """Count a start: the same agent_id for ever, an epoch that no earlier start had. Raises JournalError."""
        with _told("store that the agent started"), self._transaction() as write:
            agent_id, epoch = identity_row(write) or (str(uuid.uuid4()), 0)
            write.execute("INSERT OR REPLACE INTO identity VALUES (1, ?, ?)", (agent_id, epoch + 1))
        try:
            self._save_copy()
        except JournalError as error:
            LOG.warning("journal has no fresh copy: %s", error)  # the start itself is stored
        return Identity(agent_id=agent_id, boot_id=boot_id, epoch=epoch + 1)

    def conflict_since(self) -> dict[str, Since]:
        """Since when each conflict stands, and of whom, by its id. Raises JournalError."""
        with _told("read since when conflicts stand"):
            return dict(self._stored_since())

    def check(self) -> None:
        """Raises JournalError when lock or database are no longer what is at their paths. Writes nothing."""
        if self._lock is not None:
            self._lock.check()
        if self._place is not None:
            self._place.check()

    def remember_conflicts(self, since: Mapping[str, Since]) -> None:
        """Store exactly these rows in place of those before; the same rows again cost no write. Raises JournalError."""
        self.check()
        with _told("store since when conflicts stand"):
            before = self._stored_since()
            gone = [(row,) for row in before.keys() - since.keys()]
            new = [(row, its.at, " ".join(its.owners)) for row, its in since.items() - before.items()]
            if gone or new:
                with self._transaction() as write:
                    write.executemany("DELETE FROM conflict WHERE id = ?", gone)
                    write.executemany("INSERT OR REPLACE INTO conflict VALUES (?, ?, ?)", sorted(new))
                self._since = dict(since)

    def close(self) -> None:
        """Close, after a last good copy where the folder is ours and the disk allows one."""
        try:
            self._save_copy()
        except JournalError as error:
            LOG.warning("journal closed without a copy: %s", error)
        # where the database is not at its path any more, sqlite too leaves the log beside it alone (HAS_MOVED)
        self._database.close()

    def _save_copy(self) -> None:
        """Fold the write-ahead log into the file and make the last good copy anew. Raises JournalError."""
        if self._folder is None:
            return
        self.check()  # by its path the copy may be another agent's
        with _told(f"write {self._folder / LAST_GOOD_FILE}"):
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            write_copy(self._database, self._folder / LAST_GOOD_FILE)

    def _stored_since(self) -> dict[str, Since]:
        if self._since is None:
            rows = self._database.execute("SELECT id, since, owners FROM conflict")
            self._since = {row: Since(at=at, owners=tuple(owners.split())) for row, at, owners in rows}
        return self._since

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield self._database
            self._database.execute("COMMIT")
        except sqlite3.Error:
            # after a full disk sqlite may have rolled back on its own
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise


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
