"""Every rule that a placement breaks, as sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from agent.core.cpuset import CpuSet
from agent.core.fit.host import CellOffer, Offer
from agent.core.fit.rules import FitRules
from agent.core.instance import CellRequest, InstanceRequest
from agent.core.pci_request import PciRequest
from agent.core.placement import CellPlacement, GivenDevices, Placement
from tests.fit import rules
from tests.fit.oracle import DEFAULT
from tests.fit.rules import Room, members

Given = tuple[CellRequest, CellPlacement, CellOffer]
"""A guest cell, what it gets, and the host cell that it gets it from."""


def violations(placement: Placement, request: InstanceRequest, room: Room, how: FitRules = DEFAULT) -> list[str]:
    """Every rule that is broken; none when the placement is right."""
    offer = room.offer
    asked, got = (request.vcpus, request.memory_kib), (placement.vcpus, placement.memory_kib)
    found = [] if asked == got else [f"vCPUs and memory asked {asked}, given {got}"]
    offers = {cell.facts.id: cell for cell in offer.cells}
    if [cell.id for cell in request.cells] != [cell.guest_cell for cell in placement.cells]:
        return [*found, f"guest cells {[cell.guest_cell for cell in placement.cells]} are placed"]
    if absent := [cell.host_cell for cell in placement.cells if cell.host_cell not in offers]:
        return [*found, f"host cells {absent} are not offered"]
    given = [(cell, part, offers[part.host_cell]) for cell, part in zip(request.cells, placement.cells, strict=True)]
    if request.cells:
        found += _of_cells(given, placement, request, offer, how)
    else:
        found += _without_cells(placement, request, offer)
    return found + list(_of_devices(placement, request, room))


def _without_cells(placement: Placement, request: InstanceRequest, offer: Offer) -> Iterator[str]:
    yield from rules.cell_less_faults(request, offer)
    if placement.shared_cpus != CpuSet.from_mask(offer.shared_cpus):
        yield f"floats over {placement.shared_cpus}, not all shared CPUs"
    if placement.emulator_own is not None or not placement.emulator_cpus <= placement.shared_cpus:
        yield f"emulator on {placement.emulator_cpus}, own {placement.emulator_own}"


def _of_cells(
    given: list[Given], placement: Placement, request: InstanceRequest, offer: Offer, how: FitRules
) -> Iterator[str]:
    hosts = Counter(part.host_cell for part in placement.cells)
    if not how.share_cells and any(count > 1 for count in hosts.values()):
        yield f"host cells {dict(hosts)} are given more than once"
    if request.pinned and offer.uncertain:
        yield f"CPUs are promised though nobody knows those of {offer.uncertain}"
    if not rules.has_emulator_home(request, offer):
        yield "the emulator's threads have no CPU without a realtime vCPU"
    if placement.shared_cpus:
        yield f"shared CPUs {placement.shared_cpus} of the whole host beside cells"
    for one in given:
        yield from _of_one_cell(*one, request)
    for cell in {id(cell): cell for _, _, cell in given}.values():
        yield from _of_host_cell([one for one in given if one[2] is cell], cell, request)
    small = sum(part.memory_kib for _, part, cell in given if part.page_size_kib == cell.facts.small_kib)
    yield from rules.host_faults(small, request, offer)
    yield from _threads_taken(given, request)
    yield from _of_emulator(given, placement, request, offer)


def _of_one_cell(asked: CellRequest, part: CellPlacement, cell: CellOffer, request: InstanceRequest) -> Iterator[str]:
    where = f"guest cell {asked.id} on cell {part.host_cell}"
    if (asked.vcpus, asked.memory_kib) != (part.vcpus, part.memory_kib):
        yield f"{where}: vCPUs {part.vcpus}, {part.memory_kib} KiB are not what was asked"
    if CpuSet(part.pins) != asked.pinned:
        yield f"{where}: pins vCPUs {sorted(part.pins)}, asked {asked.pinned}"
    if len(part.cpus) != len(part.pins):
        yield f"{where}: two vCPUs on one CPU, {dict(part.pins)}"
    if part.cpus.mask & ~cell.facts.dedicated:
        yield f"{where}: pins {part.cpus} are not all dedicated CPUs of the cell"
    expected = cell.facts.shared if rules.floating(asked) else 0
    if part.shared_cpus.mask != expected:
        yield f"{where}: floats over {part.shared_cpus}"
    if part.page_size_kib not in rules.sizes_for(request, cell):
        yield f"{where}: page size {part.page_size_kib}"
    if not cell.facts.allowed:
        yield f"{where}: a cpuset withholds the cell"


def _of_host_cell(given: list[Given], cell: CellOffer, request: InstanceRequest) -> Iterator[str]:
    sizes = [(asked, part.page_size_kib) for asked, part, _ in given]
    if all(size in rules.sizes_for(request, cell) for _, size in sizes):
        yield from rules.amount_faults(sizes, request, cell)
    used: Counter[int] = Counter()
    for _, part, _ in given:
        used.update([*part.cpus, *part.idle_cpus])
        if not part.cpus.mask & ~cell.facts.dedicated:
            yield from _of_threads(part, cell, request)
    if twice := [cpu for cpu, count in used.items() if count > 1]:
        yield f"cell {cell.facts.id}: CPUs {twice} are given twice"
    if held := used.keys() - members(cell.free_cpus):
        yield f"cell {cell.facts.id}: CPUs {sorted(held)} are not free"


def _of_threads(part: CellPlacement, cell: CellOffer, request: InstanceRequest) -> Iterator[str]:
    policy = request.thread_policy
    if fault := rules.thread_fault(part.cpus, policy, cell, members(cell.free_cpus)):
        yield fault
    if frozenset(part.idle_cpus) != rules.idle_beside(part.cpus, policy, cell):
        yield f"guest cell {part.guest_cell} keeps {part.idle_cpus} idle"


def _threads_taken(given: list[Given], request: InstanceRequest) -> Iterator[str]:
    """Without a wish for less, whole cores are filled where there are enough of them."""
    if request.thread_policy not in {None, "prefer"} or len({part.host_cell for _, part, _ in given}) < len(given):
        return
    for _, part, cell in given:
        free = members(cell.free_cpus)
        whole = [members(core.members) & free for core in cell.facts.cores]
        could = any(n * sum(1 for core in whole if len(core) >= n) >= len(part.pins) for n in range(2, 9))
        is_here = not part.cpus.mask & ~cell.facts.dedicated
        if could and is_here and (fault := rules.thread_fault(part.cpus, "require", cell, free)):
            yield f"though siblings are free: {fault}"


def _of_emulator(given: list[Given], placement: Placement, request: InstanceRequest, offer: Offer) -> Iterator[str]:
    own, cpus = placement.emulator_own, placement.emulator_cpus
    if request.emulator_policy == "isolate" and request.pinned:
        home = next(cell for asked, _, cell in given if rules.needs_emulator_cpu(request, asked))
        beside = [part for _, part, cell in given if cell is home]
        pins = {cpu for part in beside for cpu in part.cpus}
        idle = {cpu for part in beside for cpu in part.idle_cpus}
        if own is None or cpus != CpuSet([own]):
            yield f"emulator on {cpus}, own {own}, asked isolate"
        elif fault := rules.emulator_fault(own, pins, request.thread_policy, home, members(home.free_cpus) - idle):
            yield fault
        return
    if own is not None:
        yield f"emulator has CPU {own} of its own, asked {request.emulator_policy}"
    if request.emulator_policy == "share" and not offer.facts.is_legacy and offer.shared_cpus:
        expected = CpuSet.from_mask(offer.shared_cpus)
    else:
        expected = _beside_vcpus(given, request)
    if cpus != expected:
        yield f"emulator on {cpus}, expected on {expected}"


def _beside_vcpus(given: list[Given], request: InstanceRequest) -> CpuSet:
    """Where the vCPUs without realtime scheduling run."""
    cpus = CpuSet()
    for asked, part, _ in given:
        cpus |= CpuSet(cpu for vcpu, cpu in part.pins.items() if vcpu not in request.realtime)
        if asked.vcpus - asked.pinned - request.realtime:
            cpus |= part.shared_cpus
    return cpus


def _of_devices(placement: Placement, request: InstanceRequest, room: Room) -> Iterator[str]:
    if [given.request for given in placement.devices] != [one.id for one in request.devices]:
        yield f"requests {[given.request for given in placement.devices]} are answered"
        return
    cells = {cell.host_cell for cell in placement.cells}
    numbers = [room.offer.facts.devices.number[address] for given in placement.devices for address in given.devices]
    for asked, given in zip(request.devices, placement.devices, strict=True):
        yield from _of_request(asked, given, cells, room)
    if len(set(numbers)) < len(numbers):
        yield f"a device is given twice: {sorted(numbers)}"
    for n in numbers:
        if any(rules.are_relatives(n, other, room.offer) for other in numbers):
            yield f"{room.devices[n].address} is given beside a relative of it"


def _of_request(asked: PciRequest, given: GivenDevices, cells: set[int], room: Room) -> Iterator[str]:
    offer = room.offer
    if len(given.devices) != asked.count:
        yield f"{asked.id}: {len(given.devices)} devices, asked {asked.count}"
    for n in (offer.facts.devices.number[address] for address in given.devices):
        device = room.devices[n]
        if n not in rules.offered(offer) or not offer.free_devices >> n & 1:
            yield f"{asked.id}: {device.address} is not offered or not free"
        elif not rules.will_do(device, rules.spec_of(n, offer), asked):
            yield f"{asked.id}: {device.address} is not what was asked"
        if cells and not rules.is_near_enough(device, asked.numa_policy, cells, offer):
            yield f"{asked.id}: {device.address} is too far for {asked.numa_policy}"
