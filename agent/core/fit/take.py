"""An offer after a placement has been taken from it, and whether it could be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from agent.core.cpuset import CpuMask, CpuSet
from agent.core.fit.host import CellOffer, FreePages, Offer
from agent.core.fit.pages import cell_free_kib, host_free_kib
from agent.core.instance import InstanceRequest
from agent.core.placement import CellPlacement, Placement


class PlacementBroken(Exception):
    """A placement that breaks a rule was about to be given out: a fault of this program, and never of the request."""


def take(offer: Offer, placement: Placement) -> Offer:
    """What is left for the next guest. Amounts may go below zero, as in the books."""
    cells = tuple(_cell_after(room, placement) for room in offer.cells)
    small = sum(cell.memory_kib for cell in placement.cells if _is_small(cell, offer))
    memory_kib = small if placement.cells else placement.memory_kib
    floating = placement.vcpus - sum(len(cell.pins) for cell in placement.cells)
    return msgspec.structs.replace(
        offer,
        cells=cells,
        free_devices=offer.free_devices & ~_devices_gone(offer, placement),
        floating=offer.floating - floating,
        free_by_ratio_kib=offer.free_by_ratio_kib - memory_kib,
        free_kib=offer.free_kib - memory_kib,
    )


def take_cell(room: CellOffer, cell: CellPlacement, emulator_cpu: int | None = None) -> CellOffer:
    """What a host cell has left beside one guest cell; emulator_cpu: the one that only the emulator has."""
    gone = cell.cpus.mask | cell.idle_cpus.mask | (0 if emulator_cpu is None else 1 << emulator_cpu)
    is_small = cell.page_size_kib == room.facts.small_kib
    small = cell.memory_kib if is_small else 0
    floating = len(cell.vcpus) - len(cell.pins)
    return msgspec.structs.replace(
        room,
        free_cpus=CpuMask(room.free_cpus & ~gone),
        floating=room.floating - floating,
        free_kib=room.free_kib - small,
        free_by_ratio_kib=room.free_by_ratio_kib - small,
        pages=room.pages if is_small else tuple(_pages_after(room.pages, cell)),
    )


def check(request: InstanceRequest, placement: Placement, offer: Offer) -> None:
    """Raise PlacementBroken unless the placement gives what was asked out of what is free, and nothing twice."""
    fault = next(faults(request, placement, offer), None)
    if fault is not None:
        raise PlacementBroken(f"{fault} (request {request}, placement {placement})")


def _cell_after(room: CellOffer, placement: Placement) -> CellOffer:
    for n, cell in enumerate(placement.cells):
        if cell.host_cell == room.facts.id:
            room = take_cell(room, cell, placement.emulator_own if n == 0 else None)
    return room


def _pages_after(pools: Iterable[FreePages], cell: CellPlacement) -> Iterator[FreePages]:
    for pool in pools:
        is_this = pool.size_kib == cell.page_size_kib
        count = -(-cell.memory_kib // pool.size_kib) if is_this else 0
        yield msgspec.structs.replace(pool, free=pool.free - count) if is_this else pool


def _is_small(cell: CellPlacement, offer: Offer) -> bool:
    return any(cell.page_size_kib == room.facts.small_kib for room in offer.cells if room.facts.id == cell.host_cell)


def _devices_gone(offer: Offer, placement: Placement) -> int:
    facts, mask = offer.facts.devices, 0
    for given in placement.devices:
        for address in given.devices:
            number = facts.number[address]
            mask |= 1 << number | facts.relatives.get(number, 0)
    return mask


def faults(request: InstanceRequest, placement: Placement, offer: Offer) -> Iterator[str]:
    """What a placement gives that was not asked for, is not free in its cell, or is given twice."""
    if placement.cells:
        yield from _cell_faults(request, placement, offer)
    yield from _device_faults(request, placement, offer)
    left = take(offer, placement)
    if host_free_kib(request, left) < min(host_free_kib(request, offer), 0):
        yield "too much memory on the host"
    for before, after in zip(offer.cells, left.cells, strict=True):
        if after is before:
            continue
        where = f"on cell {before.facts.id}"
        if after.floating < min(before.floating, 0):
            yield f"too many floating vCPUs {where}"
        if cell_free_kib(request, after) < min(cell_free_kib(request, before), 0):
            yield f"too much memory {where}"
        if any(now.free < min(was.free, 0) for was, now in zip(before.pages, after.pages, strict=True)):
            yield f"too many pages {where}"


def _cell_faults(request: InstanceRequest, placement: Placement, offer: Offer) -> Iterator[str]:
    rooms = {room.facts.id: room for room in offer.cells}
    taken = 0
    emulator_cpu = placement.emulator_own
    if (emulator_cpu is not None) is not (request.emulator_policy == "isolate"):
        yield "the emulator's own CPU"
    for n, (asked, given) in enumerate(zip(request.cells, placement.cells, strict=True)):
        extra = 1 << emulator_cpu if n == 0 and emulator_cpu is not None else 0
        gone = given.cpus.mask | given.idle_cpus.mask
        room = rooms[given.host_cell]
        if gone & extra or (gone | extra) & (taken | ~room.free_cpus):
            yield f"CPUs of guest cell {asked.id} are taken, or not in cell {given.host_cell}"
        taken |= gone | extra
        if (asked.id, asked.vcpus, asked.memory_kib) != (given.guest_cell, given.vcpus, given.memory_kib):
            yield f"guest cell {asked.id} is not what was asked for"
        if CpuSet(given.pins) != asked.pinned or len(given.cpus) != len(asked.pinned):
            yield f"pins of guest cell {asked.id}"


def _device_faults(request: InstanceRequest, placement: Placement, offer: Offer) -> Iterator[str]:
    facts, taken = offer.facts.devices, 0
    counts = {given.request: len(set(given.devices)) for given in placement.devices}
    if counts != {asked.id: asked.count for asked in request.devices if asked.count}:
        yield "number of devices"
    for given in placement.devices:
        for address in given.devices:
            number = facts.number[address]
            if not (offer.free_devices & ~taken) >> number & 1:
                yield f"device {address} is taken"
            taken |= 1 << number | facts.relatives.get(number, 0)
