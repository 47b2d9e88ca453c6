"""Claims that have ended: what is remembered of them, and which are taken back in when their domain comes after all."""

from __future__ import annotations

from agent.core.claim import life
from agent.core.claim.values import ClaimRules, Tombstone
from tests.builders import uuid_of
from tests.claim_world import World


def test_a_domain_that_comes_after_its_claim_expired_is_taken_back_in_under_the_same_id() -> None:
    world = World()
    claim = world.claim("a")
    world.wait(1100.0)
    assert world.ending(claim) == "expired"
    world.start("a")
    world.look()
    there = world.now(claim)
    assert (there.state, there.deadline, claim.claim_id in world.book.tombstones) == ("arriving", None, False)
    assert there.sequence > claim.sequence
    assert world.replayed() == world.book
    world.settle()
    assert world.state(claim) == "resident"


def test_it_is_not_while_somebody_else_has_its_place_and_is_once_that_is_free() -> None:
    world = World()
    claim = world.claim("a")
    world.wait(1100.0)
    world.busy.add("a")
    world.start("a")
    world.wait(100.0)
    assert world.ending(claim) == "expired"
    world.busy.clear()
    world.look()
    assert world.state(claim) == "arriving"


def test_a_guest_that_was_gone_for_too_long_is_taken_back_in_when_it_runs_again() -> None:
    world = World()
    claim = world.resident("a")
    world.vanish("a")
    world.wait(1000.0)
    assert world.ending(claim) == "gone"
    world.shut("a")
    world.look()
    assert world.state(claim) == "ended"
    world.start("a")
    world.look()
    assert world.state(claim) == "arriving"


def test_what_was_aborted_released_or_left_is_not_taken_back_in() -> None:
    world = World()
    aborted, released, left = world.claim("a"), world.resident("b"), world.resident("c")
    world.abort(aborted)
    world.release(released)
    world.forget("c", "h2")
    for name in ("a", "b", "c"):
        world.start(name)
    world.wait(100.0)
    assert [world.ending(one) for one in (aborted, released, left)] == ["aborted", "released", "left"]


def test_a_later_refusal_does_not_hide_the_claim_that_expired() -> None:
    world = World()
    claim = world.claim("a")
    world.wait(1100.0)
    refused = Tombstone(
        claim_id="r", ending="refused", ended_at="", at_s=world.moment().wall_s, sequence=99, instance=uuid_of("a")
    )
    world.do(lambda draft: draft.bury(refused))
    world.start("a")
    world.look()
    assert world.state(claim) == "arriving"


def test_no_more_is_remembered_than_the_most_and_the_earliest_goes_with_the_change_that_is_one_too_many() -> None:
    world = World(ClaimRules(most_tombstones=3))
    for name in "abcdef":
        world.abort(world.claim(name))
        assert len(world.book.tombstones) <= 3
        assert world.replayed() == world.book
    assert {one.instance for one in world.book.tombstones.values()} == set(map(uuid_of, "def"))
    (middle,) = (one.claim_id for one in world.book.tombstones.values() if one.instance == uuid_of("e"))
    world.do(lambda draft: draft.unbury(middle))
    world.abort(world.claim("g"))
    world.abort(world.claim("h"))
    assert {one.instance for one in world.book.tombstones.values()} == set(map(uuid_of, "fgh"))
    assert world.replayed() == world.book


def test_a_claim_that_is_taken_back_in_and_ends_again_is_remembered_as_the_last() -> None:
    world = World(ClaimRules(most_tombstones=2))
    claim = world.claim("a")
    world.wait(1100.0)
    world.abort(world.claim("b"))
    world.start("a")
    world.settle()
    world.release(claim)
    world.abort(world.claim("c"))
    assert {one.instance for one in world.book.tombstones.values()} == set(map(uuid_of, "ac"))
    assert world.replayed() == world.book


def test_what_ended_is_forgotten_after_its_time_and_beyond_the_most() -> None:
    world = World(ClaimRules(most_tombstones=2))
    for name in "abcd":
        world.abort(world.claim(name))
        world.now_s += 1.0
    world.do(lambda draft: life.prune(draft, {}))
    assert sorted(one.instance for one in world.book.tombstones.values()) == sorted(map(uuid_of, "cd"))
    world.now_s += 7 * 86400.0 + 1.0
    world.do(lambda draft: life.prune(draft, {}))
    assert (dict(world.book.tombstones), world.replayed() == world.book) == ({}, True)
