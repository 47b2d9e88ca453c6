"""The answer: a placement, or every reason why not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from agent.core.cpuset import CpuSet, union
from agent.core.fit.devices.needs import Need
from agent.core.fit.devices.serve import ServingStopped, contended, needs, serve, too_far, unserved
from agent.core.fit.fallback import choose_with_memory
from agent.core.fit.host import CellOffer, Offer
from agent.core.fit.matching import Shortage
from agent.core.fit.order import ordered
from agent.core.fit.pages import host_free_kib, host_memory_short, host_takes_small
from agent.core.fit.place import place_cell, placement_of
from agent.core.fit.rules import FitRules, NoFit
from agent.core.fit.search import Choice, Far, Stopped, are_out_of_reach, could_have, nearest
from agent.core.fit.sharing import Shared, share
from agent.core.fit.table import Table, table_of
from agent.core.fit.take import PlacementBroken, check, faults
from agent.core.instance import InstanceRequest
from agent.core.placement import CellPlacement, Placement
from agent.core.reasons import (
    CellsContended,
    CpusUncertain,
    DevicesApart,
    DevicesFar,
    EmulatorHomeless,
    MemoryShort,
    NoRoomTogether,
    Reason,
    SearchStopped,
    ServedFrom,
    SharedCpusShort,
    SharedOverRatio,
    TooFewCells,
)

AS_NOVA = FitRules()


def fit(request: InstanceRequest, offer: Offer, rules: FitRules = AS_NOVA) -> Placement | NoFit:
    """A placement, or every reason why not; the same for the same arguments.

    Raises PlacementBroken when the placement found would break a rule, which is a fault of this program.
    """
    reasons = list(_host_reasons(request, offer))
    try:
        found = _found(request, offer, rules, reasons)
    except ServingStopped as stopped:
        return NoFit(reasons=(*reasons, SearchStopped(steps=stopped.steps)))
    if isinstance(found, Placement):
        check(request, found, offer)
    return found


def _found(request: InstanceRequest, offer: Offer, rules: FitRules, reasons: Sequence[Reason]) -> Placement | NoFit:
    wanted = needs(request.devices, offer)
    reasons = [*reasons, *unserved(wanted, offer)]
    if not request.cells:
        return _floating(request, wanted, offer, reasons)
    return _in_cells(request, wanted, offer, rules, reasons)


def still_fits(request: InstanceRequest, placement: Placement, offer: Offer) -> bool:
    """Whether a placement that was found on an earlier offer can be given out of this one."""
    return not any(_host_reasons(request, offer)) and next(faults(request, placement, offer), None) is None


def _floating(
    request: InstanceRequest, wanted: Sequence[Need], offer: Offer, reasons: Sequence[Reason]
) -> Placement | NoFit:
    """A guest without cells: it counts in the host's row alone, and no device is far from it."""
    devices = None if reasons else serve(wanted, offer, None)
    return NoFit(reasons=tuple(reasons)) if devices is None else placement_of(request, (), devices, offer, None)


def _in_cells(
    request: InstanceRequest, wanted: Sequence[Need], offer: Offer, rules: FitRules, reasons: list[Reason]
) -> Placement | NoFit:
    table = table_of(request, ordered(request, offer, rules))
    if reasons:
        return NoFit(reasons=(*reasons, *table.reasons))
    found = choose_with_memory(request, table, wanted, offer, rules.most_steps)
    if isinstance(found, Choice):
        return _placed(request, table, found, offer)
    if rules.share_cells:
        shared = share(request, wanted, offer, table.hosts, rules.most_steps)
        if isinstance(shared, Shared):
            return placement_of(request, shared.cells, shared.devices, offer, shared.own)
        if shared is None and isinstance(found, Shortage | Stopped):
            return NoFit(reasons=(*table.reasons, *_why_not_together(request, table, wanted)))
        found = shared if isinstance(shared, Stopped) else found
    elif len(request.cells) > len(table.hosts):
        too_few = TooFewCells(asked=len(request.cells), cells=CpuSet(room.facts.id for room in table.hosts))
        return NoFit(reasons=(*table.reasons, too_few))
    return NoFit(reasons=(*table.reasons, *_why(found, request, table, wanted, offer)))


def _placed(request: InstanceRequest, table: Table, found: Choice, offer: Offer) -> Placement:
    cells: list[CellPlacement] = []
    emulator_cpu: int | None = None
    for cell, column in zip(request.cells, found.columns, strict=True):
        placed = place_cell(cell, request, table.hosts[column])
        if placed is None:
            raise PlacementBroken(f"guest cell {cell.id} was said to fit and does not ({request})")
        cells.append(placed[0])
        emulator_cpu = placed[1] if emulator_cpu is None else emulator_cpu
    return placement_of(request, cells, found.devices, offer, emulator_cpu)


def _why(
    found: Shortage | Stopped | Far | MemoryShort,
    request: InstanceRequest,
    table: Table,
    wanted: Sequence[Need],
    offer: Offer,
) -> Iterator[Reason]:
    if isinstance(found, MemoryShort):
        yield found
    elif isinstance(found, Stopped):
        yield SearchStopped(steps=found.steps)
    elif isinstance(found, Shortage) and len(found.rows) > 1:
        guest_cells = CpuSet(request.cells[row].id for row in found.rows)
        yield CellsContended(guest_cells=guest_cells, cells=_ids(table.hosts, found.columns))
    elif isinstance(found, Far):
        yield from _why_far(table, wanted, offer)


def _why_not_together(request: InstanceRequest, table: Table, wanted: Sequence[Need]) -> Iterator[Reason]:
    """Where one guest cell fits nowhere, the table says why."""
    if not table.hosts:
        yield TooFewCells(asked=len(request.cells), cells=CpuSet())
    elif all(table.rows):
        requests = tuple(need.request.id for need in wanted if need.is_hard)
        guest_cells = CpuSet(cell.id for cell in request.cells)
        yield NoRoomTogether(guest_cells=guest_cells, cells=_ids(table.hosts, union(table.rows)), requests=requests)


def _why_far(table: Table, wanted: Sequence[Need], offer: Offer) -> Iterator[Reason]:
    """Each request on the host cells that are best for it; where each would be served there, why not all of them."""
    cells = could_have(table)
    alone = [
        _far_from_any(reason, len(table.rows), cells)
        for need in wanted
        if need.is_hard
        for reason in too_far((need,), offer, nearest(table, need, offer))
    ]
    if alone:
        yield from alone
    elif serve(wanted, offer, cells) is None:
        yield contended(wanted, offer, cells)
    else:
        yield DevicesApart(
            requests=tuple(_served_from(need, cells) for need in _apart(table, wanted, offer)),
            guest_cells=len(table.rows),
        )


def _far_from_any(reason: Reason, guest_cells: int, cells: CpuSet) -> Reason:
    """No cell is better than one that is as near: a guest of one cell is told all that it could have."""
    if not isinstance(reason, DevicesFar):
        return reason
    return msgspec.structs.replace(reason, guest_cells=guest_cells, cells=cells if guest_cells == 1 else reason.cells)


def _apart(table: Table, wanted: Sequence[Need], offer: Offer) -> list[Need]:
    """Of needs for which no host cells will do, those without which it could not be told at a glance."""
    left = list(wanted)
    for need in wanted:
        others = [one for one in left if one is not need]
        if others and are_out_of_reach(table, others, offer):
            left = others
    return left


def _served_from(need: Need, cells: CpuSet) -> ServedFrom:
    near = CpuSet(cell for cell in cells if need.reach.get(cell, 0))
    return ServedFrom(request=need.request.id, cells=near if need.is_hard else None)


def _ids(hosts: Sequence[CellOffer], mask: int) -> CpuSet:
    return CpuSet(hosts[n].facts.id for n in CpuSet.from_mask(mask))


def _host_reasons(request: InstanceRequest, offer: Offer) -> Iterator[Reason]:
    pinned = request.pinned
    if pinned and offer.uncertain:
        yield CpusUncertain(guests=offer.uncertain)
    if len(request.realtime) == request.vcpus and not _has_emulator_home(request, offer):
        yield EmulatorHomeless(vcpus=request.realtime)
    floating = request.vcpus - len(pinned)
    if not request.cells and floating > offer.shared_cpus.bit_count():
        shared = CpuSet.from_mask(offer.shared_cpus)
        yield SharedCpusShort(guest_cell=None, cell=None, asked=floating, shared=shared)
    elif floating > max(offer.floating, 0) and not (request.cells and not offer.shared_cpus):
        # each host cell without shared CPUs says so itself
        yield SharedOverRatio(
            guest_cell=None, cell=None, asked=floating, free=offer.floating, limit=offer.floating_limit
        )
    if host_takes_small(request, offer) and request.memory_kib > max(host_free_kib(request, offer), 0):
        yield host_memory_short(request.memory_kib, request, offer)


def _has_emulator_home(request: InstanceRequest, offer: Offer) -> bool:
    if request.emulator_policy == "share":
        return bool(offer.shared_cpus) and not offer.facts.is_legacy
    return request.emulator_policy == "isolate"
