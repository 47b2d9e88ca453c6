"""The one question: may this guest come, and where would it go."""

from __future__ import annotations

from agent.core.fit.decide import fit
from agent.core.fit.host import HostFacts, Offer, offer
from agent.core.fit.rules import FitRules, NoFit
from agent.core.group_policy import group_reasons
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


def admit(
    request: InstanceRequest,
    snapshot: Snapshot,
    facts: HostFacts,
    *,
    instance: Instance | None = None,
    group: Group | None = None,
) -> Answer:
    """The answer for one guest. facts: `host_facts` of the snapshot's topology and configuration. instance None: one
    that nobody knows yet."""
    uuid = "" if instance is None else instance.uuid
    kept_apart = tuple(group_reasons(group, uuid, snapshot.ledger.sightings))
    found = fit(request, offered(snapshot, facts), rules(snapshot.config))
    epoch, generation = snapshot.identity.epoch, snapshot.generation
    if isinstance(found, NoFit):
        return Refused(reasons=(*kept_apart, *found.reasons), epoch=epoch, generation=generation)
    if kept_apart:
        return Refused(reasons=kept_apart, epoch=epoch, generation=generation)
    return Admitted(placement=found, epoch=epoch, generation=generation)


def offered(snapshot: Snapshot, facts: HostFacts) -> Offer:
    """What the host has for one who comes now."""
    sightings = snapshot.ledger.sightings
    uncertain = sorted(sightings[uuid].label for uuid, holds in snapshot.holds.items() if holds.uncertain)
    return offer(facts, snapshot.usage, uncertain)


def rules(config: HostConfig) -> FitRules:
    """How the operator wants guests placed."""
    return FitRules(pack=config.pack_cells, share_cells=config.share_cells)
