"""What outlives the daemon: who this agent is, how often it started, since when each conflict stands (sqlite)."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import logging
import os
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from time import time

from agent.core.snapshot import Identity
from agent.errors import JournalError, JournalTooNew, TwinRunning

LOG = logging.getLogger(__name__)

FILE = "journal.sqlite"
LAST_GOOD_FILE = "journal.last-good.sqlite"
LOCK_FILE = "agent.lock"

SCHEMA_VERSION = 1
"""sqlite's user_version; a file with a higher one was written by a newer release."""

_SCHEMA = f"""
    BEGIN IMMEDIATE;
    CREATE TABLE identity (
        only_row INTEGER PRIMARY KEY CHECK (only_row = 1), agent_id TEXT NOT NULL, epoch INTEGER NOT NULL
    );
    CREATE TABLE conflict (id TEXT PRIMARY KEY, since TEXT NOT NULL) WITHOUT ROWID;
    PRAGMA user_version = {SCHEMA_VERSION};
    COMMIT;
"""
STARTS_TO_SKIP = 100
"""A restored copy may be older than the last starts; no epoch may come twice."""

_FRESH = "a new one was begun: the agent has a new id, and conflicts count from now"
_NOT_DAMAGE = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
}
"""Primary result codes that speak of the disk or of another process, not of what is in the file."""


class StateLock:
    """Held as long as this process may use the state folder."""

    def __init__(self, state_path: Path) -> None:
        """Take the lock, making the folder when it is missing.

        Raises TwinRunning, with the other's process id, when another process has it; JournalError when the folder
        cannot be made or opened.
        """
        self._file: int | None = _open_lock_file(state_path)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:  # what flock(2) says of a lock that somebody has
            other = os.pread(self._file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            self.release()
            raise TwinRunning(
                f"Another compute-agent (process {other}) uses the state folder {state_path}. "
                "Stop it, or give this one another folder with --state-path."
            ) from error
        except OSError as error:
            self.release()
            raise JournalError(
                f"The state folder {state_path} knows no locks: {error.strerror}. Use a local disk."
            ) from error
        # the number is for people only: a full or read-only disk must not keep the daemon from starting
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Give it up. Fine to repeat; the kernel does it too when the process ends."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Journal:
    """One open journal. Any thread may call; calls are served one after another.

    A method that writes has written durably when it returns; when it raises JournalError, with the cause (disk full,
    read-only, ...), nothing of it is stored and what was stored before is intact.
    """

    def __init__(self, database: sqlite3.Connection, folder: Path | None, problem: str | None) -> None:
        """For `open` and `unstored`."""
        self.problem = problem
        """What was wrong with the file and what became of it, one sentence; None: nothing. For the source report."""
        self._database = database
        self._folder = folder
        self._lock = threading.Lock()
        self._since: dict[str, str] | None = None

    @classmethod
    def open(cls, state_path: Path, wall: Callable[[], float] = time) -> Journal:
        """Open or make the journal of this folder. wall: seconds since 1970, names what is moved aside.

        A damaged file is moved aside and kept; the last good copy takes its place, else a new one (see `problem`).
        Raises JournalError when the folder cannot be used, JournalTooNew when a newer release wrote the file.
        """
        file = state_path / FILE
        with _told(f"open {file}"):
            state_path.mkdir(mode=0o750, parents=True, exist_ok=True)
            problem = _repair(file, wall())
            if problem:
                LOG.error("journal %s", problem)
            return cls(_connect(file), state_path, problem)

    @classmethod
    def unstored(cls, state_path: Path, why: str) -> Journal:
        """A journal of this run alone, for a disk that takes no writes (`why`): it begins with what can be read there.

        Its epoch may come again after a restart; `problem` says that nothing is kept.
        """
        database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        if not any(_taken_over(state_path / name, database) for name in (FILE, LAST_GOOD_FILE)):
            database.executescript(_SCHEMA)
        return cls(database, None, f"{why} Nothing is kept until it is restarted on a disk that takes writes.")

    def begin(self, boot_id: str) -> Identity:
        """Count a start: the same agent_id for ever, an epoch that no earlier start had. Raises JournalError."""
        with self._lock, _told("store that the agent started"), self._transaction() as write:
            agent_id, epoch = _identity_row(write) or (str(uuid.uuid4()), 0)
            write.execute("INSERT OR REPLACE INTO identity VALUES (1, ?, ?)", (agent_id, epoch + 1))
        try:
            self.save_copy()
        except JournalError as error:
            LOG.warning("journal has no fresh copy: %s", error)  # the start itself is stored
        return Identity(agent_id=agent_id, boot_id=boot_id, epoch=epoch + 1)

    def last_identity(self, boot_id: str) -> Identity | None:
        """The identity that the last `begin` stored, with this boot; None when there was none. Raises JournalError."""
        with self._lock, _told("read who this agent is"):
            row = _identity_row(self._database)
        return row and Identity(agent_id=row[0], boot_id=boot_id, epoch=row[1])

    def conflict_since(self) -> dict[str, str]:
        """Since when each conflict stands: conflict id -> RFC 3339 text. Raises JournalError."""
        with self._lock, _told("read since when conflicts stand"):
            return dict(self._stored_since())

    def remember_conflicts(self, since: Mapping[str, str]) -> None:
        """Store exactly these rows in place of those before; the same rows again cost no write. Raises JournalError."""
        with self._lock, _told("store since when conflicts stand"):
            before = self._stored_since()
            gone = [(row,) for row in before.keys() - since.keys()]
            new = since.items() - before.items()
            if gone or new:
                with self._transaction() as write:
                    write.executemany("DELETE FROM conflict WHERE id = ?", gone)
                    write.executemany("INSERT OR REPLACE INTO conflict VALUES (?, ?)", sorted(new))
                self._since = dict(since)

    def save_copy(self) -> None:
        """Fold the write-ahead log into the file and make the last good copy anew. Raises JournalError."""
        if self._folder is None:
            return
        with self._lock, _told(f"write {self._folder / LAST_GOOD_FILE}"):
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            _copy(self._database, self._folder / LAST_GOOD_FILE)

    def close(self) -> None:
        """Close, after a last good copy where the disk allows one. Fine to repeat."""
        try:
            self.save_copy()
        except JournalError as error:
            LOG.warning("journal closed without a copy: %s", error)
        except sqlite3.ProgrammingError:
            return  # closed before
        with self._lock:
            self._database.close()

    def _stored_since(self) -> dict[str, str]:
        if self._since is None:
            self._since = dict(self._database.execute("SELECT id, since FROM conflict").fetchall())
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


def _identity_row(database: sqlite3.Connection) -> tuple[str, int] | None:
    row: tuple[str, int] | None = database.execute("SELECT agent_id, epoch FROM identity").fetchone()
    return row


def _open_lock_file(state_path: Path) -> int:
    path = state_path / LOCK_FILE
    try:
        state_path.mkdir(mode=0o750, parents=True, exist_ok=True)
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # read-only by now, but ours before
    except OSError as error:
        raise JournalError(
            f"The state folder {state_path} cannot be used: {error.strerror}. Make it writable for the daemon's user, "
            "or give another one with --state-path."
        ) from error


def _taken_over(file: Path, database: sqlite3.Connection) -> bool:
    """Fill an empty database from a file that is only read; False when it holds no journal of ours."""
    try:
        # immutable: no lock and no log beside it, which a read-only folder does not take
        with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?immutable=1", uri=True)) as stored:
            (version,) = stored.execute("PRAGMA user_version").fetchone()
            if version != SCHEMA_VERSION or _identity_row(stored) is None:
                return False
            stored.backup(database)
            return True
    except sqlite3.Error:
        return False


def _connect(file: Path) -> sqlite3.Connection:
    """Open a sound journal, or make one where none is. Raises sqlite3.Error."""
    database = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=1.0)
    try:
        database.execute("PRAGMA journal_mode=WAL").fetchall()
        database.execute("PRAGMA synchronous=FULL").fetchall()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version == 0:
            database.executescript(_SCHEMA)
        return database
    except sqlite3.Error:
        database.close()
        raise


def _repair(file: Path, now: float) -> str | None:
    """Leave a sound journal, or none, at `file`. What was wrong and what became of it; None: nothing was.

    Raises sqlite3.Error, OSError when the disk is at fault, JournalTooNew for a newer schema.
    """
    copy = file.with_name(LAST_GOOD_FILE)
    if not file.exists() or file.stat().st_size == 0:
        # sqlite would take it for a new database without a word, and throw the log beside it away
        _move_aside(file, now)
        return f"{file} was missing or empty; {_restore(copy, file)}." if copy.exists() else None
    damage = _damage(file)
    if damage is None:
        return None
    return f"{file} was damaged ({damage}) and is kept as {_move_aside(file, now)}; {_restore(copy, file)}."


def _damage(file: Path) -> str | None:
    """What makes this no journal of ours. Opened read-only: an ordinary connection removes the log of what it rejects.

    Raises sqlite3.Error when the disk is at fault, JournalTooNew for a newer schema.
    """
    try:
        with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            _check_version(file, version)
            found = [text for (text,) in database.execute("PRAGMA quick_check(1)")]
            if found != ["ok"]:
                return "; ".join(found)
            if version == 0 and database.execute("SELECT name FROM sqlite_master").fetchone():
                return "it holds tables of something else"
            if version:
                _identity_row(database)
    except sqlite3.DatabaseError as error:
        # extended result codes carry the primary one in their lowest byte
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF in _NOT_DAMAGE:
            raise
        return str(error)
    return None


def _check_version(file: Path, version: int) -> None:
    if version > SCHEMA_VERSION:
        raise JournalTooNew(
            f"{file} was written by a newer compute-agent (schema {version}, this one knows {SCHEMA_VERSION}). "
            "Install that release again, or give this one another folder with --state-path."
        )


def _move_aside(file: Path, now: float) -> Path:
    """Rename the database with what belongs to it; the new name of the database itself."""
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    names = (
        f"{file}.damaged-{stamp}{number}" for number in itertools.chain([""], (f"-{n}" for n in itertools.count(1)))
    )
    base = next(name for name in names if not any(map(os.path.exists, _parts(name))))
    for part, kept in zip(_parts(str(file)), _parts(base), strict=True):
        with contextlib.suppress(FileNotFoundError):
            Path(part).rename(kept)
    _sync_folder(file.parent)
    return Path(base)


def _parts(database: str) -> tuple[str, str, str]:
    return database, f"{database}-wal", f"{database}-shm"


def _restore(copy: Path, file: Path) -> str:
    """Put the last good copy in place if it is sound; says what the journal starts from."""
    if not copy.exists():
        return _FRESH
    written = datetime.fromtimestamp(copy.stat().st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    damage = _damage(copy)
    if damage is not None:
        return f"its copy of {written} cannot be read either ({damage}), so {_FRESH}"
    with contextlib.closing(_connect(copy)) as sound:
        sound.execute("UPDATE identity SET epoch = epoch + ?", (STARTS_TO_SKIP,))
        _copy(sound, file)
    return f"its copy of {written} took its place"


def _copy(database: sqlite3.Connection, target: Path) -> None:
    """A complete copy, on the disk before it takes its name."""
    unfinished = target.with_name(f"{target.name}.new")
    unfinished.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(unfinished)) as copy:
        database.backup(copy)
    with unfinished.open("rb") as written:
        os.fsync(written.fileno())
    unfinished.rename(target)
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
