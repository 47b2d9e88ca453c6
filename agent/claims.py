"""Claims at work: each call is one change of the books under the tracker's lock, and is told once the disk has it."""

from __future__ import annotations

from typing import NamedTuple

from agent.core.claim.values import Claim, GroupRule, Membership


class Granted(NamedTuple):
    """A claim as it is now. is_new: this very call made it. remarks: what of the group's policy is only a wish, or only
    this host's view, one sentence each. guarantee: "host" where a policy that spans hosts was checked on this one."""

    claim: Claim
    is_new: bool = False
    remarks: tuple[str, ...] = ()
    guarantee: str | None = None


class GroupView(NamedTuple):
    """What is known of a server group here. seated: instances of it that count on this host, by uuid."""

    rule: GroupRule
    members: tuple[Membership, ...]
    seated: tuple[str, ...]
