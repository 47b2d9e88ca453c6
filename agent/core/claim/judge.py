"""What a pass shows of the claims: the same picture of the host, with the claims moved on."""

from __future__ import annotations

import msgspec

from agent.core.admission import offer_now
from agent.core.claim import evidence, life
from agent.core.claim.book import Change, Draft
from agent.core.claim.proof import shows_all
from agent.core.claim.spent import note_spent, once_only
from agent.core.claim.trial import told
from agent.core.claim.values import Claim, Moment
from agent.core.fit.decide import still_fits
from agent.core.fit.host import host_facts
from agent.core.snapshot import Snapshot, SourceState, at_hour, hour_of, with_book, with_sources, without_instance

CLAIMS = "claims"
"""Among the sources: what is seen of guests could be applied to all of their claims."""


def judged(looked: Snapshot, now: Moment, since_last_s: float | None) -> tuple[Snapshot, Change]:
    """The picture with its claims as of now, and what the journal must have of that. The generation stays.

    since_last_s: monotonic time since this was done before, None: it was not.
    """
    draft = Draft(looked.book, now, looked.rules)
    faults = evidence.observe(draft, looked.ledger, lambda claim: is_free_for(claim, looked), since_last_s=since_last_s)
    note_spent(draft, looked.ledger.sightings, looked.holds, once_only(looked.topology, looked.config))
    if hour_of(now.wall_s) != looked.hour and shows_all(looked.ledger):
        life.prune(draft, looked.ledger.sightings)
    change = draft.done()
    made = _telling(at_hour(with_book(looked, change.book, change.touched), now.wall_s), told(faults), now)
    return msgspec.structs.replace(made, generation=looked.generation), change


def _telling(snapshot: Snapshot, problem: str | None, now: Moment) -> Snapshot:
    """With the claims among the sources once they have had a problem."""
    if problem is None and snapshot.source(CLAIMS).problem is None:
        return snapshot
    return with_sources(snapshot, SourceState(name=CLAIMS, read_at=now.monotonic_s, problem=problem))


def is_free_for(claim: Claim, snapshot: Snapshot) -> bool:
    """Whether the place of a claim that has ended would be given to it again: nobody else has it by now."""
    if claim.binding is None or claim.placement is None:
        return False
    alone = without_instance(snapshot, claim.instance.uuid)
    facts = host_facts(snapshot.topology, snapshot.config)
    return still_fits(claim.binding, claim.placement, offer_now(alone, facts))
