"""Journals that earlier releases have left are taken over; one of a later release is refused.

tests/data/journals has a file of every older schema, made by the release that wrote it: one closed well, and one that a
killed agent has left with its log.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from agent.adapters.journal import FILE, LAST_GOOD_FILE, SCHEMA_VERSION, Store, Stored
from agent.core.conflicts import Since
from agent.errors import JournalError, JournalTooNew
from agent.formats.journal_rows import Row, to_row
from tests.builders_journal import claim_of, record_of

FILES = Path(__file__).parents[1] / "data" / "journals"
OLDER = range(1, SCHEMA_VERSION)
AGENTS = {1: "7b469ef5-5946-4a39-a042-5b53ba745fad", 2: "92b4439b-a62f-42a3-b52a-796fc6d7c654"}
OWNERS = {
    1: (),
    2: ("00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b"),
}
"""The first schema had no owners of a date."""


def dates(version: int, *seconds: int) -> dict[str, Since]:
    """What the agent of that time had stored."""
    ids = {1: "cpu-pinned-twice:cpu:3", 2: "device-twice:pci:0000:3b:00.1", 3: "memory-over-commit:cell:0"}
    return {ids[at]: Since(at=f"2026-11-30T12:00:0{at}Z", owners=OWNERS[version]) for at in seconds}


def left_by(version: int, folder: Path, *, killed: bool = False) -> None:
    """Put into a folder what an agent of that schema has left there."""
    stem = f"schema-{version}-killed.sqlite" if killed else f"schema-{version}.sqlite"
    for ending in ("", "-wal") if killed else ("",):
        shutil.copy(FILES / f"{stem}{ending}", folder / f"{FILE}{ending}")


def test_there_is_a_file_of_every_older_schema() -> None:
    assert {path.name for path in FILES.iterdir()} == {
        f"schema-{version}{how}" for version in OLDER for how in (".sqlite", "-killed.sqlite", "-killed.sqlite-wal")
    }
    for version in OLDER:
        with contextlib.closing(sqlite3.connect(f"file:{FILES}/schema-{version}.sqlite?immutable=1", uri=True)) as old:
            assert old.execute("PRAGMA user_version").fetchone() == (version,)


@pytest.mark.parametrize("version", OLDER)
def test_a_journal_of_an_older_release_keeps_its_id_its_count_and_its_dates(version: int, tmp_path: Path) -> None:
    left_by(version, tmp_path)
    journal = Store.open(tmp_path)
    identity = journal.begin("b")
    assert (identity.agent_id, identity.epoch) == (AGENTS[version], 4)
    assert journal.conflict_since() == dates(version, 1, 2)
    assert journal.load() == Stored((), 0, None)
    journal.close()


@pytest.mark.parametrize("version", OLDER)
def test_what_a_killed_agent_of_an_older_release_left_in_its_log_is_taken_over_too(
    version: int, tmp_path: Path
) -> None:
    left_by(version, tmp_path, killed=True)
    journal = Store.open(tmp_path)
    assert (journal.begin("b").epoch, journal.conflict_since()) == (5, dates(version, 1, 3))
    journal.close()


@pytest.mark.parametrize("version", OLDER)
def test_a_journal_that_was_taken_over_keeps_promises_and_is_read_again(version: int, tmp_path: Path) -> None:
    left_by(version, tmp_path)
    record = record_of(claim_of(1))
    journal = Store.open(tmp_path)
    journal.write([to_row(record)], [])
    journal.close()
    again = Store.open(tmp_path)
    assert (again.load().records, again.conflict_since()) == ((record,), dates(version, 1, 2))
    again.close()


@pytest.mark.parametrize("version", OLDER)
def test_a_copy_of_an_older_release_takes_the_place_of_a_lost_journal(version: int, tmp_path: Path) -> None:
    left_by(version, tmp_path)
    (tmp_path / FILE).rename(tmp_path / LAST_GOOD_FILE)
    journal = Store.open(tmp_path)
    assert (journal.begin("b").agent_id, journal.conflict_since()) == (AGENTS[version], dates(version, 1, 2))
    assert str(journal.load().damaged).startswith(f"{tmp_path / FILE} was missing or empty; its copy of ")
    journal.close()


@pytest.mark.parametrize("version", OLDER)
@pytest.mark.parametrize("killed", [False, True])
def test_a_journal_of_an_older_release_is_read_on_a_disk_that_takes_no_writes(
    version: int, killed: bool, tmp_path: Path
) -> None:
    left_by(version, tmp_path, killed=killed)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    journal = Store.unstored(tmp_path, "The disk is read-only.")
    assert journal.begin("b").agent_id == AGENTS[version]
    assert journal.conflict_since() == dates(version, 1, 3 if killed else 2)
    assert journal.load() == Stored((), 0, None)
    journal.close()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_journal_of_a_newer_release_is_refused_and_left_alone(tmp_path: Path) -> None:
    Store.open(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE) as database:
        database.execute("PRAGMA user_version = 9")
    database.close()
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(JournalError, match=rf"written by a newer compute-agent \(schema 9, .* knows {SCHEMA_VERSION}"):
        Store.open(tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (Row("lease", "l-1", "{}"), "journal row 'l-1': 'lease' is no kind of row that is known"),
        (
            Row("maintenance", "host", '{"reason":"x","since":"y","until":"z"}'),
            "journal row maintenance 'host': .*until",
        ),
    ],
)
def test_a_row_that_a_release_of_the_same_schema_does_not_know_is_named_and_left_alone(
    row: Row, told: str, tmp_path: Path
) -> None:
    journal = Store.open(tmp_path)
    journal.write([row], [])
    with pytest.raises(JournalTooNew, match=f"{told}.* Install that release again"):
        journal.load()
    journal.close()
    assert list(tmp_path.glob("*.damaged-*")) == []
