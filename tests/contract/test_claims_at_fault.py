"""A claim that nobody could move on, as no claim should be, leaves the others and the report what they are."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.core.claim.book import Draft
from agent.core.claim.values import Claim, Move, Step
from agent.core.guest import RunIdentity
from agent.core.report import health
from agent.core.snapshot import Snapshot
from agent.reporter import report_pass
from tests.at_work import AtWork, asked, pinned
from tests.builders import guest, uuid_of
from tests.builders_claims import claim_of, place

RUN = RunIdentity(libvirt_id=1, pid=10, started_at_boot_s=5.0)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AtWork]:
    with AtWork(tmp_path / "state") as made:
        made.look()
        yield made


def _without_way_out(agent: AtWork) -> Claim:
    """A change in place that waits, in doubt, for a domain to go: the table has no such step. It is half of a move."""
    odd = claim_of("odd", place(7), role="in_place", state="doubtful", move_id="m", ending="reverted", claim_id="c0")
    move = Move(move_id="m", kind="resize", instance=uuid_of("odd"), destination="c0", opened_at="", at_s=0.0)

    def put(_current: Snapshot, draft: Draft) -> Claim:
        draft.put(move)
        return draft.admit(odd, Step(sequence=0, at="", event="admitted", claim_id="c0"))

    return agent.tracker.transact(put)


def test_a_claim_that_cannot_be_moved_on_stays_as_it_is_and_the_others_go_on(agent: AtWork) -> None:
    odd = _without_way_out(agent)
    agent.granted(asked("c1", "a", pinned(1)))
    running = guest("a", {0: 2}, run=RUN)
    agent.look(running)
    agent.look(running)
    after = agent.look(running)
    assert (after.book.claims["c1"].state, after.book.claims["c0"], after.book.moves["m"].outcome) == (
        "resident",
        odd,
        None,
    )
    assert str(after.usage.host.dedicated.used) == "2"
    before = agent.restart()
    assert (dict(agent.book.claims), dict(agent.book.moves)) == (dict(before.claims), dict(before.moves))


def test_it_is_told_of_in_the_health_report_and_once_in_the_log_until_it_is_gone(
    agent: AtWork, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    _without_way_out(agent)
    looks = [agent.tracker.snapshot]
    for _ in range(3):
        looks.append(agent.look())
        report_pass(*looks[-2:])
    told = looks[-1].source("claims").problem
    assert told == (
        "What is seen could not be applied to 1 claim or guest, which stays as before: claim c0 of odd (IllegalStep in"
        " _doubtful > end > end > _next: claim c0 is doubtful; rolled-back is not possible then). All others are as"
        " they should be. Please report this"
    )
    report = health(looks[-1], now_s=agent.now_s, interval_s=10.0)
    assert (report.status, report.ready) == ("degraded", True)
    assert any(told in reason for reason in report.reasons)
    (line,) = [one for one in caplog.records if "sources_failed" in one.getMessage()]
    assert (line.levelname, "claim c0 of odd" in line.getMessage()) == ("WARNING", True)
    agent.tracker.transact(lambda _current, draft: draft.put_back("claim", "c0", None))
    assert agent.look().source("claims").problem is None
