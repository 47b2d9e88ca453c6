"""How much more of what would have to be free, and on which host cells, for a guest to fit.

What each guest cell lacks on each host cell is counted exactly, one by one; which guest cell then goes where is the
assignment that lacks least: the fewest kinds of things, then the fewest CPUs, floating vCPUs and memory. Devices do
not count here, so that an answer may still be wrong where they must be near: `relax` runs the fit with each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from agent.core.admission import Question
from agent.core.cpuset import CpuSet
from agent.core.fit.devices.flow import cheapest
from agent.core.fit.devices.needs import needs
from agent.core.fit.host import CellOffer, FreePages
from agent.core.fit.pages import cell_free_kib, host_free_kib, host_takes_small, huge_pools, may_take_small
from agent.core.fit.pins import cpus_lacking
from agent.core.fit.table import wants_emulator_cpu
from agent.core.instance import CellRequest, InstanceRequest
from agent.core.relax.changed import with_shortfall
from agent.core.relax.values import CellShortfall, MoreFree

_MOST_MIB = (1 << 24) - 1
_KIB_PER_MIB = 1024


def more_free(question: Question) -> Iterator[MoreFree]:
    """What would have to be free, the least first; each further one leaves out the host cell that lacked the most (or,
    where none lacks anything, had the fewest devices) before."""
    if not question.request.cells:
        whole = _with_host(question, ())
        if whole is not None and whole != MoreFree():
            yield whole
        return
    rooms = {room.facts.id: room for room in question.offer.cells if room.facts.has_cpus}
    table = [_row(cell, question.request, rooms.values()) for cell in question.request.cells]
    near = _near(question)
    left = set(rooms)
    while (lacks := _assigned(table, left)) is not None:
        change = _with_host(question, lacks)
        if change is not None and change != MoreFree():
            yield change
        left.discard(max(lacks, key=lambda lack: (_cost(lack), -near.get(lack.cell, 0), lack.cell)).cell)


def lack_of(cell: CellRequest, request: InstanceRequest, room: CellOffer) -> CellShortfall | None:
    """What one guest cell lacks on one host cell; None where no guest's leaving could make room for it."""
    facts = room.facts
    floating = len(cell.vcpus) - len(cell.pinned)
    cpus = _cpus_lacking(cell, request, room)
    if cpus is None or floating > min(facts.shared.bit_count(), max(room.floating_limit, 0)):
        return None
    memory = _memory_lacking(cell, request, room)
    if memory is None:
        return None
    size_kib, amount = memory
    return CellShortfall(
        cell=facts.id,
        cpus=cpus,
        floating=max(0, floating - room.floating) if floating else 0,
        memory_kib=amount if size_kib == facts.small_kib else 0,
        pages=amount if size_kib != facts.small_kib else 0,
        page_size_kib=size_kib if amount and size_kib != facts.small_kib else None,
    )


def _cpus_lacking(cell: CellRequest, request: InstanceRequest, room: CellOffer) -> CpuSet | None:
    if not cell.pinned:
        return CpuSet()
    with_emulator = wants_emulator_cpu(request, cell)
    policy, vcpus = request.thread_policy, len(cell.pinned)
    lacking = cpus_lacking(room.facts, room.free_cpus, policy, vcpus, with_emulator=with_emulator)
    return None if lacking is None else CpuSet.from_mask(lacking)


def _memory_lacking(cell: CellRequest, request: InstanceRequest, room: CellOffer) -> tuple[int, int] | None:
    """The size of pages that the least is lacking of, and how much: KiB of small ones, else pages. None: none will
    do."""
    small = room.facts.small_kib
    if not room.facts.allowed:
        return None
    pools = huge_pools(request, room)
    found = [lack for pool in pools if (lack := _pages_lacking(cell, pool)) is not None]
    if may_take_small(request, room):
        lacking_kib = _small_lacking(cell, request, room)
        found += [] if lacking_kib is None else [(small, lacking_kib)]
    return min(found, key=lambda lack: (lack[1] * (1 if lack[0] == small else lack[0]), -lack[0]), default=None)


def _pages_lacking(cell: CellRequest, pool: FreePages) -> tuple[int, int] | None:
    asked, rest = divmod(cell.memory_kib, pool.size_kib)
    if rest or asked > pool.total - pool.reserved:
        return None
    return pool.size_kib, max(0, asked - pool.free)


def _small_lacking(cell: CellRequest, request: InstanceRequest, room: CellOffer) -> int | None:
    if cell.memory_kib % room.facts.small_kib:
        return None
    lacking_kib = max(0, cell.memory_kib - cell_free_kib(request, room))
    grown = with_shortfall(room, CellShortfall(cell=room.facts.id, memory_kib=lacking_kib))
    used_kib = room.total_kib - room.free_kib
    return lacking_kib if lacking_kib <= used_kib and cell_free_kib(request, grown) >= cell.memory_kib else None


def _row(cell: CellRequest, request: InstanceRequest, rooms: Iterable[CellOffer]) -> dict[int, CellShortfall]:
    return {room.facts.id: lack for room in rooms if (lack := lack_of(cell, request, room)) is not None}


def _assigned(table: Sequence[dict[int, CellShortfall]], left: set[int]) -> list[CellShortfall] | None:
    """A host cell of those for each guest cell, so that they lack the least in sum."""
    ids = sorted(left)
    costs = [{n: _cost(row[cell]) for n, cell in enumerate(ids) if cell in row} for row in table]
    found = cheapest([1] * len(table), [1] * len(ids), costs)
    if found is None:
        return None
    return [row[ids[shares.index(1)]] for row, shares in zip(table, found[1], strict=True)]


def _cost(lack: CellShortfall) -> int:
    kinds = sum(map(bool, (lack.cpus, lack.floating, lack.memory_kib, lack.pages)))
    mib = -(-(lack.memory_kib + lack.pages * (lack.page_size_kib or 0)) // _KIB_PER_MIB)
    return kinds << 52 | len(lack.cpus) << 40 | lack.floating << 28 | min(mib, _MOST_MIB)


def _with_host(question: Question, lacks: Sequence[CellShortfall]) -> MoreFree | None:
    """With what the host as a whole lacks beside; None where its guests do not have that much."""
    request, offer, host = question.request, question.offer, question.snapshot.usage.host
    floating = request.vcpus - len(request.pinned)
    given, given_kib = sum(lack.floating for lack in lacks), sum(lack.memory_kib for lack in lacks)
    more = max(0, floating - offer.floating - given) if floating else 0
    more_kib = 0
    if host_takes_small(request, offer):
        more_kib = max(0, request.memory_kib - host_free_kib(request, offer) - given_kib)
    taken_kib = host.memory_kib.used + host.memory_kib.promised
    if given + more > host.shared.used + host.shared.promised or given_kib + more_kib > taken_kib:
        return None
    cells = sorted((lack for lack in lacks if lack != CellShortfall(cell=lack.cell)), key=lambda lack: lack.cell)
    return MoreFree(cells=tuple(cells), floating=more, memory_kib=more_kib)


def _near(question: Question) -> dict[int, int]:
    """By host cell, how many of the devices that must be near are there."""
    near: dict[int, int] = {}
    for need in needs(question.request.devices, question.offer):
        for cell, mask in need.reach.items() if need.is_hard else ():
            if cell is not None:
                near[cell] = near.get(cell, 0) + min(mask.bit_count(), need.request.count)
    return near
