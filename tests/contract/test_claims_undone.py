"""A claim that the disk does not take leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.adapters.journal import FILE
from agent.core.claim.book import Book
from agent.core.claim.values import ClaimContext
from agent.core.instance import Group
from tests.at_work import AtWork, asked, pinned
from tests.builders import guest, uuid_of

GROUP = Group(id="g", policy="anti-affinity", members=(), generation=3)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AtWork]:
    with AtWork(tmp_path / "state") as made:
        made.look()
        yield made


def _without_disk(agent: AtWork) -> Path:
    """From now on nothing is stored, as if the folder had been taken away."""
    file = agent.state_path / FILE
    aside = file.with_name("aside")
    file.rename(aside)
    return aside


def _with_disk_again(agent: AtWork, aside: Path) -> None:
    aside.rename(agent.state_path / FILE)


def _bare(book: Book) -> Book:
    """All but how many steps there were."""
    return book._replace(sequence=0)


def test_a_claim_that_cannot_be_stored_is_refused_and_nothing_of_it_stays(agent: AtWork) -> None:
    before = agent.tracker.snapshot
    _without_disk(agent)
    refusal = agent.refused(asked("c1", "a", pinned(2), group=GROUP))
    assert (refusal.code, refusal.retry) == ("JournalUnavailable", "elsewhere")
    assert _bare(agent.book) == _bare(before.book)
    assert agent.tracker.snapshot.usage == before.usage


def test_a_claim_that_could_not_be_stored_can_be_made_once_the_disk_is_back(agent: AtWork) -> None:
    aside = _without_disk(agent)
    agent.refused(asked("c1", "a", pinned(2)))
    _with_disk_again(agent, aside)
    assert agent.granted(asked("c1", "a", pinned(2))).state == "reserved"
    before = agent.restart()
    assert dict(agent.book.claims) == dict(before.claims)


def test_a_claim_that_could_not_take_the_place_of_another_leaves_that_as_it_was(agent: AtWork) -> None:
    old = agent.granted(asked("old", "a", pinned(2), group=GROUP))
    aside = _without_disk(agent)
    refusal = agent.refused(asked("new", "a", pinned(4), group=GROUP, context=ClaimContext(replaces="old")))
    assert refusal.code == "JournalUnavailable"
    assert dict(agent.book.claims) == {"old": old}
    assert not agent.book.tombstones
    _with_disk_again(agent, aside)
    agent.granted(asked("other", "b", pinned(1)))  # what is owed to the disk goes with it
    agent.restart()
    assert set(agent.book.claims) == {"old", "other"}
    assert not agent.book.tombstones


def test_a_claim_that_takes_the_place_of_another_ends_that_in_the_same_step(agent: AtWork) -> None:
    agent.granted(asked("old", "a", pinned(6)))
    new = agent.granted(asked("new", "a", pinned(5), context=ClaimContext(replaces="old")))
    assert set(agent.book.claims) == {"new"}
    assert agent.book.tombstones["old"].ending == "replaced"
    assert agent.tracker.snapshot.usage.host.dedicated.promised == new.placement.cells[0].cpus  # type: ignore[union-attr]
    before = agent.restart()
    assert dict(agent.book.claims) == dict(before.claims)
    assert dict(agent.book.tombstones) == dict(before.tombstones)


def test_the_owner_made_for_a_guest_without_claim_goes_with_the_change_that_needed_it(agent: AtWork) -> None:
    agent.look(guest("a", {0: 2, 1: 3}))
    _without_disk(agent)
    agent.refused(asked("resize", "a", pinned(3), kind="resize"))
    assert not agent.book.claims
    assert not agent.book.moves
    assert agent.book.owner_of(uuid_of("a")) is None
