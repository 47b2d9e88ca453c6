"""The journal's files: a sound database in its place, whatever was found there, and its last good copy."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from agent.adapters.journal.schema import MARK_DAMAGED, SCHEMA_VERSION, fault_of, identity_row, one_line, upgrade
from agent.errors import JournalError
from agent.formats.wall_time import rfc3339

FILE = "journal.sqlite"
LAST_GOOD_FILE = "journal.last-good.sqlite"
RESTORED_FILE = "journal.restored.sqlite"
"""What is about to take the place of a damaged journal; a repair that was cut short goes on from it."""

STARTS_TO_SKIP = 100
"""A restored copy may be older than the last starts; no epoch may come twice."""

MOST_LOG_PAGES = 8000
"""A log this long (32 MiB) is folded in by the very write that makes it so; `LastGood` does it long before, beside."""

RESERVE_FILE = "journal.reserve"
RESERVE_BYTES = 256 << 10
"""Of a file that only takes room: on a full disk it makes way for what frees, and nobody takes until it is back."""

_FRESH = "a new one was begun: the agent has a new id, conflicts count from now, and no claim is known"
MAGIC, _HEADER_BYTES, _FORMATS_AT = b"SQLite format 3\0", 100, (18, 19)
"""Of sqlite's file format: how it begins, and where the versions for writing and for reading are."""

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


def connect(file: Path) -> sqlite3.Connection:
    """Open a sound journal, or make one where none is. Raises sqlite3.Error."""
    database = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=1.0)
    try:
        database.execute("PRAGMA journal_mode=WAL").fetchall()
        database.execute("PRAGMA synchronous=FULL").fetchall()
        database.execute(f"PRAGMA wal_autocheckpoint={MOST_LOG_PAGES}").fetchall()
        upgrade(database)
        return database
    except sqlite3.Error:
        database.close()
        raise


def take_reserve(folder: Path) -> bool:
    """Whether room is set aside; done now where it is not and there is twice as much. Raises OSError otherwise."""
    file = folder / RESERVE_FILE
    if file.exists():
        return True
    if shutil.disk_usage(folder).free < 2 * RESERVE_BYTES:
        return False
    try:
        with file.open("wb") as reserve:
            os.posix_fallocate(reserve.fileno(), 0, RESERVE_BYTES)
    except OSError as error:
        file.unlink(missing_ok=True)
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return False
        raise
    return True


def give_reserve(folder: Path) -> None:
    """Let go of the room that was set aside. Raises OSError."""
    (folder / RESERVE_FILE).unlink(missing_ok=True)


# --- where the disk takes no writes ---------------------------------------------------------------


def read_from(state_path: Path, database: sqlite3.Connection) -> None:
    """Fill an empty database with what can be read in a folder that takes no writes; what cannot be is marked there.

    Raises JournalTooNew.
    """
    file, copy = state_path / FILE, state_path / LAST_GOOD_FILE
    if _taken_over(file, database):
        return
    is_from_copy = _taken_over(copy, database)
    upgrade(database)
    if file.exists() or copy.exists():
        start = f"its copy of {_written(copy)} is used" if is_from_copy else _FRESH
        mark_damaged(database, f"{file} cannot be read; {start}.")


def _taken_over(file: Path, database: sqlite3.Connection) -> bool:
    """Fill an empty database from a file that is only read; False when it holds no sound journal of ours."""
    try:
        with contextlib.ExitStack() as undo:
            # immutable: no lock and no log beside it, which a read-only folder does not take
            readable = undo.enter_context(_with_its_log(file))
            stored = sqlite3.connect(f"{readable.absolute().as_uri()}?immutable=1", uri=True)
            undo.callback(stored.close)
            if fault_of(stored, file) is not None or identity_row(stored) is None:
                return False
            stored.backup(database)
        upgrade(database)
        return True
    except (sqlite3.Error, OSError, UnicodeDecodeError):  # the last as in `_damage`
        return False


@contextlib.contextmanager
def _with_its_log(file: Path) -> Iterator[Path]:
    """The file itself, or where a log lies beside it a copy elsewhere into which that is folded.

    After a crash the log holds the newest claims. Raises OSError, sqlite3.Error.
    """
    log = Path(f"{file}-wal")
    if not log.exists() or log.stat().st_size == 0:
        yield file
        return
    with tempfile.TemporaryDirectory(prefix="compute-agent-", dir=_memory_folder()) as folder:
        copy = Path(folder) / FILE
        for found, name in ((file, copy), (log, Path(f"{copy}-wal"))):
            shutil.copyfile(found, name)
        with contextlib.closing(sqlite3.connect(copy)) as folded:
            folded.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        yield copy


def _memory_folder() -> str | None:
    """Where files take no disk; None: wherever temporary files go."""
    folder = "/dev/shm"  # noqa: S108  # the folder made in it is ours alone
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


# --- damage ---------------------------------------------------------------------------------------


def open_sound(file: Path, now: float) -> tuple[sqlite3.Connection, str | None]:
    """The journal at `file`, made sound before where it was not: what was wrong with it and what became of it.

    Raises as `repair`.
    """
    with contextlib.suppress(OSError):
        if shutil.disk_usage(file.parent).free < RESERVE_BYTES:
            give_reserve(file.parent)  # a start needs room too
    repaired = repair(file, now)
    try:
        return connect(file), repaired
    except sqlite3.DatabaseError as error:  # a schema that only he who writes looks at closely
        if _is_of_the_disk(error):
            raise
        repaired = _damaged(file, now, one_line(str(error)))
    return connect(file), repaired


def repair(file: Path, now: float) -> str | None:
    """Leave a sound journal, or none, at `file`. What was wrong and what became of it; None: nothing was.

    The same sentence is in the journal that takes the place, from the moment it does (`mark_damaged`).
    Raises sqlite3.Error, OSError when the disk is at fault, JournalTooNew for a newer schema.
    """
    restored = file.with_name(RESTORED_FILE)
    if not file.exists() and restored.exists():
        return _put_in_place(restored, file, _free_name(file, now))
    restored.unlink(missing_ok=True)
    copy = file.with_name(LAST_GOOD_FILE)
    if not file.exists() or file.stat().st_size <= 1:
        # sqlite would take it for a new database without a word, and throw the log beside it away; also one of a single
        # byte, which it once wrote into empty ones itself
        if not copy.exists() and not _has_log(file):
            return None
        return _replace(file, _free_name(file, now), copy, lambda start, _: f"{file} was missing or empty; {start}.")
    damage = _damage(file)
    return None if damage is None else _damaged(file, now, damage)


def _damaged(file: Path, now: float, damage: str) -> str:
    return _replace(
        file,
        _free_name(file, now),
        file.with_name(LAST_GOOD_FILE),
        lambda start, aside: f"{file} was damaged ({damage}) and is kept as {aside}; {start}.",
    )


def _is_of_the_disk(error: sqlite3.Error) -> bool:
    """Not of what is in the file."""
    return primary_code(error) in _NOT_DAMAGE


def says_damage(error: sqlite3.Error) -> bool:
    """Whether sqlite itself says that what is in the file cannot be."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def primary_code(error: sqlite3.Error) -> int:
    """Of sqlite's result; extended ones carry it in their lowest byte. What Python itself says is of damage."""
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)) & 0xFF


def mark_damaged(database: sqlite3.Connection, sentence: str) -> None:
    """Keep in the journal that it took the place of a damaged one. Raises sqlite3.Error."""
    database.execute(MARK_DAMAGED, (sentence,))


def _replace(file: Path, aside: Path, copy: Path, say: Callable[[str, Path], str]) -> str:
    """Put the last good copy, or a new journal, in the place of a damaged one. say: what became of it."""
    restored = file.with_name(RESTORED_FILE)
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        sentence = say(_begin_with(copy, database), aside)
        database.execute("UPDATE identity SET epoch = epoch + ?", (STARTS_TO_SKIP,))
        mark_damaged(database, sentence)
        write_copy(database, restored)
    _put_in_place(restored, file, aside)
    return sentence


def _put_in_place(restored: Path, file: Path, aside: Path) -> str:
    """Rename both, the damaged one first, so that at no instant it can be taken for a sound one without its log."""
    for part, kept in zip(_parts(str(file)), _parts(str(aside)), strict=True):
        with contextlib.suppress(FileNotFoundError):
            Path(part).rename(kept)
    sync_folder(file.parent)
    restored.rename(file)
    sync_folder(file.parent)
    with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
        (sentence,) = database.execute("SELECT damaged FROM seal").fetchone()
    return str(sentence)


def _begin_with(copy: Path, database: sqlite3.Connection) -> str:
    """Fill an empty database from the copy if that is sound; says what the journal starts from."""
    start = _FRESH
    if copy.exists():
        damage = _damage(copy)
        if damage is None:
            with contextlib.closing(sqlite3.connect(f"{copy.absolute().as_uri()}?mode=ro", uri=True)) as sound:
                sound.backup(database)
            start = f"its copy of {_written(copy)} took its place"
        else:
            start = f"its copy of {_written(copy)} cannot be read either ({damage}), so {_FRESH}"
    upgrade(database)
    return start


def _damage(file: Path) -> str | None:
    """What makes this no journal of ours. Opened read-only: an ordinary connection removes the log of what it rejects.

    Raises sqlite3.Error when the disk is at fault, JournalTooNew for a newer schema.
    """
    with file.open("rb") as stored:
        header = stored.read(_HEADER_BYTES)
    if header.startswith(MAGIC) and not {header[at] for at in _FORMATS_AT if at < len(header)} <= {1, 2}:
        return "its format is none that sqlite writes"  # sqlite would read it, and call the disk read-only
    try:
        return _fault(file)
    except UnicodeDecodeError:  # Python on sqlite's own message, which quotes what it has found
        return "its schema is no text"
    except sqlite3.DatabaseError as error:
        if _is_of_the_disk(error):
            raise
        return one_line(str(error))


def _fault(file: Path) -> str | None:
    """`fault_of`. Raises sqlite3.Error."""
    try:
        with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            return fault_of(database, file)
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_READONLY_ROLLBACK:
            raise
    # a power cut came while the file was made, before it had a log: only who may write may undo what that began
    with contextlib.closing(sqlite3.connect(file)) as database:
        return fault_of(database, file)


def _has_log(file: Path) -> bool:
    log = Path(f"{file}-wal")
    return log.exists() and log.stat().st_size > 0


def _free_name(file: Path, now: float) -> Path:
    """Under which the database and what belongs to it can be kept."""
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    names = (
        f"{file}.damaged-{stamp}{number}" for number in itertools.chain([""], (f"-{n}" for n in itertools.count(1)))
    )
    return Path(next(name for name in names if not any(map(os.path.exists, _parts(name)))))


def _parts(database: str) -> tuple[str, str, str, str]:
    return database, f"{database}-wal", f"{database}-shm", f"{database}-journal"


def _written(file: Path) -> str:
    return rfc3339(file.stat().st_mtime)


# --- copies ---------------------------------------------------------------------------------------


class Damaged(JournalError):
    """An open journal is not sound any more; the text says what was found."""


def write_copy(database: sqlite3.Connection, target: Path, *, is_begun: bool = False) -> None:
    """A complete copy, sound and on the disk before it takes its name. is_begun: by an agent that has an id.

    Raises sqlite3.Error, OSError; Damaged when what is to be copied is not sound.
    """
    unfinished = target.with_name(f"{target.name}.new")
    unfinished.unlink(missing_ok=True)
    try:
        with contextlib.closing(sqlite3.connect(unfinished)) as copy:
            database.backup(copy)
        with unfinished.open("rb") as written:
            os.fsync(written.fileno())
        _refuse_unsound(database, unfinished, is_begun=is_begun)
    except (sqlite3.Error, OSError, Damaged):
        with contextlib.suppress(OSError):  # a full disk has better use for its room
            unfinished.unlink()
        raise
    unfinished.rename(target)
    sync_folder(target.parent)


def _refuse_unsound(database: sqlite3.Connection, copy: Path, *, is_begun: bool) -> None:
    """Sqlite copies page by page, whatever is in them. Raises Damaged, or sqlite3.Error where only the copy is bad."""
    with contextlib.closing(sqlite3.connect(f"{copy.absolute().as_uri()}?immutable=1", uri=True)) as written:
        fault = _unsound(written, copy, is_begun=is_begun)
    if fault is None:
        return
    fault = _unsound(database, copy, is_begun=is_begun)
    if fault is not None:
        raise Damaged(fault)
    raise sqlite3.DatabaseError(f"the copy {copy} is not what was copied")


def _unsound(database: sqlite3.Connection, file: Path, *, is_begun: bool) -> str | None:
    try:
        fault = fault_of(database, file)
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if fault is None and version != SCHEMA_VERSION:
            return "its tables are gone"
        return fault or ("it does not say whose it is" if is_begun and identity_row(database) is None else None)
    except sqlite3.DatabaseError as error:
        if not says_damage(error):
            raise
        return one_line(str(error))


def sync_folder(folder: Path) -> None:
    """Make names in it durable. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
