"""May this claim be made: everything that is asked of it, from its id to the room on the host.

`decide` works the answer out on one picture of the host, outside of any lock. `enter` puts it into the books of the
current one, if it still holds there.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from agent.core.admission import Question, found, offer_now, question_of
from agent.core.claim import life, moves, seats, steps
from agent.core.claim.book import Book, Change, Draft
from agent.core.claim.refusal import REMEMBERED, ClaimRefusal, Code
from agent.core.claim.values import BRINGS_A_GUEST, Claim, ClaimRequest, Moment, Role, State, Step, Tombstone
from agent.core.claim.way_out import ending_way, finishing_way
from agent.core.fit.decide import still_fits
from agent.core.fit.host import HostFacts
from agent.core.fit.rules import NoFit
from agent.core.guest import Sighting
from agent.core.instance import Group
from agent.core.ledger import Holds
from agent.core.placement import Placement
from agent.core.reason_text import sentence
from agent.core.reasons import (
    DevicesApart,
    DevicesContended,
    DevicesFar,
    DevicesShort,
    GroupViolated,
    InMaintenance,
    Reason,
    SocketsUnknown,
)
from agent.core.snapshot import Snapshot, without_claim, without_instance
from agent.core.words import count

STAYS_STATES: frozenset[State] = frozenset({"resident", "away"})
"""Of an owner claim whose guest may be rebuilt or resized in place."""

_OF_DEVICES = (DevicesShort, DevicesFar, DevicesContended, DevicesApart, SocketsUnknown)


class Verdict(NamedTuple):
    """What was found on one picture of the host. given: the placement, or what the guest has already (a rebuild);
    None where it is refused. on: the picture."""

    role: Role
    on: Snapshot
    given: Placement | Holds | None = None
    refusal: ClaimRefusal | None = None


def known(book: Book, request: ClaimRequest) -> Claim | ClaimRefusal | None:
    """What was answered to this claim id before; None: it is new."""
    claim = book.claims.get(request.claim_id)
    if claim is not None:
        is_same = (claim.kind, claim.instance.uuid, claim.digest) == _asked(request)
        return claim if is_same else _other_request(request, f"claim {claim.kind} of instance {claim.instance.uuid}")
    tombstone = book.tombstones.get(request.claim_id)
    if tombstone is None:
        return None
    if tombstone.digest and (tombstone.instance, tombstone.digest) != (request.instance.uuid, request.digest):
        return _other_request(request, f"a claim of instance {tombstone.instance}, which has ended")
    if tombstone.refusal is not None:
        return tombstone.refusal
    return ended(tombstone)


def ended(tombstone: Tombstone) -> ClaimRefusal:
    """What is answered to whoever still uses a claim that has ended."""
    message = f"Claim {tombstone.claim_id} has ended ({tombstone.ending}) at {tombstone.ended_at}: make a new claim"
    return ClaimRefusal(code="ClaimEnded", message=message, retry="never", claim_id=tombstone.claim_id)


def decide(request: ClaimRequest, snapshot: Snapshot, facts: HostFacts, now: Moment | None, host: str) -> Verdict:
    """The answer on this picture of the host. now: None: nobody waits for it. host: this one's name, as a conductor
    knows it."""
    role = role_of(request, snapshot)
    refusal = next(_grounds(request, role, snapshot, now), None)
    if refusal is not None:
        return Verdict(role, snapshot, refusal=refusal)
    if request.kind == "rebuild":
        return _rebuilt(request, snapshot)
    place = found(asked_of(request, snapshot, facts, host))
    if isinstance(place, NoFit):
        return Verdict(role, snapshot, refusal=_no_room(request, place.reasons))
    return Verdict(role, snapshot, given=place)


def asked_of(request: ClaimRequest, snapshot: Snapshot, facts: HostFacts, host: str) -> Question:
    """Whether there is room for it, as a question of its own."""
    role = role_of(request, snapshot)
    return question_of(
        request.binding,
        _as_if_gone(request, role, snapshot),
        facts,
        request.instance,
        request.group,
        seated=snapshot,
        host=host,
        in_place=role == "in_place",
    )


def holds_still(request: ClaimRequest, verdict: Verdict, current: Snapshot, facts: HostFacts, host: str) -> bool:
    """Whether a yes that was found on an earlier picture is one on the current picture too."""
    if verdict.on is current:
        return True
    if verdict.role == "in_place":
        return verdict.on.ledger is current.ledger and verdict.on.book is current.book
    if role_of(request, current) != verdict.role:
        return False
    if _group_violated(request, verdict.role, current, host) is not None:
        return False
    if next(_busy(request, verdict.role, current), None) is not None or current.book.maintenance is not None:
        return False
    offer = offer_now(_as_if_gone(request, verdict.role, current), facts)
    return isinstance(verdict.given, Placement) and still_fits(request.binding, verdict.given, offer)


def enter(draft: Draft, request: ClaimRequest, verdict: Verdict, current: Snapshot) -> Claim:
    """Put the claim that was found possible into the books, as pending: it holds from now on."""
    uuid, seen = request.instance.uuid, current.ledger.sightings.get(request.instance.uuid)
    replacing = replacement(draft, request)
    if replacing is not None:
        draft.foretell(replacing)
    if verdict.role == "in_place" and draft.book.owner_of(uuid) is None and seen is not None:
        steps.owner_for(draft, request.instance, seen, current.holds[uuid])
    groups, others = _seats_of_others(request.group, uuid, current)
    claim = draft.admit(
        _claim(request, verdict, draft, seen),
        Step(
            sequence=0,
            at="",
            event="admitted",
            claim_id=request.claim_id,
            instance=uuid,
            kind=request.kind,
            after="reserved",
            move_id=request.context.move_id,
            groups=groups,
            seats=MappingProxyType(others),
        ),
    )
    seats.join_group(draft, request.group, uuid, current.ledger.sightings)
    moves.open_move(draft, claim)
    return claim


def replacement(draft: Draft, request: ClaimRequest) -> Change | None:
    """The end of the claim that the request's takes the place of, as a change of the draft's book; None: there is none.

    Until the journal has both, the old claim holds beside the new one.
    """
    replaced = draft.book.claims.get(request.context.replaces or "")
    if replaced is None or not steps.may(replaced, "replace"):
        return None
    apart = Draft(draft.book, draft.now, draft.rules)
    life.replace(apart, replaced, request.claim_id, request.context.move_id)
    return apart.done()


def overtaken(book: Book, request: ClaimRequest) -> ClaimRefusal | None:
    """Why the request's claim can take no other's place any more, though it could when it was made: that one's domain
    has come since. None: it can, or there is no such claim."""
    replaced = book.claims.get(request.context.replaces or "")
    if replaced is None or steps.may(replaced, "replace"):
        return None
    return next(_bad_replacement(request, book))


def refuse(draft: Draft, request: ClaimRequest, verdict: Verdict) -> None:
    """Remember a refusal that decides over the claim id for good; of another one nothing is kept."""
    refusal = verdict.refusal
    if refusal is None or refusal.code not in REMEMBERED:
        return
    groups, others = _seats_of_others(request.group, request.instance.uuid, verdict.on)
    step = draft.note(
        Step(
            sequence=0,
            at="",
            event="refused",
            claim_id=request.claim_id,
            instance=request.instance.uuid,
            kind=request.kind,
            ending=refusal.code,
            groups=groups,
            seats=MappingProxyType(others),
            as_of=verdict.on.book.sequence,
            note=refusal.message,
        )
    )
    draft.bury(
        Tombstone(
            claim_id=request.claim_id,
            ending="refused",
            ended_at=draft.now.wall,
            at_s=draft.now.wall_s,
            sequence=step.sequence,
            digest=request.digest,
            instance=request.instance.uuid,
            refusal=refusal,
        )
    )


def role_of(request: ClaimRequest, snapshot: Snapshot) -> Role:
    """In place where the guest is here and stays; else by the kind."""
    if request.kind == "rebuild":
        return "in_place"
    if request.kind in BRINGS_A_GUEST:
        return "owner"
    if request.kind == "live_migration":
        return "incoming"
    uuid, book = request.instance.uuid, snapshot.book
    owner = book.owner_of(uuid)
    if owner is not None:
        return "in_place" if owner.state in STAYS_STATES else "incoming"
    return "in_place" if uuid in snapshot.ledger.sightings and uuid not in book.departures else "incoming"


def _asked(request: ClaimRequest) -> tuple[str, str, str]:
    return (request.kind, request.instance.uuid, request.digest)


def _other_request(request: ClaimRequest, what: str) -> ClaimRefusal:
    message = f"Claim id {request.claim_id} was used before for another request ({what}): use a new id"
    return ClaimRefusal(code="ClaimConflict", message=message, retry="never", claim_id=request.claim_id)


def _grounds(request: ClaimRequest, role: Role, snapshot: Snapshot, now: Moment | None) -> Iterator[ClaimRefusal]:
    """Why the claim cannot be made whatever room there is."""
    not_after = request.context.not_after
    if now is not None and not_after is not None and now.wall > not_after:
        message = (
            f"The request was of use until {not_after} only, and it is {now.wall} here: ask again with a later"
            " context.not_after, and see that the clocks of both hosts agree"
        )
        yield ClaimRefusal(code="InvalidRequest", message=message, retry="never")
    maintenance = snapshot.book.maintenance
    if maintenance is not None and role != "in_place":
        message = (
            f"This host takes no new guests since {maintenance.since} ({maintenance.reason}): take another one, or end"
            " that with `agentctl maintenance off`"
        )
        reason = InMaintenance(since=maintenance.since, reason=maintenance.reason)
        yield ClaimRefusal(code="HostInMaintenance", message=message, retry="elsewhere", reasons=(reason,))
    yield from _busy(request, role, snapshot)


def _busy(request: ClaimRequest, role: Role, snapshot: Snapshot) -> Iterator[ClaimRefusal]:
    """What of the same instance is in the way: at most one owner, one incoming or in-place claim, one open move."""
    book, uuid = snapshot.book, request.instance.uuid
    yield from _bad_replacement(request, book, role)
    if (taken := moves.taken(book, request.context.move_id, uuid)) is not None:
        yield ClaimRefusal(code="ClaimConflict", message=taken, retry="never", claim_id=request.claim_id)
    others = [claim for claim in book.claims_of(uuid) if claim.claim_id != request.context.replaces]
    for claim in others:
        stays = claim.role == "owner" and claim.state in STAYS_STATES and claim.ending is None
        move = steps.open_move_of(book, claim)
        if role != "in_place" or not stays or move is not None:
            way = (
                f"end that first ({ending_way(claim)}), or name it in context.replaces"
                if move is None
                else f"finish move {move.move_id} first: {finishing_way(move.move_id)}"
            )
            message = (
                f"Instance {claim.label} has claim {claim.claim_id} here already ({claim.kind}, {claim.state}): {way}"
            )
            yield ClaimRefusal(code="InstanceBusy", message=message, retry="later", claim_id=claim.claim_id)
    seen = snapshot.ledger.sightings.get(uuid)
    if role != "in_place" and seen is not None and seen.is_active and not others:
        # nor can it be told to go elsewhere: two copies would write to one disk
        message = (
            f"Instance {seen.label} is here already: its domain is active ({seen.state}), though no claim says so. Stop"
            " that domain first, or leave the guest where it is: what it holds is kept for it without a claim"
        )
        yield ClaimRefusal(code="InstanceBusy", message=message, retry="later")
    if role == "in_place" and seen is None and not others:
        message = (
            f"Instance {uuid} cannot be changed in place here: this host knows neither a claim nor a domain of it. Ask"
            " the host that it is on, or ask for a build"
        )
        yield ClaimRefusal(code="ClaimNotFound", message=message, retry="elsewhere")


def _bad_replacement(request: ClaimRequest, book: Book, role: Role | None = None) -> Iterator[ClaimRefusal]:
    """role: of the claim that is asked for; None: whatever it is."""
    named = request.context.replaces
    if named is None:
        return
    tombstone, claim = book.tombstones.get(named), book.claims.get(named)
    if tombstone is not None and tombstone.instance in {"", request.instance.uuid}:
        return  # it has ended already, as was wanted
    if claim is None or claim.instance.uuid != request.instance.uuid:
        message = f"context.replaces names claim {named}, which is none of instance {request.instance.uuid} here"
        yield ClaimRefusal(code="ClaimNotFound", message=message, retry="never", claim_id=named)
    elif not steps.may(claim, "replace"):
        message = f"context.replaces names claim {named}, which is {claim.state} and cannot be replaced now"
        yield ClaimRefusal(code="InstanceBusy", message=message, retry="later", claim_id=named)
    elif role == "in_place" and claim.role == "owner":
        message = (
            f"context.replaces names claim {named}, by which the guest is here: a change in place stands beside that"
            " until the move is finished. Leave it out of the context"
        )
        yield ClaimRefusal(code="InvalidRequest", message=message, retry="never", claim_id=named)


def _group_violated(request: ClaimRequest, role: Role, snapshot: Snapshot, host: str) -> GroupViolated | None:
    return seats.group_refusal(
        request.group,
        request.instance.uuid,
        snapshot.book,
        snapshot.ledger.sightings,
        host=host,
        in_place=role == "in_place",
    )


def _seats_of_others(group: Group | None, uuid: str, snapshot: Snapshot) -> tuple[tuple[str, ...], dict[str, int]]:
    if group is None:
        return (), {}
    others = seats.others_seated(group, uuid, snapshot.book, snapshot.ledger.sightings)
    return (group.id,), {group.id: len(others)}


def _as_if_gone(request: ClaimRequest, role: Role, snapshot: Snapshot) -> Snapshot:
    """The picture that the room is looked for on: without what the guest has itself, where it may have that again."""
    if role == "in_place":
        return without_instance(snapshot, request.instance.uuid)
    named = request.context.replaces
    return snapshot if named is None else without_claim(snapshot, named)


def _rebuilt(request: ClaimRequest, snapshot: Snapshot) -> Verdict:
    """A rebuild keeps the place that the guest has, so it must need the same."""
    uuid = request.instance.uuid
    owner = snapshot.book.owner_of(uuid)
    given = owner.placement or owner.observed if owner is not None else snapshot.holds.get(uuid)
    asked = None if owner is None else owner.binding
    is_same = asked == request.binding if asked is not None else _needs_the_same(request, given)
    if is_same and given is not None:
        return Verdict("in_place", snapshot, given=given)
    message = (
        f"A rebuild keeps the CPUs, memory and devices of instance {uuid}, and the request asks for others:"
        " resize it instead"
    )
    return Verdict("in_place", snapshot, refusal=ClaimRefusal(code="InvalidRequest", message=message, retry="never"))


def _needs_the_same(request: ClaimRequest, given: Placement | Holds | None) -> bool:
    """Of a guest that no claim made only what it holds can be compared."""
    if not isinstance(given, Holds):
        return False
    pinned = len(given.cpus - given.emulator_cpus)
    devices = sum(one.count for one in request.binding.devices)
    return (pinned, len(given.devices)) == (len(request.binding.pinned), devices)


def _no_room(request: ClaimRequest, reasons: tuple[Reason, ...]) -> ClaimRefusal:
    if reasons and isinstance(violated := reasons[0], GroupViolated):
        refusal = seats.refused(seats.way_of(request.kind), violated)
        return msgspec.structs.replace(refusal, reasons=reasons)
    code: Code = "ComputeResourcesUnavailable"
    if reasons and all(isinstance(reason, _OF_DEVICES) for reason in reasons):
        code = "PciRequestError"
    told = sentence(reasons[0]) if reasons else "there is no room"
    more = f" (and {count(len(reasons) - 1, 'further reason')})" if len(reasons) > 1 else ""
    message = f"Instance {request.instance.name or request.instance.uuid} does not fit on this host: {told}{more}"
    return ClaimRefusal(code=code, message=message, retry="elsewhere", reasons=reasons)


def _claim(request: ClaimRequest, verdict: Verdict, draft: Draft, seen: Sighting | None) -> Claim:
    now, context, given = draft.now, request.context, verdict.given
    ttl_s = context.ttl_s if context.ttl_s is not None else draft.rules.ttl_s[request.kind]
    has_move = verdict.role != "owner"
    return Claim(
        claim_id=request.claim_id,
        kind=request.kind,
        role=verdict.role,
        state="pending",
        instance=request.instance,
        digest=request.digest,
        ttl_s=ttl_s,
        sequence=0,
        made_at=now.wall,
        state_since=now.wall,
        changed_at_s=now.monotonic_s,
        binding=request.binding,
        placement=given if isinstance(given, Placement) else None,
        observed=given if isinstance(given, Holds) else None,
        group=None if request.group is None else msgspec.structs.replace(request.group, members=()),
        move_id=context.move_id or (request.claim_id if has_move else None),
        peer=context.peer,
        deadline=steps.first_deadline(now, draft.rules, ttl_s),
        run=None if seen is None else seen.run,
    )
