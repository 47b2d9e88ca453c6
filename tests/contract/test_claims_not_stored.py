"""What was decided without a disk is in force, and whoever asked is told that it is not stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.adapters.journal import FILE
from agent.claims.commits import Commit
from agent.core.claim.refusal import ClaimRefusal
from agent.core.instance import Group, Instance
from tests.at_work import AtWork, asked, pinned
from tests.builders import guest, uuid_of


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AtWork]:
    with AtWork(tmp_path / "state") as made:
        made.look(guest("old"))
        yield made


def hold(agent: AtWork) -> object:
    """Of the guest that is here."""
    old = Instance(uuid=uuid_of("old"), name="old")
    return agent.claims.hold_for_move("m", "live_migration", old, "there", False)


CALLS: dict[str, Callable[[AtWork], object]] = {
    "hold": hold,
    "maintenance": lambda agent: agent.claims.set_maintenance("disks"),
    "group": lambda agent: agent.claims.set_group(Group(id="g", policy="anti-affinity", members=(uuid_of("old"),))),
    "forget": lambda agent: agent.claims.forget(uuid_of("a"), "there"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_change_that_the_disk_did_not_take_is_in_force_and_told_as_not_stored(agent: AtWork, name: str) -> None:
    agent.granted(asked("c1", "a", pinned(1)))
    before = agent.book
    file = agent.state_path / FILE
    file.rename(file.with_name("aside"))
    for _ in range(2):
        refusal = CALLS[name](agent)
        assert isinstance(refusal, ClaimRefusal)
        assert (refusal.code, refusal.retry) == ("JournalUnavailable", "later")
        assert refusal.message.startswith("It is in force here, but not stored: a restart before the disk takes it ")
        assert "is gone from under the agent" in refusal.message
    assert agent.book != before
    in_force = agent.book
    file.with_name("aside").rename(file)
    assert not isinstance(CALLS[name](agent), ClaimRefusal)
    agent.restart()
    assert agent.book.departures == in_force.departures
    assert (agent.book.maintenance, agent.book.groups) == (in_force.maintenance, in_force.groups)
    assert agent.book.moves == in_force.moves


def test_a_change_that_waits_for_the_disk_for_too_long_is_in_force_too() -> None:
    commit = Commit()
    refusal = commit.in_force(0.0)
    assert refusal is not None
    assert refusal.message.startswith("It is in force here, but not stored: ")
    assert "has not answered for 0 s" in refusal.message
    assert refusal.retry == "later"
    commit.settle(None)
    assert commit.in_force(0.0) is None
