"""The journal's files: a sound database in its place, whatever was found there, and its last good copy."""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

from agent.errors import JournalTooNew
from agent.formats.wall_time import rfc3339

FILE = "journal.sqlite"
LAST_GOOD_FILE = "journal.last-good.sqlite"

_STEPS = (
    """
    CREATE TABLE identity (
        only_row INTEGER PRIMARY KEY CHECK (only_row = 1), agent_id TEXT NOT NULL, epoch INTEGER NOT NULL
    );
    CREATE TABLE conflict (id TEXT PRIMARY KEY, since TEXT NOT NULL) WITHOUT ROWID;
    """,
    "ALTER TABLE conflict ADD COLUMN owners TEXT NOT NULL DEFAULT '';",
)
"""What makes each version of the schema of the one before it; a new journal goes through all of them."""

SCHEMA_VERSION = len(_STEPS)
"""sqlite's user_version; a file with a higher one was written by a newer release."""

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


def identity_row(database: sqlite3.Connection) -> tuple[str, int] | None:
    """Agent id and epoch of the last start; None: there was none. Raises sqlite3.Error."""
    row: tuple[str, int] | None = database.execute("SELECT agent_id, epoch FROM identity").fetchone()
    return row


def taken_over(file: Path, database: sqlite3.Connection) -> bool:
    """Fill an empty database from a file that is only read; False when it holds no journal of ours."""
    try:
        # immutable: no lock and no log beside it, which a read-only folder does not take
        with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?immutable=1", uri=True)) as stored:
            (version,) = stored.execute("PRAGMA user_version").fetchone()
            if not 0 < version <= SCHEMA_VERSION or identity_row(stored) is None:
                return False
            stored.backup(database)
        upgrade(database)
        return True
    except sqlite3.Error:
        return False


def upgrade(database: sqlite3.Connection) -> None:
    """Make a journal of an empty database, or of one that an older release wrote. Raises sqlite3.Error."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    for number, step in enumerate(_STEPS[version:], version + 1):
        database.executescript(f"BEGIN IMMEDIATE; {step} PRAGMA user_version = {number}; COMMIT;")


def connect(file: Path) -> sqlite3.Connection:
    """Open a sound journal, or make one where none is. Raises sqlite3.Error."""
    database = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=1.0)
    try:
        database.execute("PRAGMA journal_mode=WAL").fetchall()
        database.execute("PRAGMA synchronous=FULL").fetchall()
        upgrade(database)
        return database
    except sqlite3.Error:
        database.close()
        raise


def repair(file: Path, now: float) -> str | None:
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
                identity_row(database)
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
    written = rfc3339(copy.stat().st_mtime)
    damage = _damage(copy)
    if damage is not None:
        return f"its copy of {written} cannot be read either ({damage}), so {_FRESH}"
    with contextlib.closing(connect(copy)) as sound:
        sound.execute("UPDATE identity SET epoch = epoch + ?", (STARTS_TO_SKIP,))
        write_copy(sound, file)
    return f"its copy of {written} took its place"


def write_copy(database: sqlite3.Connection, target: Path) -> None:
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
