"""What a host has for guests to come (`HostFacts`), and what of it is free now (`Offer`)."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from agent.core.conflicts import Owner
from agent.core.cpuset import CpuMask, lowest
from agent.core.fit.devices.facts import DeviceFacts, device_facts
from agent.core.holds import HostSets, host_sets
from agent.core.host_config import HostConfig
from agent.core.topology import HostCell, HostTopology
from agent.core.usage import Amount, CellUsage, CpuHolder, Usage
from agent.core.values import ReadOnlyMap, Value


class Core(Value, frozen=True, kw_only=True):
    """CPUs that share one core. members: those that guests may have at all; dedicated: the part for pinned ones."""

    members: CpuMask
    dedicated: CpuMask


class CellFacts(Value, frozen=True, kw_only=True):
    """One host cell. cores: those with a dedicated CPU, by lowest CPU. threads: most guest CPUs in one core, at least
    1. socket: None when its CPUs are on several, or on none that is known. caches: dedicated CPUs under each L3.
    small_kib: the small page. has_cpus: any are online. allowed: no cpuset withholds its memory."""

    id: int
    dedicated: CpuMask
    shared: CpuMask
    cores: tuple[Core, ...] = ()
    threads: int = 1
    socket: int | None = None
    distances: ReadOnlyMap[int, int] = MappingProxyType({})
    caches: tuple[CpuMask, ...] = ()
    small_kib: int = 4
    has_cpus: bool = True
    allowed: bool = True


class HostFacts(Value, frozen=True, kw_only=True):
    """What does not change while guests come and go. is_one_cell: nothing on this host is far from anything."""

    cells: tuple[CellFacts, ...]
    devices: DeviceFacts
    is_legacy: bool = False

    @property
    def is_one_cell(self) -> bool:
        """A single cell has all CPUs of the host, also those that guests may not have."""
        return sum(1 for cell in self.cells if cell.has_cpus) <= 1


class FreePages(Value, frozen=True, kw_only=True):
    """Pages of one size, in pages. free: may be negative. total: of all, reserved ones too."""

    size_kib: int
    free: int
    total: int
    reserved: int = 0


class CellOffer(Value, frozen=True, kw_only=True):
    """What one host cell still has. free_cpus: dedicated ones. floating: vCPUs that may still float here by the ratio;
    floating_limit: of all. free_kib: small-page memory that is really there; free_by_ratio_kib: by the ratio, for
    guests that float; total_kib: all of it. pages: huge ones, smallest first. holders: of its CPUs."""

    facts: CellFacts
    free_cpus: CpuMask
    floating: int
    floating_limit: int
    free_kib: int
    free_by_ratio_kib: int
    total_kib: int
    pages: tuple[FreePages, ...] = ()
    holders: tuple[CpuHolder, ...] = ()


class Offer(Value, frozen=True, kw_only=True):
    """What the host still has for one who comes. cells: by id. free_devices: bit n for device n of the facts;
    device_holders: of those that are taken, offered or not. floating, free_kib, free_by_ratio_kib: of the host as a
    whole; guests without cells count here alone (LEDGER R5). uncertain: guests whose CPUs nobody knows, so that none
    can be promised."""

    facts: HostFacts
    cells: tuple[CellOffer, ...]
    free_devices: int
    floating: int
    floating_limit: int
    shared_cpus: CpuMask
    free_kib: int
    free_by_ratio_kib: int
    uncertain: tuple[str, ...] = ()
    device_holders: ReadOnlyMap[int, tuple[Owner, ...]] = MappingProxyType({})


def host_facts(topology: HostTopology, config: HostConfig) -> HostFacts:
    """The part of an offer that can be kept as long as topology and configuration are the same objects."""
    sets = host_sets(topology, config)
    return HostFacts(
        cells=tuple(_cell_facts(cell, topology, sets) for cell in sorted(topology.cells, key=lambda one: one.id)),
        devices=device_facts(topology, config),
        is_legacy=not config.has_split,
    )


def offer_of(facts: HostFacts, usage: Usage, uncertain: Iterable[str] = ()) -> Offer:
    """What is free by the books. uncertain: names of guests that hold nobody knows what."""
    rows = {cell.id: cell for cell in usage.cells}
    host = usage.host
    return Offer(
        facts=facts,
        cells=tuple(_cell_offer(cell, rows[cell.id]) for cell in facts.cells if cell.id in rows),
        free_devices=facts.devices.free(usage.pci),
        floating=host.shared.free,
        floating_limit=host.shared.limit,
        shared_cpus=host.shared_cpus.mask,
        free_kib=really_free(host.memory_kib),
        free_by_ratio_kib=host.memory_kib.free,
        uncertain=tuple(uncertain),
        device_holders=facts.devices.holders(usage.pci),
    )


def _cell_facts(cell: HostCell, topology: HostTopology, sets: HostSets) -> CellFacts:
    usable = cell.cpus.mask & sets.usable
    dedicated, shared = CpuMask(usable & sets.dedicated), CpuMask(usable & sets.shared)
    members = CpuMask(dedicated | shared)
    sockets = {cpu.socket for cpu in topology.cpus if cpu.id in cell.cpus}
    caches = {cache.cpus.mask & dedicated for cache in topology.caches if cache.level == 3}
    return CellFacts(
        id=cell.id,
        dedicated=dedicated,
        shared=shared,
        cores=_cores(dedicated, members, sets),
        threads=max((core.members.bit_count() for core in _cores(usable, members, sets)), default=1),
        socket=sockets.pop() if len(sockets) == 1 else None,
        distances=cell.distances,
        caches=tuple(CpuMask(mask) for mask in sorted(caches, key=lowest) if mask),
        small_kib=topology.page_size_kib,
        has_cpus=bool(cell.cpus),
        allowed=cell.allowed,
    )


def _cores(cpus: int, members: CpuMask, sets: HostSets) -> tuple[Core, ...]:
    """The cores that have any of these CPUs, by lowest CPU; `members` are those that count as part of a core."""
    cores = []
    left = cpus & members
    while left:
        cpu = lowest(left)
        whole = sets.siblings.get(cpu, CpuMask(1 << cpu)) & members
        cores.append(Core(members=CpuMask(whole), dedicated=CpuMask(whole & cpus)))
        left &= ~whole
    return tuple(cores)


def _cell_offer(facts: CellFacts, row: CellUsage) -> CellOffer:
    memory = row.memory_kib
    return CellOffer(
        facts=facts,
        free_cpus=row.dedicated.free.mask,
        floating=row.shared.free,
        floating_limit=row.shared.limit,
        free_kib=really_free(memory),
        free_by_ratio_kib=memory.free,
        total_kib=memory.total - memory.reserved,
        pages=tuple(
            FreePages(size_kib=page.size_kib, free=page.free, total=page.total, reserved=page.reserved)
            for page in row.pages
        ),
        holders=row.holders,
    )


def really_free(amount: Amount) -> int:
    """What is free without any ratio: for guests that get what they ask for as a whole."""
    return amount.total - amount.reserved - amount.used - amount.promised
