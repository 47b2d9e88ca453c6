"""Moves, as each of their halves sees them: live and cold, resize to another host and in place, rebuild (LEDGER 2)."""

from __future__ import annotations

import pytest

from agent.core.claim import life, moves
from agent.core.claim.book import IllegalStep
from agent.core.claim.life import MoveHasEnded, Refused
from agent.core.claim.values import Claim, ClaimKind, Outcome
from agent.core.ledger import Holds
from tests.builders import uuid_of
from tests.claim_world import World

IN_PLACE: tuple[ClaimKind, ...] = ("rebuild", "resize")
CALLED_OFF: tuple[Outcome, ...] = ("reverted", "failed")


def in_place(world: World, kind: ClaimKind = "resize", name: str = "a") -> tuple[Claim, Claim]:
    """The owner, and the claim that changes it."""
    old = world.resident(name)
    return old, world.claim(name, kind, role="in_place", move_id="m")


# --- live, source ------------------------------------------------------------------------------------------


def test_a_guest_that_leaves_live_holds_until_libvirt_says_that_it_has_migrated() -> None:
    world = World()
    claim = world.resident("a")
    held = world.hold("a")
    assert (held.state, held.move_id, held.peer, held.deadline) == ("leaving", "m", "h2", None)
    world.turn("a", "paused", "migration")
    world.wait(100.0)
    assert world.state(claim) == "leaving"
    world.shut("a", "migrated")
    world.look()
    departure = world.book.departures[uuid_of("a")]
    assert (world.ending(claim), departure.moved_to, world.book.moves["m"].outcome) == ("left", "h2", "confirmed")


@pytest.mark.parametrize("reason", ["shutdown", "destroyed", "crashed", None])
def test_a_guest_that_goes_off_otherwise_while_it_leaves_has_not_left(reason: str | None) -> None:
    world = World()
    claim = world.resident("a")
    world.hold("a")
    world.shut("a", reason)
    world.wait(1000.0)
    assert world.state(claim) == "leaving"


def test_absence_alone_is_no_leaving_and_with_the_word_of_the_peer_it_is() -> None:
    world = World()
    claim = world.resident("a")
    world.hold("a")

    def tell() -> object:
        why = "h2 says that it is resident there"
        return world.do(lambda draft: moves.has_left(draft, world.ledger, world.now(claim), why))

    assert tell() == world.now(claim)
    world.vanish("a")
    world.wait(1000.0)
    assert world.state(claim) == "leaving"
    tell()
    assert (world.ending(claim), uuid_of("a") in world.book.departures) == ("left", True)


def test_a_plain_sight_of_running_does_not_end_a_move_and_its_driver_does() -> None:
    world = World()
    claim = world.resident("a")
    world.hold("a")
    world.turn("a", "running", "migration-canceled")
    world.wait(1000.0)
    assert world.state(claim) == "leaving"
    back = world.do(lambda draft: moves.stays_here(draft, world.now(claim), "no job moves it"))
    assert (back.state, back.move_id, back.peer, world.book.moves["m"].outcome) == ("resident", None, None, "failed")


@pytest.mark.parametrize("outcome", ["confirmed", "reverted", "failed"])
def test_a_move_that_broke_is_in_doubt_until_it_is_finished(outcome: Outcome) -> None:
    world = World()
    claim = world.resident("a")
    world.hold("a")
    world.turn("a", "paused", "postcopy-failed")
    world.look()
    world.wait(5000.0)
    world.vanish("a")
    world.wait(5000.0)
    assert world.state(claim) == "doubtful"
    world.finish("m", outcome)
    assert world.state(claim) == ("ended" if outcome == "confirmed" else "resident")


# --- live, destination --------------------------------------------------------------------------------------


def test_a_rolled_back_guest_holds_on_the_destination_until_its_domain_is_gone() -> None:
    world = World()
    claim = world.arriving("a", "live_migration")
    assert world.finish(claim.move_id or "", "failed").outcome == "failed"
    world.wait(500.0)
    assert world.state(claim) == "arriving"
    world.vanish("a")
    world.look()
    assert world.ending(claim) == "reverted"


def test_a_move_called_off_before_its_domain_came_ends_at_once() -> None:
    world = World()
    claim = world.claim("a", "live_migration")
    world.finish(claim.move_id or "", "reverted")
    assert world.ending(claim) == "reverted"


def test_an_incoming_guest_in_doubt_is_resident_when_its_move_is_confirmed() -> None:
    world = World()
    claim = world.arriving("a", "live_migration")
    world.turn("a", "paused", "postcopy-failed")
    world.look()
    world.finish(claim.move_id or "", "confirmed")
    assert world.state(claim) == "resident"


def test_an_incoming_guest_in_doubt_ends_once_it_is_gone_when_its_move_is_called_off() -> None:
    world = World()
    claim = world.arriving("a", "live_migration")
    world.turn("a", "paused", "postcopy-failed")
    world.look()
    world.finish(claim.move_id or "", "failed")
    world.wait(100.0)
    assert world.state(claim) == "doubtful"
    world.vanish("a")
    world.look()
    assert world.ending(claim) == "reverted"


def test_an_incoming_guest_in_doubt_that_runs_here_alone_is_resident() -> None:
    world = World()
    claim = world.arriving("a", "live_migration")
    world.do(lambda draft: moves.torn(draft, world.now(claim), "the source is silent"))
    back = world.do(lambda draft: moves.stays_here(draft, world.now(claim), "h1 has none"))
    assert (back.state, back.role, world.book.moves[claim.move_id or ""].outcome) == ("resident", "owner", "confirmed")


def test_a_guest_that_comes_again_ends_what_was_left_of_its_earlier_stay() -> None:
    world = World()
    old = world.resident("a")
    world.hold("a", "cold_migration", is_cold=True)
    world.shut("a", "destroyed")
    world.look()
    assert world.state(old) == "parked"
    new = world.claim("a", "live_migration")
    world.start("a", "paused", "migration")
    world.look()
    assert (world.state(old), world.state(new)) == ("parked", "arriving")
    world.turn("a", "running", "migrated")
    world.look()
    assert (world.ending(old), world.state(new), world.now(new).role) == ("replaced", "resident", "owner")
    assert [one.claim_id for one in world.book.claims_of(uuid_of("a"))] == [new.claim_id]


def test_a_live_migration_is_over_on_its_destination_when_the_guest_has_arrived() -> None:
    world = World()
    settled, confirmed = world.resident("a", "live_migration"), world.arriving("b", "live_migration")
    move_ids = [confirmed.move_id or "", "move-a-0"]
    world.confirm(confirmed)
    assert [world.now(one).move_id for one in (settled, confirmed)] == [None, None]
    assert [world.book.moves[one].outcome for one in move_ids] == ["confirmed", "confirmed"]
    assert world.finish(move_ids[0], "confirmed").outcome == "confirmed"
    assert world.hold("a", move_id="next").state == "leaving"


def test_a_change_in_place_is_not_confirmed_while_its_owner_is_half_of_another_move() -> None:
    world = World()
    old = world.resident("a", "resize")
    new = world.claim("a", "rebuild")
    with pytest.raises(Refused) as refused:
        world.confirm(new)
    assert f"its owner is part of move {old.move_id}" in life.explain(refused.value)
    world.finish(old.move_id or "", "confirmed")
    assert world.confirm(new).state == "parked"


def test_what_is_away_is_not_called_back_by_the_domain_of_a_claim_beside_it() -> None:
    world = World()
    old = world.resident("a")
    world.vanish("a")
    world.look()
    new = world.claim("a", "live_migration")
    world.start("a", "paused", "migration")
    world.look()
    assert (world.state(old), world.state(new)) == ("away", "arriving")
    world.turn("a", "running", "migrated")
    world.look()
    assert (world.ending(old), world.state(new)) == ("replaced", "resident")


# --- cold migration and resize to another host ------------------------------------------------------------------


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_cold_source_is_parked_once_its_domain_is_off_or_gone(is_gone: bool) -> None:
    world = World()
    claim = world.resident("a")
    world.hold("a", "resize", is_cold=True)
    world.wait(1000.0)
    assert world.state(claim) == "leaving"
    if is_gone:
        world.vanish("a")
    else:
        world.shut("a", "destroyed")
    world.look()
    assert world.state(claim) == "parked"
    world.wait(9000.0)
    assert world.state(claim) == "parked"


def test_a_guest_that_is_off_already_is_parked_at_once() -> None:
    world = World()
    claim = world.resident("a")
    world.shut("a")
    world.look()
    assert world.hold("a", "cold_migration", is_cold=True).state == "parked"
    assert world.events(claim)[-2:] == ["hold", "switched-off"]


def test_a_confirmed_source_has_left_and_says_where_to() -> None:
    world = World()
    claim = world.resident("a")
    world.hold("a", "resize", is_cold=True)
    world.shut("a")
    world.look()
    assert world.finish("m", "confirmed").outcome == "confirmed"
    departure = world.book.departures[uuid_of("a")]
    assert (world.ending(claim), departure.moved_to, departure.run) == ("left", "h2", None)


@pytest.mark.parametrize("outcome", CALLED_OFF)
def test_a_reverted_source_is_resident_as_before(outcome: Outcome) -> None:
    world = World()
    claim = world.resident("a")
    world.hold("a", "resize", is_cold=True)
    world.shut("a")
    world.look()
    world.finish("m", outcome)
    back = world.now(claim)
    assert (back.state, back.move_id, back.peer, back.is_cold) == ("resident", None, None, False)


def test_a_confirmed_destination_stays_and_its_move_is_closed() -> None:
    world = World()
    claim = world.resident("a", "resize")
    move_id = claim.move_id or ""
    assert world.book.moves[move_id].outcome is None
    world.finish(move_id, "confirmed")
    assert (world.state(claim), world.now(claim).move_id, world.book.moves[move_id].outcome) == (
        "resident",
        None,
        "confirmed",
    )


@pytest.mark.parametrize("outcome", CALLED_OFF)
@pytest.mark.parametrize("is_gone", [False, True])
def test_a_reverted_destination_ends_once_its_domain_is_gone(outcome: Outcome, is_gone: bool) -> None:
    world = World()
    claim = world.resident("a", "resize")
    world.finish(claim.move_id or "", outcome)
    world.wait(500.0)
    assert (world.state(claim), world.now(claim).ending) == ("resident", "reverted")
    if is_gone:
        world.vanish("a")
    else:
        world.shut("a", "destroyed")
    world.look()
    assert world.ending(claim) == "reverted"


def test_a_move_confirmed_before_its_domain_was_seen_goes_on_by_what_is_seen() -> None:
    world = World()
    claim = world.claim("a", "resize")
    world.finish(claim.move_id or "", "confirmed")
    assert world.state(claim) == "reserved"
    world.start("a")
    world.settle()
    assert world.state(claim) == "resident"


def test_a_move_confirmed_while_its_domain_is_arriving_makes_it_resident() -> None:
    world = World()
    claim = world.arriving("a", "resize")
    world.finish(claim.move_id or "", "confirmed")
    assert (world.state(claim), world.now(claim).move_id) == ("resident", None)


@pytest.mark.parametrize(
    ("outcome", "again"), [("confirmed", "confirmed"), ("reverted", "failed"), ("failed", "reverted")]
)
def test_finishing_twice_is_finishing_once(outcome: Outcome, again: Outcome) -> None:
    world = World()
    world.resident("a")
    world.hold("a", "resize", is_cold=True)
    first = world.finish("m", outcome)
    before = world.book
    assert (world.finish("m", again), world.book) == (first, before)


@pytest.mark.parametrize(("outcome", "again"), [("confirmed", "reverted"), ("failed", "confirmed")])
def test_a_move_has_one_outcome(outcome: Outcome, again: Outcome) -> None:
    world = World()
    world.resident("a")
    world.hold("a", "resize", is_cold=True)
    world.finish("m", outcome)
    with pytest.raises(MoveHasEnded, match=f"Cannot finish \\({again}\\) move m .* has ended \\({outcome}\\)"):
        world.finish("m", again)


def test_holding_twice_is_holding_once_and_a_late_hold_for_a_finished_move_is_refused() -> None:
    world = World()
    world.resident("a")
    assert world.hold("a") == world.hold("a")
    world.finish("m", "failed")
    with pytest.raises(MoveHasEnded, match="Begin another one"):
        world.hold("a")


def test_a_guest_has_one_open_move() -> None:
    world = World()
    claim = world.resident("a", "resize")
    with pytest.raises(Refused) as refused:
        world.hold("a", move_id="other")
    assert f"it is part of move {claim.move_id}" in life.explain(refused.value)
    world.finish(claim.move_id or "", "confirmed")
    assert world.hold("a", move_id="other").state == "leaving"


def test_a_guest_on_its_way_here_or_changed_in_place_cannot_leave() -> None:
    world = World()
    world.arriving("a", "live_migration")
    in_place(world, name="b")
    for name in "ab":
        with pytest.raises(Refused, match="hold"):
            world.hold(name, move_id=f"move-{name}")


def test_a_guest_that_no_claim_made_gets_its_owner_in_the_same_change() -> None:
    world = World()
    world.start("a")
    world.look()
    held = world.hold("a")
    assert (held.role, held.state, held.observed) == (
        "owner",
        "leaving",
        Holds(uuid=uuid_of("a"), host_memory_kib=1),
    )
    assert [(one.event, one.before, one.after) for one in world.steps] == [
        ("observed", None, "resident"),
        ("hold", "resident", "leaving"),
    ]
    world.finish("m", "failed")
    assert world.state(held) == "resident"


# --- in place ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", IN_PLACE)
def test_sightings_move_neither_half_of_a_change_in_place(kind: ClaimKind) -> None:
    world = World()
    old, new = in_place(world, kind)
    states = []
    for what in (world.vanish, world.start, world.shut, world.start):
        what("a")
        world.wait(20.0)
        states.append((world.state(old), world.state(new)))
    world.confirm(new)
    for what in (world.shut, world.vanish, world.start):
        what("a")
        world.wait(20.0)
        states.append((world.state(old), world.state(new)))
    assert states == [("resident", "reserved")] * 4 + [("parked", "parked")] * 3


@pytest.mark.parametrize("kind", IN_PLACE)
def test_a_confirmed_change_makes_the_new_claim_the_owner_and_ends_the_old_in_one_change(kind: ClaimKind) -> None:
    world = World()
    old, new = in_place(world, kind)
    world.confirm(new)
    assert world.confirm(new) == world.now(new)
    assert (world.state(old), world.state(new)) == ("parked", "parked")
    steps = len(world.steps)
    world.finish("m", "confirmed")
    there = world.now(new)
    assert (world.ending(old), there.state, there.role, there.move_id) == ("replaced", "resident", "owner", None)
    assert [step.event for step in world.steps[steps:]] == ["finish-confirmed"] * 2
    assert world.replayed() == world.book


@pytest.mark.parametrize("outcome", CALLED_OFF)
@pytest.mark.parametrize("is_confirmed", [False, True])
def test_a_change_called_off_leaves_the_old_claim(outcome: Outcome, is_confirmed: bool) -> None:
    world = World()
    old, new = in_place(world)
    if is_confirmed:
        world.confirm(new)
    world.finish("m", outcome)
    assert (world.state(old), world.now(old).move_id, world.ending(new)) == ("resident", None, "reverted")


def test_a_change_finished_without_having_been_confirmed_is_both() -> None:
    world = World()
    old, new = in_place(world)
    world.finish("m", "confirmed")
    assert (world.ending(old), world.state(new)) == ("replaced", "resident")


def test_a_change_that_nobody_confirms_expires_without_any_proof_and_leaves_the_owner() -> None:
    world = World()
    old, new = in_place(world)
    world.wait(1000.0, "down", "blind")
    assert (world.state(old), world.ending(new), world.book.moves["m"].outcome) == ("resident", "expired", "failed")
    assert world.finish("m", "reverted").outcome == "failed"


def test_a_guest_is_not_away_while_it_is_changed_in_place_and_is_afterwards() -> None:
    world = World()
    old, new = in_place(world, "rebuild")
    world.vanish("a")
    world.wait(800.0)
    assert world.state(old) == "resident"
    world.abort(new)
    world.look()
    assert (world.state(old), world.ending(new)) == ("away", "aborted")


def test_a_guest_that_no_claim_made_can_be_changed_in_place() -> None:
    world = World()
    world.start("a")
    world.look()
    new = world.claim("a", "rebuild")
    owner = world.book.owner_of(uuid_of("a"))
    assert owner is not None
    assert (owner.state, owner.observed) == ("resident", Holds(uuid=uuid_of("a")))
    world.confirm(new)
    world.finish(new.move_id or "", "confirmed")
    assert (world.ending(owner), world.now(new).role) == ("replaced", "owner")


def test_releasing_the_owner_ends_a_change_that_was_only_promised() -> None:
    world = World()
    old, new = in_place(world)
    world.release(old)
    assert (world.ending(old), world.ending(new), world.book.moves["m"].outcome) == ("released", "aborted", "failed")


def test_a_parked_pair_is_not_released_and_the_command_that_ends_it_is_named() -> None:
    world = World()
    old, new = in_place(world)
    world.confirm(new)
    with pytest.raises(IllegalStep) as refused:
        world.release(old)
    told = life.explain(refused.value)
    assert "`agentctl migration finish m --outcome HOW`" in told
