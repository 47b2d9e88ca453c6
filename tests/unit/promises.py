"""Claims and what they promise, in the terms of the other builders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.core.claim.holding import Promise, promise_of
from agent.core.claim.values import Claim, State
from agent.core.guest import Sighting
from agent.core.holds import hold, host_sets
from agent.core.instance import Instance
from agent.core.ledger import Holds
from agent.core.placement import Placement
from agent.core.usage import Folded, Usage
from agent.core.usage.promised import with_promises
from tests.builders import Host, uuid_of


def claim_of(
    name: str,
    placement: Placement | None = None,
    *,
    state: State = "reserved",
    claim_id: str = "",
    observed: Holds | None = None,
    **others: object,
) -> Claim:
    """A claim of the guest of this name."""
    fields: dict[str, object] = {"kind": "build", "role": "owner", "digest": "d", "ttl_s": 900.0, "sequence": 1}
    fields |= {"made_at": "2026-01-01T00:00:00Z", "state_since": "2026-01-01T00:00:00Z", "changed_at_s": 0.0}
    fields |= {"claim_id": claim_id or f"claim-{name}", "state": state, "placement": placement, "observed": observed}
    fields |= {"instance": Instance(uuid=uuid_of(name), name=name)} | others
    return Claim(**fields)  # type: ignore[arg-type]


def promises_of(on: Host, claims: Iterable[Claim], seen: Iterable[Sighting] = ()) -> dict[str, Promise]:
    """What counts for each instance that has a claim."""
    sets = host_sets(on.topology, on.config)
    sightings: Mapping[str, Sighting] = {one.uuid: one for one in seen}
    by_instance: dict[str, list[Claim]] = {}
    for claim in claims:
        by_instance.setdefault(claim.instance.uuid, []).append(claim)
    made = {}
    for uuid, mine in by_instance.items():
        sighting = sightings.get(uuid)
        made[uuid] = promise_of(mine, sighting, None if sighting is None else hold(sighting, sets), sets)
    return made


def promised(on: Host, claims: Iterable[Claim], *seen: Sighting, before: Usage | None = None) -> Folded:
    """The books of a host with these claims and these guests."""
    sets = host_sets(on.topology, on.config)
    promises = promises_of(on, claims, seen).values()
    return with_promises(on.folded(*seen), promises, on.topology, on.config, sets, before=before)
