"""A picture of a host in a file: all that the agent knew (the full form), or what somebody wrote (the short form)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import MappingProxyType
from typing import Literal

import msgspec

from agent.core.claim.book import Book
from agent.core.claim.restore import book_of
from agent.core.claim.values import Claim, Departure, GroupRule, Maintenance, Membership, Record, SpentDevice
from agent.core.cpuset import HIGHEST_ID
from agent.core.guest import Sighting
from agent.core.host_config import HostConfig
from agent.core.snapshot import Identity, Snapshot, configured, first
from agent.core.topology import HostTopology
from agent.core.values import Value
from agent.errors import FaultyInput, WireError
from agent.formats import short_snapshot, wire
from agent.formats.validate import decoded, number_text

VERSION = 1


class FullSnapshot(Value, frozen=True, kw_only=True):
    """Everything that usage, conflicts and placements follow from. domains: as last seen, by uuid. claims: what is
    promised, the earliest first. groups, members, departures: who has a seat by them. spent: devices for one use that
    are kept back. agent_id to generation: whose picture, and which."""

    format: Literal["full"]
    v: int
    agent_id: str
    boot_id: str
    epoch: int
    generation: int
    topology: HostTopology
    configuration: HostConfig
    domains: tuple[Sighting, ...] = ()
    claims: tuple[Claim, ...] = ()
    groups: tuple[GroupRule, ...] = ()
    members: tuple[Membership, ...] = ()
    departures: tuple[Departure, ...] = ()
    spent: tuple[SpentDevice, ...] = ()
    maintenance: Maintenance | None = None


def saved(snapshot: Snapshot) -> FullSnapshot:
    """The snapshot as it is kept in a file."""
    identity, sightings, book = snapshot.identity, snapshot.ledger.sightings, snapshot.book
    return FullSnapshot(
        format="full",
        v=VERSION,
        agent_id=identity.agent_id,
        boot_id=identity.boot_id,
        epoch=identity.epoch,
        generation=snapshot.generation,
        topology=snapshot.topology,
        configuration=snapshot.config,
        domains=tuple(sightings[uuid] for uuid in sorted(sightings)),
        claims=tuple(sorted(book.claims.values(), key=lambda one: (one.sequence, one.claim_id))),
        groups=tuple(sorted(book.groups.values(), key=lambda one: one.id)),
        members=tuple(sorted(book.members.values(), key=lambda one: (one.group, one.instance))),
        departures=tuple(sorted(book.departures.values(), key=lambda one: one.instance)),
        spent=tuple(sorted(book.spent.values(), key=lambda one: one.address)),
        maintenance=book.maintenance,
    )


def from_json(text: bytes | str) -> Snapshot:
    """The snapshot that a file of either form describes, folded anew. Raises FaultyInput."""
    return from_plain(decoded(text, "The snapshot"))


def from_plain(data: object) -> Snapshot:
    """The same from plain dicts and lists."""
    form = data.get("format") if isinstance(data, dict) else None
    if form == "short":
        return short_snapshot.from_plain(data)
    if form != "full":
        raise FaultyInput('format: it must be "full" (what `agentctl snapshot` writes) or "short" (docs/fit.md)')
    try:
        full = wire.from_builtins(data, FullSnapshot)
    except WireError as error:
        raise FaultyInput(str(error)) from error
    return restored(full)


def restored(full: FullSnapshot) -> Snapshot:
    """The snapshot that was saved. Raises FaultyInput for what no host has, and for a file of another release."""
    faults = [*_foreign(full), *_impossible(full)]
    if faults:
        raise FaultyInput(*faults)
    identity = Identity(agent_id=full.agent_id, boot_id=full.boot_id, epoch=full.epoch)
    empty = first(identity, full.configuration, book=_book(full))
    sightings = MappingProxyType({seen.uuid: seen for seen in full.domains})
    ledger = msgspec.structs.replace(empty.ledger, sightings=sightings)
    known = msgspec.structs.replace(empty, topology=full.topology, ledger=ledger, complete=True)
    return msgspec.structs.replace(configured(known, full.configuration), generation=full.generation)


def _book(full: FullSnapshot) -> Book:
    values = (*full.claims, *full.groups, *full.members, *full.departures, *full.spent)
    maintenance = () if full.maintenance is None else (full.maintenance,)
    records = (Record(kind="", key=str(place), value=value) for place, value in enumerate((*values, *maintenance)))
    return book_of(records, max((claim.sequence for claim in full.claims), default=0))


def _foreign(full: FullSnapshot) -> Iterator[str]:
    if full.v != VERSION:
        yield f"v: the file has another version than {VERSION}; read it with the release that wrote it"


def _impossible(full: FullSnapshot) -> Iterator[str]:
    """What the fold cannot take: it counts on numbers that a kernel gives, and on expressions that were checked."""
    topology, config = full.topology, full.configuration
    ids = {"cells": [cell.id for cell in topology.cells], "cpus": [cpu.id for cpu in topology.cpus]}
    for name, numbers in ids.items():
        yield from (
            f"topology.{name}[{place}].id: {number_text(number)} is not between 0 and {HIGHEST_ID - 1}"
            for place, number in enumerate(numbers)
            if not 0 <= number < HIGHEST_ID
        )
    if topology.page_size_kib < 1:
        yield "topology.page_size_kib: less than 1"
    for place, spec in enumerate(config.device_spec):
        for part in () if spec.pattern is None else spec.pattern.parts:
            try:
                re.compile(part)
            except (re.error, RecursionError, OverflowError):
                yield f"configuration.device_spec[{place}].pattern: a part is no regular expression"
