"""The journal's thread, over a store whose disk does as it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from agent.adapters.journal import HANGS, HANGS_AFTER_S, Journal, Store
from agent.core.conflicts import Since
from agent.errors import JournalError
from tests.contract.journal_disk import PATIENCE_S, Disk
from tests.functional.lab import wait_until

FIRST, SECOND, THIRD = ({"c": Since(at=f"2026-11-30T1{hour}:00:00Z")} for hour in range(3))


class Bench:
    """A journal on such a disk, and a clock that moves by hand."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.folder = folder
        self.disk = Disk(Store.open(folder))
        self.journal = Journal(self.disk, clock=lambda: self.now)

    def hang(self, since: Mapping[str, Since]) -> None:
        """Have it store this, which begins and does not end."""
        self.journal.remember_conflicts(since)
        assert self.disk.begun.acquire(timeout=PATIENCE_S)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.disk.go.release(1000)
    made.journal.close(PATIENCE_S)
    assert made.disk.closed_in is not None


def is_told(journal: Journal, text: str | None) -> Callable[[], bool]:
    return lambda: journal.problem == text


def test_a_write_waits_for_nobody_and_only_the_newest_of_those_that_wait_is_made(bench: Bench) -> None:
    bench.hang(FIRST)
    bench.journal.remember_conflicts(SECOND)
    bench.journal.remember_conflicts(THIRD)
    bench.disk.go.release(2)
    bench.journal.close(PATIENCE_S)
    assert bench.disk.writes == [FIRST, THIRD]
    assert Store.open(bench.folder).conflict_since() == THIRD


def test_a_disk_that_hangs_is_named_until_it_goes_on(bench: Bench) -> None:
    bench.hang(FIRST)
    told = []
    for step_s in (HANGS_AFTER_S, 0.1):
        bench.now += step_s
        told.append(bench.journal.problem)
    assert told == [None, HANGS]
    bench.disk.go.release()
    wait_until(is_told(bench.journal, None), "the disk to be well", PATIENCE_S)


def test_a_write_that_fails_is_named_until_one_succeeds(bench: Bench) -> None:
    bench.disk.fault = JournalError("The disk is full.")
    bench.disk.go.release()
    bench.journal.remember_conflicts(FIRST)
    wait_until(is_told(bench.journal, "The disk is full."), "the failure", PATIENCE_S)
    bench.disk.fault = None
    bench.disk.go.release()
    bench.journal.remember_conflicts(FIRST)
    wait_until(is_told(bench.journal, None), "the success", PATIENCE_S)


def test_a_journal_that_keeps_nothing_says_so_however_well_it_writes(tmp_path: Path) -> None:
    journal = Journal(Store.unstored(tmp_path, "The disk is full."))
    journal.remember_conflicts(FIRST)
    journal.close(PATIENCE_S)
    assert journal.problem is not None
    assert journal.problem.startswith("The disk is full. Nothing is kept")


def test_a_close_waits_no_longer_than_it_may_and_what_waits_is_stored_once_the_disk_goes_on(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.hang(FIRST)
    bench.journal.remember_conflicts(SECOND)
    bench.journal.close(0.01)
    assert [record.getMessage() for record in caplog.records] == [
        "the journal is left as it is, its disk does not answer"
    ]
    bench.disk.go.release(2)
    bench.journal.close(PATIENCE_S)
    assert bench.disk.closed_in == "journal"
    assert Store.open(bench.folder).conflict_since() == SECOND


def test_a_last_write_that_fails_is_logged_since_nobody_asks_any_more(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.disk.fault = JournalError("The disk is full.")
    bench.hang(FIRST)
    bench.journal.close(0.01)
    bench.disk.go.release()
    bench.journal.close(PATIENCE_S)
    assert [record.getMessage() for record in caplog.records][1:] == ["The disk is full."]


def test_a_closed_journal_refuses_by_name_what_comes_too_late(bench: Bench) -> None:
    bench.journal.close(PATIENCE_S)
    with pytest.raises(JournalError, match="The journal is closed"):
        bench.journal.remember_conflicts(FIRST)


def test_a_fault_of_ours_in_its_thread_is_logged_and_named(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.disk.fault = RuntimeError("a fault of ours")
    bench.disk.go.release()
    bench.journal.remember_conflicts(FIRST)
    wait_until(lambda: "has ended of a fault of ours" in (bench.journal.problem or ""), "the end", PATIENCE_S)
    (record,) = caplog.records
    assert (record.levelname, record.exc_info is not None) == ("ERROR", True)
    bench.disk.close()
