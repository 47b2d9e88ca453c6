"""Seats in server groups on one host: who counts, who is refused and with which words, who is a member."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import msgspec
import pytest

from agent.core.claim.book import Book
from agent.core.claim.refusal import ClaimRefusal
from agent.core.claim.seats import (
    Way,
    group_log_line,
    group_message,
    group_refusal,
    guarantee_of,
    refused,
    seats,
    soft_remarks,
    way_of,
)
from agent.core.claim.values import Claim
from agent.core.conflicts import Conflict, Owner, Resource, settled
from agent.core.guest import DomainState, Sighting
from agent.core.host_config import AcceptRule
from agent.core.instance import Group, GroupPolicy
from agent.core.reasons import GroupViolated
from tests.seating import KINDS, Desk, off, on

VIOLATED = GroupViolated(group="g", instance="me", policy="anti-affinity", members=(), limit=1)


def group(policy: GroupPolicy | None, *members: str, most: int = 1, hosts: tuple[str, ...] = ()) -> Group:
    """A group of these members, whose changes nobody counts."""
    return Group(id="g", policy=policy, members=members, max_server_per_host=most, hosts=hosts)


def refusal(asked: Group | None, *here: Sighting, host: str = "h1", in_place: bool = False) -> GroupViolated | None:
    """What "me" is told where these guests are seen."""
    sightings = {seen.uuid: seen for seen in here}
    return group_refusal(asked, "me", Book(), sightings, host=host, in_place=in_place)


def domain(name: str) -> Owner:
    """As refusals and rows name it."""
    return Owner(type="domain", uuid=name, name=name, maker="unknown")


def test_anti_affinity_refuses_a_second_member_and_names_the_first() -> None:
    found = refusal(group("anti-affinity", "me", "a", "b"), on("a"), on("x"))
    assert found == msgspec.structs.replace(VIOLATED, members=(domain("a"),))


def test_a_member_that_is_shut_off_here_counts() -> None:
    assert refusal(group("anti-affinity", "a"), off("a"))


def test_the_guest_itself_never_counts() -> None:
    assert refusal(group("anti-affinity", "me"), on("me")) is None


def test_more_members_may_come_where_the_group_allows_more() -> None:
    here = (on("a"), on("b"))
    assert refusal(group("anti-affinity", "a", "b", most=3), *here) is None
    assert refusal(group("anti-affinity", "a", "b", most=2), *here) == msgspec.structs.replace(
        VIOLATED, members=(domain("a"), domain("b")), limit=2
    )


@pytest.mark.parametrize("policy", [None, "soft-anti-affinity", "soft-affinity"])
def test_a_group_without_a_policy_and_a_soft_one_refuse_nobody(policy: GroupPolicy | None) -> None:
    assert refusal(group(policy, "a", hosts=("h2",)), on("a")) is None
    assert refusal(None, on("a")) is None


def test_a_change_in_place_never_loses_its_seat_nor_does_a_guest_that_is_seated_here() -> None:
    asked = group("anti-affinity", "a", "b", "me")
    assert refusal(asked, on("a"), on("b"), on("me"), in_place=True) is None
    assert refusal(asked, on("a"), on("b"), on("me")) is None
    assert refusal(asked, on("a"), on("b"))


def test_affinity_refuses_a_host_that_has_none_of_the_members() -> None:
    asked = group("affinity", "a", "me", hosts=("h2", "h3"))
    assert refusal(asked) == GroupViolated(
        group="g", instance="me", policy="affinity", host="h1", hosts=("h2", "h3"), members=(), limit=1
    )
    assert refusal(asked, host="h3") is None
    assert refusal(asked, on("a")) is None
    assert refusal(asked, on("me")) is None
    assert refusal(asked, in_place=True) is None


def test_affinity_lets_pass_what_nobody_has_told_of() -> None:
    assert refusal(group("affinity", "a", "me")) is None
    assert refusal(group("affinity", "a", "me", hosts=("h2",)), host="") is None


def test_only_a_policy_that_spans_hosts_is_guaranteed_by_this_host_alone() -> None:
    policies: tuple[GroupPolicy | None, ...] = (
        None,
        "affinity",
        "anti-affinity",
        "soft-affinity",
        "soft-anti-affinity",
    )
    assert [guarantee_of(group(policy)) for policy in policies] == [None, "host", None, None, None]
    assert guarantee_of(None) is None


# --- who has a seat


APART = group("anti-affinity")


def test_a_claim_that_holds_is_a_seat_until_it_ends_and_then_at_once_no_more() -> None:
    desk = Desk()
    assert isinstance(desk.come("a", APART, "live_migration"), Claim)
    assert desk.seated() == ["a"]
    assert desk.come("b", APART) == GroupViolated(
        group="g", instance="b", policy="anti-affinity", members=(Owner(type="claim", uuid="a", name="a"),), limit=1
    )
    desk.release("a", "abort")
    assert desk.seated() == []
    assert isinstance(desk.come("b", APART), Claim)


def test_an_instance_has_one_seat_however_many_claims_and_domains_it_has() -> None:
    desk = Desk(on("a"))
    desk.come("a", APART, "build")
    desk.come("a", APART, "rebuild")
    (seat,) = seats(desk.book, desk.sightings, "g", ("a",))
    assert (seat.instance, seat.label, seat.sequence, seat.owner) == ("a", "a", 0, domain("a"))
    assert seat.claim == desk.book.claims_of("a")[0]


def test_a_guest_that_left_has_no_seat_though_it_is_still_defined_and_one_that_runs_again_has() -> None:
    desk = Desk()
    desk.come("a", APART)
    desk.see(off("a"))
    desk.depart("a")
    assert desk.seated() == []
    desk.see(on("a"))
    assert desk.seated() == ["a"]


@pytest.mark.parametrize("state", [state for state in get_args(DomainState) if state != "shut-off"])
def test_a_domain_that_is_not_certainly_off_has_a_seat_even_after_it_left(state: DomainState) -> None:
    desk = Desk(on("a", state))
    desk.set_group(group("anti-affinity", "a"))
    desk.depart("a")
    desk.leave("a")
    assert desk.seated() == ["a"]


def test_only_members_have_seats() -> None:
    desk = Desk(on("x"), on("a"))
    desk.set_group(group("anti-affinity", "a", "not-here"))
    assert desk.seated() == ["a"]
    assert [seat.instance for seat in seats(desk.book, desk.sightings, "g", ("x",))] == ["a", "x"]
    assert seats(desk.book, desk.sightings, "other") == ()


# --- the check before a live migration begins


def test_of_two_that_hold_a_seat_the_later_one_has_to_give_way() -> None:
    desk = Desk()
    desk.come("a", None, "live_migration")
    desk.come("b", None, "live_migration")
    told = group("anti-affinity", "a", "b")
    assert desk.recheck("a", told) is None
    assert desk.recheck("b", told) == GroupViolated(
        group="g", instance="b", policy="anti-affinity", members=(Owner(type="claim", uuid="a", name="a"),), limit=1
    )


def test_what_is_here_counts_for_the_check_whenever_its_claim_was_made() -> None:
    desk = Desk()
    desk.come("a", None, "live_migration")
    desk.come("b", None, "build")
    desk.see(on("b"))
    told = group("anti-affinity", "a", "b")
    desk.move_on("b", "run-seen")
    assert desk.recheck("a", told) is None
    desk.move_on("b", "settled")
    assert desk.recheck("a", told) == GroupViolated(
        group="g", instance="a", policy="anti-affinity", members=(domain("b"),), limit=1
    )
    assert desk.recheck("b", told) is None


def test_a_domain_without_a_claim_is_older_than_whoever_comes() -> None:
    desk = Desk(off("old"))
    desk.come("a", None, "live_migration")
    assert desk.recheck("a", group("anti-affinity", "old")) == GroupViolated(
        group="g", instance="a", policy="anti-affinity", members=(domain("old"),), limit=1
    )


# --- wishes


def test_a_wish_that_is_not_met_is_said_and_one_that_is_met_is_not() -> None:
    here = {"a": on("a")}

    def said(policy: GroupPolicy | None, *hosts: str, sightings: Mapping[str, Sighting] = here) -> tuple[str, ...]:
        return soft_remarks(group(policy, "a", "me", hosts=hosts), "me", Book(), sightings, host="h1")

    assert said("soft-anti-affinity") == (
        "Server group g would rather have its members on different hosts (policy soft-anti-affinity): a is here",
    )
    assert said("soft-anti-affinity", sightings={}) == ()
    assert said("soft-affinity", "h2", sightings={}) == (
        "Server group g would rather have its members on one host (policy soft-affinity): others are on h2",
    )
    assert said("soft-affinity", "h2") == said("soft-affinity", "h1", sightings={}) == said("soft-affinity") == ()
    assert said("anti-affinity") == said("affinity") == said("affinity", "h1", sightings={}) == ()
    assert said(None) == ("Server group g is named without a policy, so that it is no rule here",)
    assert soft_remarks(None, "me", Book(), here, host="h1") == ()


def test_affinity_that_could_not_be_checked_is_said() -> None:
    def said(asked: Group, host: str = "h1") -> tuple[str, ...]:
        return soft_remarks(asked, "me", Book(), {}, host=host)

    start = "Policy affinity of server group g is not checked: no other member is here, and "
    assert said(group("affinity")) == (f"{start}the request names no hosts of them",)
    assert said(group("affinity", hosts=("h2",)), "") == (f"{start}the name of this host is not known",)
    assert said(group("affinity", hosts=("h1",))) == said(group("affinity", "me")) == ()


# --- words


SHORT = "Build of instance me was re-scheduled: Anti-affinity instance group policy was violated"
LONG = f"Migration pre-check error: Failed to validate instance group policy due to: {SHORT}."


@pytest.mark.parametrize("way", get_args(Way))
def test_each_way_in_is_refused_with_the_words_that_its_callers_know(way: Way) -> None:
    is_precheck = way == "check_can_live_migrate_destination"
    words = LONG if is_precheck else SHORT
    assert group_message(way, VIOLATED) == words
    assert group_log_line(way, VIOLATED) == (f"MigrationPreCheckError: {LONG}" if is_precheck else SHORT)
    assert refused(way, VIOLATED) == ClaimRefusal(
        code="GroupAffinityViolation", message=words, retry="elsewhere", reasons=(VIOLATED,)
    )


def test_the_words_name_the_policy() -> None:
    apart = msgspec.structs.replace(VIOLATED, policy="affinity")
    assert group_message("build", apart) == (
        "Build of instance me was re-scheduled: Affinity instance group policy was violated"
    )


def test_each_kind_of_claim_is_asked_for_by_one_way_in() -> None:
    assert {kind: way_of(kind) for kind in KINDS} == {
        "build": "build",
        "rebuild": "rebuild",
        "evacuate": "evacuate",
        "unshelve": "unshelve",
        "resize": "prep_resize",
        "cold_migration": "prep_resize",
        "live_migration": "check_can_live_migrate_destination",
    }
    assert way_of("live_migration", is_recheck=True) == "pre_live_migration"


# --- rows


def test_members_that_sit_against_the_policy_are_a_row_that_names_all_of_them() -> None:
    desk = Desk(on("a"), off("b"))
    desk.set_group(group("anti-affinity", "a", "b", "elsewhere"))
    assert desk.rows() == [
        Conflict(
            id="group-violated:group:g",
            kind="group-violated",
            resource=Resource(kind="group", id="g"),
            owners=(domain("a"), domain("b")),
            cause="2 members of server group g are here, a and b, and its policy anti-affinity allows 1 member on one "
            "host",
            severity="warning",
            action="Move one of them to another host, or, if the group has changed, tell its members anew with "
            "`agentctl group set`; doing nothing is not dangerous, but both fail with this host",
        )
    ]


def test_a_row_counts_claims_and_ends_when_enough_have_left() -> None:
    desk = Desk(on("a"), on("b"))
    desk.come("c", None)
    desk.set_group(group("anti-affinity", "a", "b", "c", most=2))
    (row,) = desk.rows()
    assert [owner.type for owner in row.owners] == ["claim", "domain", "domain"]
    assert row.cause.endswith("allows 2 members on one host")
    assert row.action.endswith("but all 3 fail with this host")
    desk.unsee("a")
    assert desk.rows() == []


@pytest.mark.parametrize("policy", [None, "affinity", "soft-affinity", "soft-anti-affinity"])
def test_no_other_policy_makes_a_row(policy: GroupPolicy | None) -> None:
    desk = Desk(on("a"), on("b"))
    desk.set_group(group(policy, "a", "b"))
    assert desk.rows() == []


def test_a_row_can_be_accepted_for_one_of_two() -> None:
    desk = Desk(on("a"), on("b"), on("c"))
    desk.set_group(group("anti-affinity", "a", "b"))
    rule = AcceptRule(kind="group-violated", guest="a")
    assert [row.accepted for row in settled(desk.rows(), (rule,))] == [True]
    desk.set_group(group("anti-affinity", "a", "b", "c"))
    assert [row.accepted for row in settled(desk.rows(), (rule,))] == [False]


def test_an_existing_violation_hinders_only_who_makes_it_worse() -> None:
    desk = Desk(on("a"), on("b"))
    told = group("anti-affinity", "a", "b")
    desk.set_group(told)
    for here in ("a", "b"):
        assert isinstance(desk.come(here, told, "rebuild"), Claim)
    worse = desk.come("c", told)
    assert isinstance(worse, GroupViolated)
    assert worse.members == (domain("a"), domain("b"))


def test_a_guest_that_is_gone_for_a_reboot_is_older_than_whoever_comes() -> None:
    desk = Desk(on("a"))
    desk.come("b", None, "live_migration")
    desk.come("a", None)
    for event in ("run-seen", "settled", "absent"):
        desk.move_on("a", event)
    desk.unsee("a")
    told = group("anti-affinity", "a", "b")
    violated = desk.recheck("b", told)
    assert violated is not None
    assert violated.members == (Owner(type="claim", uuid="a", name="a"),)


def test_who_has_left_is_in_no_row() -> None:
    desk = Desk(on("a"), off("b"))
    desk.set_group(group("anti-affinity", "a", "b"))
    desk.depart("b")
    assert desk.rows() == []
