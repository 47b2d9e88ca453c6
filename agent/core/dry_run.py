"""A claim that promises nothing: what `agentctl fit` and POST /v1/fit answer. The yes or no is `core/claim/admit`'s."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator

import msgspec

from agent.core.claim import admit
from agent.core.claim.seats import soft_remarks
from agent.core.claim.values import ClaimContext, ClaimKind, ClaimRequest
from agent.core.fit.host import HostFacts
from agent.core.flavor import Faults, Requested, request_of
from agent.core.instance import Instance, InstanceRequest, RequestSpec
from agent.core.placement import Placement
from agent.core.reasons import ClaimForbidden, InMaintenance, Reason
from agent.core.relax.find import relaxations
from agent.core.relax.values import MaintenanceEnds, Relaxation, Relaxations
from agent.core.snapshot import Snapshot
from agent.core.values import Value
from agent.core.what_if import with_guest


class FitAnswer(Value, frozen=True, kw_only=True):
    """placement: where the guest would go, None when it does not fit; then reasons has every one, and relaxations what
    would make it fit, the smallest first (untried: changes that were not looked at). unknown: properties of the
    request that mean nothing here. notes: a sentence each about what has no effect. binding: what flavor, image and
    ports have become, and digest: what names it on its way to a claim (`formats/digest`). epoch, generation: of the
    picture that was asked."""

    fits: bool
    placement: Placement | None = None
    reasons: tuple[Reason, ...] = ()
    relaxations: tuple[Relaxation, ...] = ()
    untried: int = 0
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    binding: InstanceRequest | None = None
    digest: str = ""
    epoch: int = 0
    generation: int = 0


class CountAnswer(Value, frozen=True, kw_only=True):
    """How many guests alike fit one beside the other, of `asked`. placements: of those, in order. last: the answer to
    the first that does not fit; when all do, to the last of them."""

    asked: int
    placements: tuple[Placement, ...]
    last: FitAnswer

    @property
    def fits(self) -> bool:
        """All of them do."""
        return len(self.placements) == self.asked


def try_fit(
    spec: RequestSpec,
    snapshot: Snapshot,
    facts: HostFacts,
    *,
    kind: ClaimKind = "build",
    replaces: str | None = None,
) -> FitAnswer | Faults:
    """Whether such a claim would be granted now. facts: `host_facts` of the snapshot's topology and configuration.
    replaces: id of a claim of the same instance that this one would take the place of."""
    asked = request_of(spec, snapshot.config)
    if isinstance(asked, Faults):
        return asked
    request = _claim(spec, asked, kind, replaces)
    answer = _answer(request, asked, snapshot, facts)
    return answer if answer.fits else _with_relaxations(answer, request, snapshot, facts)


def try_count(spec: RequestSpec, snapshot: Snapshot, facts: HostFacts, count: int) -> CountAnswer | Faults:
    """How many such guests fit, at most `count` (from 1 on): each that does is held before the next is tried.

    What would help is looked for only where none fits: afterwards it would be that one of those thought of leaves.
    """
    placements: list[Placement] = []
    guests = _alike(spec)
    while True:
        guest = next(guests)
        asked = request_of(guest, snapshot.config)
        if isinstance(asked, Faults):
            return asked
        request = _claim(guest, asked, "build", None)
        answer = _answer(request, asked, snapshot, facts)
        if answer.placement is not None:
            placements.append(answer.placement)
        elif not placements:
            answer = _with_relaxations(answer, request, snapshot, facts)
        if answer.placement is None or len(placements) >= count:
            return CountAnswer(asked=count, placements=tuple(placements), last=answer)
        snapshot = with_guest(snapshot, guest.instance, answer.placement, guest.group)


def _claim(spec: RequestSpec, asked: Requested, kind: ClaimKind, replaces: str | None) -> ClaimRequest:
    """The claim that is only thought of, so that nothing is found under its id."""
    return ClaimRequest(
        claim_id="",
        kind=kind,
        instance=spec.instance,
        binding=asked.request,
        digest="",
        group=spec.group,
        context=ClaimContext(replaces=replaces),
    )


def _answer(request: ClaimRequest, asked: Requested, snapshot: Snapshot, facts: HostFacts) -> FitAnswer:
    host = snapshot.config.host
    verdict = admit.decide(request, snapshot, facts, None, host)
    remarks = soft_remarks(request.group, request.instance.uuid, snapshot.book, snapshot.ledger.sightings, host=host)
    return FitAnswer(
        fits=verdict.refusal is None,
        placement=verdict.given if isinstance(verdict.given, Placement) else None,
        reasons=_reasons(verdict, request, facts),
        unknown=asked.unknown,
        notes=(*asked.notes, *remarks),
        binding=asked.request,
        epoch=snapshot.identity.epoch,
        generation=snapshot.generation,
    )


def _reasons(verdict: admit.Verdict, request: ClaimRequest, facts: HostFacts) -> tuple[Reason, ...]:
    """All of them: of a host in maintenance also those that would be left when that ends."""
    refusal = verdict.refusal
    if refusal is None:
        return ()
    if refusal.code == "HostInMaintenance":
        open_now = _taking_guests(verdict.on)
        afterwards = admit.decide(request, open_now, facts, None, open_now.config.host)
        return (*refusal.reasons, *_reasons(afterwards, request, facts))
    return refusal.reasons or (ClaimForbidden(code=refusal.code, message=refusal.message, claim_id=refusal.claim_id),)


def _taking_guests(snapshot: Snapshot) -> Snapshot:
    return msgspec.structs.replace(snapshot, book=snapshot.book._replace(maintenance=None))


def _with_relaxations(answer: FitAnswer, request: ClaimRequest, snapshot: Snapshot, facts: HostFacts) -> FitAnswer:
    would_help = _would_help(answer.reasons, request, snapshot, facts)
    return msgspec.structs.replace(answer, relaxations=would_help.found, untried=would_help.untried)


def _would_help(
    reasons: tuple[Reason, ...], request: ClaimRequest, snapshot: Snapshot, facts: HostFacts
) -> Relaxations:
    """Nothing, where it takes more than one change: neither maintenance nor another claim goes with more room."""
    if any(isinstance(reason, ClaimForbidden) for reason in reasons):
        return Relaxations()
    if any(isinstance(reason, InMaintenance) for reason in reasons):
        return Relaxations(found=(MaintenanceEnds(),) if len(reasons) == 1 else ())
    return relaxations(admit.asked_of(request, snapshot, facts, snapshot.config.host))


def _alike(spec: RequestSpec) -> Iterator[RequestSpec]:
    """The guest and its likes, without end, each with a name and an id of its own."""
    first = spec.instance
    base, uuid_of_one = first.name or "guest", first.uuid
    for number in itertools.count(1):
        yield msgspec.structs.replace(spec, instance=Instance(uuid=uuid_of_one, name=f"{base}-{number}"))
        uuid_of_one = str(uuid.uuid5(uuid.UUID(first.uuid), str(number + 1)))
