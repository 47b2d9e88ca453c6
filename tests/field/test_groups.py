"""Field cases of the kinds group-race and stale-group, as far as a host's claims and what is seen of it decide them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement, permutations, product

import msgspec
import pytest

from agent.core.claim.refusal import REMEMBERED
from agent.core.claim.seats import group_refusal, refused, soft_remarks
from agent.core.claim.values import Claim, ClaimKind
from agent.core.conflicts import Owner
from agent.core.instance import Group
from agent.core.ledger import see
from agent.core.reasons import GroupViolated
from tests.builders import guest, ledger_of, uuid_of
from tests.seating import WAYS_IN, Desk, off, on

APART = Group(id="g1", policy="anti-affinity", members=("a", "b", "c", "d"))


def accepted(answer: Claim | GroupViolated) -> bool:
    """It may come."""
    return isinstance(answer, Claim)


def interleavings(comers: str, steps: int) -> Iterator[tuple[str, ...]]:
    """Every order in which so many steps of each can come: whose turn it is."""
    yield from sorted(set(permutations(sorted(comers * steps))))


class Coming:
    """Guests of one group on their way to a host. Each asks, then its domain appears, then it has come."""

    def __init__(self, ways: dict[str, ClaimKind], most: int = 1) -> None:
        self.desk, self._ways = Desk(), ways
        self._group = msgspec.structs.replace(APART, max_server_per_host=most)
        self.answers: dict[str, Claim | GroupViolated] = {}

    def take_turn(self, who: str) -> None:
        """The next step of one; who was refused goes elsewhere."""
        if who not in self.answers:
            self.answers[who] = self.desk.come(who, self._group, self._ways[who])
        elif accepted(self.answers[who]):
            is_seen = who in self.desk.sightings
            self.desk.see(on(who))
            self.desk.move_on(who, "settled" if is_seen else "run-seen")

    @property
    def accepted(self) -> list[str]:
        """Who may come."""
        return [who for who, answer in self.answers.items() if accepted(answer)]


@pytest.mark.parametrize("kinds", list(product(WAYS_IN, repeat=2)), ids="-".join)
def test_two_comers_by_any_two_ways_never_meet_in_whatever_order_their_steps_come(
    kinds: tuple[ClaimKind, ClaimKind],
) -> None:
    for order in interleavings("ab", 3):
        coming = Coming(dict(zip("ab", kinds, strict=True)))
        for who in order:
            coming.take_turn(who)
            assert len(coming.desk.seated("g1")) <= 1
        assert coming.accepted == [order[0]] == coming.desk.seated("g1")
        assert coming.desk.rows() == []


ORDERS_OF_THREE = tuple(interleavings("abc", 2))


@pytest.mark.parametrize("most", [1, 2])
def test_three_comers_by_any_ways_are_never_more_than_may_be_here(most: int) -> None:
    for kinds in combinations_with_replacement(WAYS_IN, 3):
        for order in ORDERS_OF_THREE:
            coming = Coming(dict(zip("abc", kinds, strict=True)), most)
            for who in order:
                coming.take_turn(who)
            assert coming.accepted == list(dict.fromkeys(order))[:most]
            assert sorted(coming.accepted) == coming.desk.seated("g1")
            assert coming.desk.rows() == []


def test_group_two_live_migrations_one_target() -> None:
    desk = Desk()
    checks = [group_refusal(APART, who, desk.book, {}, host="h1", in_place=False) for who in "ab"]
    assert checks == [None, None], "checked apart from taking the place, both would pass"
    first, second = desk.come("a", APART, "live_migration"), desk.come("b", APART, "live_migration")
    assert accepted(first)
    assert isinstance(second, GroupViolated)
    assert second.members == (Owner(type="claim", uuid="a", name="a"),)
    refusal = refused("check_can_live_migrate_destination", second)
    assert (refusal.code, refusal.retry) == ("GroupAffinityViolation", "elsewhere")
    assert desk.recheck("a", APART) is None
    desk.see(on("a"))
    desk.move_on("a", "run-seen")
    desk.move_on("a", "settled")
    third = desk.come("b", APART, "live_migration")
    assert isinstance(third, GroupViolated)
    assert [(owner.type, owner.uuid) for owner in third.members] == [("domain", "a")]


def test_group_unshelve_against_cold_migration() -> None:
    desk = Desk()
    assert accepted(desk.come("a", APART, "resize"))
    assert not accepted(desk.come("b", APART, "unshelve"))
    assert not accepted(desk.come("c", APART, "build"))
    desk.release("a", "abort")
    assert accepted(desk.come("d", APART, "unshelve"))
    assert not accepted(desk.come("a", APART, "evacuate"))


def test_group_refusal_is_not_a_host_fault() -> None:
    desk = Desk(on("a"))
    violated = desk.come("b", APART, "build")
    assert isinstance(violated, GroupViolated)
    assert refused("build", violated).code == "GroupAffinityViolation"
    assert "GroupAffinityViolation" in REMEMBERED
    assert (desk.book.failures, desk.book.sequence, desk.changes) == ((), 0, [])


def test_group_deleted_meanwhile() -> None:
    deleted = Group(id="g-deleted", policy=None, members=("a", "b"), hosts=("h2",))
    desk = Desk(on("b"))
    assert accepted(desk.come("a", deleted, "evacuate"))
    assert soft_remarks(deleted, "a", desk.book, desk.sightings, host="h1") == (
        "Server group g-deleted is named without a policy, so that it is no rule here",
    )
    assert desk.rows() == []


def test_group_left_member_frees_at_once() -> None:
    a = uuid_of("a")
    group = msgspec.structs.replace(APART, members=(a, "b"))
    desk = Desk()
    desk.come(a, group)
    running = guest("a", at=1.0)
    ledger = ledger_of(running)
    desk.see(*ledger.sightings.values())
    for event in ("run-seen", "settled", "hold"):
        desk.move_on(a, event)
    assert not accepted(desk.come("b", group))
    stopped = msgspec.structs.replace(running, state="shut-off", begun_at=20.0)
    ledger = see(ledger, stopped)
    desk.see(*ledger.sightings.values())
    desk.depart(a, "left")
    assert accepted(desk.come("b", group))
    for late in (running, msgspec.structs.replace(running, begun_at=19.0), stopped):
        ledger = see(ledger, late)
        desk.see(*ledger.sightings.values())
        assert desk.seated("g1") == ["b"]


def test_group_missing_is_not_stopped() -> None:
    old, new = Desk(on("a"), host="h1"), Desk(host="h2")
    numbered = msgspec.structs.replace(APART, generation=1)
    for desk in (old, new):
        desk.set_group(numbered)
    old.unsee("a")
    new.see(on("a"))
    assert accepted(old.come("b", numbered))
    assert not accepted(new.come("b", numbered))
    assert (old.seated("g1"), new.seated("g1")) == (["b"], ["a"])
    assert old.members("g1") == dict.fromkeys("abcd", 1), "it may come back"


def test_a_member_that_is_shut_off_and_has_not_left_counts() -> None:
    desk = Desk(off("a"))
    assert not accepted(desk.come("b", APART))
