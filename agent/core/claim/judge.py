"""What a pass shows of the claims: the same picture of the host, with the claims moved on."""

from __future__ import annotations

from functools import cached_property

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
from agent.core.snapshot import (
    Crowded,
    Snapshot,
    SourceState,
    at_hour,
    hour_of,
    with_book,
    with_sources,
    without_instance,
)

NONE: frozenset[str] = frozenset()

CLAIMS = "claims"
"""Among the sources: what is seen of guests could be applied to all of their claims."""


def judged(looked: Snapshot, now: Moment, since_last_s: float | None) -> tuple[Snapshot, Change]:
    """The picture with its claims as of now, and what the journal must have of that. The generation stays.

    since_last_s: monotonic time since this was done before, None: it was not.
    """
    draft, places = Draft(looked.book, now, looked.rules), _Places(looked)
    faults = evidence.observe(draft, looked.ledger, places.is_free, since_last_s=since_last_s)
    note_spent(draft, looked.ledger.sightings, looked.holds, once_only(looked.topology, looked.config))
    if hour_of(now.wall_s) != looked.hour and shows_all(looked.ledger):
        life.prune(draft, looked.ledger.sightings)
    change = draft.done()
    made = _telling(at_hour(with_book(looked, change.book, change.touched), now.wall_s), told(faults), now)
    return msgspec.structs.replace(made, generation=looked.generation, crowded=places.crowded()), change


class _Places:
    """Of claims that ended before their domains came, in one pass. To look for a place folds the whole host anew, which
    a guest whose place others have for good must not cost at each pass."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        known = snapshot.crowded
        self._known = known if known is not None and known.usage is snapshot.usage else Crowded(snapshot.usage, NONE)
        self._found: set[str] = set()

    def is_free(self, claim: Claim) -> bool:
        """As `is_free_for`."""
        if claim.claim_id in self._known.claim_ids:
            return False
        if not self._has_others(claim) and is_free_for(claim, self._snapshot):
            return True
        self._found.add(claim.claim_id)
        return False

    def crowded(self) -> Crowded | None:
        """What was found, for the next pass; None: nothing."""
        if not self._found:
            return self._known if self._known.claim_ids else None
        return self._known._replace(claim_ids=self._known.claim_ids | self._found)

    def _has_others(self, claim: Claim) -> bool:
        """On one of the CPUs that it was pinned to."""
        cells = () if claim.placement is None else claim.placement.cells
        return any(
            not self._owners.get(cpu, NONE) <= {claim.instance.uuid} for cell in cells for cpu in cell.pins.values()
        )

    @cached_property
    def _owners(self) -> dict[int, frozenset[str]]:
        held = self._snapshot.usage.holders
        return {one.cpu: frozenset(owner.uuid for owner in one.owners if owner.uuid is not None) for one in held}


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
