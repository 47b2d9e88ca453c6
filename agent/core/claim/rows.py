"""Contradictions between claims and what is seen of their guests, and claims that somebody has to look after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agent.core.claim.book import Book
from agent.core.claim.drift import way_back
from agent.core.claim.holding import Promise
from agent.core.claim.proof import is_other_run, shows_run
from agent.core.claim.values import Claim, Ending, State, Tombstone
from agent.core.claim.way_out import claim_command, elsewhere_way, ending_way
from agent.core.commands import command
from agent.core.conflicts import Conflict, Resource, conflict
from agent.core.guest import Sighting
from agent.core.holds import owner_of
from agent.core.words import count, some

DAY_S = 86400.0

_MAY_RUN_ON: frozenset[State] = frozenset({"arriving", "resident"})
"""States in which a claim that was called off waits for its domain to go, and nothing else tells of it."""

NOT_WANTED: frozenset[Ending] = frozenset({"aborted", "expired", "gone", "failed", "reverted"})
"""Endings after which nobody expects the domain to come."""


def claim_conflicts(
    book: Book, promises: Mapping[str, Promise], sightings: Mapping[str, Sighting], now_s: float | None = None
) -> Iterator[Conflict]:
    """One row for each claim or guest that is not as it should be. now_s: seconds since 1970; without it nothing is
    told of moves that have waited for long. Costs little for a claim of which nothing is to be told."""
    for promise in promises.values():
        if promise.drift:
            yield _drifted(promise, sightings[promise.instance])
        for claim in promise.claims:
            if claim.state == "overdue":
                yield _overdue(claim, promise)
            elif claim.ending is not None and claim.state in _MAY_RUN_ON:
                yield from _called_off(claim, promise, sightings.get(promise.instance))
            elif claim.state == "doubtful":
                yield _doubtful(claim, promise)
            elif claim.state == "parked" and now_s is not None and claim.role == "owner":
                yield from _parked(claim, promise, book, now_s)
    for uuid, departure in book.departures.items():
        seen = sightings.get(uuid)
        if departure.moved_to is not None and seen is not None and seen.is_active and uuid not in book.of:
            yield _elsewhere(seen, departure.moved_to)
    for uuid, seen in sightings.items() if book.ends else ():
        if uuid in book.ends and uuid not in book.of and uuid not in book.departures:
            yield from _without_claim(seen, book)


def _guest(uuid: str) -> Resource:
    return Resource(kind="guest", id=uuid)


def _drifted(promise: Promise, seen: Sighting) -> Conflict:
    claim = next(one for one in promise.claims if one.state == "resident")
    back = way_back(claim, seen)
    return conflict(
        "claim-drift",
        _guest(promise.instance),
        (promise.owner,),
        cause=f"{seen.label} is not as claim {claim.claim_id} says: it {some(promise.drift, between='; it ')}",
        severity="warning",
        action=f"If it shall stay so, `{claim_command('accept-observed', claim.claim_id)}`; else "
        f"{back or 'change the guest'}, or give up the claim with {ending_way(claim)}; left alone nothing breaks, but "
        "both what it was promised and what it has are kept from others",
    )


def _overdue(claim: Claim, promise: Promise) -> Conflict:
    return conflict(
        "claim-overdue",
        _guest(promise.instance),
        (promise.owner,),
        cause=f"The domain of {claim.label} has not come within {claim.ttl_s:g} s of claim {claim.claim_id} "
        f"({claim.kind}), which holds on until it is certain that none is here",
        severity="warning",
        action=f"If the guest is still to come, `{claim_command('renew', claim.claim_id)}`; else {ending_way(claim)}; "
        "left alone the claim ends by itself as soon as libvirt and the kernel show that the guest is not here",
    )


def _called_off(claim: Claim, promise: Promise, seen: Sighting | None) -> Iterator[Conflict]:
    if seen is None or not seen.is_active:
        return
    what = f"its claim {claim.claim_id} was aborted, which"
    if claim.ending != "aborted":
        what = f"its move was called off, and claim {claim.claim_id}"
    look = (
        "" if claim.peer is None else f"Look whether it lives on {claim.peer}, since two copies may write to one disk. "
    )
    keep = "confirm" if claim.state == "arriving" else "release"
    yield conflict(
        "arrived-without-claim",
        _guest(promise.instance),
        (promise.owner,),
        cause=f"{seen.label} is here ({seen.state}) though {what} holds until the domain is gone",
        severity="warning",
        action=f"{look}If it is not wanted here, `{command('virsh destroy', seen.uuid)}`, with which the claim ends; "
        f"if it shall stay, `{claim_command(keep, claim.claim_id)}`; left alone its place is kept from others for as "
        "long as it is here",
    )


def _doubtful(claim: Claim, promise: Promise) -> Conflict:
    where = f" and {claim.peer}" if claim.peer else ""
    why = f": {claim.reason}" if claim.reason else ""
    return conflict(
        "migration-stuck",
        _guest(promise.instance),
        (promise.owner,),
        cause=f"Nobody can tell how the move {claim.move_id or ''} of {claim.label} between this host{where} ended"
        f"{why}".replace("  ", " "),
        severity="error",
        action=f"Look where the guest runs, and make sure that it runs on one host alone: two copies that write to one "
        f"disk are dangerous; then {_finished(claim)}; left alone its CPUs, memory and devices stay held on this host",
    )


def _finished(claim: Claim) -> str:
    elsewhere = f"{elsewhere_way(claim)} when it lives on the other host"
    return elsewhere if claim.move_id is None else f"{elsewhere}, or tell how it ended with {ending_way(claim)}"


def _parked(claim: Claim, promise: Promise, book: Book, now_s: float) -> Iterator[Conflict]:
    move = book.moves.get(claim.move_id or "")
    days = 0 if move is None else int((now_s - move.at_s) // DAY_S)
    if days < 1:
        return
    yield conflict(
        "migration-stuck",
        _guest(promise.instance),
        (promise.owner,),
        cause=f"The {claim.kind.replace('_', ' ')} of {claim.label} (claim {claim.claim_id}) has waited for "
        f"{count(days, 'day')} to be confirmed or reverted",
        severity="warning",
        action=f"Confirm or revert it where it was ordered, or tell how it ended with {ending_way(claim)}; left alone "
        "nothing breaks, but what the guest had before stays held on this host",
    )


def _elsewhere(seen: Sighting, moved_to: str) -> Conflict:
    end, keep_off = command("virsh destroy", seen.uuid), command("virsh autostart --disable", seen.uuid)
    take_back = command("agentctl instance forget", seen.uuid)
    return conflict(
        "guest-elsewhere",
        _guest(seen.uuid),
        (owner_of(seen),),
        cause=f"{seen.label} is active here, but it was said to live on {moved_to} now",
        severity="error",
        action=f"Make sure that it runs on {moved_to}, then end this one with `{end}`, and `{keep_off}` if the host "
        f"starts it; if it does not run there and shall live here, `{take_back}` without --moved-to takes back what "
        "was said; left alone two copies may write to one disk, which is dangerous",
    )


def _without_claim(seen: Sighting, book: Book) -> Iterator[Conflict]:
    ends = (book.tombstones[claim_id] for claim_id in reversed(book.ends[seen.uuid]))
    last: Tombstone | None = next((one for one in ends if one.claim is not None and one.claim.role != "in_place"), None)
    if last is None or last.claim is None or last.ending not in NOT_WANTED:
        return
    if shows_run(seen) and is_other_run(last.claim.run, seen.run):
        yield conflict(
            "arrived-without-claim",
            _guest(seen.uuid),
            (owner_of(seen),),
            cause=f"{seen.label} has come after its claim {last.claim_id} had ended ({last.ending} at {last.ended_at})",
            severity="warning",
            action=f"If it is not wanted here, `{command('virsh shutdown', seen.uuid)}`; if it is, move away whoever is"
            " in its way, which has a row of its own; left alone it holds what it has like any guest",
        )
