"""Moves over the calls of the local API: their ids, and what has ended stays so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.core.claim.refusal import ClaimRefusal
from agent.core.claim.values import ClaimContext, ClaimRequest
from tests.at_work import AtWork, asked, pinned
from tests.builders import uuid_of


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AtWork]:
    with AtWork(tmp_path / "state") as made:
        made.look()
        yield made


def _in_move(claim_id: str, move_id: str = "m") -> ClaimRequest:
    context = ClaimContext(move_id=move_id, peer="h2")
    return asked(claim_id, "a", pinned(1), kind="live_migration", context=context)


def test_a_claim_is_not_made_in_a_move_that_has_ended_and_is_in_another(agent: AtWork) -> None:
    agent.granted(_in_move("c1"))
    agent.claims.finish_move("m", "failed")
    ended = agent.book.moves["m"]
    refusal = agent.refused(_in_move("c2"))
    assert (refusal.code, refusal.retry) == ("ClaimConflict", "never")
    assert refusal.message == (
        f"Move m of this guest (instance {uuid_of('a')}) has ended here (failed) at {ended.finished_at}: use a new id"
        " for another move"
    )
    assert agent.book.moves["m"] == ended
    agent.granted(_in_move("c2", "m2"))
    again = agent.claims.finish_move("m", "failed")
    assert not isinstance(again, ClaimRefusal)
    assert (again, set(agent.book.claims)) == (ended, {"c2"})


def test_a_claim_that_was_aborted_ends_its_move_with_it(agent: AtWork) -> None:
    agent.granted(_in_move("c1"))
    agent.claims.abort("c1")
    assert agent.refused(_in_move("c2")).code == "ClaimConflict"


def test_a_call_that_is_repeated_is_told_of_its_claim_and_not_of_the_move(agent: AtWork) -> None:
    agent.granted(_in_move("c1"))
    agent.claims.finish_move("m", "failed")
    assert agent.refused(_in_move("c1")).code == "ClaimEnded"
