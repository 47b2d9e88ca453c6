"""A journal of one run alone, where the disk takes no writes."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from agent.adapters.journal import FILE, LAST_GOOD_FILE, SCHEMA_VERSION, Store
from agent.core.conflicts import Since
from agent.errors import JournalTooNew

SINCE = {"cpu-pinned-twice:cpu:3": Since(at="2026-11-30T12:00:00Z", owners=("uuid-a", "uuid-b"))}
LATER = {"other": Since(at="2026-11-30T13:00:00Z")}


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A folder with a journal of two starts and a conflict."""
    for _ in range(2):
        journal = Store.open(tmp_path)
        journal.begin("b")
        journal.remember_conflicts(SINCE)
        journal.close()
    return tmp_path


def agent_id(folder: Path) -> str:
    """As stored."""
    with contextlib.closing(sqlite3.connect(f"file:{folder / FILE}?mode=ro", uri=True)) as database:
        (found,) = database.execute("SELECT agent_id FROM identity").fetchone()
    return str(found)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_it_goes_on_from_what_can_be_read_and_writes_nothing(kept: Path) -> None:
    last = agent_id(kept)
    before = content(kept)
    journal = Store.unstored(kept, "The disk is full.")
    identity = journal.begin("b")
    assert (identity.agent_id, identity.epoch) == (last, 3)
    assert journal.conflict_since() == SINCE
    journal.remember_conflicts(LATER)
    assert journal.conflict_since() == LATER
    assert journal.problem == "The disk is full. Nothing is kept until it is restarted on a disk that takes writes."
    journal.close()
    assert content(kept) == before


@pytest.mark.parametrize("spoil", ["noise", "gone"])
def test_it_begins_with_the_last_good_copy_when_the_journal_cannot_be_read(kept: Path, spoil: str) -> None:
    if spoil == "gone":
        (kept / FILE).unlink()
    else:
        (kept / FILE).write_bytes(b"no database" * 1000)
    journal = Store.unstored(kept, "x")
    assert (journal.begin("b").epoch, journal.conflict_since()) == (3, SINCE)
    journal.close()


def test_without_anything_to_read_it_is_a_new_agent(tmp_path: Path) -> None:
    (tmp_path / LAST_GOOD_FILE).write_bytes(b"")
    journal = Store.unstored(tmp_path / "missing", "x")
    assert (journal.begin("b").epoch, journal.conflict_since()) == (1, {})
    journal.close()


def test_a_journal_of_a_newer_release_is_told_apart_from_a_bad_disk(kept: Path) -> None:
    database = sqlite3.connect(kept / FILE)
    database.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    database.close()
    with pytest.raises(JournalTooNew, match="Install that release again"):
        Store.open(kept)
