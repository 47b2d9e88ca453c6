"""Promises in the store: read back as written, in order, with their history; damage is told until it is accepted."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.adapters.journal import FILE, LAST_GOOD_FILE, Store, read_steps
from agent.adapters.journal.store import STEPS_KEPT
from agent.core.claim.values import BuildFailure, Maintenance, Membership, Record
from agent.errors import JournalError
from agent.formats.journal_rows import to_row, to_step_row
from tests.builders_journal import claim_of, gone, record_of, step_of

DAY_S = 86400.0
NOON = 1796040000.0
"""2026-11-30T12:00:00Z."""

CLAIMS = tuple(record_of(claim_of(number)) for number in (3, 1, 2))
OTHERS = (
    Record(kind="maintenance", key="host", value=Maintenance(reason="a disk is changed", since="2026-11-30T12:00:00Z")),
    Record(
        kind="membership",
        key="uuid-1 group-1",
        value=Membership(group="group-1", instance="uuid-1", generation=4, last_here_at_s=NOON),
    ),
    Record(
        kind="build_failure",
        key="claim-9",
        value=BuildFailure(claim_id="claim-9", instance="uuid-9", at="2026-11-30T12:00:00Z", at_s=NOON, reason="gone"),
    ),
)


def write(store: Store, *records: Record, steps: range = range(0)) -> None:
    store.write([to_row(record) for record in records], [to_step_row(step_of(number)) for number in steps])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store.open(tmp_path, wall=lambda: NOON)
    made.begin("b")
    yield made
    made.close()


def reopened(folder: Path) -> Store:
    """What another start of the agent finds."""
    return Store.open(folder, wall=lambda: NOON)


def test_a_new_journal_has_promised_nothing(store: Store) -> None:
    assert store.load() == ((), 0, None)


def test_rows_come_back_in_the_order_in_which_they_were_first_stored(store: Store, tmp_path: Path) -> None:
    write(store, *CLAIMS, steps=range(1, 4))
    write(store, *OTHERS)
    changed = record_of(claim_of(3, state="overdue"))
    write(store, changed, gone(claim_of(1)), steps=range(4, 6))
    store.close()
    assert reopened(tmp_path).load() == ((changed, CLAIMS[2], *OTHERS), 5, None)


def test_the_number_of_the_last_step_stays_when_all_its_rows_are_gone(store: Store, tmp_path: Path) -> None:
    write(store, CLAIMS[0], steps=range(70, 71))
    write(store, gone(claim_of(3)))
    store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as database, database:
        database.execute("DELETE FROM step")
    assert reopened(tmp_path).load() == ((), 70, None)


def test_steps_are_read_beside_an_agent_that_writes(store: Store, tmp_path: Path) -> None:
    write(store, steps=range(1, 6))
    assert read_steps(tmp_path) == tuple(step_of(number) for number in range(1, 6))
    write(store, steps=range(6, 8))
    assert read_steps(tmp_path, after=5) == (step_of(6), step_of(7))


def test_a_step_that_is_not_as_it_was_written_is_refused_by_its_number(store: Store, tmp_path: Path) -> None:
    write(store, steps=range(1, 4))
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as database, database:
        database.execute("UPDATE step SET value = replace(value, 'admitted', 'released') WHERE sequence = 2")
    with pytest.raises(JournalError, match="step 2 is not as it was written"):
        read_steps(tmp_path)


def test_a_journal_without_steps_of_ours_cannot_tell_any(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"journal\.sqlite cannot be read: unable to open"):
        read_steps(tmp_path)


def test_history_is_kept_for_a_week_and_forgets_the_oldest_with_what_is_added(tmp_path: Path) -> None:
    now = NOON - 8 * DAY_S
    store = Store.open(tmp_path, wall=lambda: now)
    old = [to_step_row(step_of(number, at="2026-11-22T12:00:00Z")) for number in range(1, 31)]
    store.write([], old)
    now = NOON
    kept = [30]
    for number in range(31, 36):
        store.write([], [to_step_row(step_of(number))])
        kept.append(len(read_steps(tmp_path)))
    assert kept == [30, 19, 8, 3, 4, 5], "twelve with each"
    assert [step.sequence for step in read_steps(tmp_path)] == list(range(31, 36))
    store.close()


def test_history_is_no_longer_than_it_may_be(store: Store, tmp_path: Path) -> None:
    write(store, steps=range(1, 11))
    write(store, steps=range(STEPS_KEPT + 5, STEPS_KEPT + 6))
    assert [step.sequence for step in read_steps(tmp_path)] == [*range(6, 11), STEPS_KEPT + 5]


def test_a_person_can_read_it_with_the_shell_of_sqlite(store: Store, tmp_path: Path) -> None:
    write(store, *CLAIMS, steps=range(1, 2))
    with contextlib.closing(sqlite3.connect(f"file:{tmp_path / FILE}?mode=ro", uri=True)) as shell:
        held = shell.execute(
            "SELECT key, json_extract(value, '$.instance.name'), json_extract(value, '$.placement.cells[1].pins.8')"
            " FROM record WHERE kind = 'claim' ORDER BY key"
        ).fetchall()
        steps = shell.execute("SELECT sequence, at, event, claim_id FROM step").fetchall()
    assert held == [(f"claim-{n}", f"instance-{n:08x}", 72) for n in (1, 2, 3)]
    assert steps == [(1, "2026-11-30T12:00:00Z", "admitted", "claim-1")]


# --- damage --------------------------------------------------------------------------------------


@pytest.fixture
def copied(store: Store, tmp_path: Path) -> Path:
    """A folder whose last good copy has three claims, and whose journal is noise."""
    write(store, *CLAIMS)
    store.close()
    crashed = tmp_path.with_name(f"{tmp_path.name}-crashed")
    shutil.copytree(tmp_path, crashed)
    (crashed / FILE).write_bytes(b"no database" * 1000)
    return crashed


def test_claims_come_from_the_last_good_copy_and_that_some_may_be_missing_is_told_until_it_is_accepted(
    copied: Path,
) -> None:
    told = [reopened_once(copied) for _ in range(2)]
    assert told[0].startswith(f"{copied / FILE} was damaged (")
    assert told[0].endswith(" took its place.")
    assert told[1] == told[0], "also at the next start"
    journal = reopened(copied)
    journal.accept_damage()
    assert journal.load().damaged is None
    journal.close()
    assert reopened(copied).load() == (CLAIMS, 0, None)


def reopened_once(folder: Path) -> str:
    """What a start says of damage."""
    journal = reopened(folder)
    journal.begin("b")
    records, _, damaged = journal.load()
    journal.close()
    assert records == CLAIMS
    assert damaged is not None
    return damaged


def test_damage_of_journal_and_copy_begins_a_new_one_that_says_so_until_it_is_accepted(copied: Path) -> None:
    (copied / LAST_GOOD_FILE).write_bytes(b"no database" * 1000)
    for _ in range(2):
        journal = reopened(copied)
        records, sequence, damaged = journal.load()
        journal.close()
        assert (records, sequence) == ((), 0)
        assert str(damaged).endswith("conflicts count from now, and no claim is known.")


def test_a_copy_of_a_journal_whose_damage_is_not_accepted_says_it_too(copied: Path) -> None:
    told = reopened_once(copied)
    (copied / FILE).unlink()
    journal = reopened(copied)
    assert "was missing or empty" in str(journal.load().damaged)
    assert told != journal.load().damaged
    journal.close()


def test_damage_that_cannot_be_accepted_for_want_of_the_folder_stays(copied: Path) -> None:
    journal = reopened(copied)
    copied.rename(copied.with_name("moved"))
    with pytest.raises(JournalError, match="is gone from under the agent"):
        journal.accept_damage()
    assert journal.load().damaged is not None
    copied.with_name("moved").rename(copied)
    journal.close()


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        ("UPDATE record SET value = replace(value, 'reserved', 'resident') WHERE key = 'claim-1'", "is not as it was"),
        ("UPDATE record SET key = 'claim-7' WHERE key = 'claim-1'", "row claim 'claim-7' is not as it was written"),
        ("DROP TRIGGER record_went; DELETE FROM record WHERE key = 'claim-1'", "rows are missing or of another time"),
        ("UPDATE seal SET records = 4", "rows are missing or of another time"),
        ("DELETE FROM seal", "rows are missing or of another time"),
        ("DROP TABLE record", "no such table: record"),
    ],
)
def test_a_sound_database_with_other_rows_than_were_written_is_damaged(
    spoil: str, told: str, store: Store, tmp_path: Path
) -> None:
    write(store, *CLAIMS)
    store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as database:
        database.executescript(spoil)
    journal = reopened(tmp_path)
    records, _, damaged = journal.load()
    assert (records, told in str(damaged)) == (CLAIMS, True), damaged
    journal.close()


def test_a_restored_journal_in_the_middle_of_taking_its_place_takes_it_at_the_next_start(copied: Path) -> None:
    reopened(copied).close()
    (aside,) = copied.glob(f"{FILE}.damaged-*Z")
    (copied / FILE).rename(copied / "journal.restored.sqlite")  # where a power cut between the two renames leaves it
    (copied / f"{FILE}-wal").write_bytes(b"log of the damaged one")
    journal = reopened(copied)
    assert (journal.load().records, journal.load().damaged is not None) == (CLAIMS, True)
    assert aside.exists()
    journal.close()
    assert [path.read_bytes() for path in copied.glob("*.damaged-*-wal")][-1] == b"log of the damaged one"


def test_a_restored_journal_that_was_never_needed_is_made_anew(copied: Path) -> None:
    (copied / "journal.restored.sqlite").write_bytes(b"from a repair that was cut short")
    journal = reopened(copied)
    assert journal.load().records == CLAIMS
    journal.close()
    assert not (copied / "journal.restored.sqlite").exists()
