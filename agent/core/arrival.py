"""What would be seen of a guest that had come as it was placed."""

from __future__ import annotations

from types import MappingProxyType

from agent.core.cpuset import CpuSet
from agent.core.guest import GuestCell, GuestDevice, ObservedDomain, Pin, Sighting
from agent.core.holds import FLAVOR_POLICY
from agent.core.instance import Instance, InstanceRequest
from agent.core.placement import CellPlacement, Placement


def keeps_siblings_idle(placement: Placement, binding: InstanceRequest | None = None) -> bool:
    """Its thread policy is isolate: what was asked for says so, or else the siblings that it keeps idle now."""
    if binding is not None and binding.thread_policy == "isolate":
        return True
    return any(cell.idle_cpus for cell in placement.cells)


def arrived(instance: Instance, placement: Placement, binding: InstanceRequest | None = None) -> Sighting:
    """What would be seen of it. It holds exactly what was placed. binding: what was asked for, where that is known."""
    domain = _domain(instance, placement, is_isolated=keeps_siblings_idle(placement, binding))
    return Sighting(uuid=instance.uuid, name=instance.name, state="running", begun_at=0.0, domain=domain)


def _domain(instance: Instance, placement: Placement, *, is_isolated: bool) -> ObservedDomain:
    cells = placement.cells
    shared = CpuSet(cpu for cell in cells for cpu in cell.shared_cpus) | placement.shared_cpus
    return ObservedDomain(
        uuid=instance.uuid,
        name=instance.name,
        maker="unknown",
        vcpus=placement.vcpus,
        vcpus_online=CpuSet(range(placement.vcpus)),
        memory_kib=placement.memory_kib,
        cpuset=shared or None,
        vcpu_pins=tuple(pin for cell in cells for pin in _pins(cell)),
        emulator_pin=placement.emulator_cpus or None,
        cells=tuple(_cell(cell) for cell in cells),
        devices=tuple(
            GuestDevice(kind="pci", source="hostdev", address=address)
            for given in placement.devices
            for address in given.devices
        ),
        facts=MappingProxyType({FLAVOR_POLICY: "isolate"} if is_isolated else {}),
    )


def _pins(cell: CellPlacement) -> list[Pin]:
    pinned = [Pin(thread=vcpu, cpus=CpuSet((cpu,))) for vcpu, cpu in cell.pins.items()]
    return pinned + [Pin(thread=vcpu, cpus=cell.shared_cpus) for vcpu in cell.vcpus if vcpu not in cell.pins]


def _cell(cell: CellPlacement) -> GuestCell:
    return GuestCell(
        id=cell.guest_cell,
        vcpus=cell.vcpus,
        memory_kib=cell.memory_kib,
        mode="strict",
        nodeset=CpuSet((cell.host_cell,)),
        page_size_kib=cell.page_size_kib,
    )
