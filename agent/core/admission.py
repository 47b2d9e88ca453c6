"""The one question: may this guest come, and where would it go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from agent.core.claim.seats import group_refusal
from agent.core.fit.decide import fit
from agent.core.fit.host import HostFacts, Offer, offer_of
from agent.core.fit.rules import FitRules, NoFit
from agent.core.host_config import HostConfig
from agent.core.instance import Group, Instance, InstanceRequest
from agent.core.placement import Placement
from agent.core.reasons import Reason
from agent.core.snapshot import Snapshot
from agent.core.values import Value


class Admitted(Value, frozen=True, kw_only=True, tag="admitted"):
    """Yes: what the guest gets. epoch, generation: the picture of the host that this was decided on."""

    placement: Placement
    epoch: int
    generation: int


class Refused(Value, frozen=True, kw_only=True, tag="refused"):
    """No: every reason, by guest cell and host cell. epoch, generation: as of `Admitted`."""

    reasons: tuple[Reason, ...]
    epoch: int
    generation: int


Answer = Admitted | Refused


class Question(NamedTuple):
    """May this guest come to this host. facts, offer, rules: of the snapshot. group: the guest's server group."""

    request: InstanceRequest
    snapshot: Snapshot
    facts: HostFacts
    offer: Offer
    rules: FitRules
    instance: Instance
    group: Group | None


def question_of(
    request: InstanceRequest, snapshot: Snapshot, facts: HostFacts, instance: Instance, group: Group | None
) -> Question:
    """The question as it stands. facts: `host_facts` of the snapshot's topology and configuration."""
    offer = offer_now(snapshot, facts)
    return Question(request, snapshot, facts, offer, fit_rules(snapshot.config), instance, group)


def admit(question: Question) -> Answer:
    """The answer for one guest."""
    found = _found(question)
    epoch, generation = question.snapshot.identity.epoch, question.snapshot.generation
    if isinstance(found, NoFit):
        return Refused(reasons=found.reasons, epoch=epoch, generation=generation)
    return Admitted(placement=found, epoch=epoch, generation=generation)


def why_not(question: Question) -> tuple[Reason, ...]:
    """Every reason against it; none when the guest may come."""
    found = _found(question)
    return found.reasons if isinstance(found, NoFit) else ()


def _found(question: Question) -> Placement | NoFit:
    grounds = tuple(_other_grounds(question))
    found = fit(question.request, question.offer, question.rules)
    if not grounds:
        return found
    return NoFit(reasons=(*grounds, *(found.reasons if isinstance(found, NoFit) else ())))


def _other_grounds(question: Question) -> Iterator[Reason]:
    """Why the guest may not come even where there is room."""
    violated = group_refusal(
        question.group,
        question.instance.uuid,
        question.snapshot.book,
        question.snapshot.ledger.sightings,
        host=question.snapshot.config.host,
        in_place=False,
    )
    if violated is not None:
        yield violated


def offer_now(snapshot: Snapshot, facts: HostFacts) -> Offer:
    """What the host has for one who comes now."""
    sightings = snapshot.ledger.sightings
    uncertain = sorted(sightings[uuid].label for uuid, holds in snapshot.holds.items() if holds.uncertain)
    return offer_of(facts, snapshot.usage, uncertain)


def fit_rules(config: HostConfig) -> FitRules:
    """How the operator wants guests placed."""
    return FitRules(pack=config.pack_cells, share_cells=config.share_cells)
