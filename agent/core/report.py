"""What is told of a snapshot: to the local API, to the commands, to whoever watches health."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from agent.core.claim.values import Claim, ClaimKind, Maintenance, Role, State
from agent.core.conflicts import Conflict
from agent.core.guest import Sighting
from agent.core.instance import Instance
from agent.core.ledger import Holds
from agent.core.misfits import misfits
from agent.core.snapshot import Snapshot, SourceState
from agent.core.topology import HostTopology, replace_problems
from agent.core.usage import Usage
from agent.core.values import Problem, Value
from agent.core.words import count

Status = Literal["ok", "degraded", "down"]

EACH_PASS = frozenset({"sysfs", "libvirt", "domains", "processes"})
"""Sources that every pass reads; the others are read when something changes, so their age says nothing."""

STALE_AFTER_INTERVALS = 2


class SourceReport(Value, frozen=True, kw_only=True):
    """One source. age_s: since its last success, None: never read."""

    name: str
    ok: bool
    age_s: float | None = None
    problem: str | None = None


class ClaimReport(Value, frozen=True, kw_only=True):
    """One claim in short. since: of its state, RFC 3339. The local API's /v1/claims has all of it."""

    claim_id: str
    kind: ClaimKind
    role: Role
    state: State
    instance: Instance
    since: str


class GuestReport(Value, frozen=True, kw_only=True):
    """One domain, what it holds, how old the reading is, and the claims that hold for it."""

    sighting: Sighting
    holds: Holds
    age_s: float
    claims: tuple[ClaimReport, ...] = ()


class Health(Value, frozen=True, kw_only=True):
    """status: "down" when guests cannot be seen at all, "degraded" when something needs a look, else "ok".
    reasons: one sentence for each thing that keeps it from "ok". ready: admissions could be answered. guests_inactive:
    defined and off. claims: that hold, of which so many are overdue and doubtful. build_failures: guests that were
    admitted and did not come to be, lately. maintenance: why new guests are refused, None: they are not."""

    status: Status
    ready: bool
    reasons: tuple[str, ...] = ()
    sources: tuple[SourceReport, ...] = ()
    guests_active: int = 0
    guests_inactive: int = 0
    conflicts: int = 0
    conflicts_accepted: int = 0
    problems: int = 0
    claims: int = 0
    claims_overdue: int = 0
    claims_doubtful: int = 0
    build_failures: int = 0
    maintenance: str | None = None


class Report(Value, frozen=True, kw_only=True):
    """Everything of one snapshot. epoch 0: a single look without a daemon. topology: its problems include those of the
    configuration, which may name what the host does not have. claims: those that hold, in the order they were made.
    maintenance: None while new guests are welcome."""

    agent_id: str
    epoch: int
    generation: int
    topology: HostTopology
    guests: tuple[GuestReport, ...]
    usage: Usage
    conflicts: tuple[Conflict, ...]
    health: Health
    claims: tuple[ClaimReport, ...] = ()
    maintenance: Maintenance | None = None


def report(snapshot: Snapshot, *, now_s: float, interval_s: float) -> Report:
    """Everything of one snapshot as of now_s (monotonic).

    interval_s: time between passes, which the ages of sources are held against.
    """
    return Report(
        agent_id=snapshot.identity.agent_id,
        epoch=snapshot.identity.epoch,
        generation=snapshot.generation,
        topology=inventory(snapshot),
        guests=guests(snapshot, now_s=now_s),
        usage=snapshot.usage,
        conflicts=snapshot.conflicts,
        health=health(snapshot, now_s=now_s, interval_s=interval_s),
        claims=tuple(map(_claim_report, sorted(snapshot.book.claims.values(), key=lambda claim: claim.sequence))),
        maintenance=snapshot.book.maintenance,
    )


def inventory(snapshot: Snapshot) -> HostTopology:
    """What the host has, with the problems of the configuration among its own."""
    return replace_problems(snapshot.topology, _problems(snapshot))


def guests(snapshot: Snapshot, *, now_s: float) -> tuple[GuestReport, ...]:
    """Every guest as of now_s (monotonic), by name and uuid."""
    return tuple(
        GuestReport(
            sighting=seen,
            holds=snapshot.holds[seen.uuid],
            age_s=max(now_s - seen.begun_at, 0.0),
            claims=tuple(map(_claim_report, snapshot.book.claims_of(seen.uuid))),
        )
        for seen in sorted(snapshot.ledger.sightings.values(), key=lambda one: (one.name, one.uuid))
    )


def health(snapshot: Snapshot, *, now_s: float, interval_s: float) -> Health:
    """How far the snapshot can be relied on: see `Health`.

    "down": libvirt was asked and never answered. Lost later it is "degraded", since the last known usage counts. Info
    rows, accepted ones and problems of the topology do not degrade: they may stay for the life of the host.
    """
    stale_after_s = STALE_AFTER_INTERVALS * interval_s
    sources = tuple(_source_report(state, now_s, stale_after_s) for state in snapshot.sources)
    reasons = (*_reasons_of_sources(snapshot, sources), *_reasons_of_guests(snapshot))
    seen = tuple(snapshot.ledger.sightings.values())
    active = sum(one.is_active for one in seen)
    accepted = sum(row.accepted for row in snapshot.conflicts)
    book, states = snapshot.book, Counter(claim.state for claim in snapshot.book.claims.values())
    return Health(
        status="down" if _is_blind(snapshot) else "degraded" if reasons else "ok",
        ready=is_ready(snapshot, now_s=now_s, interval_s=interval_s),
        reasons=reasons,
        sources=sources,
        guests_active=active,
        guests_inactive=len(seen) - active,
        conflicts=len(snapshot.conflicts) - accepted,
        conflicts_accepted=accepted,
        problems=len(_problems(snapshot)),
        claims=len(book.claims),
        claims_overdue=states["overdue"],
        claims_doubtful=states["doubtful"],
        build_failures=len(book.failures),
        maintenance=None if book.maintenance is None else book.maintenance.reason,
    )


def _claim_report(claim: Claim) -> ClaimReport:
    return ClaimReport(
        claim_id=claim.claim_id,
        kind=claim.kind,
        role=claim.role,
        state=claim.state,
        instance=claim.instance,
        since=claim.state_since,
    )


def is_ready(snapshot: Snapshot, *, now_s: float, interval_s: float) -> bool:
    """Admissions can be answered: a complete pass was made, and what each pass reads is not too old."""
    stale_after_s = STALE_AFTER_INTERVALS * interval_s
    sources = (_source_report(state, now_s, stale_after_s) for state in snapshot.sources)
    return snapshot.complete and not any(_is_stale(one.name, one.age_s, stale_after_s) for one in sources)


def _problems(snapshot: Snapshot) -> tuple[Problem, ...]:
    return snapshot.topology.problems + misfits(snapshot.topology, snapshot.config)


def _source_report(state: SourceState, now_s: float, stale_after_s: float) -> SourceReport:
    age_s = None if state.read_at is None else max(now_s - state.read_at, 0.0)
    ok = state.problem is None and not _is_stale(state.name, age_s, stale_after_s)
    return SourceReport(name=state.name, ok=ok, age_s=age_s, problem=state.problem)


def _is_stale(name: str, age_s: float | None, stale_after_s: float) -> bool:
    return name in EACH_PASS and (age_s is None or age_s > stale_after_s)


def _is_blind(snapshot: Snapshot) -> bool:
    return snapshot.source("libvirt").problem is not None and snapshot.source("domains").read_at is None


def _reasons_of_sources(snapshot: Snapshot, sources: Sequence[SourceReport]) -> Iterator[str]:
    if not snapshot.complete:
        yield "No complete look at the host and its guests has been made yet."
    for source in sources:
        if source.ok:
            continue
        age = "never read" if source.age_s is None else f"last read {source.age_s:.0f} s ago"
        yield f"{source.name}: {_plain(source.problem)} ({age})." if source.problem else f"{source.name}: {age}."


def _reasons_of_guests(snapshot: Snapshot) -> Iterator[str]:
    seen = snapshot.ledger.sightings.values()
    if untrusted := sum(one.validity == "last-known" for one in seen):
        yield f"What was last known counts for {count(untrusted, 'guest')} not readable now: see agentctl guests."
    if snapshot.usage.free_is_uncertain:
        yield "The CPUs of a guest are unknown, so CPUs called free may not be: see agentctl usage."
    pressing = [row for row in snapshot.conflicts if not row.accepted and row.severity != "info"]
    if pressing:
        kinds = ", ".join(sorted({row.kind for row in pressing}))
        yield f"{count(len(pressing), 'conflict')} ({kinds}): see agentctl conflicts."


def _plain(sentence: str | None) -> str:
    return (sentence or "").rstrip(". ")
