"""What a look at the host, and the clock, do to claims.

Nothing here frees anything but by proof: a reading begun after the claim became what it is, or absence (LEDGER R2).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from agent.core.claim import moves, steps
from agent.core.claim.book import Book, Draft
from agent.core.claim.proof import is_absent, is_gone, is_other_run, joined, says_off, shows_run
from agent.core.claim.table import after
from agent.core.claim.trial import Trials, Untried
from agent.core.claim.values import BRINGS_A_GUEST, BuildFailure, Claim, Departure, State, Step, Tombstone
from agent.core.guest import DomainState, Sighting
from agent.core.ledger import STARTING_UP, Ledger

IN_FLUX: frozenset[State] = frozenset({"reserved", "overdue", "arriving", "leaving", "doubtful"})
"""States in which the next thing that the domain does matters at once."""

_TO_COME: frozenset[State] = frozenset({"pending", "reserved", "overdue", "arriving"})

_RUNS: frozenset[DomainState] = frozenset({"running", "blocked"})
_STILL_COMING = frozenset({"migration", "postcopy", STARTING_UP})
_HAS_COME = "migrated"
_TORN = "postcopy-failed"


def observe(
    draft: Draft, ledger: Ledger, is_free: Callable[[Claim], bool], *, since_last_s: float | None = None
) -> tuple[Untried, ...]:
    """Every event that what is seen, and the time, bring to the claims; the same again brings nothing new.

    is_free: whether nobody else has what a claim held that ended before its domain came; the domain is seen to be here.
    since_last_s: monotonic time since the last call, None: there was none. Returns what was left as it is for a fault
    of ours: one claim that cannot be moved on must not keep all the others, and the report, from what is seen.
    """
    if since_last_s is not None and since_last_s > draft.rules.stall_s:
        _after_stall(draft)
    trials = Trials(draft)
    # What happens to a claim that comes, or is made in place, decides over the owner beside it, and can end it.
    for claim in sorted(draft.book.claims.values(), key=lambda one: (one.role == "owner", one.sequence)):
        look = _LOOKS.get(claim.state)
        if look is not None and draft.book.claims.get(claim.claim_id) is claim:
            trials.make(f"claim {claim.claim_id} of {claim.label}", look, ledger, claim)
    for departure in draft.book.departures.values():
        here = ledger.sightings.get(departure.instance)
        trials.make(f"instance {departure.instance}", _come_back, departure, here)
    for seen in ledger.sightings.values():
        if seen.uuid in draft.book.ends and seen.uuid not in draft.book.of:
            trials.make(f"guest {seen.label}", _come_late, ledger, seen, is_free)
    return tuple(trials.faults)


def to_read(book: Book) -> frozenset[str]:
    """Instances whose domains each pass should read again, since their claims wait for what these do."""
    return frozenset(
        claim.instance.uuid for claim in book.claims.values() if claim.state in IN_FLUX or claim.ending is not None
    )


# --- one state each ----------------------------------------------------------------------------------------


def _reserved(draft: Draft, ledger: Ledger, claim: Claim) -> None:
    seen = ledger.sightings.get(claim.instance.uuid)
    if claim.role != "in_place" and seen is not None and steps.shows_new_run(claim, seen):
        _arriving(draft, ledger, steps.arrive(draft, claim, seen))
    elif _is_due(draft, claim):
        grace = steps.deadline_in(draft.now, draft.rules.overdue_grace_s)
        draft.move_on(claim, "deadline", deadline=grace, reason="its domain did not come in time")


def _overdue(draft: Draft, ledger: Ledger, claim: Claim) -> None:
    uuid = claim.instance.uuid
    seen = ledger.sightings.get(uuid)
    if claim.role != "in_place" and seen is not None and steps.shows_new_run(claim, seen):
        _arriving(draft, ledger, steps.arrive(draft, claim, seen))
    elif _is_due(draft, claim) and (claim.role == "in_place" or _is_absent_at_last(ledger, claim)):
        steps.end(draft, claim, "grace-over", "expired")


def _arriving(draft: Draft, ledger: Ledger, claim: Claim) -> None:
    uuid = claim.instance.uuid
    seen = ledger.sightings.get(uuid)
    if seen is not None and shows_run(seen):
        _follow(draft, claim, seen)
    elif not is_gone(ledger, uuid, claim.changed_at_s):
        return
    elif claim.ending is not None:
        steps.end(draft, claim, "rolled-back", claim.ending, claim.reason)
    else:
        _run_gone(draft, claim)


def _resident(draft: Draft, ledger: Ledger, claim: Claim) -> None:
    uuid = claim.instance.uuid
    if _is_changed_in_place(draft.book, uuid):
        return
    if claim.ending is not None:
        if is_gone(ledger, uuid, claim.changed_at_s):
            steps.end(draft, claim, "rolled-back", claim.ending, claim.reason)
    elif is_absent(ledger, uuid, claim.changed_at_s):
        draft.move_on(claim, "absent", deadline=steps.deadline_in(draft.now, draft.rules.away_grace_s))


def _away(draft: Draft, ledger: Ledger, claim: Claim) -> None:
    uuid = claim.instance.uuid
    seen = ledger.sightings.get(uuid)
    if any(other.role == "incoming" for other in draft.book.claims_of(uuid)):
        return
    if seen is not None and seen.begun_at > claim.changed_at_s:
        draft.move_on(claim, "seen-again", deadline=None)
    elif _is_changed_in_place(draft.book, uuid):
        return
    elif claim.ending is not None:
        if is_gone(ledger, uuid, claim.changed_at_s):
            steps.end(draft, claim, "rolled-back", claim.ending, claim.reason)
    elif _is_due(draft, claim) and _is_absent_at_last(ledger, claim):
        steps.end(draft, claim, "grace-over", "gone")


def _leaving(draft: Draft, ledger: Ledger, claim: Claim) -> None:
    uuid = claim.instance.uuid
    seen = ledger.sightings.get(uuid)
    is_told_off = seen is not None and says_off(seen, claim.changed_at_s)
    if claim.is_cold:
        if is_told_off or is_absent(ledger, uuid, claim.changed_at_s):
            draft.move_on(claim, "switched-off")
    elif seen is not None and is_told_off and seen.reason == _HAS_COME:
        steps.end(draft, claim, "left", "left", outcome="confirmed")
        steps.depart(draft, uuid, claim.peer, seen)
    elif seen is not None and _shows_torn(seen, claim):
        moves.torn(draft, claim, "its live migration failed in post-copy: memory of the guest is on both hosts")


def _doubtful(draft: Draft, ledger: Ledger, claim: Claim) -> None:
    if claim.ending is not None and is_gone(ledger, claim.instance.uuid, claim.changed_at_s):
        steps.end(draft, claim, "rolled-back", claim.ending, claim.reason)


_LOOKS: dict[State, Callable[[Draft, Ledger, Claim], None]] = {
    "reserved": _reserved,
    "overdue": _overdue,
    "arriving": _arriving,
    "resident": _resident,
    "away": _away,
    "leaving": _leaving,
    "doubtful": _doubtful,
}
"""What is looked for in each state; those that are not here only callers move."""


# --- a domain that has come ----------------------------------------------------------------------------------


def _follow(draft: Draft, claim: Claim, seen: Sighting) -> None:
    """Whether the run that has come has also arrived."""
    is_new = is_other_run(claim.run, seen.run)
    since_s = None if is_new else claim.running_since_s
    if seen.validity == "valid":
        has_run = seen.state in _RUNS and seen.reason not in _STILL_COMING | {_TORN}
        since_s = (seen.begun_at if since_s is None else since_s) if has_run else None
    claim = draft.change(claim, run=joined(claim.run, seen.run), running_since_s=since_s)
    if claim.role == "incoming" and _shows_torn(seen, claim):
        moves.torn(draft, claim, "its live migration failed in post-copy: memory of the guest is on both hosts")
    elif claim.ending is None and since_s is not None and _has_settled(draft, seen, since_s):
        other = steps.other_owner(draft, claim)
        if other is None or steps.may(other, "superseded"):
            steps.become_owner(draft, claim, "settled")


def _has_settled(draft: Draft, seen: Sighting, since_s: float) -> bool:
    if seen.validity != "valid":
        return False
    return seen.reason == _HAS_COME or seen.begun_at - since_s >= draft.rules.settle_s


def _run_gone(draft: Draft, claim: Claim) -> None:
    """It may come again: a conductor tries twice, too."""
    deadline = steps.first_deadline(draft.now, draft.rules, claim.ttl_s)
    why = "the domain that had come is gone"
    draft.move_on(claim, "run-gone", deadline=deadline, running_since_s=None, reason=why)
    if claim.kind in BRINGS_A_GUEST:
        draft.put_failure(
            BuildFailure(
                claim_id=claim.claim_id,
                instance=claim.instance.uuid,
                at=draft.now.wall,
                at_s=draft.now.wall_s,
                reason=why,
            )
        )


def _come_back(draft: Draft, departure: Departure, seen: Sighting | None) -> None:
    owner = draft.book.owner_of(departure.instance)
    is_here_by_claim = owner is not None and owner.state not in _TO_COME
    if is_here_by_claim or (seen is not None and _is_back(departure, seen)):
        draft.drop(departure)


def _is_back(departure: Departure, seen: Sighting) -> bool:
    """Whether the run that is seen began after the instance had left. Of one that lives elsewhere only a migration
    brings the guest itself: whatever else starts its domain (autostart after a reboot) makes a second copy."""
    if not shows_run(seen) or not is_other_run(departure.run, seen.run):
        return False
    has_come = seen.validity == "valid" and seen.state in _RUNS and seen.reason == _HAS_COME
    if departure.moved_to is not None and not has_come:
        return False
    if departure.run is not None or departure.at_s is None:
        return True
    began_s = seen.run.started_at_boot_s
    return departure.moved_to is None if began_s is None else began_s >= departure.at_s


def _come_late(draft: Draft, ledger: Ledger, seen: Sighting, is_free: Callable[[Claim], bool]) -> None:
    """The domain of a claim that ended for its absence: the claim is taken back in, if its place is still free."""
    ends = (draft.book.tombstones[claim_id] for claim_id in reversed(draft.book.ends[seen.uuid]))
    tombstone = next((one for one in ends if one.claim is not None and one.claim.role != "in_place"), None)
    if tombstone is None or tombstone.claim is None or tombstone.ending not in {"expired", "gone"}:
        return
    departure = draft.book.departures.get(seen.uuid)
    if departure is not None and departure.moved_to is not None:
        return
    was, state = tombstone.claim, after("ended", "came-late", tombstone.claim.role)
    if state is None or not shows_run(seen) or not is_other_run(was.run, seen.run):
        return
    back = _taken_back(draft, was, state, seen)
    if is_free(back):
        _enter_again(draft, tombstone, back)
        _arriving(draft, ledger, draft.book.claims[back.claim_id])


def _taken_back(draft: Draft, was: Claim, state: State, seen: Sighting) -> Claim:
    return msgspec.structs.replace(
        was,
        state=state,
        state_since=draft.now.wall,
        changed_at_s=draft.now.monotonic_s,
        deadline=None,
        run=joined(None, seen.run),
        running_since_s=None,
        ending=None,
        reason="its domain came after the claim had ended",
    )


def _enter_again(draft: Draft, tombstone: Tombstone, back: Claim) -> None:
    draft.unbury(tombstone.claim_id)
    draft.admit(
        back,
        Step(
            sequence=0,
            at="",
            event="came-late",
            claim_id=back.claim_id,
            instance=back.instance.uuid,
            kind=back.kind,
            before="ended",
            after=back.state,
            move_id=back.move_id,
            groups=() if back.group is None else (back.group.id,),
        ),
    )
    if back.move_id is not None and back.role == "incoming":
        moves.open_move(draft, back)


# --- the clock -------------------------------------------------------------------------------------------------


def _is_due(draft: Draft, claim: Claim) -> bool:
    return steps.is_past(draft.now, claim.deadline)


def _is_absent_at_last(ledger: Ledger, claim: Claim) -> bool:
    """Proven by a look from after the deadline: an older one, with libvirt out of reach since, is no news."""
    due_s = claim.changed_at_s if claim.deadline is None else claim.deadline.at_s
    return is_absent(ledger, claim.instance.uuid, max(claim.changed_at_s, due_s))


def _after_stall(draft: Draft) -> None:
    for claim in tuple(draft.book.claims.values()):
        if claim.state != "pending":
            steps.with_grace_once(draft, claim, draft.rules.restart_grace_s)


# --- others of the same instance ----------------------------------------------------------------------------------


def _is_changed_in_place(book: Book, uuid: str) -> bool:
    """Then its domain may come and go, and its owner has to be there when that is over."""
    return any(claim.role == "in_place" for claim in book.claims_of(uuid))


def _shows_torn(seen: Sighting, claim: Claim) -> bool:
    return seen.validity == "valid" and seen.reason == _TORN and not (claim.run and is_other_run(seen.run, claim.run))
