"""The watching thread, over a look that does as it is told and a clock that moves by hand."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

import pytest

from agent.core.claim.values import Claim, Step
from agent.core.host_config import HostConfig
from agent.core.instance import Instance
from agent.core.ledger import Listing
from agent.core.snapshot import Findings, Identity, Snapshot, SourceState, Wish
from agent.tracker import Tracker
from agent.watch import SETTLE_S, Watch
from tests import moments

INTERVAL_S = 10.0
PATIENCE_S = 60.0
"""Far more than a thread needs to come to its turn on a loaded machine."""

COMPLETE = Findings(listing=Listing(connection=1, begun_at=1.0, complete=True))
UNSETTLED = Findings(listing=Listing(connection=1, begun_at=1.0, complete=False))
WITHOUT_LIBVIRT = Findings()


class Look:
    """Each pass waits for leave when `holds_passes`, then gives the next of `answers` (or raises it), else COMPLETE."""

    def __init__(self) -> None:
        self.wishes: list[Wish] = []
        self.answers: deque[Findings | Exception] = deque()
        self.holds_passes = False
        self.entered = threading.Semaphore(0)
        self.leave = threading.Semaphore(0)

    def findings(self, snapshot: Snapshot, wish: Wish) -> Findings:
        self.wishes.append(wish)
        self.entered.release()
        if self.holds_passes:
            assert self.leave.acquire(timeout=PATIENCE_S)
        answer = self.answers.popleft() if self.answers else COMPLETE
        if isinstance(answer, Exception):
            raise answer
        return answer

    def wait_for_pass(self) -> Wish:
        """The next pass has begun; what it was asked for."""
        assert self.entered.acquire(timeout=PATIENCE_S)
        return self.wishes[-1]


class Bench:
    """A watch with all that it needs."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.look = Look()
        self.tracker = Tracker(
            identity=Identity(agent_id="a", boot_id="b", epoch=1),
            config=HostConfig(),
            since={},
            moment=lambda: moments.at(wall="now"),
        )
        self.told: list[tuple[Snapshot, Snapshot]] = []
        self.on_pass_errors: deque[Exception] = deque()
        self.prepared = 0
        self.watch = Watch(
            look=self.look,
            current=lambda: self.tracker.snapshot,
            take_in=self.tracker.take_in,
            on_pass=self.on_pass,
            clock=lambda: self.now,
            interval_s=INTERVAL_S,
        )

    def on_pass(self, before: Snapshot, after: Snapshot) -> None:
        if self.on_pass_errors:
            raise self.on_pass_errors.popleft()
        self.told.append((before, after))

    def prepare(self) -> None:
        self.prepared += 1

    def start(self) -> Wish:
        """Start the thread; what its first pass was asked for."""
        self.watch.start(self.prepare)
        return self.look.wait_for_pass()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.look.holds_passes = False
    made.look.leave.release(1000)
    assert made.watch.stop(PATIENCE_S)


def test_the_first_pass_is_a_timed_one_and_comes_when_all_is_prepared(bench: Bench) -> None:
    assert bench.start() == Wish(periodic=True)
    bench.watch.wake()
    bench.look.wait_for_pass()
    assert bench.prepared == 1


def test_a_domain_that_a_claim_waits_for_is_read_in_each_pass(bench: Bench) -> None:
    claim = Claim(
        claim_id="c1",
        kind="build",
        role="owner",
        state="pending",
        instance=Instance(uuid="u1"),
        digest="",
        ttl_s=900.0,
        sequence=0,
        made_at="",
        state_since="",
        changed_at_s=bench.now,
    )
    step = Step(sequence=0, at="", event="admitted")
    bench.tracker.transact(lambda _current, draft: draft.settle(draft.admit(claim, step)))
    assert bench.start() == Wish(periodic=True, marked=frozenset({"u1"}))
    bench.watch.wake()
    assert bench.look.wait_for_pass() == Wish(marked=frozenset({"u1"}))


def test_a_preparation_that_fails_is_logged_and_passes_begin(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("a fault of ours")

    bench.watch.start(fail)
    assert bench.look.wait_for_pass() == Wish(domains=True, host=True, periodic=True)
    (record,) = caplog.records
    assert (record.levelname, record.exc_info is not None) == ("ERROR", True)


def test_a_pass_is_timed_again_once_the_interval_is_over_and_not_before(bench: Bench) -> None:
    wishes = []
    for step_s in (0.0, INTERVAL_S - 0.1, 0.1, 1.0):
        bench.now += step_s
        bench.watch.one_pass()
        wishes.append(bench.look.wishes[-1].periodic)
    assert wishes == [True, False, True, False]


def test_an_event_starts_a_pass_before_its_time_which_reads_what_was_marked(bench: Bench) -> None:
    bench.start()
    bench.watch.mark("u1")
    assert bench.look.wait_for_pass() == Wish(marked=frozenset({"u1"}))
    bench.watch.wake(host=True)
    assert bench.look.wait_for_pass() == Wish(host=True)
    bench.watch.wake()
    assert bench.look.wait_for_pass() == Wish()


def test_a_burst_during_a_pass_becomes_one_pass_after_it(bench: Bench) -> None:
    bench.look.holds_passes = True
    bench.start()
    for number in range(500):
        bench.watch.mark(f"u{number % 100}")
        bench.watch.wake(host=number == 7)
    bench.look.leave.release()
    burst = bench.look.wait_for_pass()
    assert burst == Wish(marked=frozenset(f"u{number}" for number in range(100)), host=True)
    bench.watch.mark("later")
    bench.look.leave.release()
    assert bench.look.wait_for_pass() == Wish(marked=frozenset({"later"}))
    assert len(bench.look.wishes) == 3


def test_what_was_asked_of_a_pass_that_failed_is_asked_of_the_next_and_the_thread_lives_on(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.start()
    bench.look.answers.append(RuntimeError("a fault of ours"))
    bench.watch.mark("u1")
    bench.look.wait_for_pass()
    bench.watch.wake()
    assert bench.look.wait_for_pass() == Wish(domains=True, host=True)
    (record,) = caplog.records
    assert (record.levelname, record.exc_info is not None) == ("ERROR", True)


def test_what_a_failed_report_should_have_told_is_told_by_the_next(bench: Bench) -> None:
    bench.on_pass_errors.append(RuntimeError("a fault of ours"))
    before = bench.tracker.snapshot
    with pytest.raises(RuntimeError):
        bench.watch.one_pass()
    after = bench.watch.one_pass()
    assert bench.told == [(before, after)]


def test_what_changed_between_two_passes_is_told_with_the_next(bench: Bench) -> None:
    first = bench.watch.one_pass()
    bench.tracker.report_source(SourceState(name="udev", problem="deaf"))
    second = bench.watch.one_pass()
    assert bench.told[-1] == (first, second)
    assert (first.source("udev").problem, second.source("udev").problem) == (None, "deaf")


def test_marks_stay_while_libvirt_gives_no_list(bench: Bench) -> None:
    bench.look.answers += [WITHOUT_LIBVIRT, WITHOUT_LIBVIRT]
    bench.watch.mark("u1")
    bench.watch.one_pass()
    bench.watch.mark("u2")
    for _ in range(3):
        bench.watch.one_pass()
    marked = [wish.marked for wish in bench.look.wishes]
    assert marked == [{"u1"}, {"u1", "u2"}, {"u1", "u2"}, frozenset()]


def test_after_a_failed_pass_the_wish_for_all_domains_stays_until_libvirt_gives_a_list(bench: Bench) -> None:
    bench.look.answers += [RuntimeError("a fault of ours"), WITHOUT_LIBVIRT]
    bench.start()
    wishes = []
    for _ in range(3):
        bench.watch.wake()
        wishes.append(bench.look.wait_for_pass())
    assert [(wish.domains, wish.host) for wish in wishes] == [(True, True), (True, False), (False, False)]


def test_after_a_list_that_proves_nothing_yet_it_looks_again_soon(bench: Bench) -> None:
    bench.look.answers += [COMPLETE, UNSETTLED]
    bench.watch.one_pass()
    bench.now += 1.0
    bench.watch.one_pass()
    bench.now += SETTLE_S
    bench.watch.one_pass()
    bench.now += SETTLE_S
    bench.watch.one_pass()
    assert [wish.periodic for wish in bench.look.wishes] == [True, False, True, False]


def test_after_a_list_that_proves_nothing_yet_a_pass_that_is_due_earlier_comes_earlier(bench: Bench) -> None:
    bench.watch.set_interval(SETTLE_S / 2)
    bench.look.answers += [UNSETTLED]
    bench.watch.one_pass()
    bench.now += SETTLE_S / 2
    bench.watch.one_pass()
    assert [wish.periodic for wish in bench.look.wishes] == [True, True]


def test_a_shorter_interval_counts_at_once(bench: Bench) -> None:
    bench.watch.one_pass()
    bench.watch.set_interval(2.0)
    for step_s in (1.9, 0.1, 1.9, 0.1):
        bench.now += step_s
        bench.watch.one_pass()
    assert [wish.periodic for wish in bench.look.wishes] == [True, False, True, False, True]


def test_a_longer_interval_counts_after_the_pass_that_was_due(bench: Bench) -> None:
    bench.watch.one_pass()
    bench.watch.set_interval(100.0)
    for step_s in (INTERVAL_S, 99.9, 0.1):
        bench.now += step_s
        bench.watch.one_pass()
    assert [wish.periodic for wish in bench.look.wishes] == [True, True, False, True]


def test_stop_ends_after_the_pass_that_runs(bench: Bench) -> None:
    bench.look.holds_passes = True
    bench.start()
    assert not bench.watch.stop(0.01)
    bench.look.leave.release()
    assert bench.watch.stop(PATIENCE_S)
    assert len(bench.told) == 1


def test_stop_before_the_start_is_fine(bench: Bench) -> None:
    assert bench.watch.stop(0.0)
