"""What must be true of a binding that did not come from our own reading of a flavor: the fit relies on it.

The types say what each field may be; this says which fields belong together. What `core/flavor` makes has no fault.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.core.cpuset import CpuSet
from agent.core.instance import MOST_MEMORY_MB, MOST_VCPUS, InstanceRequest
from agent.core.pci_request import PciRequest
from agent.formats.validate import number_text

MOST_MEMORY_KIB = MOST_MEMORY_MB * 1024
MOST_DEVICE_REQUESTS = 512
MOST_DEVICES = 4096
LARGEST_PAGE_KIB = 1 << 30


def binding_faults(binding: InstanceRequest, path: str = "binding") -> Iterator[str]:
    """A sentence for each fault, by the path of its field."""
    yield from _amount(f"{path}.vcpus", binding.vcpus, MOST_VCPUS)
    yield from _amount(f"{path}.memory_kib", binding.memory_kib, MOST_MEMORY_KIB)
    if not 1 <= binding.vcpus <= MOST_VCPUS:
        return
    yield from _cell_faults(binding, f"{path}.cells")
    yield from _cpu_faults(binding, path)
    if isinstance(binding.page_size, int):
        yield from _amount(f"{path}.page_size", binding.page_size, LARGEST_PAGE_KIB)
    if binding.page_size is not None and not binding.cells:
        yield f"{path}.page_size: a guest with pages of its own needs cells, at least one"
    yield from _device_faults(binding.devices, f"{path}.devices")


def _cell_faults(binding: InstanceRequest, path: str) -> Iterator[str]:
    everything, seen = CpuSet(range(binding.vcpus)), CpuSet()
    for place, cell in enumerate(binding.cells):
        where = f"{path}[{place}]"
        if cell.id != place:
            yield f"{where}.id: {number_text(cell.id)} is not {place}; cells are numbered in order from 0"
        if not cell.vcpus:
            yield f"{where}.vcpus: empty"
        if strangers := (cell.vcpus & seen) | (cell.vcpus - everything):
            yield f"{where}.vcpus: {strangers} of other cells, or of no vCPU of this guest"
        if strangers := cell.pinned - cell.vcpus:
            yield f"{where}.pinned: {strangers} are no vCPUs of this cell"
        yield from _amount(f"{where}.memory_kib", cell.memory_kib, MOST_MEMORY_KIB)
        seen |= cell.vcpus
    if binding.cells and (missing := everything - seen):
        yield f"{path}: vCPUs {missing} are in none of them"
    if binding.cells and sum(cell.memory_kib for cell in binding.cells) != binding.memory_kib:
        yield f"{path}: their memory_kib is not, in sum, that of the guest"


def _cpu_faults(binding: InstanceRequest, path: str) -> Iterator[str]:
    pinned = binding.pinned
    if binding.cpu_policy == "dedicated" and pinned != CpuSet(range(binding.vcpus)):
        yield f"{path}.cpu_policy: dedicated, but not all vCPUs are pinned ones of a cell"
    if binding.cpu_policy == "mixed" and not pinned:
        yield f"{path}.cpu_policy: mixed, but no vCPUs are pinned ones of a cell"
    if binding.cpu_policy in {None, "shared"} and pinned:
        yield f"{path}.cpu_policy: vCPUs {pinned} are pinned ones of a cell, so dedicated or mixed is expected"
    if strangers := binding.realtime - pinned:
        yield f"{path}.realtime: vCPUs {strangers} are not pinned"
    if binding.emulator_policy == "isolate" and not pinned:
        yield f"{path}.emulator_policy: isolate needs pinned vCPUs"
    shape = binding.cpu_topology
    if shape is not None and (
        min(shape.sockets, shape.cores, shape.threads) < 1
        or shape.sockets * shape.cores * shape.threads != binding.vcpus
    ):
        yield f"{path}.cpu_topology: sockets * cores * threads is not the number of vCPUs, {binding.vcpus}"


def _device_faults(devices: tuple[PciRequest, ...], path: str) -> Iterator[str]:
    if len(devices) > MOST_DEVICE_REQUESTS:
        yield f"{path}: more than {MOST_DEVICE_REQUESTS}"
        return
    seen: set[str] = set()
    for place, asked in enumerate(devices):
        where = f"{path}[{place}]"
        if not asked.id or asked.id in seen:
            yield f"{where}.id: {'the same as of another request' if asked.id else 'empty'}"
        if not asked.specs:
            yield f"{where}.specs: empty, so no device would do"
        yield from _amount(f"{where}.count", asked.count, MOST_DEVICES)
        seen.add(asked.id)


def _amount(path: str, number: int, most: int) -> Iterator[str]:
    if not 1 <= number <= most:
        yield f"{path}: {number_text(number)} is not between 1 and {most}"
