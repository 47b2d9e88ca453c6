"""A fit that promises nothing: what `agentctl fit` and POST /v1/fit answer. The way to the yes or no is a claim's."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator

import msgspec

from agent.core.admission import Admitted, Question, admit, question_of
from agent.core.claim.seats import soft_remarks
from agent.core.fit.host import HostFacts
from agent.core.flavor import Faults, Requested, request_of
from agent.core.instance import Instance, InstanceRequest, RequestSpec
from agent.core.placement import Placement
from agent.core.reasons import Reason
from agent.core.relax.find import relaxations
from agent.core.relax.values import Relaxation
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


def try_fit(spec: RequestSpec, snapshot: Snapshot, facts: HostFacts) -> FitAnswer | Faults:
    """Whether one such guest fits now. facts: `host_facts` of the snapshot's topology and configuration."""
    asked = request_of(spec, snapshot.config)
    if isinstance(asked, Faults):
        return asked
    question = question_of(asked.request, snapshot, facts, spec.instance, spec.group)
    answer = _answer(question, asked)
    return answer if answer.fits else _with_relaxations(answer, question)


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
        question = question_of(asked.request, snapshot, facts, guest.instance, guest.group)
        answer = _answer(question, asked)
        if answer.placement is not None:
            placements.append(answer.placement)
        elif not placements:
            answer = _with_relaxations(answer, question)
        if answer.placement is None or len(placements) >= count:
            return CountAnswer(asked=count, placements=tuple(placements), last=answer)
        snapshot = with_guest(snapshot, guest.instance, answer.placement, guest.group)


def _answer(question: Question, asked: Requested) -> FitAnswer:
    found = admit(question)
    is_yes = isinstance(found, Admitted)
    snapshot = question.snapshot
    remarks = soft_remarks(
        question.group, question.instance.uuid, snapshot.book, snapshot.ledger.sightings, host=snapshot.config.host
    )
    return FitAnswer(
        fits=is_yes,
        placement=found.placement if isinstance(found, Admitted) else None,
        reasons=() if isinstance(found, Admitted) else found.reasons,
        unknown=asked.unknown,
        notes=(*asked.notes, *remarks),
        binding=asked.request,
        epoch=found.epoch,
        generation=found.generation,
    )


def _with_relaxations(answer: FitAnswer, question: Question) -> FitAnswer:
    would_help = relaxations(question)
    return msgspec.structs.replace(answer, relaxations=would_help.found, untried=would_help.untried)


def _alike(spec: RequestSpec) -> Iterator[RequestSpec]:
    """The guest and its likes, without end, each with a name and an id of its own."""
    first = spec.instance
    base, uuid_of_one = first.name or "guest", first.uuid
    for number in itertools.count(1):
        yield msgspec.structs.replace(spec, instance=Instance(uuid=uuid_of_one, name=f"{base}-{number}"))
        uuid_of_one = str(uuid.uuid5(uuid.UUID(first.uuid), str(number + 1)))
