"""What a host shows once a guest has come as its placement says."""

from __future__ import annotations

from types import MappingProxyType

import msgspec

from agent.core.cpuset import CpuSet
from agent.core.guest import GuestCell, GuestDevice, ObservedDomain, Pin, Sighting
from agent.core.instance import InstanceRequest
from agent.core.placement import CellPlacement, Placement
from agent.core.topology import HostCell, HostTopology, PagePool
from tests.builders import CONNECTION, uuid_of


def domain_of(name: str, placement: Placement, request: InstanceRequest, *, small_kib: int = 4) -> ObservedDomain:
    """The guest as nova would define it on this placement and libvirt show it."""
    pins = {vcpu: CpuSet([cpu]) for cell in placement.cells for vcpu, cpu in cell.pins.items()}
    floating = {vcpu: cell.shared_cpus for cell in placement.cells for vcpu in cell.vcpus if vcpu not in pins}
    policy = {"extra:hw:cpu_thread_policy": request.thread_policy} if request.thread_policy else {}
    return ObservedDomain(
        uuid=uuid_of(name),
        name=name,
        maker="nova",
        vcpus=placement.vcpus,
        vcpus_online=CpuSet(range(placement.vcpus)),
        memory_kib=placement.memory_kib,
        cpuset=placement.shared_cpus or None,
        vcpu_pins=tuple(Pin(thread=vcpu, cpus=cpus) for vcpu, cpus in sorted((pins | floating).items())),
        emulator_pin=placement.emulator_cpus or None,
        mode="strict" if placement.cells else None,
        nodeset=CpuSet(cell.host_cell for cell in placement.cells),
        cells=tuple(_guest_cell(cell, small_kib) for cell in placement.cells),
        memory_locked=request.memory_locked,
        devices=tuple(
            GuestDevice(kind="pci", source="hostdev", address=address, managed=True)
            for given in placement.devices
            for address in given.devices
        ),
        facts=MappingProxyType(policy),
    )


def guest_of(
    name: str, placement: Placement, request: InstanceRequest, *, small_kib: int = 4, at: float = 1.0
) -> Sighting:
    """The running guest as it was seen at `at`."""
    domain = domain_of(name, placement, request, small_kib=small_kib)
    return Sighting(
        uuid=domain.uuid,
        name=name,
        state="running",
        begun_at=at,
        connection=CONNECTION,
        persistent=True,
        domain=domain,
    )


def topology_with(topology: HostTopology, placement: Placement) -> HostTopology:
    """The host whose kernel has given the guest its huge pages."""
    cells = tuple(_cell_with(cell, placement.cells) for cell in topology.cells)
    return msgspec.structs.replace(topology, cells=cells)


def _guest_cell(cell: CellPlacement, small_kib: int) -> GuestCell:
    return GuestCell(
        id=cell.guest_cell,
        vcpus=cell.vcpus,
        memory_kib=cell.memory_kib,
        mode="strict",
        nodeset=CpuSet([cell.host_cell]),
        page_size_kib=None if cell.page_size_kib == small_kib else cell.page_size_kib,
    )


def _cell_with(cell: HostCell, placed: tuple[CellPlacement, ...]) -> HostCell:
    pools = []
    for pool in cell.pages:
        mine = [one for one in placed if one.host_cell == cell.id and one.page_size_kib == pool.size_kib]
        pools.append(_pool_with(pool, sum(one.memory_kib // pool.size_kib for one in mine)))
    return msgspec.structs.replace(cell, pages=tuple(pools))


def _pool_with(pool: PagePool, pages: int) -> PagePool:
    return msgspec.structs.replace(pool, free=pool.free - pages)
