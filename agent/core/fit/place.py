"""CPUs, pages and emulator threads of a guest whose host cells are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from agent.core.cpuset import CpuSet
from agent.core.fit.host import CellOffer, Offer
from agent.core.fit.pages import page_size
from agent.core.fit.pins import Pins, pin
from agent.core.fit.table import wants_emulator_cpu
from agent.core.instance import CellRequest, InstanceRequest
from agent.core.placement import CellPlacement, GivenDevices, Placement


def place_cell(
    cell: CellRequest, request: InstanceRequest, room: CellOffer, size_kib: int | None = None
) -> tuple[CellPlacement, int | None] | None:
    """One guest cell on a host cell, and the emulator's own CPU; None when it does not fit. size_kib: one of
    `page_sizes`, unless the best."""
    pins = pin(
        room.facts,
        room.free_cpus,
        request.thread_policy,
        len(cell.pinned),
        with_emulator=wants_emulator_cpu(request, cell),
    )
    if size_kib is None:
        size_kib = page_size(cell, request, room)
    if pins is None or size_kib is None:
        return None
    return placed(cell, room, pins, size_kib), pins.emulator_cpu


def placed(cell: CellRequest, room: CellOffer, pins: Pins, page_size_kib: int) -> CellPlacement:
    """One guest cell with what it gets on a host cell."""
    floats = len(cell.vcpus) > len(cell.pinned)
    return CellPlacement(
        guest_cell=cell.id,
        host_cell=room.facts.id,
        vcpus=cell.vcpus,
        memory_kib=cell.memory_kib,
        page_size_kib=page_size_kib,
        pins=MappingProxyType(dict(zip(cell.pinned, pins.cpus, strict=True))),
        shared_cpus=CpuSet.from_mask(room.facts.shared) if floats else CpuSet(),
        idle_cpus=CpuSet.from_mask(pins.idle),
    )


def placement_of(
    request: InstanceRequest,
    cells: Sequence[CellPlacement],
    devices: Sequence[GivenDevices],
    offer: Offer,
    emulator_cpu: int | None,
) -> Placement:
    """The whole guest; emulator_cpu: the emulator's own CPU."""
    return Placement(
        vcpus=request.vcpus,
        memory_kib=request.memory_kib,
        cells=tuple(cells),
        emulator_cpus=emulator_cpus(request, cells, offer) if emulator_cpu is None else CpuSet([emulator_cpu]),
        emulator_own=emulator_cpu,
        shared_cpus=CpuSet() if cells else CpuSet.from_mask(offer.shared_cpus),
        devices=tuple(devices),
    )


def emulator_cpus(request: InstanceRequest, cells: Sequence[CellPlacement], offer: Offer) -> CpuSet:
    """Where emulator threads without a CPU of their own run: the shared set (policy share, where one is configured),
    else beside the vCPUs that are not realtime (nova-rules B4)."""
    if request.emulator_policy == "share" and offer.shared_cpus and not offer.facts.is_legacy:
        return CpuSet.from_mask(offer.shared_cpus)
    beside = CpuSet()
    for cell in cells:
        if cell.vcpus - CpuSet(cell.pins) - request.realtime:
            beside |= cell.shared_cpus
        beside |= CpuSet(cpu for vcpu, cpu in cell.pins.items() if vcpu not in request.realtime)
    return beside
