"""What is told of claims, moves and groups: the same over the local API, RPC and in the commands' JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from agent.core.claim.refusal import ClaimRefusal
from agent.core.claim.values import (
    Claim,
    ClaimKind,
    Deadline,
    Departure,
    Ending,
    GroupRule,
    Maintenance,
    Membership,
    Moment,
    Move,
    Outcome,
    Role,
    SpentDevice,
    State,
    Tombstone,
)
from agent.core.instance import GroupPolicy, Instance, InstanceRequest
from agent.core.ledger import Holds
from agent.core.pci import PciAddress
from agent.core.placement import Placement
from agent.core.reason_text import sentence
from agent.core.values import Value
from agent.formats import wire
from agent.formats.claim_forms import GroupRules
from agent.formats.envelope import Refusal
from agent.formats.wall_time import rfc3339


class Ended(Value, frozen=True, kw_only=True):
    """how: "refused" of a claim that was never made. at: RFC 3339. refusal: what was answered to it then."""

    how: Ending | Literal["refused"]
    at: str
    refusal: Refusal | None = None


class ClaimView(Value, frozen=True, kw_only=True):
    """A claim as it is told. kind to made_at: null only of an id that was aborted, or refused, before there was a
    claim. state_since, made_at, deadline_at: RFC 3339; no deadline: null. holds: what it holds by itself, null once it
    has ended. ended: null while it has not. ending: as what it ends, by itself, once its domain is gone: it holds until
    then though it was aborted, or its move called off. binding, placement: both null of a guest that no claim made; its
    kind says nothing then."""

    claim_id: str
    kind: ClaimKind | None = None
    role: Role | None = None
    state: State
    state_since: str | None = None
    instance: Instance | None = None
    digest: str = ""
    binding: InstanceRequest | None = None
    move_id: str | None = None
    peer: str | None = None
    placement: Placement | None = None
    group: str | None = None
    made_at: str | None = None
    deadline_at: str | None = None
    holds: Holds | None = None
    reason: str | None = None
    ended: Ended | None = None
    ending: Ending | None = None


class ClaimAnswer(Value, frozen=True, kw_only=True):
    """The claim as it is after the call. is_new: this very call made it. remarks: what of the group's policy is only a
    wish, or only this host's view. guarantee: "host" where a policy that spans hosts was checked on this one. ignored:
    keys of the request's context that mean nothing here."""

    claim: ClaimView
    is_new: bool = False
    remarks: tuple[str, ...] = ()
    guarantee: str | None = None
    ignored: tuple[str, ...] = ()


class ClaimList(Value, frozen=True, kw_only=True):
    """All claims that hold, the earliest first."""

    claims: tuple[ClaimView, ...]


class MoveView(Value, frozen=True, kw_only=True):
    """One half of a move, or a change in place. source, destination: ids of the claims here. outcome: null: open."""

    move_id: str
    kind: ClaimKind
    instance: str
    source: str | None
    destination: str | None
    peer: str | None
    outcome: Outcome | None
    opened_at: str
    finished_at: str | None


class MemberView(Value, frozen=True, kw_only=True):
    """generation: of the group when the instance was said to be in it; null: not told. seated: it counts here."""

    instance: str
    generation: int | None
    seated: bool


class GroupInfo(Value, frozen=True, kw_only=True):
    """What is known of a server group here. policy null: no rule."""

    id: str
    policy: GroupPolicy | None
    rules: GroupRules
    generation: int | None
    members: tuple[MemberView, ...]
    seated: tuple[str, ...]


class MaintenanceView(Value, frozen=True, kw_only=True):
    """null: new guests are taken."""

    maintenance: Maintenance | None


class DepartureView(Value, frozen=True, kw_only=True):
    """The instance counts as gone from here. at: RFC 3339."""

    instance: str
    at: str
    moved_to: str | None


class OfferedView(Value, frozen=True, kw_only=True):
    """The device is offered again. instance, name: of the guest that had it. at: RFC 3339, when that was seen."""

    address: PciAddress
    instance: str
    name: str
    at: str


class Accepted(Value, frozen=True, kw_only=True):
    """The journal is taken as it is. was_damaged: false: nothing had been lost, and so nothing has changed."""

    was_damaged: bool


def claim_view(claim: Claim, *, now: Moment, holds: Holds | None) -> ClaimView:
    """A claim that has not ended. holds: what it holds by itself (`core/claim/holding.claimed`)."""
    return ClaimView(
        claim_id=claim.claim_id,
        kind=claim.kind,
        role=claim.role,
        state=claim.state,
        state_since=claim.state_since,
        instance=claim.instance,
        digest=claim.digest,
        binding=claim.binding,
        move_id=claim.move_id,
        peer=claim.peer,
        placement=claim.placement,
        group=None if claim.group is None else claim.group.id,
        made_at=claim.made_at,
        deadline_at=_at(claim.deadline, now),
        holds=holds,
        reason=claim.reason,
        ending=claim.ending,
    )


def tombstone_view(tombstone: Tombstone, *, now: Moment) -> ClaimView:
    """What is remembered of a claim id that is no more."""
    refusal = tombstone.refusal
    ended = Ended(
        how=tombstone.ending,
        at=tombstone.ended_at,
        refusal=None if refusal is None else refusal_of(refusal),
    )
    if tombstone.claim is None:
        return ClaimView(
            claim_id=tombstone.claim_id,
            state="ended",
            state_since=tombstone.ended_at,
            instance=Instance(uuid=tombstone.instance) if tombstone.instance else None,
            digest=tombstone.digest,
            reason=None if refusal is None else refusal.message,
            ended=ended,
        )
    return msgspec.structs.replace(
        claim_view(tombstone.claim, now=now, holds=None),
        state="ended",
        state_since=tombstone.ended_at,
        deadline_at=None,
        ended=ended,
        ending=None,
    )


def claim_document(claim: Claim, *, now: Moment, holds: Holds | None) -> dict[str, Any]:
    """`claim_view` as plain data."""
    document: dict[str, Any] = wire.to_builtins(claim_view(claim, now=now, holds=holds))
    return document


def tombstone_document(tombstone: Tombstone, *, now: Moment) -> dict[str, Any]:
    """`tombstone_view` as plain data."""
    document: dict[str, Any] = wire.to_builtins(tombstone_view(tombstone, now=now))
    return document


def move_view(move: Move) -> MoveView:
    """A move as it is told."""
    return MoveView(
        move_id=move.move_id,
        kind=move.kind,
        instance=move.instance,
        source=move.source,
        destination=move.destination,
        peer=move.peer,
        outcome=move.outcome,
        opened_at=move.opened_at,
        finished_at=move.finished_at,
    )


def group_info(rule: GroupRule, members: Iterable[Membership], seated: Iterable[str]) -> GroupInfo:
    """A group as it is told; members by uuid."""
    here = tuple(sorted(seated))
    return GroupInfo(
        id=rule.id,
        policy=rule.policy,
        rules=GroupRules(max_server_per_host=rule.max_server_per_host),
        generation=rule.generation,
        members=tuple(
            MemberView(instance=one.instance, generation=one.generation, seated=one.instance in here)
            for one in sorted(members, key=lambda one: one.instance)
        ),
        seated=here,
    )


def departure_view(departure: Departure) -> DepartureView:
    """A departure as it is told."""
    return DepartureView(instance=departure.instance, at=departure.at, moved_to=departure.moved_to)


def offered_view(spent: SpentDevice) -> OfferedView:
    """A device that is kept back no more, as it is told."""
    return OfferedView(address=spent.address, instance=spent.instance, name=spent.name, at=spent.at)


def refusal_of(refusal: ClaimRefusal) -> Refusal:
    """A refusal as it is told: each reason as a sentence, and as data."""
    return Refusal(
        code=refusal.code,
        message=refusal.message,
        retry=refusal.retry,
        reasons=tuple(sentence(reason) for reason in refusal.reasons),
        details=refusal.reasons,
        claim_id=refusal.claim_id,
    )


_BETWEEN_CLOCKS_S = 0.001


def _at(deadline: Deadline | None, now: Moment) -> str | None:
    """By the wall clock as it is now. None: no deadline, or one of another boot, which will be set anew."""
    if deadline is None or deadline.boot_id != now.boot_id:
        return None
    # Cut to the second, as every other time is, so that nothing ends before its deadline; the clocks are read one after
    # the other, which must not make a second of it.
    return rfc3339(now.wall_s + deadline.at_s - now.monotonic_s + _BETWEEN_CLOCKS_S)
