"""How a claim is called in a sentence, and what an operator can do to end it."""

from __future__ import annotations

from collections.abc import Iterable

from agent.core.claim.values import Claim, State
from agent.core.words import some

ON_A_MOVE: frozenset[State] = frozenset({"leaving", "parked", "doubtful"})
"""States that end with their move."""

HERE: frozenset[State] = frozenset({"resident", "away"})
"""States that end by release."""


def described(claim: Claim) -> str:
    """ "web-1 (claim 7b3f, reserved)"."""
    return f"{claim.label} ({in_brackets((claim,))})"


def in_brackets(claims: Iterable[Claim]) -> str:
    """ "claim 7b3f, reserved"; of several "claim 7b3f, resident; claim 9a01, reserved"."""
    return "; ".join(f"claim {claim.claim_id}, {claim.state}" for claim in claims)


def all_described(claims: Iterable[Claim]) -> str:
    """As `described`, the first few of them."""
    return some([described(claim) for claim in claims], between=" and ")


def ending_way(claim: Claim) -> str:
    """How to end it, as it is now; no full stop at the end."""
    if claim.state in ON_A_MOVE:
        return f"`POST /v1/moves/{claim.move_id}/finish`"
    verb = "release" if claim.state in HERE else "abort"
    return f"`agentctl claim {verb} {claim.claim_id}`"
