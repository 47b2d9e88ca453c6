"""A guest that lives on another host now, by what was said of it, and what is seen of it here."""

from __future__ import annotations

import pytest

from agent.core.claim.values import Claim, ClaimKind, Outcome
from tests.builders import uuid_of
from tests.claim_world import World

IN_PLACE: tuple[ClaimKind, ...] = ("rebuild", "resize")
CALLED_OFF: tuple[Outcome, ...] = ("reverted", "failed")


def in_place(world: World, kind: ClaimKind = "resize", name: str = "a") -> tuple[Claim, Claim]:
    """The owner, and the claim that changes it."""
    old = world.resident(name)
    return old, world.claim(name, kind, role="in_place", move_id="m")


def test_a_forgotten_instance_has_no_claim_here_and_is_known_to_live_elsewhere() -> None:
    world = World()
    claim = world.resident("a")
    world.forget("a", "h2")
    departure = world.book.departures[uuid_of("a")]
    assert (world.ending(claim), departure.moved_to) == ("left", "h2")
    world.wait(100.0)
    assert world.book.departures[uuid_of("a")] == departure


def test_a_departure_is_cleared_by_another_run_and_not_by_the_one_that_was_still_here() -> None:
    world = World()
    world.resident("a")
    world.forget("a")
    world.turn("a", "paused", "user")
    world.wait(100.0)
    world.shut("a")
    world.wait(100.0)
    assert uuid_of("a") in world.book.departures
    world.start("a")
    world.look()
    assert uuid_of("a") not in world.book.departures


def test_forgetting_an_instance_that_nobody_knows_is_remembered() -> None:
    world = World()
    world.forget("a")
    assert world.book.departures[uuid_of("a")].moved_to is None
    assert [step.event for step in world.steps] == ["forgotten"]


@pytest.mark.parametrize("reason", ["booted", "migrated"])
@pytest.mark.parametrize("is_seen_before", [False, True])
def test_a_guest_that_lives_elsewhere_and_runs_on_here_stays_so_whether_it_was_seen_before_that_was_said(
    reason: str, is_seen_before: bool
) -> None:
    world = World()
    world.start("a", "running", reason)
    world.now_s += 5.0
    if is_seen_before:
        world.look()
    world.forget("a", "h2")
    world.wait(100.0)
    assert world.book.departures[uuid_of("a")].moved_to == "h2"


@pytest.mark.parametrize("is_seen_before", [False, True])
def test_a_guest_that_has_left_for_no_named_host_and_runs_on_has_not_come_back(is_seen_before: bool) -> None:
    world = World()
    world.start("a")
    world.now_s += 5.0
    if is_seen_before:
        world.look()
    world.forget("a")
    world.wait(100.0)
    assert uuid_of("a") in world.book.departures


def test_a_guest_that_lives_elsewhere_is_started_here_as_a_second_copy_and_comes_back_by_a_migration() -> None:
    world = World()
    world.resident("a")
    world.shut("a")
    world.forget("a", "h2")
    world.start("a")
    world.wait(100.0)
    assert uuid_of("a") in world.book.departures
    world.start("a", "paused", "migration")
    world.look()
    assert uuid_of("a") in world.book.departures
    world.turn("a", "running", "migrated")
    world.look()
    assert uuid_of("a") not in world.book.departures


def test_a_guest_that_lives_elsewhere_lives_here_again_by_a_claim_once_it_has_come() -> None:
    world = World()
    world.forget("a", "h2")
    claim = world.arriving("a", "evacuate")
    assert uuid_of("a") in world.book.departures
    world.turn("a", "running", "booted")
    world.settle()
    assert (world.state(claim), uuid_of("a") in world.book.departures) == ("resident", False)


def test_that_a_guest_lives_elsewhere_is_taken_back_by_saying_it_without_a_host() -> None:
    world = World()
    world.start("a")
    world.look()
    world.forget("a", "h2")
    world.forget("a")
    world.forget("a")
    world.look()
    assert uuid_of("a") not in world.book.departures


def test_a_claim_that_ended_is_not_taken_back_in_for_the_second_copy_of_a_guest_that_lives_elsewhere() -> None:
    world = World()
    claim = world.resident("a")
    world.vanish("a")
    world.wait(1000.0)
    assert world.ending(claim) == "gone"
    world.forget("a", "h2")
    world.start("a")
    world.wait(100.0)
    assert (world.state(claim), uuid_of("a") in world.book.departures) == ("ended", True)
