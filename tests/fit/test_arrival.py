"""A guest that has come as its placement says takes from the host what the placement names, and nothing else."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator

import msgspec

from agent.core.cpuset import CpuMask
from agent.core.fit.decide import fit
from agent.core.fit.host import CellOffer, Offer, host_facts, offer_of
from agent.core.guest import Sighting
from agent.core.instance import Instance
from agent.core.placement import CellPlacement, Placement
from agent.core.snapshot import Identity, Snapshot, configured, first
from agent.core.what_if import with_guest, without_guests
from tests.builders import CONNECTION, Node, guest, host, ledger_of, passed, qemu, uuid_of
from tests.fit.arrival import guest_of, topology_with
from tests.fit.guests import Case, seeded
from tests.fit.hosts import Host
from tests.fit.test_fit_properties import SEEDS


def arrivals() -> Iterator[tuple[int, Case, Placement, Host]]:
    """Every numbered case in which the guest fits: its number, its placement, and the host that then has the guest."""
    for seed in SEEDS:
        case = seeded(seed)
        found = fit(case.request, case.host.offer(), case.how)
        if isinstance(found, Placement) and not looks_pinned(found, case.host):
            small = case.host.topology.page_size_kib
            new = guest_of("new", found, case.request, small_kib=small)
            topology = topology_with(case.host.topology, found)
            yield seed, case, found, Host(topology, case.host.config, (*case.host.guests, new))


def looks_pinned(given: Placement, host: Host) -> bool:
    """Floating vCPUs on the one CPU of a cell of a host without CPU sets: nobody can tell them from pinned ones."""
    return not host.config.has_split and any(len(cell.shared_cpus) == 1 for cell in given.cells)


def test_no_contradiction_comes_with_it() -> None:
    found = {}
    for seed, case, _, after in arrivals():
        before = {row.id for row in case.host.folded().conflicts}
        rows = after.folded().conflicts
        # A ratio above 1 that is used is told of as well, for information.
        found[seed] = [row.id for row in rows if row.id not in before and row.severity != "info"]
    assert {seed: rows for seed, rows in found.items() if rows} == {}


def test_what_is_then_offered_is_less_by_exactly_what_it_was_given() -> None:
    found = {seed: differences(case.host.offer(), after.offer(), given) for seed, case, given, after in arrivals()}
    assert len(found) > len(SEEDS) // 10
    assert {seed: wrong for seed, wrong in found.items() if wrong} == {}


def test_once_it_has_gone_the_host_is_as_before() -> None:
    for seed, case, _, after in arrivals():
        ledger, living = ledger_of(*map(running, after.guests)), [qemu(one.name) for one in case.host.guests]
        left = passed(ledger, *map(running, case.host.guests), at=10.0, living=living)
        gone = Host(case.host.topology, case.host.config, tuple(left.sightings.values()))
        now, was = gone.folded(), case.host.folded()
        assert (now.usage, now.conflicts, now.holds) == (was.usage, was.conflicts, was.holds), seed


def running(seen: Sighting) -> Sighting:
    """The same guest with its QEMU process, as libvirt's connection of the builders shows it."""
    return msgspec.structs.replace(seen, run=qemu(seen.name).run, connection=CONNECTION)


def differences(before: Offer, after: Offer, given: Placement) -> list[str]:
    """Where the offer after the guest came is not the one before less its placement."""
    expected = less(before, given)
    return [
        f"{name}: {getattr(after, name)}, expected {getattr(expected, name)}"
        for name in Offer.__struct_fields__
        if name not in {"facts", "cells", "device_holders"} and getattr(after, name) != getattr(expected, name)
    ] + [
        f"cell {cell.facts.id} {name}: {getattr(cell, name)}, expected {getattr(right, name)}"
        for cell, right in zip(after.cells, expected.cells, strict=True)
        for name in CellOffer.__struct_fields__
        if name not in {"facts", "holders"} and getattr(cell, name) != getattr(right, name)
    ]


def less(before: Offer, given: Placement) -> Offer:
    """What must be left of an offer once a guest has this placement."""
    small = sum(cell.memory_kib for cell in given.cells if _is_small(cell, before)) if given.cells else given.memory_kib
    floating = sum(len(cell.vcpus) - len(cell.pins) for cell in given.cells) if given.cells else given.vcpus
    numbers = [before.facts.devices.number[address] for one in given.devices for address in one.devices]
    gone = functools.reduce(operator.or_, (1 << n | before.facts.devices.relatives.get(n, 0) for n in numbers), 0)
    return msgspec.structs.replace(
        before,
        cells=tuple(_cell_less(cell, before, given) for cell in before.cells),
        free_devices=before.free_devices & ~gone,
        floating=before.floating - floating,
        free_by_ratio_kib=before.free_by_ratio_kib - small,
        free_kib=before.free_kib - small,
    )


def _is_small(cell: CellPlacement, before: Offer) -> bool:
    return cell.page_size_kib == before.cells[0].facts.small_kib


def _cell_less(cell: CellOffer, before: Offer, given: Placement) -> CellOffer:
    mine = [part for part in given.cells if part.host_cell == cell.facts.id]
    own = 0 if given.emulator_own is None else 1 << given.emulator_own
    taken = functools.reduce(operator.or_, (part.cpus.mask | part.idle_cpus.mask for part in mine), own)
    small = sum(part.memory_kib for part in mine if part.page_size_kib == cell.facts.small_kib)
    floating = sum(len(part.vcpus) - len(part.pins) for part in mine)
    if not given.cells and before.shared_cpus and not before.shared_cpus & ~cell.facts.shared:
        # All shared CPUs are in this cell, so that is where they float.
        floating = given.vcpus
    pages = tuple(
        msgspec.structs.replace(
            row,
            free=row.free - sum(p.memory_kib // row.size_kib for p in mine if p.page_size_kib == row.size_kib),
        )
        for row in cell.pages
    )
    return msgspec.structs.replace(
        cell,
        free_cpus=CpuMask(cell.free_cpus & ~taken),
        floating=cell.floating - floating,
        free_kib=cell.free_kib - small,
        free_by_ratio_kib=cell.free_by_ratio_kib - small,
        pages=pages,
    )


def test_floating_guests_on_the_single_shared_cpu_of_a_cell_hold_nothing() -> None:
    one = host({0: Node("0-3", 4096)}, dedicated="1-3", shared="0")
    made = one.folded(guest("a", {0: 0}), guest("b", {0: "0"}))
    assert (made.conflicts, str(made.usage.host.dedicated.free)) == ((), "1-3")
    assert made.usage.cells[0].shared.used == 2
    several = host({0: Node("0-3", 4096)}, dedicated="2-3", shared="0-1")
    assert [row.kind for row in several.conflicts(guest("a", {0: 0}))] == ["pinned-outside-dedicated"]


def test_without_cpu_sets_the_emulator_of_a_mixed_guest_holds_no_more_than_its_pinned_vcpus() -> None:
    flat = host({0: Node("0-3", 4096)})
    mixed = guest("a", {0: 1, 1: "0-3"}, emu="0-3")
    assert str(flat.usage(mixed).host.dedicated.free) == "0,2-3"
    apart = guest("b", {0: 1, 1: "0-3"}, emu="2")
    assert str(flat.usage(apart).host.dedicated.free) == "0,3"


def test_a_guest_that_is_only_thought_of_takes_as_much() -> None:
    """Of huge pages too, where another process has some: they are not the guest's then."""
    found = {}
    for seed, case, given, _ in arrivals():
        after = with_guest(picture(case.host), Instance(uuid=uuid_of("new"), name="new"), given)
        facts = host_facts(after.topology, after.config)
        left = offer_of(facts, after.usage, case.host.offer().uncertain)
        found[seed] = differences(case.host.offer(), left, given)
    assert {seed: wrong for seed, wrong in found.items() if wrong} == {}


def test_a_guest_that_is_thought_of_and_then_left_out_again_leaves_the_host_as_it_was() -> None:
    changed = []
    for seed, case, given, _ in arrivals():
        before = picture(case.host)
        after = without_guests(with_guest(before, Instance(uuid=uuid_of("new"), name="new"), given), [uuid_of("new")])
        changed += [seed] if after != before else []
    assert changed == []


def picture(before: Host) -> Snapshot:
    """The host as an agent that has looked at it has it."""
    empty = first(Identity(agent_id="agent", boot_id="boot", epoch=1), before.config)
    ledger = ledger_of(*map(running, before.guests))
    return configured(msgspec.structs.replace(empty, topology=before.topology, ledger=ledger), before.config)
