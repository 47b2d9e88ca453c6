"""Seats in server groups on one host: who counts, who is refused and with which words, who is a member."""

from __future__ import annotations

import msgspec
import pytest

from agent.core.claim.book import Book
from agent.core.claim.seats import (
    group_refusal,
    guarantee_of,
)
from agent.core.conflicts import Owner
from agent.core.guest import Sighting
from agent.core.instance import Group, GroupPolicy
from agent.core.reasons import GroupViolated
from tests.seating import off, on

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
