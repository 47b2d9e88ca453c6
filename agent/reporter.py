"""What is said of a change: one log line a pass, and only when something changed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime

from agent.core.claim.values import Tombstone
from agent.core.conflicts import Conflict, goes_on
from agent.core.misfits import misfits, rules_without_guest
from agent.core.snapshot import Snapshot, material_changes
from agent.core.words import agrees, count, field, plural, sentence, some

LOG = logging.getLogger(__name__)

ENDED_UNASKED: frozenset[str] = frozenset({"expired", "gone", "left"})
"""Endings that no caller has asked for, or not alone."""

NAMED = 5
"""So many rows are named in a line; of the rest only the count is given."""


def report_pass(before: Snapshot, after: Snapshot) -> None:
    """Log what appeared and what went between two snapshots: WARNING when a conflict, a source's problem or a misfit of
    the configuration appeared."""
    parts = [*_conflict_parts(before, after), *_guest_parts(before, after), *_claim_parts(before, after)]
    parts += _source_parts(before, after)
    odd = _new_misfits(before, after)
    parts += _named("configuration", odd)
    parts += _named("accept_names_no_guest_here", _new_idle_rules(before, after))
    if after.topology is not before.topology and before.complete:
        parts.append(_topology_part(before, after))
    if not parts and (before.complete or not after.complete):
        return
    usage = after.usage
    line = (
        f"pass epoch={after.identity.epoch} generation={after.generation} guests={len(after.ledger.sightings)}"
        f" conflicts={len(after.conflicts)} free_dedicated={usage.host.dedicated.free or '-'}"
    )
    worse = odd or _new_conflicts(before, after) or _new_problems(before, after)
    LOG.log(logging.WARNING if worse else logging.INFO, " ".join([line, *parts]))


def _new_conflicts(before: Snapshot, after: Snapshot) -> list[Conflict]:
    if after.conflicts is before.conflicts:  # most passes change nothing, and every row has owners to compare
        return []
    known = {row.id: row.owner_uuids for row in before.conflicts}
    return [row for row in after.conflicts if row.id not in known or not goes_on(known[row.id], row)]


def _new_problems(before: Snapshot, after: Snapshot) -> list[str]:
    by_problem: dict[str, list[str]] = {}  # a connection that is lost is the problem of each source behind it
    for state in after.sources:
        if state.problem is not None and before.source(state.name).problem is None:
            by_problem.setdefault(state.problem, []).append(state.name)
    return [f"{', '.join(names)} ({sentence(problem)})" for problem, names in by_problem.items()]


def _new_misfits(before: Snapshot, after: Snapshot) -> list[str]:
    if after.topology is before.topology and after.config is before.config:
        return []
    known = {row.what for row in misfits(before.topology, before.config)}
    return [sentence(row.what) for row in misfits(after.topology, after.config) if row.what not in known]


def _new_idle_rules(before: Snapshot, after: Snapshot) -> list[str]:
    if not after.complete:
        return []
    known = rules_without_guest(before.config, before.ledger.sightings.values()) if before.complete else ()
    idle = rules_without_guest(after.config, after.ledger.sightings.values())
    return [f"{rule.kind}:{field(rule.guest)}" for rule in idle if rule not in known]


def _conflict_parts(before: Snapshot, after: Snapshot) -> list[str]:
    gone = [field(row.id) for row in _new_conflicts(after, before)]
    appeared = [f"{field(row.id)} ({_owners(row)})" for row in _new_conflicts(before, after)]
    return _named("appeared", appeared) + _named("gone", gone)


def _guest_parts(before: Snapshot, after: Snapshot) -> list[str]:
    changed = material_changes(before.ledger, after.ledger)
    came = [field(after.ledger.sightings[uuid].name) for uuid in changed if uuid not in before.ledger.sightings]
    went = [field(before.ledger.sightings[uuid].name) for uuid in changed if uuid not in after.ledger.sightings]
    stayed = [u for u in changed if u in before.ledger.sightings and u in after.ledger.sightings]
    moved = [f"{field(after.ledger.sightings[uuid].name)}={after.ledger.sightings[uuid].state}" for uuid in stayed]
    return _named("guests_came", came) + _named("guests_went", went) + _named("guests_changed", moved)


def _claim_parts(before: Snapshot, after: Snapshot) -> list[str]:
    """What became of promises; that they were made, and what callers end, has lines of its own where it is answered."""
    was, now = before.book, after.book
    if now is was:
        return []
    changed = [
        f"{field(claim_id)}={claim.state}"
        for claim_id, claim in now.claims.items()
        if (known := was.claims.get(claim_id)) and known.state not in {"pending", claim.state}
    ]
    back = [f"{field(one)}={claim.state}" for one, claim in now.claims.items() if one in was.tombstones]
    gone = [now.tombstones.get(claim_id) for claim_id in was.claims if claim_id not in now.claims]
    ended = [_end_of(one) for one in gone if one is not None and one.ending in ENDED_UNASKED]
    return [
        *_named("claims_changed", sorted(changed)),
        *_named("claims_taken_back", sorted(back)),
        *_named("claims_ended", sorted(ended)),
    ]


def _end_of(tombstone: Tombstone) -> str:
    made_at = tombstone.ended_at if tombstone.claim is None else tombstone.claim.made_at
    age = datetime.fromisoformat(tombstone.ended_at) - datetime.fromisoformat(made_at)
    return f"{field(tombstone.claim_id)}={tombstone.ending} ({age.total_seconds():.0f} s old)"


def _source_parts(before: Snapshot, after: Snapshot) -> list[str]:
    healed = [s.name for s in after.sources if s.problem is None and before.source(s.name).problem is not None]
    return _named("sources_failed", _new_problems(before, after)) + _named("sources_healed", healed)


def _topology_part(before: Snapshot, after: Snapshot) -> str:
    came, went = after.topology.online - before.topology.online, before.topology.online - after.topology.online
    words = [f"online+{came}"] if came else []
    words += [f"online-{went}"] if went else []
    return f"topology={','.join(words) or 'changed'}"


def _named(word: str, items: Sequence[str]) -> list[str]:
    return [f"{word}=[{some(items, NAMED, between='; ')}]"] if items else []


def _owners(row: Conflict) -> str:
    return ", ".join(field(owner.label) for owner in row.owners)


def status_line(snapshot: Snapshot) -> str:
    """One line for `systemctl status`."""
    free = snapshot.usage.host.dedicated.free
    active = sum(sighting.is_active for sighting in snapshot.ledger.sightings.values())
    failing = ", ".join(state.name for state in snapshot.sources if state.problem is not None)
    return (
        f"{active} active of {len(snapshot.ledger.sightings)} {agrees(snapshot.ledger.sightings, 'guest', 'guests')},"
        f" {count(len(snapshot.conflicts), 'conflict')},"
        f" {f'free dedicated {plural(free)}' if free else 'no free dedicated CPU'}"
        + (f"; cannot read: {failing}" if failing else "")
    )
