"""What is promised beside what is used: the rows of `fold` with the claims that no domain fills yet (LEDGER R5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import msgspec

from agent.core.claim.holding import Promise
from agent.core.conflicts import Conflict, Owner, by_name, settled
from agent.core.cpuset import CpuMask, CpuSet, union
from agent.core.holds import HostSets
from agent.core.host_config import HostConfig
from agent.core.ledger import PageHold
from agent.core.topology import HostTopology
from agent.core.usage.books import CpuBooks
from agent.core.usage.cpus import CPU_KINDS, cpu_conflicts, room_of
from agent.core.usage.promised_conflicts import Scene, promise_conflicts
from agent.core.usage.promised_devices import device_load, promised_devices, promised_mdevs
from agent.core.usage.rows import Amount, CellUsage, CpuAmount, CpuHolder, Folded, HostUsage, PageAmount, Usage

Part = TypeVar("Part", CellUsage, HostUsage)

_NOTHING: Mapping[int, int] = MappingProxyType({})
_by_cpu = attrgetter("cpu")


class Load(NamedTuple):
    """Sums over what claims hold beyond what is seen. cpus: kept idle ones too. pages, unsettled: by cell (None: of
    guests that no cell can be named for) and size. holders: by CPU."""

    cpus: CpuMask
    cell_memory_kib: Mapping[int, int]
    host_memory_kib: int
    cell_shared: Mapping[int, int]
    host_shared: int
    pages: Mapping[int | None, Mapping[int, int]]
    unsettled: Mapping[int | None, Mapping[int, int]]
    holders: Mapping[int, CpuHolder]


def with_promises(
    folded: Folded,
    promises: Iterable[Promise],
    topology: HostTopology,
    config: HostConfig,
    sets: HostSets,
    *,
    before: Usage | None = None,
) -> Folded:
    """The rows of what is seen with what is promised: promised = taken - used, free = usable - taken.

    folded, sets: of this topology and configuration. before: the rows that were told last, with their promises; they
    say how many pages others than guests had before a guest began to come, which cannot be told while the kernel may or
    may not have given it its own. Costs by the promises that add something, whatever the number of guests.
    """
    counting = [promise for promise in promises if promise.adds or promise.unsettled]
    if not counting:
        return folded
    usage, load, devices = folded.usage, _load(counting), device_load(counting, folded.seen)
    aparts = _aparts(before) if load.unsettled and before is not None else {}
    cells = tuple(_cell(row, load, sets, aparts.get(row.id, _NOTHING), folded.seen.cpus) for row in usage.cells)
    told = msgspec.structs.replace(
        usage,
        cells=cells,
        host=_host(usage.host, load, sets, aparts.get(None, _NOTHING), folded.seen.cpus),
        pci=promised_devices(usage.pci, devices, folded.seen, topology),
        mdevs=promised_mdevs(usage.mdevs, devices),
    )
    adding = [promise for promise in counting if promise.adds]
    rows = _proposing_what_is_free(folded, load, topology, sets)
    scene = Scene(adding, folded.seen, {row.id: row for row in rows}, usage.pci, topology, sets, told)
    found = promise_conflicts(scene, devices)
    is_same = rows is folded.conflicts and not found
    conflicts = folded.conflicts if is_same else settled((*rows, *found), config.accept)
    return msgspec.structs.replace(folded, usage=told, conflicts=conflicts)


def _proposing_what_is_free(folded: Folded, load: Load, topology: HostTopology, sets: HostSets) -> Sequence[Conflict]:
    """The conflicts of what is seen; none of them shall propose a CPU that is promised."""
    seen = folded.seen
    if not load.cpus & seen.proposed:
        return folded.conflicts
    anew = cpu_conflicts(seen.guests, seen.cpus, topology, sets, room_of(seen.cpus, sets, load.cpus))
    return [row for row in folded.conflicts if row.kind not in CPU_KINDS] + list(anew)


def with_owner(owners: Sequence[Owner], claimant: Owner) -> tuple[Owner, ...]:
    """The owners and one more, unless the same guest is among them: its domain and its claim count once."""
    if any(owner.uuid == claimant.uuid for owner in owners):
        return tuple(owners)
    return tuple(sorted((*owners, claimant), key=by_name))


def _load(promises: Iterable[Promise]) -> Load:
    cell_memory: dict[int, int] = {}
    cell_shared: dict[int, int] = {}
    pages: dict[int | None, dict[int, int]] = {}
    unsettled: dict[int | None, dict[int, int]] = {}
    holders: dict[int, CpuHolder] = {}
    host_memory = host_shared = 0
    for promise in promises:
        extra = promise.extra
        host_memory += extra.host_memory_kib
        host_shared += extra.host_shared
        _add(cell_memory, extra.cell_memory_kib)
        _add(cell_shared, extra.cell_shared)
        _add_pages(pages, extra.pages)
        _add_pages(unsettled, promise.unsettled)
        for row in promise.holders:
            holders[row.cpu] = _joined(holders[row.cpu], promise.claimant) if row.cpu in holders else row
    cpus = union(1 << cpu for cpu in holders)
    return Load(CpuMask(cpus), cell_memory, host_memory, cell_shared, host_shared, pages, unsettled, holders)


def _add(sums: dict[int, int], more: Mapping[int, int]) -> None:
    for key, number in more.items():
        sums[key] = sums.get(key, 0) + number


def _add_pages(sums: dict[int | None, dict[int, int]], more: Iterable[PageHold]) -> None:
    for hold in more:
        pools = sums.setdefault(hold.cell, {})
        pools[hold.size_kib] = pools.get(hold.size_kib, 0) + hold.count


def _joined(row: CpuHolder, claimant: Owner) -> CpuHolder:
    return CpuHolder(cpu=row.cpu, owners=with_owner(row.owners, claimant))


def _cell(row: CellUsage, load: Load, sets: HostSets, aparts: Mapping[int, int], seen: CpuBooks) -> CellUsage:
    mine = load.cpus & sets.cells.get(row.id, 0)
    memory, shared = load.cell_memory_kib.get(row.id, 0), load.cell_shared.get(row.id, 0)
    pages = _pages(row.pages, load.pages.get(row.id, _NOTHING), load.unsettled.get(row.id, _NOTHING), aparts)
    if not mine and not memory and not shared and pages is row.pages:
        return row
    return msgspec.structs.replace(
        row,
        dedicated=_cpus(row.dedicated, load.cpus),
        shared=_amount(row.shared, shared),
        memory_kib=_amount(row.memory_kib, memory),
        pages=pages,
        holders=_holders(row.holders, mine, load, seen),
    )


def _host(row: HostUsage, load: Load, sets: HostSets, aparts: Mapping[int, int], seen: CpuBooks) -> HostUsage:
    homeless = load.cpus & ~union(sets.cells.values())
    return msgspec.structs.replace(
        row,
        dedicated=_cpus(row.dedicated, load.cpus),
        shared=_amount(row.shared, load.host_shared + sum(load.cell_shared.values())),
        memory_kib=_amount(row.memory_kib, load.host_memory_kib + sum(load.cell_memory_kib.values())),
        pages=_pages(row.pages, _everywhere(load.pages), _everywhere(load.unsettled), aparts),
        holders=_holders(row.holders, homeless, load, seen),
    )


def _everywhere(by_cell: Mapping[int | None, Mapping[int, int]]) -> Mapping[int, int]:
    sums: dict[int, int] = {}
    for pools in by_cell.values():
        _add(sums, pools)
    return sums


def _cpus(amount: CpuAmount, taken: int) -> CpuAmount:
    promised = amount.total.mask & taken & ~amount.used.mask
    if not promised:
        return amount
    return CpuAmount(
        total=amount.total,
        used=amount.used,
        promised=CpuSet.from_mask(promised),
        free=CpuSet.from_mask(amount.free.mask & ~promised),
    )


def _amount(amount: Amount, promised: int) -> Amount:
    if not promised:
        return amount
    return msgspec.structs.replace(amount, promised=promised, free=amount.free - promised)


def _holders(rows: tuple[CpuHolder, ...], cpus: int, load: Load, seen: CpuBooks) -> tuple[CpuHolder, ...]:
    if not cpus:
        return rows
    if both := cpus & seen.taken:
        rows = tuple(_with_claims(row, load) if both >> row.cpu & 1 else row for row in rows)
    new = [load.holders[cpu] for cpu in CpuSet.from_mask(cpus & ~seen.taken)]
    return tuple(sorted((*rows, *new), key=_by_cpu)) if new else rows


def _with_claims(row: CpuHolder, load: Load) -> CpuHolder:
    for claimant in load.holders[row.cpu].owners:
        row = _joined(row, claimant)
    return row


def _pages(
    rows: tuple[PageAmount, ...], promised: Mapping[int, int], unsettled: Mapping[int, int], aparts: Mapping[int, int]
) -> tuple[PageAmount, ...]:
    """Of one cell or the host. aparts: by size, pages that the rows told last kept apart for others than guests."""
    if not promised and not unsettled:
        return rows
    made = [_page_row(row, promised.get(row.size_kib, 0), unsettled.get(row.size_kib, 0), aparts) for row in rows]
    known = {row.size_kib for row in rows}
    made += [
        PageAmount(size_kib=size, total=0, used=0, promised=count, free=-count)
        for size, count in promised.items()
        if size not in known
    ]
    return tuple(sorted(made, key=attrgetter("size_kib")))


def _page_row(row: PageAmount, promised: int, unsettled: int, aparts: Mapping[int, int]) -> PageAmount:
    # While a guest comes, the kernel has given it between none and all of its pages: what others have lies between
    # what is left of its number when all are this guest's, and that much more. What they had before is most likely.
    least = row.total - row.used - row.free
    apart = min(max(aparts.get(row.size_kib, least), least), least + unsettled)
    if not promised and apart == least:
        return row
    return msgspec.structs.replace(row, promised=promised, free=row.total - row.used - promised - apart)


def _aparts(usage: Usage) -> dict[int | None, dict[int, int]]:
    parts: list[tuple[int | None, CellUsage | HostUsage]] = [(cell.id, cell) for cell in usage.cells]
    return {
        where: {row.size_kib: row.total - row.used - row.promised - row.free for row in part.pages}
        for where, part in [*parts, (None, usage.host)]
    }
