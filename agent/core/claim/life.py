"""What callers may do with a claim, each as one change of a draft. What the table does not allow raises IllegalStep."""

from __future__ import annotations

from agent.core.claim.book import Draft, IllegalStep
from agent.core.claim.moves import MoveHasEnded, finish_move, hold_for_move, open_move
from agent.core.claim.seats import Sightings, leave_groups, prune_members
from agent.core.claim.steps import Refused, confirm, depart, end, first_deadline, may, owner_for, undo
from agent.core.claim.table import STATES, Event
from agent.core.claim.values import Claim, Step, Tombstone
from agent.core.claim.way_out import ways_on
from agent.core.guest import Sighting
from agent.core.ledger import Holds

__all__ = [
    "MoveHasEnded",
    "Refused",
    "abort",
    "abort_unknown",
    "accept_observed",
    "confirm",
    "explain",
    "finish_move",
    "first_deadline",
    "forget",
    "hold_for_move",
    "may",
    "open_move",
    "owner_for",
    "prune",
    "release",
    "renew",
    "replace",
]

CALLS: dict[Event, str] = {
    "renew": "renew",
    "confirm": "confirm",
    "abort": "abort",
    "release": "release",
    "accept-observed": "accept-observed",
    "hold": "hold for a move",
    "finish-confirmed": "finish the move (confirmed)",
    "finish-reverted": "finish the move (reverted or failed)",
    "replace": "replace by another claim",
    "forget": "forget the instance",
}
"""What a caller may ask for, in words."""


def explain(step: IllegalStep) -> str:
    """One sentence for whoever asked: what the claim is now, and what may be done with it then."""
    claim, event = step.claim, step.event
    asked = f"Cannot {CALLS.get(event, event)}: claim {claim.claim_id} of instance {claim.label} is {claim.state}"
    if isinstance(step, Refused):
        return f"{asked}, and {step.why}"
    ways = [f"`{one}`" for one in ways_on(claim)]
    can = f"possible now: {', '.join(ways)}" if ways else "ask again when that has changed"
    return f"{asked} ({STATES[claim.state]}); {can}"


# --- the calls -----------------------------------------------------------------------------------------


def renew(draft: Draft, claim: Claim, ttl_s: float | None) -> Claim:
    """A new deadline from now. ttl_s: None: as long as last time. A claim that waits for nothing stays as it is."""
    if not may(claim, "renew"):
        raise IllegalStep(claim, "renew")
    ttl_s = claim.ttl_s if ttl_s is None else ttl_s
    if claim.state == "resident":
        return claim
    if claim.state == "arriving":
        return draft.put_off(claim, ttl_s, claim.deadline)
    deadline = first_deadline(draft.now, draft.rules, ttl_s)
    if claim.state == "overdue":
        return draft.move_on(claim, "renew", deadline=deadline, ttl_s=ttl_s)
    return draft.put_off(claim, ttl_s, deadline)


def abort(draft: Draft, claim: Claim, seen: Sighting | None, note: str | None) -> Claim | Tombstone:
    """It is not needed any more. What its domain has come for ends once that is gone; the claim is returned then."""
    if not may(claim, "abort"):
        raise IllegalStep(claim, "abort")
    return undo(draft, claim, "abort", "aborted", seen=seen, note=note)


def abort_unknown(draft: Draft, claim_id: str) -> Tombstone:
    """Nothing is known of the id: a late call that bears it shall find that it was aborted."""
    step = draft.note(Step(sequence=0, at="", event="abort", claim_id=claim_id, ending="aborted"))
    now = draft.now
    return draft.bury(
        Tombstone(claim_id=claim_id, ending="aborted", ended_at=now.wall, at_s=now.wall_s, sequence=step.sequence)
    )


def release(draft: Draft, claim: Claim, note: str | None) -> Tombstone:
    """The guest shall not be here any more. A domain of it that is active holds on by itself."""
    if not may(claim, "release"):
        raise IllegalStep(claim, "release")
    _end_others(draft, claim, "its owner was released")
    tombstone = end(draft, claim, "release", "released", note, outcome="confirmed")
    leave_groups(draft, claim.instance.uuid)
    return tombstone


def replace(draft: Draft, claim: Claim, by: str, move_id: str | None = None) -> Tombstone:
    """Another claim of the instance, with the id `by`, takes its place in this very change. move_id: of that one; where
    it is the same the move goes on."""
    if claim.role == "owner":
        _end_others(draft, claim, "its owner was replaced")
    note = f"replaced by claim {by}"
    if claim.move_id is not None and claim.move_id == move_id:
        return draft.end(claim, "replace", "replaced", note)
    return end(draft, claim, "replace", "replaced", note)


def accept_observed(draft: Draft, claim: Claim, holds: Holds) -> Claim:
    """What the guest's domain holds is what is promised to it from now on. Raises Refused while that is not certain."""
    if holds.guessed or holds.uncertain:
        raise Refused(claim, "accept-observed", "what its domain holds cannot be read now: ask again once it can")
    return draft.move_on(claim, "accept-observed", placement=None, observed=holds)


def forget(draft: Draft, uuid: str, moved_to: str | None, seen: Sighting | None) -> None:
    """The instance lives elsewhere now: its claims here end, and what is still defined of it has no seat.

    A domain of it that is active holds on, until another look shows that it is off.
    """
    # a change in place has failed with it, and the first claim of a move to end decides how that ended
    for claim in sorted(draft.book.claims_of(uuid), key=lambda one: one.role == "owner"):
        note = None if moved_to is None else f"moved to {moved_to}"
        end(draft, claim, "forget", "left", note, outcome="confirmed" if claim.role == "owner" else "failed")
    draft.note(Step(sequence=0, at="", event="forgotten", instance=uuid, note=moved_to))
    depart(draft, uuid, moved_to, seen)
    leave_groups(draft, uuid)


def prune(draft: Draft, sightings: Sightings) -> None:
    """Forget what ended long ago: tombstones, moves, memberships, failed builds that count no more; and that an
    instance has left of which nothing else is known. sightings: of all that is here."""
    book, rules = draft.book, draft.rules
    horizon = draft.now.wall_s - rules.keep_s
    for tombstone in tuple(book.tombstones.values()):
        if tombstone.at_s < horizon:
            draft.unbury(tombstone.claim_id)
    for move in tuple(book.moves.values()):
        if move.outcome is not None and move.at_s < horizon:
            draft.drop(move)
    for failure in book.failures:
        if failure.at_s < draft.now.wall_s - rules.failure_window_s:
            draft.drop_failure(failure)
    for uuid, departure in book.departures.items():
        if uuid not in sightings and uuid not in book.of and uuid not in draft.book.ends:
            draft.drop(departure)
    prune_members(draft, sightings)


def _end_others(draft: Draft, owner: Claim, note: str) -> None:
    for claim in draft.book.claims_of(owner.instance.uuid):
        if claim.claim_id != owner.claim_id and claim.role == "in_place":
            end(draft, claim, "abort", "aborted", note)
