"""What is answered to whoever calls about claims."""

from __future__ import annotations

from typing import NamedTuple

from agent.core.claim.admit import ended
from agent.core.claim.book import Book
from agent.core.claim.refusal import ClaimRefusal
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


def claim_in(book: Book, claim_id: str) -> Claim | ClaimRefusal:
    """A claim that has not ended; else why there is none."""
    claim = book.claims.get(claim_id)
    if claim is not None:
        return claim
    tombstone = book.tombstones.get(claim_id)
    return unknown(claim_id) if tombstone is None else ended(tombstone)


def unknown(claim_id: str) -> ClaimRefusal:
    """Nothing is known of the id."""
    message = f"There is no claim {claim_id} on this host, and none is remembered: see `agentctl claim list`"
    return ClaimRefusal(code="ClaimNotFound", message=message, retry="never", claim_id=claim_id)
