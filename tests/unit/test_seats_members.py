"""Who is a member of a server group: what a newer list ends, what only a release ends, and how long it is kept."""

from __future__ import annotations

from itertools import permutations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.claim.seats import group_refusal, members_of
from agent.core.claim.values import Claim, ClaimRules, GroupRule, Membership
from agent.core.instance import Group, GroupPolicy
from agent.core.reasons import GroupViolated
from tests.seating import START_S, WAYS_IN, Desk, off, on

KEEP_S = ClaimRules().keep_s
HOUR_S = 3600.0


def told(*members: str, at: int | None = None, policy: GroupPolicy | None = "anti-affinity", most: int = 1) -> Group:
    """A group that somebody speaks of, as of a generation."""
    return Group(id="g", policy=policy, members=members, generation=at, max_server_per_host=most)


# --- lists of all members


def test_a_newer_list_ends_who_is_not_in_it() -> None:
    desk = Desk(on("a"), on("b"))
    desk.set_group(told("a", "b", at=4))
    desk.set_group(told("b", at=5))
    assert (desk.members(), desk.seated()) == ({"b": 5}, ["b"])


def test_an_older_list_changes_nothing_whenever_it_comes() -> None:
    desk = Desk()
    desk.set_group(told("b", at=5, most=2))
    book = desk.book
    desk.set_group(told("a", "b", "c", at=4))
    assert desk.book is book
    assert (desk.changes[-1].records, desk.changes[-1].steps) == ((), ())


def test_the_same_list_again_changes_nothing_and_notes_no_step() -> None:
    desk = Desk(on("a"))
    desk.set_group(told("a", at=5))
    assert [(step.event, step.groups, dict(step.seats)) for step in desk.changes[-1].steps] == [
        ("group-set", ("g",), {"g": 1})
    ]
    book = desk.book
    desk.set_group(told("a", at=5))
    assert desk.book is book


@given(st.dictionaries(st.integers(0, 9), st.sets(st.sampled_from("abcd")), min_size=1, max_size=4), st.data())
def test_of_lists_with_generations_the_newest_stands_in_whatever_order_they_come(
    lists: dict[int, set[str]], data: st.DataObject
) -> None:
    desk = Desk(on("a"))
    for generation in data.draw(st.permutations(sorted(lists))):
        desk.set_group(told(*sorted(lists[generation]), at=generation))
    newest = max(lists)
    assert desk.members() == dict.fromkeys(lists[newest], newest)
    assert desk.book.groups["g"].listed == desk.book.groups["g"].generation == newest


def test_a_list_without_a_generation_only_adds_and_what_it_adds_no_list_ends() -> None:
    desk = Desk()
    desk.set_group(told("a", at=3))
    desk.set_group(told("b"))
    assert desk.members() == {"a": 3, "b": None}
    desk.set_group(told("a", "b", at=4))
    desk.set_group(told(at=5))
    assert desk.members() == {"b": None}


# --- what a request says


def test_a_comer_and_the_members_that_are_here_are_members_as_of_the_request() -> None:
    desk = Desk(on("a"))
    desk.come("c", None)
    desk.come("me", told("a", "b", "c", "me", at=7, most=5))
    assert desk.members() == {"a": 7, "c": 7, "me": 7}


def test_a_stale_request_brings_back_nobody_whom_a_newer_list_has_dropped() -> None:
    desk = Desk(on("a"), on("b"))
    desk.set_group(told("b", "me", at=9, most=2))
    assert isinstance(desk.come("me", told("a", "b", at=5)), Claim)
    assert desk.members() == {"b": 9, "me": 9}
    assert desk.seated() == ["b", "me"]


def test_a_request_that_is_as_new_as_the_list_is_believed() -> None:
    desk = Desk(on("a"))
    desk.set_group(told(at=9))
    assert isinstance(desk.come("me", told("a", at=9)), GroupViolated)
    assert isinstance(desk.come("me", told("a", at=9, policy="soft-anti-affinity")), Claim)
    assert desk.members() == {"a": 9, "me": 9}


def test_members_that_a_request_without_a_generation_names_count_for_it_and_are_kept_where_no_list_has_one() -> None:
    desk = Desk(on("a"))
    assert isinstance(desk.come("b", told("a", most=2)), Claim)
    assert desk.members() == {"a": None, "b": None}
    numbered = Desk(on("a"))
    numbered.set_group(told(at=9, most=3))
    assert isinstance(numbered.come("b", told("a")), Claim), "the rule that has a generation counts"
    assert numbered.members() == {"b": None}
    assert isinstance(numbered.come("c", told("a", "b")), Claim)
    fourth = numbered.come("d", told("a", "b", "c"))
    assert isinstance(fourth, GroupViolated)
    assert [owner.uuid for owner in fourth.members] == ["b", "c", "a"]


def test_a_request_without_a_policy_joins_and_leaves_the_known_rule_as_it_is() -> None:
    desk = Desk()
    desk.set_group(told("a", at=2))
    assert isinstance(desk.come("a", told(policy=None)), Claim)
    assert isinstance(desk.come("b", told(policy=None, at=2)), Claim)
    assert (desk.book.groups["g"].policy, desk.seated()) == ("anti-affinity", ["a", "b"])
    desk.come("c", told(policy=None, at=3))
    assert desk.book.groups["g"].policy is None


def test_the_newer_of_two_rules_decides_how_many_may_be_here() -> None:
    desk = Desk(on("a"))
    desk.set_group(told("a", at=9, most=2))
    assert isinstance(desk.come("b", told(at=5, most=1)), Claim)
    assert isinstance(desk.come("c", told(at=5, most=3)), GroupViolated)
    assert isinstance(desk.come("c", told(at=10, most=3)), Claim)
    assert desk.book.groups["g"] == GroupRule(
        id="g", policy="anti-affinity", max_server_per_host=3, generation=10, listed=9, told_at_s=START_S
    )


def test_no_group_is_no_membership() -> None:
    desk = Desk()
    desk.come("a", None)
    assert (len(desk.book.members), len(desk.book.groups)) == (0, 0)


# --- the end


def test_a_release_ends_what_was_said_without_a_generation_once_no_domain_runs() -> None:
    desk = Desk()
    desk.come("a", told())
    desk.see(on("a"))
    desk.move_on("a", "run-seen")
    desk.move_on("a", "settled")
    desk.release("a")
    assert desk.seated() == ["a"]
    desk.prune()
    assert desk.seated() == ["a"]
    desk.see(off("a"))
    assert desk.seated() == []
    desk.prune()
    assert desk.members() == {}


def test_a_release_leaves_what_a_list_has_said_to_the_next_list() -> None:
    desk = Desk(off("a"))
    desk.set_group(told("a", at=3))
    desk.leave("a")
    desk.prune()
    assert desk.seated() == ["a"]
    desk.set_group(told(at=4))
    assert desk.seated() == []


def test_who_comes_again_after_a_release_is_a_member_anew() -> None:
    desk = Desk()
    desk.come("a", told())
    desk.release("a", "abort")
    assert desk.book.members["g", "a"].is_ended
    desk.come("a", told(at=4))
    assert members_of(desk.book, "g") == (Membership(group="g", instance="a", generation=4, last_here_at_s=START_S),)


def test_a_member_is_kept_for_seven_days_after_it_was_here_last() -> None:
    desk = Desk(off("a"))
    desk.set_group(told("a", "b", at=1))
    desk.prune(KEEP_S)
    assert desk.members() == {"a": 1, "b": 1}
    desk.prune(2 * HOUR_S)
    assert desk.members() == {"a": 1}
    desk.unsee("a")
    desk.prune(KEEP_S - HOUR_S)
    assert desk.members() == {"a": 1}
    desk.prune(3 * HOUR_S)
    assert (desk.members(), len(desk.book.groups)) == ({}, 0)


def test_a_group_whose_list_is_empty_is_remembered_too_so_that_an_old_list_stays_old() -> None:
    desk = Desk(on("a"))
    desk.set_group(told("a", at=1))
    desk.set_group(told(at=2))
    desk.prune(KEEP_S)
    desk.set_group(told("a", at=1))
    assert desk.members() == {}
    desk.prune(2 * HOUR_S)
    assert len(desk.book.groups) == 0


def test_pruning_writes_at_most_once_an_hour_of_a_member_that_is_here() -> None:
    desk = Desk(on("a"))
    desk.set_group(told("a", at=1))
    written = []
    for _ in range(60):
        desk.prune(120.0)
        written.append(len(desk.changes[-1].records))
    assert sum(written) == 2


def test_a_clock_that_was_set_back_makes_nobody_a_member_for_longer() -> None:
    desk = Desk(on("a"))
    desk.set_group(told("a", at=1))
    desk.prune(-10 * KEEP_S)
    desk.unsee("a")
    desk.prune(KEEP_S + 2 * HOUR_S)
    assert desk.members() == {}


# --- whatever happens


NAMES = st.sampled_from("abcd")
GENERATIONS = st.none() | st.integers(0, 3)
GROUPS = st.builds(told, at=GENERATIONS, most=st.integers(1, 3)).flatmap(
    lambda group: st.lists(NAMES, unique=True).map(
        lambda members: msgspec.structs.replace(group, members=tuple(members))
    )
)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("list"), GROUPS),
        st.tuples(st.just("come"), GROUPS, NAMES, st.sampled_from(WAYS_IN)),
        st.tuples(st.just("go"), NAMES),
        st.tuples(st.just("see"), NAMES, st.booleans()),
        st.tuples(st.just("prune"), st.sampled_from((1.0, HOUR_S, KEEP_S))),
    ),
    max_size=12,
)


def _apply(desk: Desk, action: tuple[object, ...]) -> str | None:
    """Who has come by it, if any."""
    match action:
        case ("list", Group() as group):
            desk.set_group(group)
        case ("come", Group() as group, str() as who, kind) if not desk.book.claims_of(who):
            return who if isinstance(desk.come(who, group, kind), Claim) else None  # type: ignore[arg-type]
        case ("go", str() as who) if desk.book.claims_of(who):
            desk.release(who, "abort")
        case ("see", str() as who, bool() as is_on):
            desk.see(on(who) if is_on else off(who))
        case ("prune", float() as after_s):
            desk.prune(after_s)
    return None


@given(ACTIONS)
def test_no_stale_word_makes_a_member_of_whom_a_newer_list_has_dropped(actions: list[tuple[object, ...]]) -> None:
    desk = Desk()
    for action in actions:
        known, before = desk.book.groups.get("g"), desk.members()
        comer = _apply(desk, action)
        listed = None if known is None else known.listed
        new = {who: at for who, at in desk.members().items() if who not in before and who != comer}
        if listed is not None:
            assert all(at is None or at >= listed for at in new.values())


@given(ACTIONS)
def test_what_was_said_without_a_generation_ends_by_no_list(actions: list[tuple[object, ...]]) -> None:
    desk = Desk()
    for action in actions:
        before = {one.instance for one in members_of(desk.book, "g") if one.generation is None and not one.is_ended}
        _apply(desk, action)
        if action[0] in {"list", "come", "see"}:
            assert before <= {who for who, at in desk.members().items() if at is None}


@given(ACTIONS)
def test_who_has_come_is_a_member_with_a_seat_and_a_refusal_names_as_many_as_may_be_here(
    actions: list[tuple[object, ...]],
) -> None:
    desk = Desk()
    for action in actions:
        comer = _apply(desk, action)
        if comer is not None:
            assert comer in desk.seated()
        for who in "abcd":
            asked = told(at=9)
            no = group_refusal(asked, who, desk.book, desk.sightings, host="h1", in_place=False)
            others = set(desk.seated()) - {who}
            assert (no is None) == (not others or who in {*desk.book.of, *desk.sightings})
            assert no is None or {owner.uuid for owner in no.members} == others


@given(ACTIONS)
def test_the_rows_for_the_journal_are_the_book(actions: list[tuple[object, ...]]) -> None:
    desk = Desk()
    rows: dict[tuple[str, str], object] = {}
    for action in actions:
        _apply(desk, action)
    for change in desk.changes:
        for record in change.records:
            rows[record.kind, record.key] = record.value
    kept = {row for row in rows.values() if isinstance(row, Membership | GroupRule)}
    assert kept == {*desk.book.members.values(), *desk.book.groups.values()}


@given(coming=st.integers(0, 5), here=st.integers(0, 3), most=st.integers(1, 4), order=st.data())
def test_of_all_that_hold_a_seat_the_check_turns_away_exactly_the_latest_that_are_too_many(
    coming: int, here: int, most: int, order: st.DataObject
) -> None:
    desk = Desk(*(on(f"d{number}") for number in range(here)))
    names = [f"c{number}" for number in range(coming)]
    for name in names:
        desk.come(name, None, "live_migration")
    group = told(*names, *desk.sightings, most=most)
    asked = order.draw(st.permutations(names))
    lost = {name for name in asked if desk.recheck(name, group) is not None}
    assert lost == set(names[max(0, most - here) :])


@pytest.mark.parametrize("kinds", list(permutations(WAYS_IN, 2)), ids="-".join)
def test_every_way_in_is_checked_against_every_other(kinds: tuple[str, str]) -> None:
    first, second = (next(kind for kind in WAYS_IN if kind == name) for name in kinds)
    desk = Desk()
    group = told("a", "b", at=1)
    assert isinstance(desk.come("a", group, first), Claim)
    assert isinstance(desk.come("b", group, second), GroupViolated)
