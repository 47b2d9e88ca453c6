"""What is promised counts as if the guest that it is promised to ran there already; oracle: that guest, folded."""

from __future__ import annotations

import random
from types import MappingProxyType
from typing import NamedTuple

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from agent.core.claim.holding import Promise, promise_of
from agent.core.claim.values import State
from agent.core.cpuset import CpuSet
from agent.core.fit.decide import fit
from agent.core.fit.host import host_facts, offer_of
from agent.core.guest import Sighting
from agent.core.holds import hold, host_sets
from agent.core.instance import Instance
from agent.core.placement import CellPlacement, GivenDevices, Placement
from agent.core.topology import HostCell, HostTopology
from agent.core.usage import CellUsage, Folded, HostUsage, Usage
from agent.core.usage.promised import with_promises
from agent.core.what_if import with_guest
from tests.builders import uuid_of
from tests.builders_claims import claim_of
from tests.fit.guests import Case, seeded
from tests.fit.hosts import UNIT_KIB, Host, Pick, Theme, any_host, some
from tests.fit.test_arrival import arrivals, picture

IN_THE_WAY = frozenset({"cpu-pinned-twice", "sibling-of-isolated", "device-twice", "pf-and-vf", "pinned-to-offline"})
NAMES = ("n1", "n2", "n3")


class Taken(NamedTuple):
    """What must be the same whether a guest runs here or is promised that it can."""

    rows: list[object]
    devices: list[object]
    conflicts: set[str]


@given(st.integers(0, 10**6))
def test_guests_that_are_admitted_one_after_the_other_count_as_if_they_ran(seed: int) -> None:
    case = seeded(seed)
    placed: dict[str, Placement] = {}
    for name in NAMES:
        made = promised(case.host, placed)
        facts = host_facts(case.host.topology, case.host.config)
        unknown = [guest.name for guest in case.host.guests if made.holds[guest.uuid].uncertain]
        found = fit(case.request, offer_of(facts, made.usage, unknown), case.how)
        if not isinstance(found, Placement):
            break
        placed[name] = found
    assert taken(promised(case.host, placed), case.host) == taken(running(case.host, placed), case.host)


@given(st.integers(0, 10**6))
def test_promises_that_are_in_each_others_way_are_told_of_as_if_the_guests_ran(seed: int) -> None:
    pick: Pick = random.Random(seed).choice
    on = any_host(pick, Theme(), 2)
    placed = {name: anywhere(pick, on) for name in NAMES[: pick((1, 2, 3))]}
    assert taken(promised(on, placed), on) == taken(running(on, placed), on)


def test_nothing_becomes_free_or_counts_twice_while_a_guest_comes_as_it_was_promised() -> None:
    """The kernel may have given it none, some or all of its pages when it is seen; others have pages too."""
    wrong = {}
    for seed, case, given_to, after in arrivals():
        guest, bare, full = after.guests[-1], case.host.topology, after.topology
        part = some_of_the_pages(bare, full, random.Random(seed).random())
        first = last = told(case, given_to, "reserved")
        stages: tuple[tuple[HostTopology, State], ...]
        stages = ((bare, "reserved"), (part, "arriving"), (full, "arriving"), (full, "resident"))
        for topology, state in stages:
            there = case._replace(host=case.host._replace(topology=topology))
            last = told(there, given_to, state, guest, before=last.usage)
            host = last.usage.host
            if taken(last, case.host) != taken(first, case.host) or host.memory_kib.promised or host.dedicated.promised:
                wrong[seed] = state
    assert wrong == {}


def test_a_guest_that_runs_as_it_was_promised_does_not_drift_from_its_claim() -> None:
    found = {}
    for seed, case, given_to, after in arrivals():
        guest, sets = after.guests[-1], host_sets(case.host.topology, case.host.config)
        claim = claim_of("new", given_to, state="resident", binding=case.request)
        promise = promise_of((claim,), guest, hold(guest, sets), sets)
        found[seed] = (promise.drift, promise.adds)
    assert {seed: told for seed, told in found.items() if told != ((), False)} == {}


def told(case: Case, placement: Placement, state: State, *seen: Sighting, before: Usage | None = None) -> Folded:
    """The books with a claim of the guest "new", which is seen or not."""
    on = case.host
    sets = host_sets(on.topology, on.config)
    folded = Host(on.topology, on.config, (*on.guests, *seen)).folded()
    claims = (claim_of("new", placement, state=state, binding=case.request),)
    sighting = seen[0] if seen else None
    promise = promise_of(claims, sighting, None if sighting is None else folded.holds[sighting.uuid], sets)
    return with_promises(folded, [promise], on.topology, on.config, sets, before=before)


def some_of_the_pages(bare: HostTopology, full: HostTopology, share: float) -> HostTopology:
    """The kernel on its way from one to the other."""
    cells = []
    for was, then in zip(bare.cells, full.cells, strict=True):
        pools = [
            msgspec.structs.replace(one, free=one.free - int((one.free - other.free) * share))
            for one, other in zip(was.pages, then.pages, strict=True)
        ]
        cells.append(msgspec.structs.replace(was, pages=tuple(pools)))
    return msgspec.structs.replace(bare, cells=tuple(cells))


def anywhere(pick: Pick, on: Host) -> Placement:
    """A placement that nobody has looked for room for; without cells or with one on each of some host cells."""
    given_devices = some(pick, on.topology.pci, 2)
    devices = (GivenDevices(request="nic", devices=tuple(sorted(one.address for one in given_devices))),)
    if pick((False, False, True)):
        shared = on.config.shared or on.topology.usable
        return Placement(memory_kib=UNIT_KIB, vcpus=2, shared_cpus=shared, devices=devices)
    hosts = some(pick, on.topology.cells, 2) or [on.topology.cells[0]]
    cells = tuple(_cell(pick, number, cell, on) for number, cell in enumerate(hosts))
    emulator = CpuSet(some(pick, sorted(on.topology.online), 1))
    memory_kib = sum(cell.memory_kib for cell in cells)
    vcpus = sum(len(cell.vcpus) for cell in cells)
    return Placement(memory_kib=memory_kib, cells=cells, vcpus=vcpus, emulator_cpus=emulator, devices=devices)


def _cell(pick: Pick, number: int, cell: HostCell, on: Host) -> CellPlacement:
    cpus = some(pick, sorted(cell.cpus), 2)
    siblings = {cpu.id: cpu.siblings for cpu in on.topology.cpus}
    idle = CpuSet(other for cpu in cpus for other in siblings[cpu]) - CpuSet(cpus)
    size = pick((on.topology.page_size_kib, *(pool.size_kib for pool in cell.pages)))
    first = number * 4
    return CellPlacement(
        guest_cell=number,
        host_cell=cell.id,
        vcpus=CpuSet(range(first, first + len(cpus) + 1)),
        memory_kib=size * -(-UNIT_KIB // size),
        page_size_kib=size,
        pins=MappingProxyType({first + n: cpu for n, cpu in enumerate(cpus)}),
        shared_cpus=(on.config.shared or on.topology.usable) & cell.cpus,
        idle_cpus=idle if pick((False, False, True)) else CpuSet(),
    )


def promises(on: Host, placed: dict[str, Placement]) -> list[Promise]:
    sets = host_sets(on.topology, on.config)
    return [promise_of((claim_of(name, placement),), None, None, sets) for name, placement in placed.items()]


def promised(on: Host, placed: dict[str, Placement]) -> Folded:
    sets = host_sets(on.topology, on.config)
    return with_promises(on.folded(), promises(on, placed), on.topology, on.config, sets)


def running(on: Host, placed: dict[str, Placement]) -> Folded:
    snapshot = picture(on)
    for name, placement in placed.items():
        snapshot = with_guest(snapshot, Instance(uuid=uuid_of(name), name=name), placement)
    return snapshot.seen


def taken(made: Folded, on: Host) -> Taken:
    usage = made.usage
    parts: list[CellUsage | HostUsage] = [usage.host, *usage.cells]
    unread = {guest.uuid for guest in on.guests if guest.domain is None}
    return Taken(
        [_part(part, unread) for part in parts],
        [(row.address, row.free, row.offered, row.type, {one.uuid for one in row.owners}) for row in usage.pci],
        {row.id for row in made.conflicts if row.kind in IN_THE_WAY},
    )


def _part(part: CellUsage | HostUsage, unread: set[str]) -> object:
    sets = part.dedicated
    return (
        (sets.total, sets.used | sets.promised, sets.free),
        [(row.used + row.promised, row.limit, row.free) for row in (part.shared, part.memory_kib)],
        [(row.size_kib, row.total, row.used + row.promised, row.free) for row in part.pages],
        # a guest that nobody can read is said to hold a CPU for as long as no other is seen there
        [(row.cpu, {one.uuid for one in row.owners} - unread) for row in part.holders],
    )
