"""What is asked about a claim that is on its way to the disk waits until that is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.adapters.journal import read_steps
from agent.claims import Granted
from agent.claims.admissions import Admissions
from agent.core.claim.refusal import ClaimRefusal
from agent.core.claim.values import ClaimContext, ClaimRequest, Tombstone
from agent.core.guest import RunIdentity
from agent.core.instance import Group
from agent.handlers import LatestHostFacts
from tests.at_work import AtWork, asked, pinned
from tests.builders import guest, qemu

GROUP = Group(id="g", policy="anti-affinity")
WAIT_S = 60.0


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AtWork]:
    with AtWork(tmp_path / "state") as made:
        made.look()
        yield made


@pytest.fixture
def callers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


@contextmanager
def slow_disk(agent: AtWork) -> Iterator[None]:
    """Until the end of it the disk takes its time."""
    gate = threading.Event()
    agent.journal.write((), (), is_taker=False, on_done=lambda _problem: _wait(gate))
    try:
        yield
    finally:
        gate.set()


def _wait(gate: threading.Event) -> None:
    assert gate.wait(WAIT_S)


def _until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def _pending(agent: AtWork, callers: ThreadPoolExecutor, request: ClaimRequest) -> Future[Granted | ClaimRefusal]:
    call = callers.submit(agent.claims.claim, request)
    _until(lambda: request.claim_id in agent.book.claims)
    assert agent.book.claims[request.claim_id].state == "pending"
    return call


def test_an_abort_of_a_claim_that_is_on_its_way_to_the_disk_ends_it(agent: AtWork, callers: ThreadPoolExecutor) -> None:
    with slow_disk(agent):
        made = _pending(agent, callers, asked("c1", "a", pinned(2)))
        aborted = callers.submit(agent.claims.abort, "c1")
        renewed = callers.submit(agent.claims.renew, "c1", 60.0)
        assert not made.done()
        assert not aborted.done()
    ended, told = aborted.result(WAIT_S), renewed.result(WAIT_S)
    assert isinstance(ended, Tombstone)
    assert ended.ending == "aborted"
    assert isinstance(told, Granted) or told.code == "ClaimEnded"
    first = made.result(WAIT_S)
    assert isinstance(first, Granted) or first.code == "ClaimEnded"
    assert dict(agent.book.claims) == {}
    assert str(agent.tracker.snapshot.usage.host.dedicated.free) == "2-7"


def test_a_move_can_be_called_off_while_its_claim_is_on_its_way_to_the_disk(
    agent: AtWork, callers: ThreadPoolExecutor
) -> None:
    request = asked("c1", "a", pinned(2), kind="live_migration", context=ClaimContext(move_id="m", peer="b"))
    with slow_disk(agent):
        _pending(agent, callers, request)
        finished = callers.submit(agent.claims.finish_move, "m", "failed")
    move = finished.result(WAIT_S)
    assert not isinstance(move, ClaimRefusal)
    assert (move.outcome, agent.book.tombstones["c1"].ending) == ("failed", "reverted")


def test_a_claim_that_is_being_replaced_takes_no_more_calls(agent: AtWork, callers: ThreadPoolExecutor) -> None:
    agent.granted(asked("c1", "a", pinned(2)))
    with slow_disk(agent):
        made = _pending(agent, callers, asked("c2", "a", pinned(2), context=ClaimContext(replaces="c1")))
        renewed = callers.submit(agent.claims.renew, "c1", 60.0)
        aborted = callers.submit(agent.claims.abort, "c1")
        assert "c1" in agent.book.claims
    assert isinstance(made.result(WAIT_S), Granted)
    told, ended = renewed.result(WAIT_S), aborted.result(WAIT_S)
    assert isinstance(told, ClaimRefusal)
    assert told.code == "ClaimEnded"
    assert isinstance(ended, Tombstone)
    assert ended.ending == "replaced"
    assert set(agent.book.claims) == {"c2"}


def test_a_claim_that_is_stored_too_late_ends_and_leaves_the_one_that_it_was_to_replace(agent: AtWork) -> None:
    old = agent.granted(asked("c1", "a", pinned(2), group=GROUP))
    impatient = Admissions(
        agent.tracker, host="here", facts=LatestHostFacts().of, why_not_ready=lambda _snapshot: None, stale_s=0.1
    )
    with slow_disk(agent):
        told = impatient.claim(asked("c2", "a", pinned(3), group=GROUP, context=ClaimContext(replaces="c1")))
        assert isinstance(told, ClaimRefusal)
        assert told.code == "JournalUnavailable"
    _until(lambda: "c2" in agent.book.tombstones)
    assert (dict(agent.book.claims), agent.book.tombstones["c2"].ending) == ({"c1": old}, "aborted")
    before = agent.restart()
    assert set(agent.book.claims) == {"c1"}
    assert dict(agent.book.tombstones) == dict(before.tombstones)


def test_a_claim_whose_domain_comes_while_it_is_being_replaced_stays_the_one_owner_and_the_other_is_refused(
    agent: AtWork, callers: ThreadPoolExecutor
) -> None:
    agent.granted(asked("c1", "a", pinned(1)))
    with slow_disk(agent):
        made = _pending(agent, callers, asked("c2", "a", pinned(1), context=ClaimContext(replaces="c1")))
        agent.look(guest("a", {0: 2}, run=RunIdentity(libvirt_id=1, pid=10, started_at_boot_s=5.0)))
    refusal = made.result(WAIT_S)
    assert isinstance(refusal, ClaimRefusal)
    assert (refusal.code, refusal.retry, refusal.claim_id) == ("InstanceBusy", "later", "c1")
    assert "names claim c1, which is arriving" in refusal.message
    again = agent.refused(asked("c2", "a", pinned(1), context=ClaimContext(replaces="c1")))
    assert (again.code, again.message) == (refusal.code, refusal.message)
    assert {one.claim_id: one.state for one in agent.book.claims.values()} == {"c1": "arriving"}
    before = agent.restart()
    assert dict(agent.book.tombstones) == dict(before.tombstones) == {}
    assert {one.claim_id: one.state for one in agent.book.claims.values()} == {"c1": "arriving"}


def test_the_steps_tell_until_when_a_claim_that_was_replaced_has_held(agent: AtWork) -> None:
    agent.granted(asked("c1", "a", pinned(2)))
    agent.granted(asked("c2", "a", pinned(3), context=ClaimContext(replaces="c1")))
    agent.stop()
    told = [(step.event, step.claim_id, step.after) for step in read_steps(agent.state_path)]
    assert told == [
        ("admitted", "c1", "reserved"),
        ("replace", "c1", "ended"),
        ("admitted", "c2", "reserved"),
        ("committed", "c1", "ended"),
    ]


def test_a_change_in_place_cannot_replace_the_claim_that_it_changes(agent: AtWork) -> None:
    agent.granted(asked("c1", "a", pinned(2)))
    run = RunIdentity(libvirt_id=1, pid=100)
    for _ in range(3):
        agent.look(guest("a", {0: 2, 1: 3}, run=run), living=[qemu("a", pid=100)])
    assert agent.book.claims["c1"].state == "resident"
    before = agent.book
    context = ClaimContext(replaces="c1", move_id="m")
    refusal = agent.refused(asked("c2", "a", pinned(3), kind="resize", context=context))
    assert (refusal.code, refusal.retry, refusal.claim_id) == ("InvalidRequest", "never", "c1")
    assert agent.book == before
    assert (
        agent.granted(asked("c2", "a", pinned(3), kind="resize", context=ClaimContext(move_id="m"))).role == "in_place"
    )
