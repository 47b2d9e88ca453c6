"""The book as the journal has it, and what a restart does to it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from immutables import Map

from agent.core.claim import moves, steps
from agent.core.claim.book import Book, Draft
from agent.core.claim.values import (
    Boot,
    BuildFailure,
    Claim,
    Departure,
    GroupRule,
    Horizon,
    Maintenance,
    Membership,
    Move,
    Record,
    SpentDevice,
    Tombstone,
)


def book_of(records: Iterable[Record], sequence: int) -> Book:
    """The book that these rows are of, whatever their order. sequence: of the last step that was stored."""
    values = [record.value for record in records]
    claims = sorted((one for one in values if isinstance(one, Claim)), key=lambda one: (one.sequence, one.claim_id))
    tombstones = sorted(
        (one for one in values if isinstance(one, Tombstone)), key=lambda one: (one.sequence, one.claim_id)
    )
    of: dict[str, tuple[str, ...]] = {}
    for claim in claims:
        of[claim.instance.uuid] = (*of.get(claim.instance.uuid, ()), claim.claim_id)
    ends: dict[str, tuple[str, ...]] = {}
    for tombstone in tombstones:
        if tombstone.instance:
            ends[tombstone.instance] = (*ends.get(tombstone.instance, ()), tombstone.claim_id)
    failures = (one for one in values if isinstance(one, BuildFailure))
    maintenance = [one for one in values if isinstance(one, Maintenance)]
    return Book(
        sequence=sequence,
        claims=Map({claim.claim_id: claim for claim in claims}),
        of=Map(of),
        tombstones=Map({one.claim_id: one for one in tombstones}),
        ends=Map(ends),
        graves=Map({one.sequence: one.claim_id for one in tombstones}),
        oldest=tombstones[0].sequence if tombstones else 0,
        members=Map({(one.group, one.instance): one for one in values if isinstance(one, Membership)}),
        groups=Map({one.id: one for one in values if isinstance(one, GroupRule)}),
        moves=Map({one.move_id: one for one in values if isinstance(one, Move)}),
        departures=Map({one.instance: one for one in values if isinstance(one, Departure)}),
        failures=tuple(sorted(failures, key=lambda one: (one.at_s, one.claim_id))),
        maintenance=maintenance[-1] if maintenance else None,
        horizon=next((one for one in values if isinstance(one, Horizon)), None),
        boot=next((one for one in values if isinstance(one, Boot)), None),
        spent=Map({one.address: one for one in values if isinstance(one, SpentDevice)}),
    )


def restarted(draft: Draft, was_boot: str | None) -> None:
    """The agent is back. was_boot: id of the boot in which it ran last; None: not known, which counts as another.

    Nobody could renew, and no domain could be seen, while it was away: what waits gets at least `restart_grace_s`.
    After another boot no reading, run or time of before means anything, and a live migration is in doubt.
    """
    is_same_boot = was_boot == draft.now.boot_id
    for claim in tuple(draft.book.claims.values()):
        there = claim if is_same_boot else _after_boot(draft, claim)
        if there.state == "away":
            draft.change(there, deadline=steps.deadline_in(draft.now, draft.rules.away_grace_s))
        else:
            steps.with_grace(draft, there, draft.rules.restart_grace_s)
    if not is_same_boot:
        for departure in tuple(draft.book.departures.values()):
            draft.put(msgspec.structs.replace(departure, run=None, at_s=None))


def _after_boot(draft: Draft, claim: Claim) -> Claim:
    fresh = draft.change(claim, changed_at_s=draft.now.monotonic_s, run=None, running_since_s=None)
    if fresh.state != "leaving" or fresh.is_cold or not steps.may(fresh, "torn"):
        return fresh
    return moves.torn(draft, fresh, "the host went down while it was leaving")
