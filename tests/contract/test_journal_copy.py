"""The last good copy is made beside the journal's work, not too often, and is sound at any moment."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.adapters.journal import FILE, LAST_GOOD_FILE, Journal, Store
from agent.adapters.journal.last_good import COPY_INTERVAL_S, LOG_BYTES, LastGood
from agent.formats.journal_rows import to_row
from tests.builders_journal import claim_of, record_of
from tests.contract.journal_disk import PATIENCE_S


class Bench:
    """A store, and beside it what makes copies, by a clock that moves by hand."""

    def __init__(self, folder: Path) -> None:
        self.now = 1000.0
        self.folder = folder
        self.store = Store.open(folder)
        self.store.begin("b")
        self.last_good = LastGood(folder, self.store.check, lambda _: None, clock=lambda: self.now)

    def write(self, number: int, size_bytes: int = 2000) -> None:
        self.store.write([to_row(record_of(claim_of(number)))], [])
        self.last_good.wrote(size_bytes)

    def upkeep(self) -> float | None:
        """What is due is done when this returns."""
        wait_s = self.last_good.upkeep()
        self.last_good.end()
        return wait_s

    def copied(self) -> set[str]:
        """Keys of the claims in the copy."""
        copy = f"file:{self.folder / LAST_GOOD_FILE}?mode=ro&immutable=1"
        with contextlib.closing(sqlite3.connect(copy, uri=True)) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            return {key for (key,) in database.execute("SELECT key FROM record")}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.store.close()


def test_without_a_write_nothing_is_due(bench: Bench) -> None:
    bench.now += 10 * COPY_INTERVAL_S
    assert bench.upkeep() is None


def test_a_copy_is_made_a_minute_after_the_one_before_and_has_all_that_was_written(bench: Bench) -> None:
    bench.write(1)
    assert bench.upkeep() == COPY_INTERVAL_S
    bench.now += COPY_INTERVAL_S - 1
    assert (bench.upkeep(), bench.copied()) == (1.0, set())
    bench.write(2)
    bench.now += 1
    assert (bench.upkeep(), bench.copied()) == (COPY_INTERVAL_S, {"claim-1", "claim-2"})
    bench.write(3)
    bench.now += COPY_INTERVAL_S - 1
    assert (bench.upkeep(), bench.copied()) == (1.0, {"claim-1", "claim-2"})


def test_a_long_log_is_folded_in_without_a_copy(bench: Bench) -> None:
    bench.write(1, size_bytes=LOG_BYTES)
    inode = (bench.folder / LAST_GOOD_FILE).stat().st_ino
    size = (bench.folder / FILE).stat().st_size
    for number in range(2, 12):
        bench.write(number)
    assert (bench.folder / FILE).stat().st_size == size, "all of it is in the log"
    bench.upkeep()
    assert (bench.folder / FILE).stat().st_size > size
    assert (bench.folder / LAST_GOOD_FILE).stat().st_ino == inode


def test_a_copy_that_fails_is_told_and_due_again(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    unfinished = bench.folder / f"{LAST_GOOD_FILE}.new"
    unfinished.mkdir()
    bench.write(1)
    bench.now += COPY_INTERVAL_S
    bench.upkeep()
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["journal has no fresh copy"]
    unfinished.rmdir()
    bench.now += COPY_INTERVAL_S
    assert (bench.upkeep(), bench.copied()) == (COPY_INTERVAL_S, {"claim-1"})


def test_no_copy_is_made_where_the_folder_is_another_agents(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.write(1)
    bench.now += COPY_INTERVAL_S
    bench.folder.rename(bench.folder.with_name("moved"))
    bench.folder.mkdir()
    bench.upkeep()
    assert list(bench.folder.iterdir()) == []
    assert "is gone from under the agent" in caplog.text
    bench.folder.rmdir()
    bench.folder.with_name("moved").rename(bench.folder)


def test_writers_do_not_wait_for_copies_and_each_copy_is_of_some_commit(bench: Bench) -> None:
    """Two rows of each commit are always of the same one."""
    copies: list[dict[str, int]] = []
    is_over = threading.Event()

    def copy() -> None:
        while not is_over.is_set():
            bench.last_good.wrote(1)
            bench.now += 100 * COPY_INTERVAL_S
            bench.upkeep()
            target = f"file:{bench.folder / LAST_GOOD_FILE}?mode=ro&immutable=1"
            with contextlib.closing(sqlite3.connect(target, uri=True)) as database:
                rows = database.execute("SELECT key, json_extract(value, '$.sequence') FROM record").fetchall()
            copies.append(dict(rows))

    thread = threading.Thread(target=copy)
    thread.start()
    for number in range(150):
        row = to_row(record_of(claim_of(number)))
        bench.store.write([row._replace(key="left"), row._replace(key="right")], [])
    is_over.set()
    thread.join()
    assert len(copies) > 1
    assert all(one.get("left") == one.get("right") for one in copies)


def test_the_journal_has_copies_made_by_itself_and_at_its_close(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.begin("b")
    journal = Journal(store)
    done = threading.Event()
    journal.write((record_of(claim_of(1)),), (), is_taker=True, on_done=lambda _: done.set())
    assert done.wait(PATIENCE_S)
    before = (tmp_path / LAST_GOOD_FILE).stat().st_ino
    journal.close(PATIENCE_S)
    assert (tmp_path / LAST_GOOD_FILE).stat().st_ino != before
    (tmp_path / FILE).unlink()
    again = Store.open(tmp_path)
    assert [record.key for record in again.load().records] == ["claim-1"]
    again.close()
