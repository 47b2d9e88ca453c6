"""What is told while the disk takes its time: renewals and refusals at once or nearly so, and what a restart finds."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.adapters.journal import FILE, Store
from agent.claims import Granted
from agent.claims.admissions import Admissions
from agent.core.claim.refusal import ClaimRefusal
from agent.core.claim.values import ClaimContext, RecordValue, Tombstone
from agent.core.instance import Group
from agent.handlers import LatestHostFacts
from tests.at_work import AtWork, asked, pinned
from tests.builders import uuid_of

WAIT_S = 60.0
GROUP = Group(id="g", policy="anti-affinity")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AtWork]:
    with AtWork(tmp_path / "state") as made:
        made.look()
        yield made


@contextmanager
def slow_disk(agent: AtWork) -> Iterator[None]:
    """Until the end of it the disk takes its time."""
    gate, is_held = threading.Event(), threading.Event()

    def hold(_problem: str | None) -> None:
        is_held.set()
        assert gate.wait(WAIT_S)

    agent.journal.write((), (), is_taker=False, on_done=hold)
    assert is_held.wait(WAIT_S)
    try:
        yield
    finally:
        gate.set()


def _deadline_s(agent: AtWork, claim_id: str) -> float:
    deadline = agent.book.claims[claim_id].deadline
    assert deadline is not None
    return deadline.at_s


def _told(answer: object) -> Granted:
    assert isinstance(answer, Granted), answer
    return answer


@pytest.mark.parametrize("is_recheck", [False, True])
def test_a_renewal_is_told_while_the_disk_does_not_answer(agent: AtWork, is_recheck: bool) -> None:
    context = ClaimContext(ttl_s=300.0, move_id="m", peer="b")
    agent.granted(asked("c1", "a", pinned(2), kind="live_migration", group=GROUP, context=context))
    agent.now_s += 100.0
    with slow_disk(agent):
        claim = _told(agent.claims.recheck("c1") if is_recheck else agent.claims.renew("c1")).claim
    assert claim.deadline is not None
    assert claim.deadline.at_s == _deadline_s(agent, "c1") == agent.now_s + 300.0


def test_a_renewal_of_a_guest_that_is_here_is_told_while_the_disk_does_not_answer(agent: AtWork) -> None:
    agent.granted(asked("c1", "a", pinned(1)))
    agent.look()
    with slow_disk(agent):
        assert _told(agent.claims.renew("c1")).claim.state == "reserved"


def test_a_renewal_is_on_the_disk_after_an_orderly_end(agent: AtWork) -> None:
    agent.granted(asked("c1", "a", pinned(2)))
    agent.now_s += 500.0
    agent.claims.renew("c1", 3600.0)
    agent.restart()
    assert _deadline_s(agent, "c1") == agent.now_s + 3600.0


def test_a_renewal_that_brings_an_overdue_claim_back_waits_for_the_disk(agent: AtWork) -> None:
    agent.granted(asked("c1", "a", pinned(2), context=ClaimContext(ttl_s=15.0)))
    agent.look(after_s=20.0)
    assert agent.book.claims["c1"].state == "overdue"
    with ThreadPoolExecutor(1) as caller:
        with slow_disk(agent):
            told = caller.submit(agent.claims.renew, "c1", 60.0)
            threading.Event().wait(0.2)
            assert not told.done()
        assert _told(told.result(WAIT_S)).claim.state == "reserved"


def _on_disk(agent: AtWork, folder: Path) -> dict[str, RecordValue | None]:
    """What a start finds after a crash at this moment, by key."""
    shutil.copytree(agent.state_path, folder)
    store = Store.open(folder)
    try:
        return {record.key: record.value for record in store.load().records}
    finally:
        store.close()


def test_a_refusal_is_on_the_disk_when_it_is_told(agent: AtWork, tmp_path: Path) -> None:
    for number in range(5):
        refusal = agent.refused(asked(f"c{number}", "a", pinned(9)))
        stored = _on_disk(agent, tmp_path / f"copy-{number}")[f"c{number}"]
        assert isinstance(stored, Tombstone)
        assert stored.refusal == refusal


def test_a_refusal_is_told_though_the_disk_does_not_answer_and_again_to_the_same_call(agent: AtWork) -> None:
    request = asked("c1", "a", pinned(9))
    with slow_disk(agent):
        refusal = agent.refused(request)
        assert agent.refused(request) == refusal
    assert refusal.code == "ComputeResourcesUnavailable"
    agent.restart()
    agent.look()
    assert agent.refused(request) == refusal


def test_a_refusal_is_told_though_the_disk_takes_nothing(agent: AtWork) -> None:
    (agent.state_path / FILE).rename(agent.state_path / "aside")
    assert agent.refused(asked("c1", "a", pinned(9))).code == "ComputeResourcesUnavailable"


def test_a_call_that_found_another_claim_in_the_way_is_granted_once_that_is_gone(agent: AtWork) -> None:
    agent.granted(asked("c1", "a", pinned(2)))
    request = asked("c2", "a", pinned(2))
    refusal = agent.refused(request)
    assert (refusal.code, refusal.retry, refusal.claim_id) == ("InstanceBusy", "later", "c1")
    agent.claims.abort("c1")
    assert agent.granted(request).state == "reserved"


def test_nobody_waits_for_a_claim_that_a_closed_journal_never_took(agent: AtWork) -> None:
    admissions = Admissions(
        agent.tracker, host="here", facts=LatestHostFacts().of, why_not_ready=lambda _snapshot: None
    )
    agent.journal.close(WAIT_S)
    refusal = admissions.claim(asked("c1", "a", pinned(2)))
    assert isinstance(refusal, ClaimRefusal)
    assert refusal.code == "JournalUnavailable"
    assert admissions.commit_of(uuid_of("a")) is None
    assert dict(agent.book.claims) == {}
