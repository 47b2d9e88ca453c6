"""The one question: is there room for this guest, and does its server group let it come."""

from __future__ import annotations

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


class Question(NamedTuple):
    """May this guest come to this host. snapshot: the picture that room is looked for on, without what the guest may
    have again; facts, offer, rules: of it. seated: the picture that seats in the group are counted on. in_place: the
    guest is here and stays. host: the name of this one."""

    request: InstanceRequest
    snapshot: Snapshot
    facts: HostFacts
    offer: Offer
    rules: FitRules
    instance: Instance
    group: Group | None
    seated: Snapshot
    host: str
    in_place: bool


def question_of(
    request: InstanceRequest,
    snapshot: Snapshot,
    facts: HostFacts,
    instance: Instance,
    group: Group | None,
    *,
    seated: Snapshot | None = None,
    host: str | None = None,
    in_place: bool = False,
) -> Question:
    """The question as it stands. facts: `host_facts` of the snapshot's topology and configuration. seated, host: where
    they are not the snapshot's own."""
    return Question(
        request=request,
        snapshot=snapshot,
        facts=facts,
        offer=offer_now(snapshot, facts),
        rules=fit_rules(snapshot.config),
        instance=instance,
        group=group,
        seated=seated or snapshot,
        host=snapshot.config.host if host is None else host,
        in_place=in_place,
    )


def found(question: Question) -> Placement | NoFit:
    """Where the guest would go, or every reason against it: first that of its group."""
    seated = question.seated
    violated = group_refusal(
        question.group,
        question.instance.uuid,
        seated.book,
        seated.ledger.sightings,
        host=question.host,
        in_place=question.in_place,
    )
    place = fit(question.request, question.offer, question.rules)
    if violated is None:
        return place
    return NoFit(reasons=(violated, *(place.reasons if isinstance(place, NoFit) else ())))


def why_not(question: Question) -> tuple[Reason, ...]:
    """Every reason against it; none when the guest may come."""
    answer = found(question)
    return answer.reasons if isinstance(answer, NoFit) else ()


def offer_now(snapshot: Snapshot, facts: HostFacts) -> Offer:
    """What the host has for one who comes now."""
    sightings = snapshot.ledger.sightings
    uncertain = sorted(sightings[uuid].label for uuid, holds in snapshot.holds.items() if holds.uncertain)
    return offer_of(facts, snapshot.usage, uncertain)


def fit_rules(config: HostConfig) -> FitRules:
    """How the operator wants guests placed."""
    return FitRules(pack=config.pack_cells, share_cells=config.share_cells)
