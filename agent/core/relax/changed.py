"""The question whether a guest may come, with one thing changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

import msgspec

from agent.core.admission import Question, offer_now
from agent.core.cpuset import CpuMask, CpuSet
from agent.core.fit.host import CellOffer, FreePages, Offer
from agent.core.instance import CellRequest, InstanceRequest
from agent.core.relax.values import (
    CellShortfall,
    FewerDevices,
    FewerVcpus,
    GuestsLeave,
    LessMemory,
    MaintenanceEnds,
    MoreFree,
    OtherCells,
    OtherCpuPolicy,
    OtherDevicePolicy,
    OtherEmulatorPolicy,
    OtherPageSize,
    OtherThreadPolicy,
    Relaxation,
    ShareCells,
)
from agent.core.what_if import without_guests

KIB_PER_MIB = 1024


def changed(question: Question, change: Relaxation) -> Question | None:
    """The question with that change; None where the change makes no sense for this guest."""
    match change:
        case MoreFree():
            return question._replace(offer=_with_more(question.offer, change))
        case ShareCells():
            return question._replace(rules=msgspec.structs.replace(question.rules, share_cells=True))
        case GuestsLeave():
            gone = [guest.uuid for guest in change.guests]
            snapshot = without_guests(question.snapshot, gone)
            is_one = question.seated is question.snapshot
            seated = snapshot if is_one else without_guests(question.seated, gone)
            return question._replace(snapshot=snapshot, seated=seated, offer=offer_now(snapshot, question.facts))
        case MaintenanceEnds():
            return question  # which is of room and group alone
        case _:
            request = _request_with(question.request, change)
            return None if request is None else question._replace(request=request)


def _request_with(
    request: InstanceRequest,
    change: OtherDevicePolicy
    | OtherCpuPolicy
    | OtherThreadPolicy
    | OtherEmulatorPolicy
    | OtherPageSize
    | OtherCells
    | FewerDevices
    | FewerVcpus
    | LessMemory,
) -> InstanceRequest | None:
    match change:
        case OtherDevicePolicy():
            return _with_policy(request, change)
        case OtherCpuPolicy():
            return _all_pinned(request)
        case OtherThreadPolicy():
            return msgspec.structs.replace(request, thread_policy=change.policy)
        case OtherEmulatorPolicy():
            return msgspec.structs.replace(request, emulator_policy=change.policy)
        case OtherPageSize():
            return msgspec.structs.replace(request, page_size=change.page_size)
        case OtherCells():
            return _in_cells(request, change.count)
        case FewerDevices():
            return _with_devices(request, change)
        case FewerVcpus():
            return _with_vcpus(request, change.vcpus)
        case LessMemory():
            return _with_memory(request, change.memory_kib)
        case _:
            assert_never(change)


def _with_more(offer: Offer, more: MoreFree) -> Offer:
    lacks = {lack.cell: lack for lack in more.cells}
    memory_kib = more.memory_kib + sum(lack.memory_kib for lack in more.cells)
    return msgspec.structs.replace(
        offer,
        cells=tuple(
            with_shortfall(room, lacks[room.facts.id]) if room.facts.id in lacks else room for room in offer.cells
        ),
        floating=offer.floating + more.floating + sum(lack.floating for lack in more.cells),
        free_by_ratio_kib=offer.free_by_ratio_kib + memory_kib,
        free_kib=offer.free_kib + memory_kib,
    )


def with_shortfall(room: CellOffer, lack: CellShortfall) -> CellOffer:
    """The host cell once others have given back what was lacking."""
    return msgspec.structs.replace(
        room,
        free_cpus=CpuMask(room.free_cpus | lack.cpus.mask & room.facts.dedicated),
        floating=room.floating + lack.floating,
        free_kib=room.free_kib + lack.memory_kib,
        free_by_ratio_kib=room.free_by_ratio_kib + lack.memory_kib,
        pages=tuple(_with_pages(room.pages, lack)),
    )


def _with_pages(pools: Iterable[FreePages], lack: CellShortfall) -> Iterable[FreePages]:
    for pool in pools:
        more = lack.pages if pool.size_kib == lack.page_size_kib else 0
        yield msgspec.structs.replace(pool, free=pool.free + more) if more else pool


def _with_policy(request: InstanceRequest, change: OtherDevicePolicy) -> InstanceRequest:
    devices = tuple(
        msgspec.structs.replace(one, numa_policy=change.policy) if one.id in change.requests else one
        for one in request.devices
    )
    return msgspec.structs.replace(request, devices=devices)


def _all_pinned(request: InstanceRequest) -> InstanceRequest:
    every = CpuSet(range(request.vcpus))
    whole = (CellRequest(id=0, vcpus=every, memory_kib=request.memory_kib),)
    cells = tuple(msgspec.structs.replace(cell, pinned=cell.vcpus) for cell in request.cells or whole)
    return msgspec.structs.replace(request, cells=cells, cpu_policy="dedicated")


def _with_devices(request: InstanceRequest, change: FewerDevices) -> InstanceRequest:
    devices = tuple(
        msgspec.structs.replace(one, count=change.count) if one.id == change.request else one
        for one in request.devices
        if change.count or one.id != change.request
    )
    return msgspec.structs.replace(request, devices=devices)


def _in_cells(request: InstanceRequest, count: int) -> InstanceRequest | None:
    """All of it spread evenly over cells, as hw:numa_nodes alone does; None where they cannot be."""
    if not request.cells or request.vcpus % count or request.memory_kib % (count * KIB_PER_MIB):
        return None
    each, pinned = request.vcpus // count, request.pinned
    cells = tuple(
        CellRequest(id=n, vcpus=vcpus, memory_kib=request.memory_kib // count, pinned=pinned & vcpus)
        for n in range(count)
        if (vcpus := CpuSet(range(n * each, (n + 1) * each)))
    )
    return msgspec.structs.replace(request, cells=cells)


def _with_vcpus(request: InstanceRequest, vcpus: int) -> InstanceRequest | None:
    """The same guest with its last vCPUs left out, of each cell as many; None where that makes another guest of it."""
    left = CpuSet(range(vcpus))
    if len(request.cells) > 1:
        return _with_vcpus_in_cells(request, vcpus)
    pinned = request.pinned & left
    if request.cpu_policy == "mixed" and (not pinned or pinned == left):
        return None
    cells = tuple(msgspec.structs.replace(cell, vcpus=left, pinned=pinned) for cell in request.cells)
    return msgspec.structs.replace(
        request, vcpus=vcpus, cells=cells, realtime=request.realtime & left, cpu_topology=None
    )


def _with_vcpus_in_cells(request: InstanceRequest, vcpus: int) -> InstanceRequest | None:
    count = len(request.cells)
    is_even = len({len(cell.vcpus) for cell in request.cells}) == 1 and vcpus % count == 0
    if not is_even or request.cpu_policy == "mixed" or request.realtime:
        return None
    each = vcpus // count
    cells = []
    for n, cell in enumerate(request.cells):
        mine = CpuSet(range(n * each, (n + 1) * each))
        cells.append(msgspec.structs.replace(cell, vcpus=mine, pinned=mine if cell.pinned else CpuSet()))
    return msgspec.structs.replace(request, vcpus=vcpus, cells=tuple(cells), cpu_topology=None)


def _with_memory(request: InstanceRequest, memory_kib: int) -> InstanceRequest | None:
    """Every cell gets the same share; None where they have not the same now."""
    count = max(1, len(request.cells))
    if len({cell.memory_kib for cell in request.cells}) > 1 or memory_kib % count:
        return None
    cells = tuple(msgspec.structs.replace(cell, memory_kib=memory_kib // count) for cell in request.cells)
    return msgspec.structs.replace(request, memory_kib=memory_kib, cells=cells)
