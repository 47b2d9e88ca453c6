"""Claims and what they promise, in the terms of the other builders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from immutables import Map

from agent.core.claim.book import Book
from agent.core.claim.holding import Promise, promise_of
from agent.core.claim.rows import claim_conflicts
from agent.core.claim.values import Claim, State
from agent.core.conflicts import Conflict
from agent.core.cpuset import CpuSet
from agent.core.guest import Sighting
from agent.core.holds import hold, host_sets
from agent.core.instance import Instance
from agent.core.ledger import Holds
from agent.core.pci import PciAddress
from agent.core.placement import CellPlacement, GivenDevices, Placement
from agent.core.usage import Folded, Usage
from agent.core.usage.promised import with_promises
from tests.builders import KIB_PER_MIB, Host, uuid_of


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


def place(
    *pins: int,
    cell: int = 0,
    mem: int = 512,
    page: int = 4,
    dev: Iterable[str] = (),
    idle: str = "",
    floating: int = 0,
    shared: str = "",
    emulator: str = "",
) -> Placement:
    """One guest cell: a vCPU on each of `pins` and so many more that float on `shared`; memory in MiB."""
    vcpus = len(pins) + floating
    one = CellPlacement(
        guest_cell=0,
        host_cell=cell,
        vcpus=CpuSet(range(vcpus)),
        memory_kib=mem * KIB_PER_MIB,
        page_size_kib=page,
        pins=MappingProxyType(dict(enumerate(pins))),
        shared_cpus=CpuSet.parse(shared),
        idle_cpus=CpuSet.parse(idle),
    )
    devices = tuple(PciAddress.parse(text) for text in dev)
    return Placement(
        memory_kib=mem * KIB_PER_MIB,
        cells=(one,),
        vcpus=vcpus,
        emulator_cpus=CpuSet.parse(emulator),
        devices=(GivenDevices(request="nic", devices=devices),) if devices else (),
    )


def book_with(*claims: Claim) -> Book:
    """A book of these claims."""
    of: dict[str, tuple[str, ...]] = {}
    for claim in claims:
        of[claim.instance.uuid] = (*of.get(claim.instance.uuid, ()), claim.claim_id)
    return Book(claims=Map({claim.claim_id: claim for claim in claims}), of=Map(of))


def rows_of(on: Host, book: Book, *seen: Sighting, now_s: float | None = None) -> tuple[Conflict, ...]:
    """What has to be told of these claims and guests."""
    promises = promises_of(on, book.claims.values(), seen)
    return tuple(claim_conflicts(book, promises, {one.uuid: one for one in seen}, now_s))


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
