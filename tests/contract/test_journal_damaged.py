"""A journal that is damaged under the running agent: it is noticed, told, and never costs the last good copy."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.adapters.journal import FILE, LAST_GOOD_FILE, Journal, Store
from agent.adapters.journal.last_good import COPY_INTERVAL_S, LastGood
from agent.core.claim.values import Record
from agent.errors import JournalError
from agent.formats.journal_rows import to_row, to_step_row
from tests.builders_journal import claim_of, record_of, step_of
from tests.contract.journal_disk import PATIENCE_S

MANY = 2000
"""More than sqlite keeps in memory of a file, which is 2 MB."""
PAGE = 4096


def claim(number: int) -> Record:
    return record_of(claim_of(number))


def write(store: Store, *numbers: int) -> None:
    store.write([to_row(claim(number)) for number in numbers], [to_step_row(step_of(max(numbers)))])


def filled(folder: Path) -> Store:
    """With many claims, all of them in the file and in its copy, and opened anew."""
    store = Store.open(folder)
    store.begin("b")
    write(store, *range(1, MANY + 1))
    store.close()
    again = Store.open(folder)
    again.begin("b")
    return again


def spoil(file: Path) -> None:
    """Random bytes over the middle third, in place."""
    pages = file.stat().st_size // PAGE
    with file.open("r+b") as stored:
        stored.seek(pages // 3 * PAGE)
        stored.write(random.Random(1).randbytes(pages // 3 * PAGE))


def sound_claims(file: Path) -> set[str]:
    """Keys of the claims in a database that sqlite finds sound."""
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return {key for (key,) in database.execute("SELECT key FROM record")}


ALL = {f"claim-{number}" for number in range(1, MANY + 1)}


def test_a_damaged_journal_does_not_take_the_place_of_its_good_copy_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = filled(tmp_path)
    agent_id = store.begin("b").agent_id
    spoil(tmp_path / FILE)
    store.close()
    assert sound_claims(tmp_path / LAST_GOOD_FILE) == ALL
    assert "journal closed without a copy" in caplog.text
    again = Store.open(tmp_path)
    records, _, damaged = again.load()
    assert {record.key for record in records} == ALL
    assert "was damaged" in (damaged or "")
    assert again.begin("b").agent_id == agent_id
    again.close()


def test_a_damaged_journal_does_not_take_the_place_of_its_good_copy_at_work(tmp_path: Path) -> None:
    now, told = [1000.0], list[str]()
    store = filled(tmp_path)
    last_good = LastGood(tmp_path, store.check, told.append, clock=lambda: now[0])
    spoil(tmp_path / FILE)
    last_good.wrote(1)
    now[0] += COPY_INTERVAL_S
    last_good.upkeep()
    last_good.end()
    assert sound_claims(tmp_path / LAST_GOOD_FILE) == ALL
    assert len(told) == 1
    assert not (tmp_path / f"{LAST_GOOD_FILE}.new").exists()
    store.close()


def test_once_sqlite_calls_it_malformed_nobody_takes_and_the_problem_says_so_until_a_restart(tmp_path: Path) -> None:
    store = filled(tmp_path)
    journal = Journal(store)
    spoil(tmp_path / FILE)
    answers = [answer(journal, number) for number in range(1, MANY + 1)]
    refused = [one for one in answers if one is not None]
    assert "malformed" in refused[0]
    assert set(answers[answers.index(refused[0]) :]) == set(refused), "none after the first is stored"
    assert "restart compute-agent" in refused[0]
    assert "malformed" in (journal.problem or "")
    journal.close(PATIENCE_S)
    assert sound_claims(tmp_path / LAST_GOOD_FILE) == ALL
    again = Store.open(tmp_path)
    assert again.load().damaged is not None
    again.close()


def test_what_is_told_of_damage_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    filled(tmp_path).close()
    spoil(tmp_path / FILE)
    again = Store.open(tmp_path)
    damaged = again.load().damaged
    again.close()
    assert damaged is not None
    assert damaged.isprintable()
    assert all(record.getMessage().isprintable() for record in caplog.records)


def emptied(file: Path) -> None:
    os.truncate(file, 0)


def cut_short(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2 // PAGE * PAGE)


def without_its_head(file: Path) -> None:
    with file.open("r+b") as stored:
        stored.write(bytes(PAGE))


def written_over(file: Path) -> None:
    """As cp does it: the file stays the same, what is in it is of another time."""
    shutil.copyfile(file.with_name(LAST_GOOD_FILE), file)


def log_emptied(file: Path) -> None:
    os.truncate(f"{file}-wal", 0)


def log_cut_short(file: Path) -> None:
    os.truncate(f"{file}-wal", Path(f"{file}-wal").stat().st_size // 2)


def log_away(file: Path) -> None:
    Path(f"{file}-wal").unlink()


def log_replaced(file: Path) -> None:
    log = Path(f"{file}-wal")
    shutil.copy(log, f"{log}.new")
    Path(f"{log}.new").rename(log)


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (emptied, "cut short"),
        (cut_short, "cut short"),
        (without_its_head, "does not begin as a database"),
        (written_over, "cut short"),
        (log_emptied, "cut short"),
        (log_cut_short, "cut short"),
        (log_away, "is gone"),
        (log_replaced, "another file"),
    ],
)
def test_harm_from_outside_is_told_before_anything_more_is_promised(
    harm: Callable[[Path], None], told: str, tmp_path: Path
) -> None:
    """And a restart has all claims that were answered, or says that some may be missing."""
    store = filled(tmp_path)
    for number in range(MANY + 1, MANY + 101):
        write(store, number)
    store.make_room()
    for number in range(MANY + 101, MANY + 111):
        write(store, number)
    copied = sound_claims(tmp_path / LAST_GOOD_FILE)
    harm(tmp_path / FILE)
    for act in (store.check, lambda: write(store, 9000), store.check_room):
        with pytest.raises(JournalError, match=told) as caught:
            act()
        assert "restart compute-agent" in str(caught.value)
    store.close()
    assert sound_claims(tmp_path / LAST_GOOD_FILE) >= copied
    again = Store.open(tmp_path)
    records, _, damaged = again.load()
    again.close()
    keys = {record.key for record in records}
    assert keys >= ALL
    assert damaged is not None or keys == {f"claim-{number}" for number in range(1, MANY + 111)}


def test_an_older_database_of_the_same_size_is_told(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.begin("b")
    older = (tmp_path / FILE).read_bytes()
    write(store, *range(1, 200))
    store.make_room()
    newer = (tmp_path / FILE).read_bytes()
    assert len(newer) > len(older)
    store.check()
    with (tmp_path / FILE).open("r+b") as stored:
        stored.write(older)
    with pytest.raises(JournalError, match="written over by an older one"):
        store.check()
    store.close()


def test_harm_stays_told_when_the_size_is_right_again(tmp_path: Path) -> None:
    store = filled(tmp_path)
    size = (tmp_path / FILE).stat().st_size
    emptied(tmp_path / FILE)
    with pytest.raises(JournalError):
        store.check()
    os.truncate(tmp_path / FILE, size)
    with pytest.raises(JournalError, match="cut short"):
        store.check()
    store.close()


def test_what_the_agent_itself_does_to_its_files_is_no_harm(tmp_path: Path) -> None:
    now, told = [1000.0], list[str]()
    store = filled(tmp_path)
    last_good = LastGood(tmp_path, store.check, told.append, clock=lambda: now[0])
    for number in range(1, 200):
        write(store, number)
        if number % 7 == 0:
            store.make_room()
        if number % 5 == 0:
            last_good.wrote(1)
            now[0] += 100 * COPY_INTERVAL_S
            last_good.upkeep()
        store.check()
    last_good.end()
    assert told == []
    store.close()
    again = Store.open(tmp_path)
    assert again.load().damaged is None
    again.close()


def answer(journal: Journal, number: int) -> str | None:
    """Of a taker."""
    answers: list[str | None] = []
    done = threading.Event()

    def note(outcome: str | None) -> None:
        answers.append(outcome)
        done.set()

    journal.write((claim(number),), (step_of(MANY + number),), is_taker=True, on_done=note)
    assert done.wait(PATIENCE_S)
    return answers[0]
