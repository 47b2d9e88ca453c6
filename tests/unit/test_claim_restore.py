"""What a restart, a reboot, a stall and a clock that jumps do to claims (LEDGER 2, 3)."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest

from agent.core.claim import moves, restore
from agent.core.claim.book import Book, Draft
from agent.core.claim.values import BuildFailure, Claim, ClaimRules, Departure, GroupRule, Maintenance, Membership, Step
from tests.builders import uuid_of
from tests.claim_world import World


def left_s(world: World, claim: Claim) -> float:
    """How much of its deadline is left."""
    deadline = world.now(claim).deadline
    assert deadline is not None
    assert deadline.boot_id == world.moment().boot_id
    return deadline.at_s - world.now_s


def full() -> World:
    """A book with something of everything in it."""
    world = World()
    world.resident("a")
    world.hold("a")
    world.arriving("b")
    world.vanish("b")
    world.look()
    world.claim("c", "live_migration", peer="h2")
    world.abort(world.claim("d"))
    world.resident("e")
    world.claim("e", "resize", role="in_place")
    world.forget("f", "h3")

    def more(draft: Draft) -> None:
        draft.put(Membership(group="g", instance=uuid_of("a"), generation=3, last_here_at_s=1.0))
        draft.put(GroupRule(id="g", policy="anti-affinity"))
        draft.set(Maintenance, Maintenance(reason="new disk", since="then"))
        draft.note(Step(sequence=0, at="", event="maintenance"))

    world.do(more)
    return world


def test_a_replayed_book_is_the_one_in_memory_whatever_the_order_of_its_rows() -> None:
    world = full()
    assert world.replayed() == world.book
    assert all((world.book.claims, world.book.tombstones, world.book.moves, world.book.departures, world.book.failures))
    rows = list(world.rows.values())
    random.Random(3).shuffle(rows)
    assert restore.book_of(rows, world.book.sequence) == world.book
    assert restore.book_of((), 0) == Book()


def test_a_pending_claim_whose_commit_had_reached_the_disk_is_reserved_after_a_restart_and_else_gone() -> None:
    world = World()
    stored, lost = world.pend("a"), world.pend("b", stored=False)
    world.restart()
    assert (world.state(stored), world.state(lost), lost.claim_id in world.book.tombstones) == (
        "reserved",
        "ended",
        False,
    )


@pytest.mark.parametrize("reboots", [False, True])
def test_what_waits_gets_at_least_restart_grace_s(reboots: bool) -> None:
    world = World()
    short, long, late = world.claim("a", ttl_s=400.0), world.claim("b", ttl_s=5000.0), world.claim("c", ttl_s=10.0)
    world.wait(60.0)
    assert world.state(late) == "overdue"
    world.restart(reboots=reboots, down_s=300.0)
    assert left_s(world, short) == 120.0
    assert left_s(world, late) == 120.0
    assert left_s(world, long) == (120.0 if reboots else 100.0 + 5000.0 - world.now_s)
    world.wait(110.0)
    assert [world.state(one) for one in (short, late)] == ["reserved", "overdue"]
    world.wait(20.0)
    assert [world.state(one) for one in (short, late)] == ["overdue", "ended"]


@pytest.mark.parametrize("reboots", [False, True])
def test_the_grace_of_what_is_away_begins_anew(reboots: bool) -> None:
    world = World()
    claim = world.resident("a")
    world.vanish("a")
    world.wait(800.0)
    world.restart(reboots=reboots)
    assert left_s(world, claim) == 900.0


def test_a_guest_that_came_while_the_agent_was_away_is_arriving() -> None:
    world = World()
    claim = world.claim("a")
    world.start("a")
    world.restart(down_s=5000.0)
    world.look()
    assert world.state(claim) == "arriving"


def test_no_look_of_before_a_restart_counts_after_it() -> None:
    world = World()
    claim = world.resident("a")
    world.vanish("a")
    world.restart()
    world.observe()
    assert world.state(claim) == "resident"
    world.look("down")
    assert world.state(claim) == "resident"
    world.look()
    assert world.state(claim) == "away"


def test_a_restart_leaves_a_live_migration_to_its_driver_and_a_reboot_puts_it_in_doubt() -> None:
    world = World()
    claim = world.resident("a")
    world.hold("a")
    world.restart()
    assert world.state(claim) == "leaving"
    world.restart(reboots=True)
    assert (world.state(claim), world.now(claim).reason) == ("doubtful", "the host went down while it was leaving")
    world.wait(9000.0)
    assert world.state(claim) == "doubtful"


def test_a_cold_move_is_in_no_doubt_after_a_reboot_since_nothing_runs() -> None:
    world = World()
    claim = world.resident("a")
    world.hold("a", "resize", is_cold=True)
    world.restart(reboots=True)
    assert world.state(claim) == "leaving"
    world.look()
    assert world.state(claim) == "parked"


def test_what_was_arriving_when_the_host_went_down_is_reserved_anew_once_its_domain_is_proven_off() -> None:
    world = World()
    claim = world.arriving("a")
    world.restart(reboots=True)
    assert world.state(claim) == "arriving"
    world.look("blind")
    assert world.state(claim) == "arriving"
    world.look()
    assert (world.state(claim), left_s(world, claim)) == ("reserved", 900.0)


def test_a_domain_that_the_host_starts_by_itself_is_another_run_though_its_id_is_the_same() -> None:
    world = World()
    claim = world.claim("a")
    world.start("a", "paused", "starting-up")
    world.look()
    world.vanish("a")
    world.look()
    was = world.now(claim).run
    assert was is not None
    world.restart(reboots=True)
    world.start("a")
    world.domains["a"].run = msgspec.structs.replace(was, pid=None, started_at_boot_s=None)
    world.look()
    assert world.state(claim) == "arriving"


@pytest.mark.parametrize("reboots", [False, True])
def test_resident_parked_and_doubtful_are_kept(reboots: bool) -> None:
    world = World()
    resident, cold, torn = world.resident("a"), world.resident("b"), world.resident("c")
    world.hold("b", is_cold=True, move_id="m1")
    world.shut("b")
    world.look()
    world.hold("c", move_id="m2")
    world.do(lambda draft: moves.torn(draft, world.now(torn), "the peer is silent"))
    world.restart(reboots=reboots)
    world.wait(2000.0)
    assert [world.state(one) for one in (resident, cold, torn)] == ["resident", "parked", "doubtful"]


def test_a_stall_gives_as_much_time_as_a_restart_does() -> None:
    world = World()
    claim = world.claim("a", ttl_s=100.0)
    world.wait(90.0)
    world.look(after_s=60.0)
    assert (world.state(claim), left_s(world, claim)) == ("reserved", 120.0)
    world.wait(130.0)
    assert world.state(claim) == "overdue"


def test_passes_that_are_slow_one_after_the_other_put_a_deadline_off_once() -> None:
    world = World()
    claim, away = world.claim("a", ttl_s=100.0), world.resident("b")
    world.vanish("b")
    ended_by_s = {claim.claim_id: world.now_s + 400.0, away.claim_id: world.now_s + 1100.0}
    while world.now_s < max(ended_by_s.values()):
        world.look(after_s=40.0)
        late = [claim_id for claim_id, by_s in ended_by_s.items() if world.now_s > by_s]
        assert not set(late) & set(world.book.claims)
    assert (world.ending(claim), world.ending(away)) == ("expired", "gone")


def test_a_claim_that_was_renewed_after_a_stall_is_given_time_at_the_next() -> None:
    world = World()
    claim = world.claim("a", ttl_s=100.0)
    for _ in range(3):
        world.wait(90.0)
        world.look(after_s=60.0)
        assert (world.state(claim), left_s(world, claim)) == ("reserved", 120.0)
        world.renew(claim)


def test_looks_that_come_a_little_late_are_no_stall() -> None:
    world = World()
    claim = world.claim("a", ttl_s=100.0)
    world.wait(90.0)
    world.look(after_s=25.0)
    assert world.state(claim) == "overdue"


def test_looks_that_are_as_far_apart_as_they_shall_be_are_no_stall() -> None:
    world = World(ClaimRules(stall_s=120.0))
    claim = world.claim("a", ttl_s=100.0)
    for _ in range(2):
        world.look(after_s=60.0)
    assert world.state(claim) == "overdue"


@pytest.mark.parametrize("jump_s", [-1e7, -3600.0, 3600.0, 1e7])
def test_a_jump_of_the_wall_clock_changes_nothing(jump_s: float) -> None:
    def course(jump: Callable[[World], None]) -> list[str]:
        world = World()
        claims = [world.claim("a"), world.arriving("b"), world.resident("c")]
        world.vanish("c")
        world.look()
        states: list[str] = []
        for _ in range(4):
            jump(world)
            world.wait(300.0)
            states.extend(world.state(claim) for claim in claims)
        return states

    def jumped(world: World) -> None:
        world.off_s += jump_s

    assert course(jumped) == course(lambda world: None)


def test_a_deadline_of_another_boot_is_never_over_before_a_restart_has_renewed_it() -> None:
    world = World()
    claim = world.claim("a")
    world.boots += 1
    world.wait(5000.0)
    assert world.state(claim) == "reserved"


@pytest.mark.parametrize("moved_to", [None, "h2"])
def test_after_a_reboot_whatever_runs_of_a_guest_that_left_is_back_but_of_one_that_lives_elsewhere_is_not(
    moved_to: str | None,
) -> None:
    world = World()
    world.start("a")
    world.look()
    world.forget("a", moved_to)
    run = world.book.departures[uuid_of("a")].run
    assert run == world.domains["a"].run
    world.restart(reboots=True)
    assert (world.book.departures[uuid_of("a")].run, world.book.departures[uuid_of("a")].at_s) == (None, None)
    world.domains["a"].state, world.domains["a"].run, world.domains["a"].reason = "running", run, "booted"
    world.look()
    assert (uuid_of("a") in world.book.departures) == (moved_to is not None)
    world.turn("a", "running", "migrated")
    world.look()
    assert uuid_of("a") not in world.book.departures


def test_rows_of_each_kind_are_put_where_they_belong() -> None:
    world = full()
    kinds = {record.kind for record in world.rows.values()}
    assert kinds == {"claim", "tombstone", "membership", "group", "move", "maintenance", "departure", "build_failure"}
    book = restore.book_of(world.rows.values(), 1)
    assert isinstance(book.departures[uuid_of("f")], Departure)
    assert isinstance(book.failures[0], BuildFailure)
