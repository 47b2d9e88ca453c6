"""One immutable picture of the host, its books and where they come from; and how findings make the next one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec
from immutables import Map

from agent.core import ledger as books
from agent.core.claim import seats
from agent.core.claim.book import Book
from agent.core.claim.holding import Promise, promise_of
from agent.core.claim.rows import claim_conflicts
from agent.core.claim.spent import with_spent
from agent.core.claim.values import ClaimRules
from agent.core.conflicts import Conflict, Since, goes_on, settled
from agent.core.guest import Sighting
from agent.core.holds import HostSets, host_sets
from agent.core.host_config import HostConfig
from agent.core.ledger import Holds, Ledger, Listing, Processes
from agent.core.topology import EMPTY, HostTopology
from agent.core.usage import Folded, Usage, fold
from agent.core.usage.promised import with_promises
from agent.core.values import ReadOnlyMap, Value

HOUR_S = 3600.0


class SourceState(Value, frozen=True, kw_only=True):
    """How far one source can be trusted now.

    name: "sysfs", "udev", "libvirt", "capabilities", "nodedev", "domains", "processes", "journal", "claims" (once
    they had a problem). read_at: monotonic seconds of the last success, None: never. problem: one sentence with what to
    do, None: fine.
    """

    name: str
    read_at: float | None = None
    problem: str | None = None


class Identity(Value, frozen=True, kw_only=True):
    """Which agent, on which boot of the host, since which start of the agent (epoch 0: a single look, no daemon)."""

    agent_id: str
    boot_id: str
    epoch: int


class Crowded(NamedTuple):
    """Claims that ended before their domains came, and whose places others had. usage: as of which that was found."""

    usage: Usage
    claim_ids: frozenset[str]


class Snapshot(Value, frozen=True, kw_only=True):
    """Readers take a reference; only the tracker replaces it, and each replacement raises `generation`.

    seen, sets: folded from topology, config and the ledger's sightings alone. book: the claims; promises: what they and
    the domains hold together, by instance, of those that have a claim. usage: of both. found: the conflicts;
    conflicts: the same with their dates. hour: of the wall clock, since 1970, at the last look at the claims; 0: there
    was none. crowded: what need not be worked out again while the usage is the same. complete: a pass over all sources
    has been made since the start.
    """

    identity: Identity
    generation: int
    config: HostConfig
    topology: HostTopology
    ledger: Ledger
    seen: Folded
    sets: HostSets
    usage: Usage
    found: tuple[Conflict, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    book: Book = Book()
    promises: Map[str, Promise] = Map()
    rules: ClaimRules = ClaimRules()
    hour: int = 0
    crowded: Crowded | None = None
    sources: tuple[SourceState, ...] = ()
    complete: bool = False

    @property
    def holds(self) -> ReadOnlyMap[str, Holds]:
        """What is seen of each guest, by uuid."""
        return self.seen.holds

    def source(self, name: str) -> SourceState:
        """State of one source; of one never read when it is not there."""
        return next((state for state in self.sources if state.name == name), SourceState(name=name))


class Wish(Value, frozen=True, kw_only=True):
    """What the next pass must do beyond looking for changes.

    marked: domains to read again. domains, host: read all of them, all of it, again, whatever seems unchanged.
    periodic: the timed pass, which also re-reads its share of what seems unchanged.
    """

    marked: frozenset[str] = frozenset()
    domains: bool = False
    host: bool = False
    periodic: bool = False


class Findings(Value, frozen=True, kw_only=True):
    """What one pass found. None or empty: nothing new from there, so what is known stays.

    listing: None: libvirt was not reached. sightings: of the domains that were read, or could not be.
    sources: the new state of the sources that were asked.
    """

    topology: HostTopology | None = None
    listing: Listing | None = None
    processes: Processes | None = None
    sightings: tuple[Sighting, ...] = ()
    sources: tuple[SourceState, ...] = ()


def first(
    identity: Identity, config: HostConfig, *, book: Book | None = None, rules: ClaimRules | None = None
) -> Snapshot:
    """Before anything was looked at. book: the claims that the journal has."""
    seen, sets = fold(EMPTY, config, ()), host_sets(EMPTY, config)
    empty = Snapshot(
        identity=identity,
        generation=0,
        config=config,
        topology=EMPTY,
        ledger=Ledger(),
        seen=seen,
        sets=sets,
        usage=seen.usage,
        book=book or Book(),
        rules=rules or ClaimRules(),
    )
    return empty if book is None else _tallied(empty, Map(), book.of)


def take_in(snapshot: Snapshot, found: Findings) -> Snapshot:
    """The next snapshot: readings applied by LEDGER R1 and R2, usage folded anew where something material changed."""
    topology = snapshot.topology
    if found.topology is not None and found.topology != topology:
        topology = found.topology
    ledger = _ledger_after(snapshot.ledger, found)
    same = topology is snapshot.topology and not material_changes(snapshot.ledger, ledger)
    after = msgspec.structs.replace(
        snapshot,
        generation=snapshot.generation + 1,
        topology=topology,
        ledger=ledger,
        sources=_sources_after(snapshot.sources, found.sources),
        complete=snapshot.complete or found.listing is not None,
    )
    return after if same else _folded(after, snapshot)


def rebased(looked: Snapshot, start: Snapshot, base: Snapshot, found: Findings) -> Snapshot:
    """What `take_in` made of `start`, on a base that differs from that in its claims alone; else made anew."""
    if base is start:
        return looked
    if base.ledger is not start.ledger or base.config is not start.config or base.topology is not start.topology:
        return take_in(base, found)
    merged = msgspec.structs.replace(
        looked,
        generation=base.generation + 1,
        sources=_sources_after(base.sources, found.sources),
        found=base.found,
        conflicts=base.conflicts,
        book=base.book,
        rules=base.rules,
    )
    if looked.seen is start.seen:
        return msgspec.structs.replace(merged, usage=base.usage, promises=base.promises)
    return _with_promises(merged, base)


def configured(snapshot: Snapshot, config: HostConfig, rules: ClaimRules | None = None) -> Snapshot:
    """The next snapshot under another configuration."""
    after = msgspec.structs.replace(
        snapshot, generation=snapshot.generation + 1, config=config, rules=rules or snapshot.rules
    )
    return _folded(after, snapshot)


def with_book(snapshot: Snapshot, book: Book, touched: Collection[str]) -> Snapshot:
    """The next snapshot, with other claims. touched: instances whose claims have changed."""
    after = msgspec.structs.replace(snapshot, generation=snapshot.generation + 1, book=book)
    is_same = not touched and book.groups is snapshot.book.groups
    return after if is_same else _tallied(after, snapshot.promises, touched)


def hour_of(wall_s: float) -> int:
    """Hours since 1970."""
    return int(wall_s // HOUR_S)


def at_hour(snapshot: Snapshot, wall_s: float) -> Snapshot:
    """The same picture with rows about what has lasted too long, as of the hour. wall_s: seconds since 1970."""
    hour = hour_of(wall_s)
    if hour == snapshot.hour:
        return snapshot
    return _tallied(msgspec.structs.replace(snapshot, hour=hour), snapshot.promises, ())


def without_claim(snapshot: Snapshot, claim_id: str) -> Snapshot:
    """The same picture had this claim ended."""
    book = snapshot.book
    claim = book.claims.get(claim_id)
    if claim is None:
        return snapshot
    uuid = claim.instance.uuid
    ids = tuple(one for one in book.of[uuid] if one != claim_id)
    left = book._replace(claims=book.claims.delete(claim_id), of=book.of.set(uuid, ids))
    return _tallied(msgspec.structs.replace(snapshot, book=left), snapshot.promises, (uuid,))


def without_instance(snapshot: Snapshot, uuid: str) -> Snapshot:
    """The same picture had the guest neither a domain nor a claim here."""
    book = snapshot.book
    claims = book.claims
    for claim_id in book.of.get(uuid, ()):
        claims = claims.delete(claim_id)
    of = book.of.delete(uuid) if uuid in book.of else book.of
    sightings = {known: seen for known, seen in snapshot.ledger.sightings.items() if known != uuid}
    ledger = msgspec.structs.replace(snapshot.ledger, sightings=MappingProxyType(sightings))
    bare = msgspec.structs.replace(snapshot, ledger=ledger, book=book._replace(claims=claims, of=of))
    return _folded(bare, snapshot)


def with_sources(snapshot: Snapshot, *states: SourceState) -> Snapshot:
    """The next snapshot with these sources' states renewed."""
    return msgspec.structs.replace(
        snapshot, generation=snapshot.generation + 1, sources=_sources_after(snapshot.sources, states)
    )


def dated(snapshot: Snapshot, since: Mapping[str, Since], now: str) -> Snapshot:
    """Every conflict with the time it was first seen: from `since` by id where that goes on, else `now` (RFC 3339)."""
    if all(conflict.since is not None for conflict in snapshot.conflicts):
        return snapshot
    conflicts = tuple(_dated_row(row, since, now) for row in snapshot.conflicts)
    return msgspec.structs.replace(snapshot, conflicts=conflicts)


def material_changes(before: Ledger, after: Ledger) -> tuple[str, ...]:
    """Uuids of the domains that came, went, or changed in more than the time of their reading."""
    if before.sightings is after.sightings:
        return ()
    changed = [uuid for uuid in before.sightings if uuid not in after.sightings]
    for uuid, now in after.sightings.items():
        was = before.sightings.get(uuid)
        if was is not now and (was is None or _material(was) != _material(now)):
            changed.append(uuid)
    return tuple(changed)


def _folded(snapshot: Snapshot, before: Snapshot) -> Snapshot:
    seen = fold(snapshot.topology, snapshot.config, snapshot.ledger.sightings.values())
    sets = host_sets(snapshot.topology, snapshot.config)
    return _with_promises(msgspec.structs.replace(snapshot, seen=seen, sets=sets), before)


def _with_promises(snapshot: Snapshot, before: Snapshot) -> Snapshot:
    """With what the claims hold beside what is seen anew; before: the picture before that."""
    if snapshot.sets != before.sets:
        return _tallied(snapshot, Map(), snapshot.book.of)
    was, now = before.ledger.sightings, snapshot.ledger.sightings
    changed = {uuid for uuid in snapshot.book.of if was.get(uuid) is not now.get(uuid)}
    return _tallied(snapshot, before.promises, changed | (set(before.promises) ^ set(snapshot.book.of)))


def _tallied(snapshot: Snapshot, promises: Map[str, Promise], changed: Iterable[str]) -> Snapshot:
    """With usage and conflicts of what is seen and promised. changed: instances whose promise is made anew."""
    book, sightings = snapshot.book, snapshot.ledger.sightings
    with promises.mutate() as renewed:
        for uuid in changed:
            claims = book.claims_of(uuid)
            if claims:
                renewed[uuid] = promise_of(claims, sightings.get(uuid), snapshot.holds.get(uuid), snapshot.sets)
            else:
                renewed.pop(uuid, None)
        promises = renewed.finish()
    told = with_promises(
        snapshot.seen, promises.values(), snapshot.topology, snapshot.config, snapshot.sets, before=snapshot.usage
    )
    rows = (
        *seats.group_conflicts(book, sightings),
        *claim_conflicts(book, promises, sightings, snapshot.hour * HOUR_S if snapshot.hour else None),
    )
    found = settled((*told.conflicts, *rows), snapshot.config.accept) if rows else told.conflicts
    is_news = found != snapshot.found
    return msgspec.structs.replace(
        snapshot,
        promises=promises,
        usage=with_spent(told.usage, book.spent),
        found=found if is_news else snapshot.found,
        conflicts=found if is_news else snapshot.conflicts,
    )


def _material(sighting: Sighting) -> Sighting:
    return msgspec.structs.replace(sighting, begun_at=0.0, xml_at=None, connection=0)


def _dated_row(row: Conflict, since: Mapping[str, Since], now: str) -> Conflict:
    if row.since is not None:
        return row
    was = since.get(row.id)
    return msgspec.structs.replace(row, since=was.at if was is not None and goes_on(was.owners, row) else now)


def _ledger_after(ledger: Ledger, found: Findings) -> Ledger:
    if found.listing is not None:
        ledger = books.connect(ledger, found.listing.connection)
    ledger = books.see_all(ledger, found.sightings)
    return ledger if found.processes is None else books.account(ledger, found.listing, found.processes)


def _sources_after(known: tuple[SourceState, ...], new: tuple[SourceState, ...]) -> tuple[SourceState, ...]:
    states = {state.name: state for state in known}
    for state in new:
        was = states.get(state.name)
        keeps_age = state.read_at is None and was is not None
        states[state.name] = msgspec.structs.replace(state, read_at=was.read_at) if keeps_age and was else state
    return tuple(states[name] for name in sorted(states))
