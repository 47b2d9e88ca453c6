"""What placements must obey, rule by rule, each as its definition says; nothing here chooses anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from agent.core.cpuset import CpuSet
from agent.core.fit.host import CellOffer, Core, Offer
from agent.core.host_config import DeviceSpec
from agent.core.instance import CellRequest, InstanceRequest, ThreadPolicy
from agent.core.pci import PciDevice
from agent.core.pci_request import PciNumaPolicy, PciRequest, PciSpec

REMOTE = "remote_managed"


class Room(NamedTuple):
    """What a host has free, and its devices by the offer's numbers."""

    offer: Offer
    devices: Mapping[int, PciDevice]


def room(offer: Offer, devices: Iterable[PciDevice]) -> Room:
    """The offer beside the devices of the host's topology."""
    return Room(offer, {offer.facts.devices.number[device.address]: device for device in devices})


def members(mask: int) -> frozenset[int]:
    """The numbers in a mask."""
    return frozenset(CpuSet.from_mask(mask))


def floating(cell: CellRequest) -> int:
    """How many vCPUs of a guest cell are without a host CPU of their own."""
    return len(cell.vcpus - cell.pinned)


def is_pinned(request: InstanceRequest) -> bool:
    """What such a guest gets is its own as a whole: no ratio thins it."""
    return request.cpu_policy in {"dedicated", "mixed"}


def floats(request: InstanceRequest) -> bool:
    """The ratios bound what such guests have together."""
    return request.cpu_policy != "dedicated"


def needs_emulator_cpu(request: InstanceRequest, cell: CellRequest) -> bool:
    """The first guest cell brings the CPU of the emulator's threads along."""
    return request.emulator_policy == "isolate" and cell.id == min(one.id for one in request.cells)


def has_emulator_home(request: InstanceRequest, offer: Offer) -> bool:
    """The emulator's threads have a CPU somewhere without a realtime vCPU: one of their own, the shared set of a host
    that has one apart, or that of another vCPU."""
    everything = CpuSet(vcpu for cell in request.cells for vcpu in cell.vcpus)
    return (
        request.emulator_policy == "isolate"
        or (request.emulator_policy == "share" and not offer.facts.is_legacy and bool(offer.shared_cpus))
        or request.realtime != everything
    )


def core_of(cpu: int, cell: CellOffer) -> Core:
    """The core of a dedicated CPU."""
    return next(core for core in cell.facts.cores if cpu in members(core.members))


def thread_fault(pins: Collection[int], policy: ThreadPolicy | None, cell: CellOffer, free: Collection[int]) -> str:
    """Why these pins out of these free CPUs of a host cell do not follow the thread policy; "" when they do."""
    used = Counter(members(core_of(cpu, cell).members) for cpu in pins)
    if policy == "require" and not _in_siblings(used, free):
        return f"{sorted(pins)} do not fill cores of equally many free threads, two at least"
    if policy == "isolate":
        for core, count in used.items():
            if count > 1 or not core <= set(free):
                return f"{sorted(pins)} take {count} of the CPUs {sorted(core)}, which must all be free for one of them"
    return ""


def _in_siblings(used: Counter[frozenset[int]], free: Collection[int]) -> bool:
    """As in nova: some number of threads, two at least, that every core used has free and uses; the last may use
    less."""
    most = max((len(core) for core in used), default=2)
    return not used or any(
        all(len(core & set(free)) >= threads for core in used)
        and all(count <= threads for count in used.values())
        and sum(1 for count in used.values() if count < threads) <= 1
        for threads in range(2, most + 1)
    )


def idle_beside(pins: Collection[int], policy: ThreadPolicy | None, cell: CellOffer) -> frozenset[int]:
    """CPUs that stay empty because of these pins."""
    if policy != "isolate":
        return frozenset()
    return frozenset().union(*(members(core_of(cpu, cell).members) for cpu in pins)) - frozenset(pins)


def emulator_fault(
    cpu: int, pins: Collection[int], policy: ThreadPolicy | None, cell: CellOffer, free: Collection[int]
) -> str:
    """Why the emulator cannot have this CPU beside all of the guest's pins in this host cell; "" when it can."""
    if cpu not in free or cpu in pins:
        return f"CPU {cpu} is not free for the emulator"
    if policy == "isolate" and members(core_of(cpu, cell).members) & set(pins):
        return f"CPU {cpu} for the emulator is in a core that a vCPU isolates"
    return ""


def sizes_for(request: InstanceRequest, cell: CellOffer) -> tuple[int, ...]:
    """Page sizes in KiB that the guest's wish allows on a host cell, the small page first."""
    small, huge = cell.facts.small_kib, tuple(sorted(page.size_kib for page in cell.pages if page.total > 0))
    match request.page_size:
        case None | "small":
            return (small,)
        case "large":
            return huge
        case "any":
            return (small, *huge)
        case size:
            return tuple(one for one in (small, *huge) if one == size)


def amount_faults(
    parts: Collection[tuple[CellRequest, int]], request: InstanceRequest, cell: CellOffer
) -> Iterator[str]:
    """Of guest cells with the page size of each, what this host cell has too little of: memory, pages, shared CPUs."""
    sums: Counter[int] = Counter()
    for part, size in parts:
        sums[size] += part.memory_kib
        if part.memory_kib % size:
            yield f"{part.memory_kib} KiB of guest cell {part.id} are no multiple of {size} KiB"
        if floating(part) > len(members(cell.facts.shared)):
            yield f"guest cell {part.id} has more floating vCPUs than cell {cell.facts.id} has shared CPUs"
    if (count := sum(floating(part) for part, _ in parts)) > max(cell.floating, 0):
        yield f"{count} floating vCPUs are more than the ratio leaves in cell {cell.facts.id}"
    free = {page.size_kib: page.free for page in cell.pages}
    for size, kib in sums.items():
        if size == cell.facts.small_kib:
            yield from _small_faults(kib, request, cell)
        elif kib // size > free[size]:
            yield f"{kib // size} pages of {size} KiB are more than are free in cell {cell.facts.id}"


def _small_faults(kib: int, request: InstanceRequest, cell: CellOffer) -> Iterator[str]:
    place = f"{kib} KiB of small pages are more than cell {cell.facts.id}"
    if (is_pinned(request) or request.page_size is not None) and kib > cell.free_kib:
        yield f"{place} really has free"
    if kib > cell.total_kib:
        yield f"{place} has at all"
    if floats(request) and kib > cell.free_by_ratio_kib:
        yield f"{place} has free by the ratio"


def host_faults(small_kib: int, request: InstanceRequest, offer: Offer) -> Iterator[str]:
    """What the host as a whole has too little of, for all small-page memory of the guest and its floating vCPUs."""
    if small_kib > 0:
        if (is_pinned(request) or request.page_size is not None) and small_kib > offer.free_kib:
            yield f"{small_kib} KiB of small pages are more than the host really has free"
        if floats(request) and small_kib > offer.free_by_ratio_kib:
            yield f"{small_kib} KiB of small pages are more than the host has free by the ratio"
    count = sum(floating(cell) for cell in request.cells) if request.cells else request.vcpus
    if count > max(offer.floating, 0):
        yield f"{count} floating vCPUs are more than the ratio leaves on the host"


def cell_less_faults(request: InstanceRequest, offer: Offer) -> Iterator[str]:
    """Why a guest without cells cannot come, its devices apart."""
    if request.vcpus > len(members(offer.shared_cpus)):
        yield f"{request.vcpus} floating vCPUs are more than the host has shared CPUs"
    yield from host_faults(request.memory_kib, request, offer)


def spec_of(number: int, offer: Offer) -> DeviceSpec:
    """The entry of [pci] device_spec that offers this device."""
    return next(pool.spec for pool in offer.facts.devices.pools if pool.devices >> number & 1)


def offered(offer: Offer) -> tuple[int, ...]:
    """Numbers of the devices that the configuration lets guests have."""
    pools = offer.facts.devices.pools
    return tuple(n for n in range(len(offer.facts.devices.addresses)) if any(pool.devices >> n & 1 for pool in pools))


def will_do(device: PciDevice, offered_by: DeviceSpec, request: PciRequest) -> bool:
    """The device is what one of the request's specs describes, wherever it is; of a kind that must be asked for by name
    (physical functions, vDPA, remote-managed ones) only where one of them does."""
    types = {spec.device_type for spec in request.specs}
    asks_remote = any(_lower(spec.tags).get(REMOTE) == "true" for spec in request.specs)
    return (
        any(_is_as(device, offered_by, spec) for spec in request.specs)
        and device.type in types | {"type-PCI", "type-VF"}
        and (asks_remote or _lower(offered_by.tags).get(REMOTE) != "true")
        and request.live_migratable in {None, offered_by.live_migratable}
        and request.parent_ifname in {None, device.parent_ifname}
    )


def _is_as(device: PciDevice, offered_by: DeviceSpec, spec: PciSpec) -> bool:
    asked, has = _lower(spec.tags), {REMOTE: "false"} | _lower(offered_by.tags)
    return (
        spec.device_type in {None, device.type}
        and spec.vendor_id in {None, device.vendor_id}
        and spec.product_id in {None, device.product_id}
        and all(has.get(name) == value for name, value in asked.items())
        and spec.resource_class in {None, offered_by.resource_class}
        and set(spec.traits) <= set(offered_by.traits)
    )


def _lower(tags: Mapping[str, str | None]) -> dict[str, str | None]:
    return {name: value.lower() if isinstance(value, str) else None for name, value in tags.items()}


def is_near_enough(device: PciDevice, policy: PciNumaPolicy, cells: Collection[int], offer: Offer) -> bool:
    """The policy lets a guest on these host cells have the device from where it is."""
    if offer.facts.is_one_cell or policy == "preferred" or device.cell in cells:
        return True
    if policy == "legacy":
        return device.cell is None
    return policy == "socket" and _socket(device.cell, offer) in {_socket(cell, offer) for cell in cells} - {None}


def _socket(cell: int | None, offer: Offer) -> int | None:
    return next((one.socket for one in offer.facts.cells if one.id == cell), None)


def are_relatives(first: int, second: int, offer: Offer) -> bool:
    """One is a virtual function of the other."""
    return bool(offer.facts.devices.relatives.get(first, 0) >> second & 1)
