"""Field cases of the kinds group-race and stale-group, and every order in which members of a group can come."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import combinations_with_replacement, permutations, product
from pathlib import Path

import msgspec
import pytest

from agent.claims import Granted, GroupView
from agent.core.claim.seats import group_refusal
from agent.core.claim.values import Claim, ClaimKind, ClaimRequest, Move, Tombstone
from agent.core.conflicts import Owner
from agent.core.instance import Group, Instance
from agent.core.reasons import GroupViolated
from agent.core.report import health
from agent.core.snapshot import Findings
from agent.reporter import report_pass
from tests.at_work import AtWork, asked, pinned
from tests.builders import uuid_of
from tests.field.orders import cpus_of, of_run
from tests.seating import WAYS_IN, Desk, off, on

APART = Group(id="g1", policy="anti-affinity", members=("a", "b", "c", "d"))
REAL = msgspec.structs.replace(APART, members=tuple(map(uuid_of, "abcd")))
"""The same with the uuids that guests of `tests.builders` have."""


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


def test_of_two_that_are_only_asked_about_both_may_come_and_of_two_that_take_a_seat_one() -> None:
    desk = Desk()
    checks = [group_refusal(APART, who, desk.book, {}, host="h1", in_place=False) for who in "ab"]
    assert checks == [None, None], "checked apart from taking the place, both would pass"
    first, second = desk.come("a", APART, "live_migration"), desk.come("b", APART, "live_migration")
    assert accepted(first)
    assert isinstance(second, GroupViolated)
    assert second.members == (Owner(type="claim", uuid="a", name="a"),)
    assert desk.recheck("a", APART) is None
    desk.see(on("a"))
    desk.move_on("a", "run-seen")
    desk.move_on("a", "settled")
    third = desk.come("b", APART, "live_migration")
    assert isinstance(third, GroupViolated)
    assert [(owner.type, owner.uuid) for owner in third.members] == [("domain", "a")]


def asks_for(claim_id: str, name: str, kind: ClaimKind, group: Group = REAL) -> ClaimRequest:
    """One vCPU and 512 MiB for a member."""
    return asked(claim_id, name, pinned(1, 512), kind=kind, group=group)


def seated(at_work: AtWork) -> list[str]:
    view = at_work.claims.group("g1")
    assert isinstance(view, GroupView)
    return list(view.seated)


def test_group_unshelve_against_cold_migration(tmp_path: Path) -> None:
    """LP#1821755."""
    with AtWork(tmp_path) as at_work:
        at_work.look()
        at_work.granted(asks_for("k1", "a", "resize"))
        for request in (asks_for("k2", "b", "unshelve"), asks_for("k3", "c", "build")):
            refusal = at_work.refused(request)
            assert (refusal.code, refusal.retry) == ("GroupAffinityViolation", "elsewhere")
            assert refusal.message.endswith("Anti-affinity instance group policy was violated")
        assert isinstance(at_work.claims.abort("k1"), Tombstone)
        at_work.granted(asks_for("k4", "d", "unshelve"))
        assert at_work.refused(asks_for("k5", "a", "evacuate")).code == "GroupAffinityViolation"
        assert seated(at_work) == [uuid_of("d")]


def test_group_refusal_is_not_a_host_fault(tmp_path: Path) -> None:
    """LP#1996732."""
    a = of_run("a", 1, 2)
    with AtWork(tmp_path) as at_work:
        at_work.look(a)
        assert isinstance(at_work.claims.set_group(REAL), GroupView)
        assert at_work.refused(asks_for("k1", "b", "build")).code == "GroupAffinityViolation"
        after = at_work.look(a)
        told = health(after, now_s=at_work.now_s, interval_s=10.0)
        assert (told.build_failures, at_work.book.failures, after.conflicts) == (0, (), ())
        k2 = at_work.granted(asked("k2", "y", pinned(1)))
        at_work.look(a, of_run("y", 2, *cpus_of(k2)))
        failed = at_work.look(a)
        assert health(failed, now_s=at_work.now_s, interval_s=10.0).build_failures == 1, "this is one"


def test_group_deleted_meanwhile(tmp_path: Path) -> None:
    """LP#1890244. A group that is named without a policy is no rule."""
    deleted = msgspec.structs.replace(REAL, id="g-deleted", policy=None, hosts=("h2",))
    with AtWork(tmp_path) as at_work:
        at_work.look(of_run("b", 1, 2))
        answer = at_work.claims.claim(asks_for("k1", "a", "evacuate", deleted))
        assert isinstance(answer, Granted)
        assert answer.remarks == ("Server group g-deleted is named without a policy, so that it is no rule here",)
        assert at_work.tracker.snapshot.conflicts == ()


def test_group_left_member_frees_at_once(tmp_path: Path) -> None:
    """LP#1869050: the 70 s until the next timed report."""
    a = of_run("a", 1, 2)
    gone = msgspec.structs.replace(a, state="shut-off", reason="migrated")
    with AtWork(tmp_path) as at_work:
        at_work.look(a)
        at_work.claims.set_group(REAL)
        assert seated(at_work) == [uuid_of("a")]
        instance = Instance(uuid=a.uuid, name="a")
        assert isinstance(at_work.claims.hold_for_move("m1", "live_migration", instance, "h2", False), Granted)
        assert at_work.refused(asks_for("k0", "b", "build")).code == "GroupAffinityViolation"
        before = at_work.tracker.snapshot
        after = at_work.look(gone, after_s=1.0)
        assert (seated(at_work), after.generation > before.generation) == ([], True)
        assert at_work.granted(asks_for("k1", "b", "build")).state == "reserved"
        for late in (before.ledger.sightings[a.uuid], msgspec.structs.replace(a, begun_at=at_work.now_s - 5.0)):
            at_work.tracker.take_in(Findings(sightings=(late,)))
            assert seated(at_work) == [uuid_of("b")]
        move = at_work.claims.finish_move("m1", "confirmed")
        assert isinstance(move, Move)
        assert seated(at_work) == [uuid_of("b")]


def test_group_missing_is_not_stopped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """apache/cloudstack#3741. Who is absent went; that somebody is off takes libvirt's word that its domain is."""
    caplog.set_level(logging.INFO, "agent.reporter")
    for name in ("h1", "h2"):
        (tmp_path / name).mkdir()
    a, numbered = of_run("a", 1, 2), msgspec.structs.replace(REAL, generation=1)
    with AtWork(tmp_path / "h1") as h1, AtWork(tmp_path / "h2") as h2:
        h1.look(a)
        h2.look()
        for at_work in (h1, h2):
            at_work.claims.set_group(numbered)
        before = h1.tracker.snapshot
        report_pass(before, h1.look())
        (line,) = (record.getMessage() for record in caplog.records)
        assert "guests_went=[a]" in line
        assert not any(word in line for word in ("stopped", "shut-off"))
        there = h2.look(a)
        assert [
            (seen.name, seen.state, there.book.claims_of(seen.uuid)) for seen in there.ledger.sightings.values()
        ] == [("a", "running", ())]
        assert (seated(h1), seated(h2)) == ([], [a.uuid])
        assert h1.granted(asks_for("k1", "b", "build", numbered)).state == "reserved"
        assert h2.refused(asks_for("k1", "b", "build", numbered)).code == "GroupAffinityViolation"
        view = h1.claims.group("g1")
        assert isinstance(view, GroupView)
        assert {uuid_of(name) for name in "abcd"} == {one.instance for one in view.members}, "it may come back"


def test_a_member_that_is_shut_off_and_has_not_left_counts() -> None:
    desk = Desk(off("a"))
    assert not accepted(desk.come("b", APART))
