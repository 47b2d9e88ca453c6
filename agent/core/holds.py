"""What one guest holds of its host (LEDGER 4).

Active in any state: everything its XML says. Shut off: only the devices that it names. A vCPU that is not plugged now
holds nothing, though libvirt keeps its pin: no thread of it exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import NamedTuple

from agent.core.conflicts import Owner
from agent.core.cpuset import NO_CPUS, CpuMask, CpuSet
from agent.core.guest import ObservedDomain, Sighting
from agent.core.guest_memory import parts
from agent.core.host_config import HostConfig
from agent.core.ledger import FROM_KERNEL, Holds, PageHold, join
from agent.core.pci import PciAddress, PciDevice
from agent.core.topology import HostTopology
from agent.core.values import ReadOnlyMap, Value

FLAVOR_POLICY = "extra:hw:cpu_thread_policy"
IMAGE_POLICY = "image:hw_cpu_thread_policy"
HYPERTHREADING = "extra:trait:HW_CPU_HYPERTHREADING"


class HostSets(Value, frozen=True, kw_only=True):
    """CPU sets of a host, made once for all of its guests.

    dedicated, shared: as configured; all usable CPUs in legacy mode. cells: online CPUs by cell. siblings: of each CPU
    that has any, itself included. named: function by the name and path of its vDPA devices and the names of its
    interfaces. default_huge_kib: size of huge pages for guests that name none.
    """

    is_legacy: bool
    has_split: bool
    usable: CpuMask
    dedicated: CpuMask
    shared: CpuMask
    cells: ReadOnlyMap[int, CpuMask]
    siblings: ReadOnlyMap[int, CpuMask]
    named: ReadOnlyMap[str, PciAddress]
    page_size_kib: int
    default_huge_kib: int


class GuestHolds(Value, frozen=True, kw_only=True):
    """A guest, as the owner that rows name, and what it holds."""

    sighting: Sighting
    owner: Owner
    holds: Holds


def host_sets(topology: HostTopology, config: HostConfig) -> HostSets:
    """The sets that `hold` needs."""
    usable = topology.usable.mask
    dedicated, shared = (config.dedicated or CpuSet()).mask, (config.shared or CpuSet()).mask
    sizes = {pool.size_kib for cell in topology.cells for pool in cell.pages} | {p.size_kib for p in topology.pages}
    return HostSets(
        is_legacy=config.is_legacy,
        has_split=config.has_split,
        usable=usable,
        dedicated=usable if config.is_legacy else dedicated,
        shared=usable if config.is_legacy else shared,
        cells=MappingProxyType({cell.id: cell.cpus.mask for cell in topology.cells}),
        siblings=MappingProxyType({cpu.id: cpu.siblings.mask for cpu in topology.cpus if len(cpu.siblings) > 1}),
        named=MappingProxyType({name: device.address for device in topology.pci for name in _names(device)}),
        page_size_kib=topology.page_size_kib,
        default_huge_kib=2048 if 2048 in sizes or not sizes else min(sizes),
    )


def guests_of(sightings: Iterable[Sighting], sets: HostSets) -> tuple[GuestHolds, ...]:
    """Every guest with what it holds, by name and uuid; readings of one uuid are joined."""
    known: dict[str, Sighting] = {}
    for sighting in sightings:
        before = known.get(sighting.uuid)
        known[sighting.uuid] = sighting if before is None else join(before, sighting)
    return tuple(
        GuestHolds(sighting=seen, owner=owner_of(seen), holds=hold(seen, sets))
        for seen in sorted(known.values(), key=lambda one: (one.label, one.uuid))
    )


def owner_of(sighting: Sighting) -> Owner:
    """The guest as the owner of something."""
    maker = sighting.domain.maker if sighting.domain else "unknown"
    return Owner(type="domain", uuid=sighting.uuid, name=sighting.name, maker=maker)


def hold(sighting: Sighting, sets: HostSets) -> Holds:
    """What a guest holds: see the module's text, and `Holds` for the fields."""
    domain = sighting.domain
    if domain is None:
        return _unread(sighting, sets) if sighting.is_active else Holds(uuid=sighting.uuid)
    devices, mdevs = _devices(domain, sets)
    if not sighting.is_active:
        return Holds(uuid=sighting.uuid, devices=devices, mdevs=mdevs)
    threads = _threads(domain, sets)
    kernel_pins = _pins_of_others(sighting)
    if (running := _pins_of_another_run(sighting, threads)) is not None:
        threads = running
        kernel_pins = CpuMask(kernel_pins | running.vcpus)
    memory = _memory(domain, sets)
    return Holds(
        uuid=sighting.uuid,
        cpus=CpuSet.from_mask(threads.vcpus | threads.emulator | kernel_pins),
        emulator_cpus=CpuSet.from_mask(threads.emulator & ~threads.vcpus & ~kernel_pins),
        kernel_pins=CpuSet.from_mask(kernel_pins),
        sibling_cpus=_isolated_siblings(domain, threads.vcpus, sets),
        confined=CpuSet.from_mask(threads.confined),
        cell_memory_kib=MappingProxyType(memory.cells),
        host_memory_kib=memory.host,
        pages=memory.pages,
        cell_shared=MappingProxyType(threads.cell_shared),
        host_shared=threads.host_shared,
        devices=devices,
        mdevs=mdevs,
    )


def is_one(mask: CpuMask) -> bool:
    """Exactly one CPU is in the set."""
    return mask != 0 and mask & (mask - 1) == 0


def cell_of(mask: CpuMask, cells: ReadOnlyMap[int, CpuMask]) -> int | None:
    """The cell that has all CPUs of a non-empty set."""
    return next((cell for cell, cpus in cells.items() if mask and not mask & ~cpus), None)


class _Threads(NamedTuple):
    vcpus: CpuMask
    emulator: CpuMask
    confined: CpuMask
    cell_shared: dict[int, int]
    host_shared: int


class _Memory(NamedTuple):
    cells: dict[int, int]
    host: int
    pages: tuple[PageHold, ...]


def _unread(sighting: Sighting, sets: HostSets) -> Holds:
    bound = sighting.kernel_cpus.mask if sighting.kernel_cpus is not None else 0
    # Floating threads too may be left with a single CPU where the shared set has no other.
    pins = (_mask(sighting.kernel_pins) | _pins_of_others(sighting)) & ~(sets.shared & ~sets.dedicated)
    is_known = bound != 0 and (sets.usable & ~bound != 0 or bound == _mask(sighting.kernel_pins))
    # Only dedicated CPUs are held one by one: the rest of where its threads may run it shares with everybody.
    may_run = bound & sets.dedicated if is_known else 0
    return Holds(
        uuid=sighting.uuid,
        cpus=CpuSet.from_mask(may_run | pins),
        kernel_pins=CpuSet.from_mask(pins),
        guessed=is_known or pins != 0,
        uncertain=not is_known,
    )


def _mask(cpus: CpuSet | None) -> CpuMask:
    return NO_CPUS if cpus is None else cpus.mask


def _pins_of_others(sighting: Sighting) -> CpuMask:
    """CPUs that vCPU threads of the guest's further QEMU processes are bound to alone."""
    pins = 0
    for other in sighting.others:
        pins |= other.pins.mask
    return CpuMask(pins)


def _pins_of_another_run(sighting: Sighting, told: _Threads) -> _Threads | None:
    """The threads of a process that libvirt denies, where they show that the definition is not that of its run."""
    pins = _mask(sighting.kernel_pins)
    if sighting.connection != FROM_KERNEL or not pins & ~told.vcpus:
        return None
    return told._replace(vcpus=pins)


def _threads(domain: ObservedDomain, sets: HostSets) -> _Threads:
    pins = {pin.thread: pin.cpus.mask for pin in domain.vcpu_pins}
    default = _mask(domain.cpuset)
    vcpus = confined = host_shared = 0
    cell_shared: dict[int, int] = {}
    for vcpu in domain.vcpus_online:
        pin = pins.get(vcpu, NO_CPUS)
        if is_one(pin) and not _is_all_that_is_shared(pin, sets):
            vcpus |= pin
            continue
        within = pin or default
        confined |= within
        cell = cell_of(CpuMask(within & sets.usable) or within, sets.cells)
        if cell is None:
            host_shared += 1
        else:
            cell_shared[cell] = cell_shared.get(cell, 0) + 1
    held = CpuMask(vcpus)
    emulator = _emulator_cpus(domain, held, sets)
    if not sets.has_split and not confined & ~emulator:
        # It runs wherever the floating vCPUs of its guest do, and is as little alone there as they are.
        emulator = CpuMask(emulator & ~confined)
    return _Threads(held, emulator, CpuMask(confined), cell_shared, host_shared)


def _is_all_that_is_shared(pin: CpuMask, sets: HostSets) -> bool:
    """Floating vCPUs too have a pin to one CPU where their cell has a single shared one (nova names them all)."""
    here = next((cpus for cpus in sets.cells.values() if pin & cpus), NO_CPUS)
    return pin == sets.shared & ~sets.dedicated & sets.usable & here


def _emulator_cpus(domain: ObservedDomain, vcpus: CpuMask, sets: HostSets) -> CpuMask:
    if not sets.has_split and not vcpus:
        return NO_CPUS
    emulator = 0
    for pin in (domain.emulator_pin, *(pin.cpus for pin in domain.iothread_pins)):
        # A pin to every CPU there is says the same as none.
        if pin is not None and sets.usable & ~pin.mask:
            emulator |= pin.mask
    return CpuMask(emulator & sets.dedicated)


def _isolated_siblings(domain: ObservedDomain, vcpus: CpuMask, sets: HostSets) -> CpuSet:
    if not _asks_for_whole_cores(domain.facts):
        return CpuSet()
    siblings = 0
    for cpu in CpuSet.from_mask(vcpus):
        siblings |= sets.siblings.get(cpu, 0)
    return CpuSet.from_mask(siblings & ~vcpus)


def _asks_for_whole_cores(facts: ReadOnlyMap[str, str]) -> bool:
    """Thread policy "isolate" as nova reads it: of the flavor, else of the image, or by the trait in its place."""
    policy = facts.get(FLAVOR_POLICY)
    if policy in {None, "prefer"}:
        policy = facts.get(IMAGE_POLICY, policy)
    return policy == "isolate" or facts.get(HYPERTHREADING) == "forbidden"


def _memory(domain: ObservedDomain, sets: HostSets) -> _Memory:
    small: dict[int | None, int] = {}
    huge: dict[tuple[int | None, int], int] = {}
    for part in parts(domain, small_kib=sets.page_size_kib, default_huge_kib=sets.default_huge_kib):
        cell = _bound_cell(part.cells, sets)
        if part.page_kib is None:
            small[cell] = small.get(cell, 0) + part.kib
        else:
            key = (cell, part.page_kib)
            huge[key] = huge.get(key, 0) + -(-part.kib // part.page_kib)
    pages = tuple(PageHold(cell=c, size_kib=s, count=huge[c, s]) for c, s in sorted(huge, key=_cell_then_size))
    return _Memory({cell: kib for cell, kib in small.items() if cell is not None}, small.get(None, 0), pages)


def _cell_then_size(key: tuple[int | None, int]) -> tuple[bool, int, int]:
    return (key[0] is None, key[0] or 0, key[1])


def _bound_cell(nodeset: CpuSet, sets: HostSets) -> int | None:
    return nodeset.lowest if is_one(nodeset.mask) and nodeset.lowest in sets.cells else None


def _devices(domain: ObservedDomain, sets: HostSets) -> tuple[tuple[PciAddress, ...], tuple[str, ...]]:
    functions: set[PciAddress] = set()
    mdevs: set[str] = set()
    for device in domain.devices:
        if device.kind == "pci" and device.address is not None:
            functions.add(device.address)
        elif (name := device.vdpa or device.netdev) is not None and name in sets.named:
            functions.add(sets.named[name])
        elif device.kind == "mdev" and device.mdev is not None:
            mdevs.add(device.mdev.lower())
    return tuple(sorted(functions)), tuple(sorted(mdevs))


def _names(device: PciDevice) -> Iterator[str]:
    for vdpa in device.vdpa:
        name = vdpa.removeprefix("/dev/")
        yield from (name, f"/dev/{name}")
    yield from (netdev.name for netdev in device.netdevs)
