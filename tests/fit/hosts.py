"""Small hosts with guests on them: random, yet such as real ones are, consistent in themselves."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar

from agent.core.cpuset import CpuSet
from agent.core.fit.host import Offer, host_facts, offer_of
from agent.core.guest import GuestDevice, ObservedDomain, Pin, Sighting
from agent.core.host_config import DeviceSpec, HostConfig, ReservedPages
from agent.core.pci import DeviceType, PciAddress, PciDevice
from agent.core.topology import Cpu, HostCell, HostTopology, PagePool
from agent.core.usage import Folded, fold
from agent.core.values import ReadOnlyMap
from tests.builders import uuid_of
from tests.fit import rules

T = TypeVar("T")
Cores = list[list[tuple[int, ...]]]
"""By cell, the CPU numbers of each core."""

UNIT_KIB = 256 * 1024
"""Memory comes in such steps, so that guests often just fit."""

HUGE_KIB = (2048, 1048576)


Tags = dict[str, str | None]
SPEC_TAGS: tuple[Tags, ...] = ({}, {"physical_network": "Net1"}, {"physical_network": None}, {"remote_managed": "true"})


class Pick(Protocol):
    """One of some options, drawn by hypothesis or by a seeded generator."""

    def __call__(self, options: Sequence[T], /) -> T: ...


class Theme(NamedTuple):
    """What of a host is scarce and odd; the rest is plentiful, so that it does not decide. is_thin: the host as a whole
    has little small-page memory left, whatever its cells have, and guests take pages of any size."""

    cpus: bool = True
    memory: bool = True
    devices: bool = True
    is_thin: bool = False


class Host(NamedTuple):
    """A host, its configuration, and the guests that are on it."""

    topology: HostTopology
    config: HostConfig
    guests: tuple[Sighting, ...] = ()

    def folded(self) -> Folded:
        """What the guests make of it."""
        return fold(self.topology, self.config, self.guests)

    def offer(self) -> Offer:
        """What is left for one who comes."""
        made = self.folded()
        unknown = [guest.name for guest in self.guests if made.holds[guest.uuid].uncertain]
        return offer_of(host_facts(self.topology, self.config), made.usage, unknown)

    def room(self) -> rules.Room:
        """The offer beside the devices."""
        return rules.room(self.offer(), self.topology.pci)


def some(pick: Pick, options: Sequence[T], most: int) -> list[T]:
    """Up to so many different ones of these, in their order."""
    left = list(range(len(options)))
    taken = {left.pop(pick(range(len(left)))) for _ in range(pick(range(min(most, len(left)) + 1)))}
    return [option for n, option in enumerate(options) if n in taken]


def any_host(pick: Pick, theme: Theme, most_cells: int) -> Host:
    """Any of these hosts with any of these guests."""
    topology = any_topology(pick, theme, most_cells)
    names = ("r1", "r2")[: pick((0, 0, 0, 1) if theme.is_thin else (0, 0, 1, 1, 2))]
    return Host(
        topology, _config(pick, theme, topology), tuple(_resident(pick, theme, name, topology) for name in names)
    )


def any_topology(pick: Pick, theme: Theme, most_cells: int) -> HostTopology:
    """A few cells with sparse ids, memory-only ones among them; cores of one, two and four threads."""
    least = 2 if theme.is_thin else 1
    ids = pick(((0, 1, 2), (0, 8, 16, 17), (1, 2, 3)))[: pick(range(least, most_cells + 1))]
    cores = _cores(pick, theme, len(ids))
    every = [cpu for mine in cores for core in mine for cpu in core]
    off = CpuSet(every[1:2] if theme.cpus and pick((False, False, False, True)) else ())
    cells = tuple(
        _cell(pick, theme, number, ids, CpuSet(itertools.chain(*mine)) - off)
        for number, mine in zip(ids, cores, strict=True)
    )
    return HostTopology(
        cells=cells,
        cpus=_cpus(ids, cores, _sockets(pick, len(ids)), off),
        pci=_devices(pick, ids) if theme.devices or pick((False, True)) else (),
        memory_kib=sum(cell.memory_kib for cell in cells),
        page_size_kib=pick((4, 4, 64)) if theme.memory else 4,
    )


def _cores(pick: Pick, theme: Theme, cells: int) -> Cores:
    """Siblings are neighbours, or each sweep over all cores numbers one thread of each; with gaps or without."""
    threads = pick((1, 2, 2, 4))
    full = 2 if threads == 4 else 4
    counts = [pick((full, full, 2, 1, 0)) if theme.cpus else full for _ in range(cells)]
    counts[0] = counts[0] or 1
    total, stride = sum(counts), pick((1, 1, 3))
    if pick((False, True)):
        numbers = [tuple(core * threads + thread for thread in range(threads)) for core in range(total)]
    else:
        numbers = [tuple(core + thread * total for thread in range(threads)) for core in range(total)]
    cores = iter([tuple(cpu * stride for cpu in core) for core in numbers])
    return [list(itertools.islice(cores, count)) for count in counts]


def _sockets(pick: Pick, cells: int) -> list[tuple[int, ...]]:
    """By cell, the sockets that its cores are on in turn: its own, one for all or two, several, none that is known."""
    match pick(("own", "own", "one", "pairs", "split", "unknown")):
        case "own":
            return [(n,) for n in range(cells)]
        case "one":
            return [(0,)] * cells
        case "pairs":
            return [(n // 2,) for n in range(cells)]
        case "split":
            return [(n, n + 1) for n in range(cells)]
        case _:
            return [()] * cells


def _cpus(ids: Sequence[int], cores: Cores, sockets: list[tuple[int, ...]], off: CpuSet) -> tuple[Cpu, ...]:
    made = [Cpu(id=cpu, online=False) for cpu in off]
    for cell, mine, on in zip(ids, cores, sockets, strict=True):
        for n, core in enumerate(mine):
            socket, alive = on[n % len(on)] if on else None, CpuSet(core) - off
            made += [Cpu(id=cpu, online=True, cell=cell, socket=socket, core=core[0], siblings=alive) for cpu in alive]
    return tuple(sorted(made, key=lambda cpu: cpu.id))


def _cell(pick: Pick, theme: Theme, number: int, ids: Sequence[int], cpus: CpuSet) -> HostCell:
    small = pick(_small_units(theme)) * UNIT_KIB
    pools = tuple(_pool(pick, size) for size in some(pick, HUGE_KIB, 2)) if theme.memory else ()
    return HostCell(
        id=number,
        cpus=cpus,
        memory_kib=small + sum(pool.total * pool.size_kib for pool in pools),
        pages=pools,
        distances=MappingProxyType({other: 10 if other == number else 20 + abs(other - number) for other in ids}),
        allowed=not theme.memory or theme.is_thin or pick((True,) * 19 + (False,)),
    )


def _small_units(theme: Theme) -> tuple[int, ...]:
    if theme.is_thin:
        return (16, 8, 4, 2)
    return (16, 8, 5, 4, 3, 2, 1, 0) if theme.memory else (16,)


def _pool(pick: Pick, size_kib: int) -> PagePool:
    total = pick((4, 3, 2, 1, 0)) * UNIT_KIB // size_kib if size_kib < UNIT_KIB else pick((4, 3, 2, 1, 0))
    taken = pick((0, 0, 0, 1, total))
    return PagePool(size_kib=size_kib, total=total, free=max(total - taken, 0), reserved=pick((None, 0, 1)))


def _devices(pick: Pick, cells: Sequence[int]) -> tuple[PciDevice, ...]:
    """Some cards: physical functions with virtual ones, virtual ones alone, plain functions; some without a cell."""
    made: list[PciDevice] = []
    for bus in range(pick((3, 2, 2, 1, 0))):
        cell, product, serial = pick((*cells, None)), pick(("10fb", "10ed")), pick((None, "S1"))
        kind = pick(("plain", "card", "card", "virtual", "vdpa"))
        if kind == "plain":
            made.append(_function(bus, 0, cell, product, "type-PCI", serial=serial))
            continue
        if kind != "virtual":
            made.append(_function(bus, 0, cell, "10fb", "type-PF", serial=serial))
        virtual: DeviceType = "vdpa" if kind == "vdpa" else "type-VF"
        made.extend(_function(bus, number, cell, product, virtual, serial=serial) for number in range(1, pick((2, 3))))
    return tuple(made)


def _function(
    bus: int, number: int, cell: int | None, product: str, type_: DeviceType, *, serial: str | None
) -> PciDevice:
    is_virtual = type_ in {"type-VF", "vdpa"}
    return PciDevice(
        address=PciAddress(0, bus, 0, number),
        vendor_id="8086",
        product_id=product,
        class_code="0200",
        cell=cell,
        type=type_,
        parent=PciAddress(0, bus, 0, 0) if is_virtual else None,
        parent_ifname=f"eth{bus}" if is_virtual else None,
        vdpa=(f"vdpa{bus}{number}",) if type_ == "vdpa" else (),
        serial=serial,
    )


def _config(pick: Pick, theme: Theme, topology: HostTopology) -> HostConfig:
    """Split sets, one set for all, one of the two alone, or nova's legacy mode."""
    every = topology.online | topology.offline
    part = CpuSet(some(pick, sorted(every), 3))
    rest = every - part
    dedicated, shared = pick(
        ((None, None), (rest, part), (rest, part), (part, rest), (rest, rest), (rest, None), (None, rest))
    )
    if theme.is_thin:
        dedicated, shared = pick(((every, None), (None, None), (None, None), (rest, part)))
    sizes = [(cell.id, pool.size_kib) for cell in topology.cells for pool in cell.pages]
    reserved = some(pick, sizes, 1)
    return HostConfig(
        dedicated=dedicated,
        shared=shared,
        reserved_memory_mb=_reserved_mb(pick, theme, topology),
        reserved_pages=tuple(ReservedPages(cell=cell, size_kib=size, count=1) for cell, size in reserved),
        cpu_allocation_ratio=pick((1.0, 1.5, 4.0)),
        ram_allocation_ratio=pick((0.5, 1.0, 1.5)) if theme.memory else 1.0,
        device_spec=tuple(_device_spec(pick, theme) for _ in range(pick((1, 1, 1, 2, 0)))),
    )


def _reserved_mb(pick: Pick, theme: Theme, topology: HostTopology) -> int:
    """Kept back from the host as a whole, and from none of its cells."""
    if not theme.is_thin:
        return pick((0, 0, 256)) if theme.memory else 0
    huge_kib = sum(pool.total * pool.size_kib for cell in topology.cells for pool in cell.pages)
    return max(topology.memory_kib - huge_kib - pick(range(7)) * UNIT_KIB, 0) // 1024


def tagged(pairs: Mapping[str, str | None]) -> ReadOnlyMap[str, str | None]:
    """Tags that cannot be changed."""
    return MappingProxyType(dict(pairs))


def _device_spec(pick: Pick, theme: Theme) -> DeviceSpec:
    if theme.is_thin or pick((True, True, False)):
        return DeviceSpec(vendor_id="8086")
    tags = pick(SPEC_TAGS)
    return DeviceSpec(
        address=pick((None, "*:00:*.*", "0000:01:00.0")),
        vendor_id="8086",
        product_id=pick((None, "10fb")),
        tags=tagged(tags),
        live_migratable=pick((None, True, False)),
        resource_class=pick((None, "CUSTOM_NIC")),
        traits=pick(((), ("CUSTOM_FAST",))),
    )


def _resident(pick: Pick, theme: Theme, name: str, topology: HostTopology) -> Sighting:
    """A guest that is there: pinned anywhere, bound to a cell or not, with a device or not; or that nobody can read."""
    if pick((False,) * 30 + (True,)):
        return Sighting(uuid=uuid_of(name), name=name, state="running", begun_at=1.0)
    pins = some(pick, sorted(topology.online), 2)
    cell = pick((None, *(cell.id for cell in topology.cells)))
    given = some(pick, topology.pci, 1)
    facts = {"extra:hw:cpu_thread_policy": pick(("prefer", "prefer", "isolate"))}
    domain = ObservedDomain(
        uuid=uuid_of(name),
        name=name,
        maker="libvirt",
        vcpus=max(len(pins), 1),
        vcpus_online=CpuSet(range(max(len(pins), 1))),
        memory_kib=pick((1, 1, 2, 4)) * UNIT_KIB,
        vcpu_pins=tuple(Pin(thread=n, cpus=CpuSet([cpu])) for n, cpu in enumerate(pins)),
        mode=None if cell is None else "strict",
        nodeset=CpuSet() if cell is None else CpuSet([cell]),
        page_size_kib=pick((None,) if theme.is_thin else (None, None, None, *HUGE_KIB)),
        devices=tuple(GuestDevice(kind="pci", source="hostdev", address=one.address) for one in given),
        facts=MappingProxyType(facts),
    )
    return Sighting(uuid=domain.uuid, name=name, state="running", begun_at=1.0, domain=domain)
