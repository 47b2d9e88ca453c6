"""What would be seen of a guest that had come as it was placed."""

from __future__ import annotations

from types import MappingProxyType

from agent.core.cpuset import CpuSet
from agent.core.guest import GuestCell, GuestDevice, ObservedDomain, Pin, Sighting
from agent.core.holds import FLAVOR_POLICY
from agent.core.instance import Instance
from agent.core.placement import CellPlacement, Placement


def arrived(instance: Instance, placement: Placement) -> Sighting:
    """What would be seen of it. It holds exactly what was placed."""
    return Sighting(
        uuid=instance.uuid, name=instance.name, state="running", begun_at=0.0, domain=_domain(instance, placement)
    )


def _domain(instance: Instance, placement: Placement) -> ObservedDomain:
    cells = placement.cells
    shared = CpuSet(cpu for cell in cells for cpu in cell.shared_cpus) | placement.shared_cpus
    is_isolated = any(cell.idle_cpus for cell in cells)
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
