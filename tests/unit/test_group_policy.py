"""Server groups on one host: who counts, and what one host cannot know."""

from __future__ import annotations

from agent.core.conflicts import Owner
from agent.core.group_policy import group_reasons, unchecked
from agent.core.guest import Sighting
from agent.core.instance import Group, GroupPolicy
from agent.core.reasons import GroupViolated


def here(**states: str) -> dict[str, Sighting]:
    """Guests of this host by uuid, running or shut off."""
    return {
        uuid: Sighting(uuid=uuid, name=uuid, state="running" if state == "on" else "shut-off", begun_at=0.0)
        for uuid, state in states.items()
    }


def group(policy: GroupPolicy | None, *members: str, most: int = 1) -> Group:
    """A group of these members."""
    return Group(id="g", policy=policy, members=members, max_server_per_host=most)


def test_anti_affinity_refuses_a_second_member_and_names_the_first() -> None:
    found = tuple(group_reasons(group("anti-affinity", "me", "a", "b"), "me", here(a="on", x="on")))
    member = Owner(type="domain", uuid="a", name="a", maker="unknown")
    assert found == (GroupViolated(group="g", policy="anti-affinity", members=(member,), limit=1),)


def test_a_member_that_is_shut_off_here_counts() -> None:
    assert tuple(group_reasons(group("anti-affinity", "a"), "me", here(a="off")))


def test_the_guest_itself_never_counts() -> None:
    assert not tuple(group_reasons(group("anti-affinity", "me"), "me", here(me="on")))


def test_more_members_may_come_where_the_group_allows_more() -> None:
    guests = here(a="on", b="on")
    assert not tuple(group_reasons(group("anti-affinity", "a", "b", most=3), "me", guests))
    assert tuple(group_reasons(group("anti-affinity", "a", "b", most=2), "me", guests))


def test_a_group_without_a_policy_and_a_soft_one_refuse_nobody() -> None:
    assert not tuple(group_reasons(group(None, "a"), "me", here(a="on")))
    assert not tuple(group_reasons(group("soft-anti-affinity", "a"), "me", here(a="on")))
    assert not tuple(group_reasons(None, "me", here(a="on")))


def test_what_is_not_checked_is_said() -> None:
    assert unchecked(group("affinity")) is not None
    assert unchecked(group("soft-affinity")) is not None
    assert unchecked(group("anti-affinity")) is None
    assert unchecked(None) is None
