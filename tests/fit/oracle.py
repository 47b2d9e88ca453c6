"""The answer of somebody who tries everything: for small hosts, every way of giving cells, CPUs, pages and devices."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from agent.core.fit.host import CellOffer, Offer
from agent.core.fit.rules import FitRules
from agent.core.instance import CellRequest, InstanceRequest
from agent.core.pci_request import PciRequest
from tests.fit import rules
from tests.fit.rules import Room, members

DEFAULT = FitRules()

Group = tuple[CellOffer, tuple[CellRequest, ...]]
"""A host cell and the guest cells that go there."""


def possible(request: InstanceRequest, room: Room, how: FitRules = DEFAULT) -> bool:
    """True when any way of placing the guest breaks no rule."""
    if not request.cells:
        faults = rules.cell_less_faults(request, room.offer)
        return next(faults, None) is None and can_serve(request.devices, room, None)
    if (request.pinned and room.offer.uncertain) or not rules.has_emulator_home(request, room.offer):
        return False
    return any(can_serve(request.devices, room, cells) for cells in cell_choices(request, room.offer, how))


def cell_choices(request: InstanceRequest, offer: Offer, how: FitRules = DEFAULT) -> set[frozenset[int]]:
    """Each set of host cells that can have the guest's CPUs, memory and pages, whatever its devices."""
    count = len(request.cells)
    ways = (
        itertools.product(offer.cells, repeat=count) if how.share_cells else itertools.permutations(offer.cells, count)
    )
    found: set[frozenset[int]] = set()
    for way in ways:
        chosen = frozenset(cell.facts.id for cell in way)
        if chosen not in found and fits_on(way, request, offer):
            found.add(chosen)
    return found


def fits_on(way: Sequence[CellOffer], request: InstanceRequest, offer: Offer) -> bool:
    """The guest cells find CPUs, memory and pages on these host cells, one for each."""
    parts = list(zip(request.cells, way, strict=True))
    groups = [
        (cell, tuple(part for part, given in parts if given is cell))
        for cell in offer.cells
        if any(given is cell for given in way)
    ]
    return (
        all(cell.facts.allowed for cell in way)
        and all(cpus_possible(group, request) for group in groups)
        and pages_possible(groups, request, offer)
    )


def cpus_possible(group: Group, request: InstanceRequest) -> bool:
    """The guest cells' pinned vCPUs and the emulator find CPUs together in one host cell."""
    cell, parts = group
    has_emulator = any(rules.needs_emulator_cpu(request, part) for part in parts)
    counts = [len(part.pinned) for part in parts]
    return any(
        not has_emulator
        or any(not rules.emulator_fault(cpu, pins, request.thread_policy, cell, free) for cpu in sorted(free))
        for pins, free in _pin_ways(counts, request, cell, members(cell.free_cpus))
    )


def _pin_ways(
    counts: Sequence[int], request: InstanceRequest, cell: CellOffer, free: frozenset[int]
) -> Iterator[tuple[frozenset[int], frozenset[int]]]:
    """Each way to pin so many vCPUs, guest cell by guest cell: the CPUs that they get and those then left."""
    if not counts:
        yield frozenset(), free
        return
    before = members(cell.free_cpus)
    for pins in map(frozenset, itertools.combinations(sorted(free), counts[0])):
        # siblings are those that were free when the guest came: its cells may have them together
        if not rules.thread_fault(pins, request.thread_policy, cell, before):
            left = free - pins - rules.idle_beside(pins, request.thread_policy, cell)
            for others, last in _pin_ways(counts[1:], request, cell, left):
                yield pins | others, last


def pages_possible(groups: Sequence[Group], request: InstanceRequest, offer: Offer) -> bool:
    """Some choice of page sizes leaves every host cell, and the host, with enough memory."""
    flat = [(part, cell) for cell, parts in groups for part in parts]
    for sizes in itertools.product(*(rules.sizes_for(request, cell) for _, cell in flat)):
        chosen = list(zip(flat, sizes, strict=True))
        small = sum(part.memory_kib for (part, cell), size in chosen if size == cell.facts.small_kib)
        faults = itertools.chain(
            rules.host_faults(small, request, offer),
            *(
                rules.amount_faults([(part, size) for (part, given), size in chosen if given is cell], request, cell)
                for cell, _ in groups
            ),
        )
        if next(faults, None) is None:
            return True
    return False


def can_serve(requests: Sequence[PciRequest], room: Room, cells: frozenset[int] | None) -> bool:
    """Every request gets its devices from where its policy lets a guest on these host cells have them. cells None: a
    guest without cells, for which every place is the same."""
    return _serve_rest(requests, room, cells, frozenset())


def usable_for(request: PciRequest, room: Room, cells: frozenset[int] | None) -> tuple[int, ...]:
    """Numbers of the free devices that will do, near enough to these host cells."""
    offer, devices = room
    return tuple(
        n
        for n in rules.offered(offer)
        if offer.free_devices >> n & 1
        and rules.will_do(devices[n], rules.spec_of(n, offer), request)
        and (cells is None or rules.is_near_enough(devices[n], request.numa_policy, cells, offer))
    )


def _serve_rest(
    requests: Sequence[PciRequest], room: Room, cells: frozenset[int] | None, taken: frozenset[int]
) -> bool:
    if not requests:
        return True
    left = [n for n in usable_for(requests[0], room, cells) if n not in taken]
    return any(
        _serve_rest(requests[1:], room, cells, taken | frozenset(given))
        for given in itertools.combinations(left, requests[0].count)
        if _has_no_relatives(taken | frozenset(given), room.offer)
    )


def _has_no_relatives(given: frozenset[int], offer: Offer) -> bool:
    return not any(rules.are_relatives(one, other, offer) for one, other in itertools.combinations(given, 2))
