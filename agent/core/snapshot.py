"""One immutable picture of the host, its books and where they come from; and how findings make the next one."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from agent.core import ledger as books
from agent.core.conflicts import Conflict, Since, goes_on
from agent.core.guest import Sighting
from agent.core.host_config import HostConfig
from agent.core.ledger import Holds, Ledger, Listing, Processes
from agent.core.topology import EMPTY, HostTopology
from agent.core.usage import Usage, fold
from agent.core.values import ReadOnlyMap, Value


class SourceState(Value, frozen=True, kw_only=True):
    """How far one source can be trusted now.

    name: "sysfs", "udev", "libvirt", "capabilities", "nodedev", "domains", "processes", "journal". read_at: monotonic
    seconds of the last success, None: never. problem: one sentence with what to do, None: fine.
    """

    name: str
    read_at: float | None = None
    problem: str | None = None


class Identity(Value, frozen=True, kw_only=True):
    """Which agent, on which boot of the host, since which start of the agent (epoch 0: a single look, no daemon)."""

    agent_id: str
    boot_id: str
    epoch: int


class Snapshot(Value, frozen=True, kw_only=True):
    """Readers take a reference; only the tracker replaces it, and each replacement raises `generation`.

    usage, conflicts, holds: as folded from topology, config and the ledger's sightings.
    complete: a pass over all sources has been made since the start.
    """

    identity: Identity
    generation: int
    config: HostConfig
    topology: HostTopology
    ledger: Ledger
    usage: Usage
    conflicts: tuple[Conflict, ...] = ()
    holds: ReadOnlyMap[str, Holds] = MappingProxyType({})
    sources: tuple[SourceState, ...] = ()
    complete: bool = False

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


def first(identity: Identity, config: HostConfig) -> Snapshot:
    """Before anything was looked at."""
    usage = fold(EMPTY, config, ()).usage
    return Snapshot(identity=identity, generation=0, config=config, topology=EMPTY, ledger=Ledger(), usage=usage)


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
    return after if same else _folded(after)


def configured(snapshot: Snapshot, config: HostConfig) -> Snapshot:
    """The next snapshot under another configuration."""
    return _folded(msgspec.structs.replace(snapshot, generation=snapshot.generation + 1, config=config))


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


def _folded(snapshot: Snapshot) -> Snapshot:
    made = fold(snapshot.topology, snapshot.config, snapshot.ledger.sightings.values())
    return msgspec.structs.replace(snapshot, usage=made.usage, conflicts=made.conflicts, holds=made.holds)


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
