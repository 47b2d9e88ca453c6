"""How a claim is called in a sentence, and what an operator can do to end it."""

from __future__ import annotations

from collections.abc import Iterable

from agent.core.claim.table import Event, events
from agent.core.claim.values import Claim, State
from agent.core.commands import command, option
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


def ways_on(claim: Claim) -> tuple[str, ...]:
    """The commands that do something with it as it is now."""
    return tuple(dict.fromkeys(way for event in events(claim.state, claim.role) if (way := _way(claim, event))))


def _way(claim: Claim, event: Event) -> str | None:
    uuid = option("--instance", claim.instance.uuid)
    match event:
        case "renew" | "confirm" | "abort" | "release" | "accept-observed":
            return claim_command(event, claim.claim_id)
        case "hold":
            return command("agentctl migration hold MOVE", options=(uuid, "--kind KIND"))
        case "finish-confirmed" | "finish-reverted":
            return None if claim.move_id is None else finish_command(claim.move_id)
        case "replace":
            return command("agentctl claim build", options=(option("--replaces", claim.claim_id), uuid))
        case "forget":
            return command("agentctl instance forget", claim.instance.uuid)
        case _:
            return None


def ending_way(claim: Claim) -> str:
    """How to end it, as it is now; no full stop at the end."""
    if claim.state in ON_A_MOVE:
        return elsewhere_way(claim) if claim.move_id is None else finishing_way(claim.move_id)
    return f"`{claim_command('release' if claim.state in HERE else 'abort', claim.claim_id)}`"


def finishing_way(move_id: str) -> str:
    """How to say how a move ended."""
    return f"`{finish_command(move_id)}` (confirmed, reverted or failed)"


def finish_command(move_id: str) -> str:
    """HOW is to be put in: pasted as it stands it does nothing."""
    return command("agentctl migration finish", move_id, options=("--outcome HOW",))


def elsewhere_way(claim: Claim) -> str:
    """How to say that the guest lives on another host now."""
    there = () if claim.peer is None else (option("--moved-to", claim.peer),)
    return f"`{command('agentctl instance forget', claim.instance.uuid, options=there)}`"


def claim_command(verb: str, claim_id: str) -> str:
    """ "agentctl claim abort 7b3f"."""
    return command(f"agentctl claim {verb}", claim_id)
