"""The journal's tables, version by version, and whether a file has them as they were written."""

from __future__ import annotations

import sqlite3
import zlib
from pathlib import Path

from agent.errors import JournalTooNew

_STEPS = (
    """
    CREATE TABLE identity (
        only_row INTEGER PRIMARY KEY CHECK (only_row = 1), agent_id TEXT NOT NULL, epoch INTEGER NOT NULL
    );
    CREATE TABLE conflict (id TEXT PRIMARY KEY, since TEXT NOT NULL) WITHOUT ROWID;
    """,
    "ALTER TABLE conflict ADD COLUMN owners TEXT NOT NULL DEFAULT '';",
    """
    CREATE TABLE record (
        kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (kind, key)
    );
    CREATE TABLE step (
        sequence INTEGER PRIMARY KEY, at TEXT NOT NULL, event TEXT NOT NULL, claim_id TEXT, instance TEXT,
        value TEXT NOT NULL, crc INTEGER NOT NULL
    );
    CREATE TABLE seal (
        only_row INTEGER PRIMARY KEY CHECK (only_row = 1), records INTEGER NOT NULL, crc_sum INTEGER NOT NULL,
        sequence INTEGER NOT NULL, damaged TEXT
    );
    INSERT INTO seal VALUES (1, 0, 0, 0, NULL);
    CREATE TRIGGER record_came AFTER INSERT ON record BEGIN
        UPDATE seal SET records = records + 1, crc_sum = crc_sum + NEW.crc;
    END;
    CREATE TRIGGER record_changed AFTER UPDATE ON record BEGIN
        UPDATE seal SET crc_sum = crc_sum + NEW.crc - OLD.crc;
    END;
    CREATE TRIGGER record_went AFTER DELETE ON record BEGIN
        UPDATE seal SET records = records - 1, crc_sum = crc_sum - OLD.crc;
    END;
    """,
)
"""What makes each version of the schema of the one before it; a new journal goes through all of them."""

SCHEMA_VERSION = len(_STEPS)
"""sqlite's user_version; a file with a higher one was written by a newer release."""

FIRST_WITH_RECORDS = 3

PUT_IDENTITY = "INSERT OR REPLACE INTO identity VALUES (1, ?, ?)"
PUT_DATE = "INSERT OR REPLACE INTO conflict VALUES (?, ?, ?)"
DROP_DATE = "DELETE FROM conflict WHERE id = ?"
PUT_RECORD = (
    "INSERT INTO record VALUES (?, ?, ?, ?)"
    " ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value, crc = excluded.crc"
)
DROP_RECORD = "DELETE FROM record WHERE kind = ? AND key = ?"
PUT_STEP = "INSERT OR REPLACE INTO step VALUES (?, ?, ?, ?, ?, ?, ?)"
DROP_STEPS = (
    "DELETE FROM step WHERE sequence IN (SELECT sequence FROM step ORDER BY sequence LIMIT ?)"
    " AND (at < ? OR sequence <= ?)"
)
PUT_SEQUENCE = "UPDATE seal SET sequence = max(sequence, ?)"
MARK_DAMAGED = "UPDATE seal SET damaged = ?"

_WRITES = (
    PUT_IDENTITY,
    PUT_DATE,
    DROP_DATE,
    PUT_RECORD,
    DROP_RECORD,
    PUT_STEP,
    DROP_STEPS,
    PUT_SEQUENCE,
    MARK_DAMAGED,
)
"""All that is ever written."""


def upgrade(database: sqlite3.Connection) -> None:
    """Make a journal of an empty database, or of one that an older release wrote. Raises sqlite3.Error."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    for number, step in enumerate(_STEPS[version:], version + 1):
        database.executescript(f"BEGIN IMMEDIATE; {step} PRAGMA user_version = {number}; COMMIT;")


def identity_row(database: sqlite3.Connection) -> tuple[str, int] | None:
    """Agent id and epoch of the last start; None: there was none. Raises sqlite3.Error."""
    row: tuple[str, int] | None = database.execute("SELECT agent_id, epoch FROM identity").fetchone()
    return row


def row_crc(*parts: str) -> int:
    """Of a row's columns; sqlite itself notices no page that is whole and yet not what was written."""
    return zlib.crc32(b"\0".join(part.encode() for part in parts))


def one_line(text: str) -> str:
    """What sqlite says has line feeds in it."""
    return " ".join(text.split())


def fault_of(database: sqlite3.Connection, file: Path) -> str | None:
    """What makes this no journal of ours; None: it is one. Raises sqlite3.Error, JournalTooNew for a newer schema."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise JournalTooNew(
            f"{file} was written by a newer compute-agent (schema {version}, this one knows {SCHEMA_VERSION}). "
            "Install that release again, or give this one another folder with --state-path."
        )
    found = [text for (text,) in database.execute("PRAGMA quick_check(1)")]
    if found != ["ok"]:
        return one_line("; ".join(found))
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if version == 0:
        return "it holds tables of something else" if tables else None
    if version < FIRST_WITH_RECORDS and "record" in tables:
        return f"it says that it is of schema {version}, and has tables of a later one"
    if version == SCHEMA_VERSION:
        for statement in _WRITES:  # a table may be sound, and its columns have other names
            database.execute(f"EXPLAIN {statement}", [0] * statement.count("?")).fetchall()
    return _fault_of_types(database, version) or (
        _fault_of_records(database) if version >= FIRST_WITH_RECORDS else None
    )


def _fault_of_types(database: sqlite3.Connection, version: int) -> str | None:
    """Whether the small tables hold what is asked for: sqlite takes any type, and any bytes, in any column."""
    asked: dict[str, tuple[type, ...]] = {
        "SELECT agent_id, epoch FROM identity": (str, int),
        "SELECT id, since FROM conflict": (str, str),
    }
    if version >= FIRST_WITH_RECORDS:
        asked["SELECT records, crc_sum, sequence, coalesce(damaged, '') FROM seal"] = (int, int, int, str)
    for select, types in asked.items():
        for row in database.execute(select):
            if tuple(map(type, row)) != types:
                return f"{select} finds {row!r}"
    return None


def _fault_of_records(database: sqlite3.Connection) -> str | None:
    """Whether each row is as written, and none is missing, left over or an older one. Raises sqlite3.Error."""
    count = total = 0
    rows = "SELECT CAST(kind AS BLOB), CAST(key AS BLOB), CAST(value AS BLOB), crc FROM record"
    for kind, key, value, crc in database.execute(rows):
        if zlib.crc32(b"\0".join((kind, key, value))) != crc:
            return f"row {kind.decode(errors='replace')} {key.decode(errors='replace')!r} is not as it was written"
        count, total = count + 1, total + crc
    seal = database.execute("SELECT records, crc_sum FROM seal").fetchone()
    if seal != (count, total):
        return f"rows are missing or of another time (count and sum of checksums: {(count, total)}, sealed: {seal})"
    return None
