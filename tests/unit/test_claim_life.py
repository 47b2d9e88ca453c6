"""The life of a claim, state by state, as callers, what is seen and the clock drive it (LEDGER 2)."""

from __future__ import annotations

import pytest

from agent.core.claim import life
from agent.core.claim.book import IllegalStep
from agent.core.claim.evidence import to_read
from agent.core.claim.life import Refused
from agent.core.claim.values import ClaimKind, ClaimRules, Tombstone
from agent.core.guest import DomainState
from agent.core.ledger import Holds, see_all
from tests.builders import uuid_of
from tests.claim_world import World

# --- pending ---------------------------------------------------------------------------------------------


def test_pending_becomes_reserved_once_the_journal_has_it_and_was_never_there_when_it_has_not() -> None:
    world = World()
    claim = world.pend("a")
    assert world.state(claim) == "pending"
    world.do(lambda draft: draft.settle(claim))
    assert world.state(claim) == "reserved"
    other = world.pend("b", stored=False)
    world.do(lambda draft: draft.take_back(other), stored=False)
    assert (world.state(other), len(world.book.tombstones)) == ("ended", 0)
    assert world.replayed().claims_of(uuid_of("b")) == ()


def test_nothing_that_is_seen_moves_a_pending_claim() -> None:
    world = World()
    claim = world.pend("a")
    world.start("a")
    world.wait(5000.0)
    assert world.state(claim) == "pending"


# --- reserved and overdue ----------------------------------------------------------------------------------


def test_reserved_is_arriving_at_the_first_sight_of_a_new_run() -> None:
    world = World()
    claim = world.claim("a")
    world.start("a", "paused", "starting-up")
    world.look()
    assert (world.state(claim), world.now(claim).deadline) == ("arriving", None)


def test_the_run_that_was_there_when_the_claim_was_made_does_not_count() -> None:
    world = World()
    world.start("a")
    world.look()
    claim = world.claim("a")
    world.wait(100.0)
    assert world.state(claim) == "reserved"
    world.start("a")
    world.look()
    assert world.state(claim) == "arriving"


def test_a_domain_that_was_defined_and_off_before_is_no_arrival() -> None:
    world = World()
    world.shut("a")
    world.look()
    claim = world.claim("a")
    world.wait(100.0)
    assert world.state(claim) == "reserved"


def test_a_reading_that_began_before_the_claim_was_made_is_no_arrival() -> None:
    world = World()
    world.start("a")
    seen = world.readings()
    world.now_s += 1.0
    claim = world.claim("a")
    world.ledger = see_all(world.ledger, seen)
    world.observe()
    assert world.state(claim) == "reserved"
    world.look()
    assert world.state(claim) == "arriving"


def test_a_deadline_makes_overdue_and_only_the_grace_with_proven_absence_ends_it() -> None:
    world = World()
    claim = world.claim("a")
    world.wait(899.0)
    assert world.state(claim) == "reserved"
    world.wait(12.0)
    assert world.state(claim) == "overdue"
    world.wait(50.0)
    assert world.state(claim) == "overdue"
    world.wait(25.0)
    assert world.ending(claim) == "expired"


def test_an_overdue_claim_whose_domain_is_still_defined_holds_on() -> None:
    world = World()
    world.shut("a")
    world.look()
    claim = world.claim("a")
    world.wait(5000.0)
    assert world.state(claim) == "overdue"


def test_an_overdue_claim_is_reserved_again_when_renewed_and_arrives_when_its_domain_comes() -> None:
    world = World()
    first, second = world.claim("a"), world.claim("b")
    world.wait(920.0)
    world.renew(first, 100.0)
    world.start("b")
    world.look()
    assert (world.state(first), world.state(second)) == ("reserved", "arriving")
    world.wait(95.0)
    assert world.state(first) == "reserved"
    world.wait(20.0)
    assert world.state(first) == "overdue"


def test_a_deadline_is_kept_between_the_least_and_the_most() -> None:
    world = World()
    now, rules = world.moment(), ClaimRules()
    waits = [life.first_deadline(now, rules, ttl_s).at_s - now.monotonic_s for ttl_s in (0.0, 60.0, 1e9)]
    assert waits == [10.0, 60.0, 86400.0]


def test_abort_ends_what_is_only_reserved_at_once() -> None:
    world = World()
    claim = world.claim("a")
    answer = world.abort(claim, "not needed")
    assert isinstance(answer, Tombstone)
    assert (answer.ending, answer.claim and answer.claim.reason, world.ending(claim)) == (
        "aborted",
        "not needed",
        "aborted",
    )


def test_abort_of_a_claim_whose_domain_has_been_seen_meanwhile_waits_for_that() -> None:
    world = World()
    claim = world.claim("a")
    world.start("a", "paused", "starting-up")
    world.look()
    world.abort(claim)
    assert (world.state(claim), world.now(claim).ending) == ("arriving", "aborted")


def test_abort_of_an_id_that_was_never_seen_is_remembered() -> None:
    world = World()
    tombstone = world.do(lambda draft: life.abort_unknown(draft, "ghost"))
    assert (tombstone.ending, tombstone.digest, tombstone.claim) == ("aborted", "", None)
    assert world.replayed().tombstones["ghost"] == tombstone


# --- arriving ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("paused", "migration"),
        ("paused", "starting-up"),
        ("paused", "postcopy"),
        ("running", "postcopy"),
        ("paused", "user"),
        ("crashed", "panicked"),
    ],
)
def test_a_domain_on_its_way_does_not_settle(state: DomainState, reason: str) -> None:
    world = World()
    claim = world.claim("a", "live_migration")
    world.start("a", state, reason)
    world.wait(300.0)
    assert world.state(claim) == "arriving"


def test_running_for_settle_s_makes_it_resident_and_the_owner() -> None:
    world = World()
    claim = world.claim("a", "resize")
    world.start("a")
    world.look()
    world.look(after_s=5.0)
    assert world.state(claim) == "arriving"
    world.look(after_s=6.0)
    assert (world.state(claim), world.now(claim).role) == ("resident", "owner")


@pytest.mark.parametrize("is_new_run", [False, True])
def test_settle_s_begins_anew_with_a_pause_and_with_another_run(is_new_run: bool) -> None:
    world = World()
    claim = world.claim("a")
    world.start("a")
    world.look()
    if is_new_run:
        world.start("a")
    else:
        world.turn("a", "paused", "migration")
    world.look(after_s=6.0)
    world.turn("a", "running", "booted")
    world.look(after_s=3.0)
    world.look(after_s=3.0)
    assert world.state(claim) == "arriving"
    world.look(after_s=8.0)
    assert world.state(claim) == "resident"


def test_a_reading_taken_twice_is_no_second_reading() -> None:
    world = World()
    claim = world.claim("a")
    world.start("a")
    world.look()
    for _ in range(5):
        world.now_s += 10.0
        world.observe()
    assert world.state(claim) == "arriving"


def test_a_migration_that_has_ended_settles_at_once() -> None:
    world = World()
    claim = world.claim("a", "live_migration")
    world.start("a", "paused", "migration")
    world.look()
    world.turn("a", "running", "migrated")
    world.look()
    assert world.state(claim) == "resident"


def test_confirm_with_the_domain_seen_makes_it_resident() -> None:
    world = World()
    claim = world.arriving("a", "live_migration")
    assert (world.confirm(claim).state, world.confirm(claim).role) == ("resident", "owner")


def test_confirm_before_anything_was_seen_is_refused_and_says_why() -> None:
    world = World()
    claim = world.claim("a")
    with pytest.raises(Refused) as refused:
        world.confirm(claim)
    assert "no domain of it has been seen here yet" in life.explain(refused.value)


def test_confirm_of_a_guest_that_was_moved_while_off_makes_it_resident() -> None:
    world = World()
    claim = world.claim("a", "cold_migration")
    world.shut("a")
    world.look()
    assert world.confirm(claim).state == "resident"


@pytest.mark.parametrize("kind", ["build", "unshelve", "evacuate"])
def test_a_build_whose_domain_goes_is_reserved_anew_and_noted_as_failed(kind: ClaimKind) -> None:
    world = World()
    claim = world.arriving("a", kind)
    world.wait(500.0)
    world.vanish("a")
    world.look()
    there = world.now(claim)
    assert (there.state, there.deadline and there.deadline.at_s - world.now_s) == ("reserved", 900.0)
    assert [(one.claim_id, one.instance) for one in world.book.failures] == [(claim.claim_id, uuid_of("a"))]
    world.start("a")
    world.settle()
    assert world.state(claim) == "resident"


def test_a_build_that_fails_twice_counts_once_and_is_forgotten_in_time() -> None:
    world = World()
    world.arriving("a")
    for _ in range(2):
        world.vanish("a")
        world.look()
        world.start("a", "paused", "starting-up")
        world.look()
    counts = [len(world.book.failures)]
    assert world.replayed() == world.book
    world.now_s += 3700.0
    world.do(lambda draft: life.prune(draft, world.ledger.sightings))
    counts.append(len(world.book.failures))
    assert counts == [1, 0]


def test_an_incoming_migration_that_fails_is_reserved_anew_and_no_failed_build() -> None:
    world = World()
    claim = world.arriving("a", "live_migration")
    world.vanish("a")
    world.look()
    assert (world.state(claim), world.book.failures) == ("reserved", ())


def test_abort_while_arriving_holds_until_the_domain_is_gone() -> None:
    world = World()
    claim = world.arriving("a", "live_migration")
    answer = world.abort(claim, "rolled back")
    assert (world.state(claim), answer) == ("arriving", world.now(claim))
    assert world.abort(claim) == answer
    world.wait(1000.0)
    assert world.state(claim) == "arriving"
    world.vanish("a")
    world.look()
    assert world.ending(claim) == "aborted"


def test_an_abort_that_waits_ends_too_when_the_domain_stays_defined_and_is_off() -> None:
    world = World()
    claim = world.arriving("a")
    world.abort(claim)
    world.shut("a", "failed")
    world.look()
    assert world.ending(claim) == "aborted"


def test_a_domain_that_runs_on_after_an_abort_does_not_settle_but_can_be_confirmed() -> None:
    world = World()
    claim = world.arriving("a")
    world.abort(claim)
    world.turn("a", "running", "booted")
    world.wait(100.0)
    assert world.state(claim) == "arriving"
    assert (world.confirm(claim).state, world.now(claim).ending) == ("resident", None)


def test_post_copy_that_fails_puts_an_incoming_guest_in_doubt() -> None:
    world = World()
    claim = world.arriving("a", "live_migration")
    world.turn("a", "paused", "postcopy-failed")
    world.look()
    assert (world.state(claim), "post-copy" in (world.now(claim).reason or "")) == ("doubtful", True)


# --- resident and away ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["paused", "pmsuspended", "crashed", "shut-off"])
def test_resident_stays_so_in_whatever_state_its_domain_is(state: DomainState) -> None:
    world = World()
    claim = world.resident("a")
    world.turn("a", state)
    world.wait(5000.0)
    assert world.state(claim) == "resident"


def test_a_hard_reboot_goes_away_and_comes_back() -> None:
    world = World()
    claim = world.resident("a")
    world.vanish("a")
    world.look()
    assert world.state(claim) == "away"
    world.wait(800.0)
    world.start("a")
    world.look()
    assert (world.state(claim), world.now(claim).deadline) == ("resident", None)


def test_away_ends_after_its_grace_with_proven_absence() -> None:
    world = World()
    claim = world.resident("a")
    world.vanish("a")
    world.wait(880.0)
    assert world.state(claim) == "away"
    world.wait(900.0, "down")
    assert world.state(claim) == "away"
    world.look()
    assert world.ending(claim) == "gone"


def test_release_ends_resident_and_away_also_while_libvirt_is_out_of_reach() -> None:
    world = World()
    first, second = world.resident("a"), world.resident("b")
    world.vanish("b")
    world.look()
    world.look("down")
    assert [world.release(one).ending for one in (first, second)] == ["released", "released"]
    assert world.seen("a") is not None


def test_release_of_a_guest_that_is_still_coming_is_refused_and_abort_is_named() -> None:
    world = World()
    claim = world.arriving("a")
    with pytest.raises(IllegalStep) as refused:
        world.release(claim)
    assert "abort" in life.explain(refused.value)


def test_renew_changes_nothing_where_nothing_is_due() -> None:
    world = World()
    claim, coming = world.resident("a"), world.arriving("b")
    steps = len(world.steps)
    assert (world.renew(claim), world.renew(coming)) == (claim, coming)
    assert len(world.steps) == steps
    world.renew(coming, 50.0)
    world.vanish("b")
    world.look()
    deadline = world.now(coming).deadline
    assert deadline is not None
    assert deadline.at_s - world.now_s == 50.0


def test_what_is_observed_can_be_accepted_in_the_place_of_what_was_promised() -> None:
    world = World()
    claim = world.resident("a")
    holds = Holds(uuid=uuid_of("a"), host_memory_kib=7)
    accepted = world.do(lambda draft: life.accept_observed(draft, claim, holds))
    assert (accepted.placement, accepted.observed, world.events(claim)[-1]) == (None, holds, "accept-observed")
    coming = world.claim("b")
    with pytest.raises(IllegalStep):
        world.do(lambda draft: life.accept_observed(draft, coming, holds))


def test_a_replaced_claim_ends_in_the_change_that_brings_the_other() -> None:
    world = World()
    claim = world.claim("a")
    tombstone = world.do(lambda draft: life.replace(draft, claim, "c-2"))
    assert (tombstone.ending, tombstone.claim and tombstone.claim.reason) == ("replaced", "replaced by claim c-2")


# --- which domains matter ------------------------------------------------------------------------------------


def test_domains_that_a_claim_waits_for_are_read_in_each_pass() -> None:
    world = World()
    world.resident("a")
    assert to_read(world.book) == frozenset()
    world.claim("b")
    assert to_read(world.book) == {uuid_of("b")}
