"""Moves: what is held on the host that a guest leaves, on the one it comes to, and for a change in place."""

from __future__ import annotations

from typing import Literal

import msgspec

from agent.core.claim import steps
from agent.core.claim.book import Book, Draft
from agent.core.claim.proof import is_gone, says_off
from agent.core.claim.steps import Refused
from agent.core.claim.values import Claim, ClaimKind, Move, Outcome, Tombstone
from agent.core.guest import Sighting
from agent.core.instance import Instance
from agent.core.ledger import Holds, Ledger


class MoveHasEnded(Exception):
    """The move had another outcome already; its text is a sentence that says which."""

    def __init__(self, move: Move, asked: str) -> None:
        super().__init__(
            f"Cannot {asked} move {move.move_id} of instance {move.instance}: it has ended ({move.outcome}) at"
            f" {move.finished_at}. Begin another one, with a new move id"
        )
        self.move = move


class MoveTaken(Exception):
    """The move's id is another guest's; its text is a sentence that says whose."""


def taken(book: Book, move_id: str | None, instance: str) -> str | None:
    """Why nothing new can be part of a move of this id for the instance: one sentence; None: it can.

    A move is opened once: a late repetition of the call that ended it would else end what has been begun since.
    """
    move = None if move_id is None else book.moves.get(move_id)
    if move is None:
        return None
    if move.instance != instance:
        return f"Move id {move_id} was used before for another guest (instance {move.instance}): use a new id"
    if move.outcome is None:
        return None
    return (
        f"Move {move_id} of this guest (instance {instance}) has ended here ({move.outcome}) at {move.finished_at}: use"
        " a new id for another move"
    )


def open_move(draft: Draft, claim: Claim) -> Move | None:
    """The half of a move that a claim here is the destination of; of a change in place both. None: it is no move.

    One that ended with the claim is open again when that is taken back in, since its guest has come after all.
    """
    if claim.move_id is None:
        return None
    owner = draft.book.owner_of(claim.instance.uuid) if claim.role == "in_place" else None
    return _opened(
        draft,
        claim,
        move_id=claim.move_id,
        kind=claim.kind,
        source=None if owner is None else owner.claim_id,
        destination=claim.claim_id,
    )


def hold_for_move(
    draft: Draft,
    *,
    move_id: str,
    kind: ClaimKind,
    instance: Instance,
    peer: str | None,
    is_cold: bool,
    seen: Sighting | None,
    holds: Holds | None,
) -> Claim:
    """The guest is about to leave for the peer, and keeps what it has until it has left. Fine to repeat.

    seen, holds: of its domain, for a guest that no claim made. Raises MoveHasEnded for a move that was finished,
    MoveTaken for one of another guest.
    """
    known = draft.book.moves.get(move_id)
    if known is not None and known.instance == instance.uuid and known.outcome is not None:
        raise MoveHasEnded(known, "hold the guest for")
    if (why := taken(draft.book, move_id, instance.uuid)) is not None:
        raise MoveTaken(why)
    owner = _free_owner(draft, move_id, instance, seen, holds)
    if owner.state in {"leaving", "parked"}:
        return owner
    held = draft.move_on(
        owner, "hold", move_id=move_id, peer=peer, is_cold=is_cold, deadline=None, ending=None, reason=None
    )
    _opened(draft, held, move_id=move_id, kind=kind, source=held.claim_id)
    # what was known before the call will do: both states hold the same
    is_off_already = is_cold and seen is not None and says_off(seen, float("-inf"))
    return draft.move_on(held, "switched-off") if is_off_already else held


def finish_move(draft: Draft, move: Move, outcome: Outcome, seen: Sighting | None) -> Move:
    """This host's part of the move ends, whatever the other host knows. Fine to repeat.

    seen: of the guest's domain. A domain that came with a move that is called off holds its claim until it is gone.
    Raises MoveHasEnded where the outcome was another one.
    """
    if move.outcome is not None:
        if (move.outcome == "confirmed") == (outcome == "confirmed"):
            return move
        raise MoveHasEnded(move, f"finish ({outcome})")
    source = _claim(draft, move.source)
    destination = _claim(draft, move.destination)
    steps.close_move(draft, move.move_id, outcome)
    if destination is not None and destination.role == "in_place":
        _finish_in_place(draft, source, destination, outcome)
        return draft.book.moves[move.move_id]
    if source is not None:
        _finish_source(draft, source, outcome, seen)
    if destination is not None:
        _finish_destination(draft, destination, outcome, seen)
    return draft.book.moves[move.move_id]


# --- what the driver of a live migration finds out -------------------------------------------------------


def stays_here(draft: Draft, claim: Claim, why: str) -> Claim:
    """The guest runs here, no job moves it and the peer has none: the move has failed and this is its host. why: a
    sentence. Raises IllegalStep."""
    if claim.move_id is not None:
        steps.close_move(draft, claim.move_id, "failed" if claim.role == "owner" else "confirmed")
    if claim.role == "incoming":
        return steps.become_owner(draft, claim, "stays", move_id=None, peer=None, ending=None, reason=why)
    return _at_home(draft, claim, "stays", why)


def has_left(draft: Draft, ledger: Ledger, claim: Claim, why: str) -> Claim | Tombstone:
    """The peer says that the guest lives there: the claim ends if its domain is proven gone here, and else stays as it
    is. why: a sentence. Raises IllegalStep."""
    uuid = claim.instance.uuid
    if not is_gone(ledger, uuid, claim.changed_at_s):
        return claim
    tombstone = steps.end(draft, claim, "left", "left", why, outcome="confirmed")
    steps.depart(draft, uuid, claim.peer, ledger.sightings.get(uuid))
    return tombstone


def torn(draft: Draft, claim: Claim, why: str) -> Claim:
    """The move broke in the middle, and only the peer or an operator can tell where the guest lives. why: a sentence.
    Raises IllegalStep."""
    return draft.move_on(claim, "torn", deadline=None, running_since_s=None, reason=why)


# --- halves ------------------------------------------------------------------------------------------------


def _opened(
    draft: Draft,
    claim: Claim,
    *,
    move_id: str,
    kind: ClaimKind,
    source: str | None = None,
    destination: str | None = None,
) -> Move:
    now, known = draft.now, draft.book.moves.get(move_id)
    made = Move(
        move_id=move_id,
        kind=kind,
        instance=claim.instance.uuid,
        source=source,
        destination=destination,
        peer=claim.peer,
        opened_at=now.wall,
        at_s=now.wall_s,
    )
    if known is not None and known.outcome is None:
        made = msgspec.structs.replace(
            made, source=source or known.source, destination=destination or known.destination, opened_at=known.opened_at
        )
    draft.put(made)
    return made


def _free_owner(draft: Draft, move_id: str, instance: Instance, seen: Sighting | None, holds: Holds | None) -> Claim:
    """The claim that the guest is here by, which nothing else is about to change."""
    book = draft.book
    for claim in book.claims_of(instance.uuid):
        if claim.role != "owner":
            raise Refused(claim, "hold", f"that ({claim.kind}) has to be finished before the guest can leave")
        move = steps.open_move_of(book, claim)
        if move is not None and move.move_id != move_id:
            raise Refused(claim, "hold", f"it is part of move {move.move_id}, which has to be finished first")
        if claim.ending is not None:
            raise Refused(claim, "hold", f"it ends ({claim.ending}) as soon as its domain is gone")
    return steps.owner_for(draft, instance, seen, holds)


def _finish_source(draft: Draft, claim: Claim, outcome: Outcome, seen: Sighting | None) -> None:
    if outcome != "confirmed":
        _at_home(draft, claim, "finish-reverted", None)
        return
    steps.end(draft, claim, "finish-confirmed", "left")
    steps.depart(draft, claim.instance.uuid, claim.peer, seen)


def _finish_destination(draft: Draft, claim: Claim, outcome: Outcome, seen: Sighting | None) -> None:
    if outcome != "confirmed":
        steps.undo(draft, claim, "finish-reverted", "reverted", seen=seen, note=f"the move was {outcome}")
        return
    if claim.state in {"resident", "away"}:
        draft.move_on(claim, "finish-confirmed", move_id=None, peer=None)
    elif claim.state == "doubtful":
        steps.become_owner(draft, claim, "finish-confirmed", move_id=None, peer=None, ending=None, reason=None)
    else:
        # what has come is confirmed with it; else the domain itself has to show
        try:
            claim = steps.confirm(draft, claim, seen)
        except Refused:
            return
        draft.change(claim, move_id=None, peer=None)


def _finish_in_place(draft: Draft, old: Claim | None, new: Claim, outcome: Outcome) -> None:
    if outcome == "confirmed":
        new = steps.confirm(draft, new, None)
        old = draft.book.owner_of(new.instance.uuid)
        if old is not None:
            steps.end(draft, old, "finish-confirmed", "replaced", f"replaced by claim {new.claim_id}")
        draft.move_on(new, "finish-confirmed", role="owner", move_id=None, peer=None)
        return
    steps.end(draft, new, "finish-reverted", "reverted", f"the change was {outcome}")
    if old is not None and old.state == "parked":
        _at_home(draft, old, "finish-reverted", None)


def _at_home(draft: Draft, claim: Claim, event: Literal["stays", "finish-reverted"], why: str | None) -> Claim:
    return draft.move_on(claim, event, move_id=None, peer=None, is_cold=False, reason=why)


def _claim(draft: Draft, claim_id: str | None) -> Claim | None:
    return None if claim_id is None else draft.book.claims.get(claim_id)
