"""Which guest cell could go to which host cell, each looked at alone, and why not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agent.core.cpuset import CpuSet
from agent.core.fit.host import CellOffer
from agent.core.fit.pages import memory_reasons
from agent.core.fit.pins import has_emulator_cpu, placeable
from agent.core.instance import CellRequest, InstanceRequest
from agent.core.reasons import (
    CpusShort,
    EmulatorCpuShort,
    NoSiblings,
    Reason,
    SharedCpusShort,
    SharedOverRatio,
    ThreadsShort,
)
from agent.core.usage import CpuHolder


class Table(NamedTuple):
    """hosts: host cells in order of preference. rows: for each guest cell, bit n for host cell n when it will do.
    reasons: why others will not, for the first of the guest cells that ask for the same."""

    hosts: tuple[CellOffer, ...]
    rows: tuple[int, ...]
    reasons: tuple[Reason, ...]


def table_of(request: InstanceRequest, hosts: Sequence[CellOffer]) -> Table:
    """Every guest cell against every host cell. Guest cells that ask for the same are looked at once."""
    known: dict[tuple[int, int, int, bool], int] = {}
    rows: list[int] = []
    reasons: list[Reason] = []
    for cell in request.cells:
        shape = (len(cell.vcpus), len(cell.pinned), cell.memory_kib, wants_emulator_cpu(request, cell))
        if shape not in known:
            mask = 0
            for n, room in enumerate(hosts):
                why = tuple(cell_reasons(cell, request, room))
                reasons += why
                mask |= 0 if why else 1 << n
            known[shape] = mask
        rows.append(known[shape])
    return Table(tuple(hosts), tuple(rows), tuple(reasons))


def cell_reasons(cell: CellRequest, request: InstanceRequest, room: CellOffer) -> Iterator[Reason]:
    """Why a guest cell cannot go to a host cell; none when it can."""
    if cell.pinned or wants_emulator_cpu(request, cell):
        yield from _pin_reasons(cell, request, room)
    if len(cell.vcpus) > len(cell.pinned):
        yield from _floating_reasons(cell, room)
    yield from memory_reasons(cell, request, room)


def wants_emulator_cpu(request: InstanceRequest, cell: CellRequest) -> bool:
    """The emulator's own CPU comes from the host cell of the first guest cell (nova-rules B4)."""
    return request.emulator_policy == "isolate" and cell is request.cells[0]


def _pin_reasons(cell: CellRequest, request: InstanceRequest, room: CellOffer) -> Iterator[Reason]:
    facts, policy, asked = room.facts, request.thread_policy, len(cell.pinned)
    if asked and policy == "require" and facts.threads < 2:
        yield NoSiblings(guest_cell=cell.id, cell=facts.id)
        return
    free = CpuSet.from_mask(room.free_cpus)
    if len(free) < asked:
        yield _cpus_short(cell, room, asked, with_emulator=wants_emulator_cpu(request, cell))
        return
    can = placeable(facts, room.free_cpus, policy)
    if can < asked and policy is not None and policy != "prefer":
        yield ThreadsShort(
            guest_cell=cell.id,
            cell=facts.id,
            policy=policy,
            asked=asked,
            placeable=can,
            free=free,
            holders=_holders(room),
        )
    elif wants_emulator_cpu(request, cell) and not has_emulator_cpu(facts, room.free_cpus, policy, asked):
        yield EmulatorCpuShort(guest_cell=cell.id, cell=facts.id, asked=asked + 1, free=free, holders=_holders(room))


def _cpus_short(cell: CellRequest, room: CellOffer, vcpus: int, *, with_emulator: bool) -> CpusShort:
    facts = room.facts
    return CpusShort(
        guest_cell=cell.id,
        cell=facts.id,
        asked=vcpus + with_emulator,
        free=CpuSet.from_mask(room.free_cpus),
        dedicated=CpuSet.from_mask(facts.dedicated),
        holders=_holders(room),
        with_emulator=with_emulator,
    )


def _holders(room: CellOffer) -> tuple[CpuHolder, ...]:
    """Who has the dedicated CPUs of the cell."""
    return tuple(holder for holder in room.holders if room.facts.dedicated >> holder.cpu & 1)


def _floating_reasons(cell: CellRequest, room: CellOffer) -> Iterator[Reason]:
    asked, where = len(cell.vcpus) - len(cell.pinned), room.facts.id
    if asked > room.facts.shared.bit_count():
        shared = CpuSet.from_mask(room.facts.shared)
        yield SharedCpusShort(guest_cell=cell.id, cell=where, asked=asked, shared=shared)
    elif asked > room.floating:
        yield SharedOverRatio(
            guest_cell=cell.id, cell=where, asked=asked, free=room.floating, limit=room.floating_limit
        )
