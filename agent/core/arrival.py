"""A guest that was only thought of, as it would be seen had it come: so that the books count it like any other."""

from __future__ import annotations

from types import MappingProxyType

import msgspec

from agent.core.cpuset import CpuSet
from agent.core.guest import GuestCell, GuestDevice, ObservedDomain, Pin, Sighting
from agent.core.holds import FLAVOR_POLICY
from agent.core.instance import Instance
from agent.core.placement import CellPlacement, Placement
from agent.core.snapshot import Snapshot, configured
from agent.core.topology import HostTopology


def with_guest(snapshot: Snapshot, instance: Instance, placement: Placement) -> Snapshot:
    """The same picture with the guest running as placed; epoch and generation stay those of the picture."""
    seen = arrived(instance, placement)
    known = MappingProxyType({**snapshot.ledger.sightings, seen.uuid: seen})
    ledger = msgspec.structs.replace(snapshot.ledger, sightings=known)
    topology = _less_pages(snapshot.topology, placement)
    after = configured(msgspec.structs.replace(snapshot, ledger=ledger, topology=topology), snapshot.config)
    return msgspec.structs.replace(after, generation=snapshot.generation)


def _less_pages(topology: HostTopology, placement: Placement) -> HostTopology:
    """The host as the kernel would show it: pages of others count beside the guest's, not as the guest's."""
    given: dict[tuple[int, int], int] = {}
    for cell in placement.cells:
        key = (cell.host_cell, cell.page_size_kib)
        given[key] = given.get(key, 0) + cell.memory_kib // cell.page_size_kib
    cells = tuple(
        msgspec.structs.replace(
            cell,
            pages=tuple(
                msgspec.structs.replace(pool, free=pool.free - given.get((cell.id, pool.size_kib), 0))
                for pool in cell.pages
            ),
        )
        for cell in topology.cells
    )
    return msgspec.structs.replace(topology, cells=cells)


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
