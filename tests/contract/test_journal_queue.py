"""Changes of the books on their way to the disk: many for one transaction, in order, each told what became of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from agent.adapters.journal import ENDED, RETRY_S, Journal, Store, read_steps
from agent.core.claim.values import Maintenance, Record
from agent.errors import JournalError
from tests.builders_journal import claim_of, gone, record_of, step_of
from tests.contract.journal_disk import PATIENCE_S, Disk
from tests.functional.lab import wait_until

FULL = JournalError("The disk is full.")


class Bench:
    """A journal on a disk that does as it is told, and a clock that moves by hand."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.folder = folder
        self.disk = Disk(Store.open(folder))
        self.journal = Journal(self.disk, clock=lambda: self.now)
        self.answers: list[tuple[str, str | None]] = []
        self.answered = threading.Semaphore(0)

    def ask(self, name: str, *records: Record, step: int = 0, is_taker: bool = True, is_lazy: bool = False) -> None:
        """Have a change written whose answer is noted under this name."""

        def note(outcome: str | None) -> None:
            self.answers.append((name, outcome))
            self.answered.release()

        steps = (step_of(step),) if step else ()
        self.journal.write(records, steps, is_taker=is_taker, on_done=note, is_lazy=is_lazy)

    def hold(self, name: str = "held", *records: Record) -> None:
        """Have one begun that does not end, so that what comes meanwhile waits."""
        self.ask(name, *records)
        assert self.disk.begun.acquire(timeout=PATIENCE_S)

    def wait(self, count: int) -> None:
        """Until so many more have been answered."""
        for _ in range(count):
            assert self.answered.acquire(timeout=PATIENCE_S)

    def stored(self) -> dict[str, Record]:
        """By key, as the next start finds them; the journal is closed for that."""
        self.disk.fault = None
        self.disk.go.release(1000)
        self.journal.close(PATIENCE_S)
        store = Store.open(self.folder)
        records = store.load().records
        store.close()
        return {record.key: record for record in records}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.disk.go.release(1000)
    made.journal.close(PATIENCE_S)


def claim(number: int, state: str = "reserved") -> Record:
    return record_of(claim_of(number, state=state))


def test_all_that_waits_goes_into_one_transaction_and_is_told_in_its_order(bench: Bench) -> None:
    bench.hold("first", claim(1))
    for number in range(2, 8):
        bench.ask(f"n{number}", claim(number), step=number, is_taker=number % 2 == 0)
    assert bench.answers == [], "nothing is told before the disk has it"
    bench.disk.go.release(2)
    bench.wait(7)
    assert bench.answers == [("first", None), *((f"n{number}", None) for number in range(2, 8))]
    assert bench.disk.transactions == [
        (("claim-1",), ()),
        (tuple(f"claim-{n}" for n in range(2, 8)), tuple(range(2, 8))),
    ]
    assert bench.stored() == {f"claim-{n}": claim(n) for n in range(1, 8)}
    assert read_steps(bench.folder) == tuple(step_of(n) for n in range(2, 8))


def test_of_two_changes_of_one_row_in_one_transaction_the_later_counts(bench: Bench) -> None:
    bench.hold()
    bench.ask("put", claim(1))
    bench.ask("change", claim(1, "overdue"), claim(2))
    bench.ask("drop", gone(claim_of(2)))
    assert bench.stored() == {"claim-1": claim(1, "overdue")}
    assert [outcome for _, outcome in bench.answers] == [None] * 4


def test_when_the_disk_fails_takers_are_dropped_and_what_frees_is_told_and_kept(bench: Bench) -> None:
    bench.disk.go.release()
    bench.ask("there", claim(1), claim(2))
    bench.wait(1)
    bench.hold()
    bench.disk.fault = FULL
    bench.ask("take", claim(3), step=3)
    bench.ask("free", gone(claim_of(1)), step=4, is_taker=False)
    bench.ask("take too", claim(4), step=5)
    bench.disk.go.release(3)
    bench.wait(4)
    told = "The disk is full."
    assert bench.answers[1:] == [("held", told), ("take", told), ("free", told), ("take too", told)]
    problems = [bench.journal.problem]
    bench.disk.fault = None
    bench.ask("take again", claim(5), step=6)
    bench.disk.go.release()
    bench.wait(1)
    assert bench.disk.transactions[-1] == (("claim-1", "claim-5"), (4, 6)), "what was freed, never later than the room"
    problems.append(bench.journal.problem)
    assert problems == [told, None]
    assert bench.stored() == {"claim-2": claim(2), "claim-5": claim(5)}
    assert [step.sequence for step in read_steps(bench.folder)] == [4, 6]


def test_what_frees_is_written_by_itself_where_the_disk_has_room_for_that_alone(bench: Bench) -> None:
    bench.hold()
    bench.ask("take", claim(3))
    bench.ask("free", gone(claim_of(1)), is_taker=False)
    bench.disk.go.release()
    assert bench.disk.begun.acquire(timeout=PATIENCE_S)
    bench.disk.fault = FULL
    bench.disk.go.release()
    assert bench.disk.begun.acquire(timeout=PATIENCE_S)
    bench.disk.fault = None
    bench.disk.go.release()
    bench.wait(3)
    assert bench.answers == [("held", None), ("take", "The disk is full."), ("free", None)]


def test_the_newest_row_counts_of_what_is_owed_and_that_of_a_dropped_taker_never(bench: Bench) -> None:
    bench.disk.fault = FULL
    bench.disk.go.release(20)
    for name, record, is_taker in (
        ("free", claim(1, "away"), False),
        ("free again", claim(1, "resident"), False),
        ("take", claim(1, "leaving"), True),
    ):
        bench.ask(name, record, is_taker=is_taker)
        bench.wait(1)
    bench.disk.fault = None
    bench.ask("other", claim(2))
    bench.wait(1)
    assert bench.stored() == {"claim-1": claim(1, "resident"), "claim-2": claim(2)}


def test_what_undoes_a_dropped_taker_is_queued_from_its_answer_and_stored_before_whatever_comes_after(
    bench: Bench,
) -> None:
    """A commit that failed may have reached the disk all the same."""
    undone = threading.Semaphore(0)

    def undo(outcome: str | None) -> None:
        assert outcome == "The disk is full."
        bench.ask("undo", gone(claim_of(1)), step=8, is_taker=False)
        bench.disk.fault = None
        undone.release()

    bench.disk.fault = FULL
    bench.journal.write((claim(1),), (step_of(7),), is_taker=True, on_done=undo)
    assert bench.disk.begun.acquire(timeout=PATIENCE_S)
    bench.ask("next", claim(2), step=9)
    bench.disk.go.release()
    assert undone.acquire(timeout=PATIENCE_S)
    assert bench.disk.begun.acquire(timeout=PATIENCE_S)
    bench.disk.go.release()
    bench.wait(2)
    assert bench.disk.transactions[1:] == [(("claim-2", "claim-1"), (9, 8))]


def test_what_is_owed_is_tried_again_by_itself(bench: Bench) -> None:
    bench.disk.fault = FULL
    bench.disk.go.release(2)
    bench.ask("free", claim(1), is_taker=False)
    bench.wait(1)
    bench.disk.fault = None
    bench.now += RETRY_S
    bench.journal.check()  # any turn of the thread sees the clock that moved by hand
    bench.disk.go.release()
    wait_until(lambda: bench.journal.problem is None, "the retry", PATIENCE_S)
    assert bench.disk.transactions[-1] == (("claim-1",), ())


def test_a_disk_that_is_well_again_is_noticed_though_nothing_is_owed(bench: Bench) -> None:
    bench.disk.fault = FULL
    bench.disk.go.release()
    bench.ask("take", claim(1))
    bench.wait(1)
    assert bench.journal.problem == "The disk is full."
    bench.disk.fault = None
    bench.now += RETRY_S
    bench.journal.check()
    bench.disk.go.release()
    wait_until(lambda: bench.journal.problem is None, "the retry", PATIENCE_S)
    assert bench.stored() == {}


def test_a_lazy_change_waits_for_another_and_goes_with_it_in_its_order(bench: Bench) -> None:
    bench.disk.go.release(10)
    bench.ask("renew", claim(1), is_lazy=True, is_taker=False)
    bench.ask("renew too", claim(2), is_lazy=True, is_taker=False)
    assert not bench.disk.begun.acquire(timeout=0.1)
    bench.ask("take", claim(3))
    bench.wait(3)
    assert [name for name, _ in bench.answers] == ["renew", "renew too", "take"]
    assert bench.disk.transactions == [(("claim-1", "claim-2", "claim-3"), ())]


def test_a_lazy_change_is_written_without_another_in_the_end(tmp_path: Path) -> None:
    journal = Journal(Store.open(tmp_path), lazy_s=0.05)
    answered = threading.Event()
    journal.write((claim(1),), (), is_taker=False, is_lazy=True, on_done=lambda _: answered.set())
    assert answered.wait(PATIENCE_S)
    journal.close(PATIENCE_S)


def test_a_lazy_change_is_written_at_the_close(bench: Bench) -> None:
    bench.ask("renew", claim(1), is_lazy=True, is_taker=False)
    assert bench.stored() == {"claim-1": claim(1)}
    assert bench.answers == [("renew", None)]


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (Record(kind="lease", key="x", value=None), "'lease' is no kind of row that is known"),
        (Record(kind="claim", key="x", value=Maintenance(reason="", since="")), "Maintenance is not its type"),
        (Record(kind="claim", key="\ud800", value=None), "surrogates not allowed"),
        (record_of(claim_of(1, state="\ud800")), "surrogates not allowed"),
    ],
)
@pytest.mark.parametrize("is_taker", [True, False])
def test_a_change_that_cannot_be_written_is_told_and_costs_no_other_its_place(
    bad: Record, told: str, is_taker: bool, bench: Bench
) -> None:
    bench.hold()
    bench.ask("bad", claim(2), bad, is_taker=is_taker)
    bench.ask("good", claim(3))
    bench.disk.go.release(2)
    bench.wait(3)
    assert [(name, told in str(outcome)) for name, outcome in bench.answers] == [
        ("held", False),
        ("bad", True),
        ("good", False),
    ]
    assert bench.stored() == {"claim-3": claim(3)}


def test_one_who_fails_on_the_answer_costs_no_other_theirs(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: str | None) -> None:
        raise RuntimeError("a fault of ours")

    bench.hold()
    bench.journal.write((claim(1),), (), is_taker=True, on_done=fail)
    bench.ask("other", claim(2))
    bench.disk.go.release(2)
    bench.wait(2)
    assert bench.answers == [("held", None), ("other", None)]
    (record,) = caplog.records
    assert (record.levelname, record.exc_info is not None) == ("ERROR", True)


def test_after_a_fault_of_ours_in_the_thread_nobody_waits_for_ever(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.disk.fault = RuntimeError("a fault of ours")
    bench.hold("one")
    bench.ask("two", claim(2))
    bench.disk.go.release()
    bench.wait(2)
    bench.ask("three", is_taker=False)
    bench.wait(1)
    assert bench.answers == [("one", ENDED), ("two", ENDED), ("three", ENDED)]
    assert bench.journal.problem == ENDED
    bench.journal.close(PATIENCE_S)
    assert [record.getMessage() for record in caplog.records] == ["the journal's thread has ended"]
    bench.disk.close()


def test_a_closed_journal_refuses_changes_by_name(bench: Bench) -> None:
    bench.journal.close(PATIENCE_S)
    with pytest.raises(JournalError, match="The journal is closed"):
        bench.ask("late", claim(1))
    with pytest.raises(JournalError, match="The journal is closed"):
        bench.journal.accept_damage(lambda _: None)


def test_what_is_owed_at_the_close_is_tried_once_more_and_missed_in_the_log(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.disk.fault = FULL
    bench.disk.go.release(1000)
    bench.ask("free", claim(1), is_taker=False)
    bench.wait(1)
    bench.journal.close(PATIENCE_S)
    assert [record.getMessage() for record in caplog.records] == [
        "what has been freed is not stored: The disk is full."
    ]


def test_a_journal_that_keeps_nothing_takes_nothing_and_lets_go_of_what_it_is_told_to(tmp_path: Path) -> None:
    before = Store.open(tmp_path)
    before.begin("b")
    before.close()
    store = Store.unstored(tmp_path, "The disk is full.")
    journal = Journal(store)
    answers: list[str | None] = []
    journal.write((claim(1),), (step_of(1),), is_taker=True, on_done=answers.append)
    journal.write((claim(2),), (step_of(2),), is_taker=False, on_done=answers.append)
    wait_until(lambda: len(answers) == 2, "both answers", PATIENCE_S)
    assert {str(answer).partition(" Nothing is kept")[0] for answer in answers} == {"The disk is full."}
    assert [record.key for record in store.load().records] == ["claim-2"]
    journal.close(PATIENCE_S)


def test_damage_is_accepted_through_the_thread_and_told(tmp_path: Path) -> None:
    before = Store.open(tmp_path)
    before.begin("b")
    before.close()
    (tmp_path / "journal.sqlite").write_bytes(b"no database" * 1000)
    store = Store.open(tmp_path)
    assert store.load().damaged is not None
    journal = Journal(store)
    answers: list[str | None] = []
    journal.accept_damage(answers.append)
    wait_until(lambda: answers == [None], "the answer", PATIENCE_S)
    journal.close(PATIENCE_S)
    again = Store.open(tmp_path)
    assert again.load().damaged is None
    again.close()


def test_writers_of_many_threads_are_all_told_and_all_stored(tmp_path: Path) -> None:
    journal = Journal(Store.open(tmp_path))

    def told(done: threading.Event, outcome: str | None) -> None:
        assert outcome is None
        done.set()

    def claim_some(first: int) -> None:
        for number in range(first, first + 25):
            done = threading.Event()
            journal.write((claim(number),), (step_of(number),), is_taker=True, on_done=partial(told, done))
            assert done.wait(PATIENCE_S)

    threads = [threading.Thread(target=claim_some, args=(1 + 25 * n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close(PATIENCE_S)
    store = Store.open(tmp_path)
    assert {record.key for record in store.load().records} == {f"claim-{n}" for n in range(1, 401)}
    assert store.load().sequence == 400
    store.close()
