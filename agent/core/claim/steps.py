"""Steps in the life of a claim that calls, moves and what is seen have in common."""

from __future__ import annotations

import uuid as uuids

import msgspec

from agent.core.claim.book import Book, Draft, IllegalStep
from agent.core.claim.proof import is_other_run, joined, says_off, shows_run
from agent.core.claim.table import Event, after
from agent.core.claim.values import (
    Claim,
    ClaimRules,
    Deadline,
    Departure,
    Ending,
    Moment,
    Move,
    Outcome,
    Step,
    Tombstone,
)
from agent.core.guest import RunIdentity, Sighting
from agent.core.instance import Instance
from agent.core.ledger import Holds

_OBSERVED = uuids.UUID("0f5bd1c6-3a5e-4a0c-9b65-6f2f3c1c7d11")
"""Namespace of the ids of claims that no caller named."""


class Refused(IllegalStep):
    """The table has the transition, and something else is in the way. why: a clause that says what, and what to do."""

    def __init__(self, claim: Claim, event: Event, why: str) -> None:
        super().__init__(claim, event)
        self.why = why


def may(claim: Claim, event: Event) -> bool:
    """Whether the table lets this happen to the claim now."""
    return after(claim.state, event, claim.role) is not None


# --- deadlines -----------------------------------------------------------------------------------------


def first_deadline(now: Moment, rules: ClaimRules, ttl_s: float) -> Deadline:
    """In `ttl_s` from now, which is brought between the least and the most that the rules allow."""
    return deadline_in(now, min(max(ttl_s, rules.least_ttl_s), rules.most_ttl_s))


def deadline_in(now: Moment, wait_s: float) -> Deadline:
    """A moment of this boot."""
    return Deadline(boot_id=now.boot_id, at_s=now.monotonic_s + wait_s)


def is_past(now: Moment, deadline: Deadline | None) -> bool:
    """One of another boot never is: how much of it is left cannot be told."""
    return deadline is not None and deadline.boot_id == now.boot_id and now.monotonic_s >= deadline.at_s


def with_grace(draft: Draft, claim: Claim, least_s: float) -> Claim:
    """The claim with at least so much time left, if it has a deadline at all."""
    least = deadline_in(draft.now, least_s)
    if claim.deadline is None or _is_as_late(claim.deadline, least):
        return claim
    return draft.change(claim, deadline=least)


def with_grace_once(draft: Draft, claim: Claim, least_s: float) -> Claim:
    """As `with_grace`, unless this deadline has been put off so before: passes that are slow one after the other would
    else keep for ever what nobody wants any more."""
    least = deadline_in(draft.now, least_s)
    if claim.deadline is None or claim.deadline.is_put_off or _is_as_late(claim.deadline, least):
        return claim
    return draft.change(claim, deadline=msgspec.structs.replace(least, is_put_off=True))


def _is_as_late(deadline: Deadline, least: Deadline) -> bool:
    return deadline.boot_id == least.boot_id and deadline.at_s >= least.at_s


# --- arriving ------------------------------------------------------------------------------------------


def confirm(draft: Draft, claim: Claim, seen: Sighting | None) -> Claim:
    """The guest has come, which its domain must show; a change in place was made: both places are kept from now on.

    A domain that is defined and off counts: a guest can be moved while it is off. Fine to repeat.
    """
    if not may(claim, "confirm"):
        raise IllegalStep(claim, "confirm")
    if claim.role == "in_place":
        return _confirm_in_place(draft, claim)
    if claim.state == "resident":
        return claim
    if seen is not None and shows_new_run(claim, seen):
        claim = arrive(draft, claim, seen)
    elif not _is_seen(claim, seen):
        raise Refused(claim, "confirm", "no domain of it has been seen here yet: ask again once libvirt lists it")
    return become_owner(draft, claim, "confirm", ending=None, reason=None)


def owner_for(draft: Draft, instance: Instance, seen: Sighting | None, holds: Holds | None) -> Claim:
    """The claim that says why the guest is here; for a guest that no claim made one of what it holds now."""
    owner = draft.book.owner_of(instance.uuid)
    if owner is not None:
        return owner
    now, rules = draft.now, draft.rules
    made = Claim(
        claim_id=_unused_id(draft, instance.uuid),
        kind="build",
        role="owner",
        state="resident",
        instance=instance,
        digest="",
        ttl_s=rules.ttl_s["build"],
        sequence=0,
        made_at=now.wall,
        state_since=now.wall,
        changed_at_s=now.monotonic_s,
        observed=Holds(uuid=instance.uuid) if holds is None else holds,
        run=None if seen is None else seen.run,
    )
    return draft.admit(
        made,
        Step(
            sequence=0,
            at="",
            event="observed",
            claim_id=made.claim_id,
            instance=instance.uuid,
            kind=made.kind,
            after=made.state,
        ),
    )


def shows_new_run(claim: Claim, seen: Sighting) -> bool:
    """The reading is of a run that began after the claim was made, and was begun after the claim became what it is."""
    return seen.begun_at > claim.changed_at_s and shows_run(seen) and is_other_run(claim.run, seen.run)


def arrive(draft: Draft, claim: Claim, seen: Sighting) -> Claim:
    """Its domain has come. Nothing is due any more."""
    return draft.move_on(claim, "run-seen", deadline=None, run=joined(None, seen.run), reason=None)


def other_owner(draft: Draft, claim: Claim) -> Claim | None:
    """The claim that would end if this one became the owner."""
    owner = draft.book.owner_of(claim.instance.uuid)
    return None if owner is None or owner.claim_id == claim.claim_id else owner


def become_owner(draft: Draft, claim: Claim, event: Event, **changes: object) -> Claim:
    """The guest is here by this claim, and by no other. Raises IllegalStep, also while another is pending.

    A live migration is over with that; a cold one is still to be confirmed or reverted.
    """
    other = other_owner(draft, claim)
    if claim.kind == "live_migration" and claim.move_id is not None:
        close_move(draft, claim.move_id, "confirmed")
        changes = {**changes, "move_id": None, "peer": None}
    if other is not None:
        end(draft, other, "superseded", "replaced", f"came again by claim {claim.claim_id}", outcome="confirmed")
    return draft.move_on(claim, event, role="owner", deadline=None, running_since_s=None, **changes)


# --- ending --------------------------------------------------------------------------------------------


def end(
    draft: Draft, claim: Claim, event: Event, ending: Ending, note: str | None = None, *, outcome: Outcome = "failed"
) -> Tombstone:
    """The claim ends. outcome: of the half of a move that it is, where that is still open."""
    if claim.move_id is not None:
        close_move(draft, claim.move_id, outcome)
    return draft.end(claim, event, ending, note)


def open_move_of(book: Book, claim: Claim) -> Move | None:
    """The move that the claim is a half of, while nobody has finished it."""
    move = None if claim.move_id is None else book.moves.get(claim.move_id)
    return move if move is not None and move.outcome is None else None


def close_move(draft: Draft, move_id: str, outcome: Outcome) -> None:
    """Nothing where it is not open."""
    move = draft.book.moves.get(move_id)
    if move is not None and move.outcome is None:
        now = draft.now
        draft.put(msgspec.structs.replace(move, outcome=outcome, finished_at=now.wall, at_s=now.wall_s))


def depart(draft: Draft, uuid: str, moved_to: str | None, seen: Sighting | None) -> None:
    """It has left. A run of it that was here by then is not its coming back.

    Where it was said to live elsewhere, to say it anew without a host takes that back: any run is its coming back then.
    """
    now, known = draft.now, draft.book.departures.get(uuid)
    if moved_to is None and known is not None and (known.moved_to is not None or known.at_s is None):
        draft.put(Departure(instance=uuid, at=now.wall))
        return
    run = None if seen is None or seen.run == RunIdentity() else seen.run
    draft.put(Departure(instance=uuid, at=now.wall, moved_to=moved_to, run=run, at_s=now.monotonic_s))


def undo(
    draft: Draft, claim: Claim, event: Event, ending: Ending, *, seen: Sighting | None, note: str | None
) -> Claim | Tombstone:
    """The guest shall not come. What its domain has come for ends once that is gone; the claim is returned then."""
    if claim.role != "in_place" and claim.state in {"reserved", "overdue"}:
        if seen is None or not shows_new_run(claim, seen):
            return end(draft, claim, event, ending, note)
        claim = arrive(draft, claim, seen)
    if after(claim.state, event, claim.role) == "ended":
        return end(draft, claim, event, ending, note)
    return claim if claim.ending is not None else draft.move_on(claim, event, ending=ending, reason=note)


def _confirm_in_place(draft: Draft, claim: Claim) -> Claim:
    if claim.state == "parked":
        return claim
    owner = draft.book.owner_of(claim.instance.uuid)
    if owner is not None:
        move = open_move_of(draft.book, owner)
        if move is not None and move.move_id != claim.move_id:
            raise Refused(claim, "confirm", f"its owner is part of move {move.move_id}, which has to be finished first")
        draft.move_on(owner, "set-aside", deadline=None, move_id=claim.move_id)
    return draft.move_on(claim, "confirm", deadline=None, reason=None)


def _is_seen(claim: Claim, seen: Sighting | None) -> bool:
    if seen is None:
        return False
    if claim.state == "arriving" and seen.is_active:
        return True
    return says_off(seen, claim.changed_at_s)


def _unused_id(draft: Draft, uuid: str) -> str:
    book, number = draft.book, draft.book.sequence
    while (claim_id := str(uuids.uuid5(_OBSERVED, f"{uuid} {number}"))) in book.claims or claim_id in book.tombstones:
        number += 1
    return claim_id
