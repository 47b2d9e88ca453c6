"""A case as our values, and our answer in nova's terms."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import msgspec

from agent.core.cpuset import CpuSet
from agent.core.fit import FitRules, NoFit, Offer, fit, host_facts, offer_of
from agent.core.guest import Sighting
from agent.core.holds import FLAVOR_POLICY
from agent.core.host_config import DeviceSpec, HostConfig, ReservedPages
from agent.core.instance import CellRequest, InstanceRequest
from agent.core.pci import PciAddress, PciDevice
from agent.core.pci_request import PciRequest, PciSpec
from agent.core.placement import CellPlacement, Placement
from agent.core.topology import Cpu, HostTopology
from agent.core.usage import fold
from tests.builders import KIB_PER_MIB, Node, guest, host
from tests.compat.fit_cases import Case, CaseDevice, CaseGuestCell, CaseRequest, CaseUsed


def ours(case: Case) -> Placement | NoFit:
    """What we say."""
    return fit(request_of(case), free_on(case), FitRules(pack=case.host.pack))


def free_on(case: Case) -> Offer:
    """What the host of the case has free, by our own bookkeeping."""
    topology, config = topology_of(case), config_of(case)
    folded = fold(topology, config, sightings_of(case))
    return offer_of(host_facts(topology, config), folded.usage)


def topology_of(case: Case) -> HostTopology:
    """The host as the kernel would show it."""
    nodes = {
        cell.id: Node(_text(cell.cpus), cell.memory_mib, {page.size_kib: page.total for page in cell.pages})
        for cell in case.host.cells
    }
    made = host(nodes, smt=[_text(group) for group in case.host.siblings], pci=[_device(one) for one in case.devices])
    sockets = {cell.id: cell.socket for cell in case.host.cells}
    cpus = tuple(_on_socket(cpu, sockets) for cpu in made.topology.cpus)
    return msgspec.structs.replace(made.topology, cpus=cpus)


def _on_socket(cpu: Cpu, sockets: dict[int, int | None]) -> Cpu:
    socket = None if cpu.cell is None else sockets[cpu.cell]
    # a cell whose CPUs are on two sockets: nova has none for it
    return msgspec.structs.replace(cpu, socket=cpu.id % 2 + 100 if socket is None else socket)


def config_of(case: Case) -> HostConfig:
    """The operator's options. nova leaves the reserved memory of the host to Placement, so there is none."""
    return HostConfig(
        dedicated=None if case.host.dedicated is None else CpuSet(case.host.dedicated),
        shared=None if case.host.shared is None else CpuSet(case.host.shared),
        reserved_memory_mb=0,
        reserved_pages=tuple(
            ReservedPages(cell=cell.id, size_kib=page.size_kib, count=page.reserved)
            for cell in case.host.cells
            for page in cell.pages
            if page.reserved
        ),
        cpu_allocation_ratio=case.host.cpu_ratio,
        ram_allocation_ratio=case.host.ram_ratio,
        device_spec=tuple(_spec(dict(spec)) for spec in case.offered),
    )


def _spec(said: dict[str, str | None]) -> DeviceSpec:
    live_migratable = said.pop("live_migratable", None)
    return DeviceSpec(
        vendor_id=said.pop("vendor_id", None),
        product_id=said.pop("product_id", None),
        live_migratable=None if live_migratable is None else live_migratable == "true",
        tags=MappingProxyType(said),
    )


def sightings_of(case: Case) -> list[Sighting]:
    """The guests that are there; one more has the devices that are taken."""
    shared = CpuSet(case.usable if not case.has_split else case.host.shared or ())
    cells = {cell.id: CpuSet(cell.cpus) & shared for cell in case.host.cells}
    guests = [_used(f"g{number}", one, cells[one.cell]) for number, one in enumerate(case.used)]
    taken = [device.address for device in case.devices if device.taken]
    return [*guests, guest("devices", state="shut-off", dev=taken)] if taken else guests


def _used(name: str, used: CaseUsed, shared: CpuSet) -> Sighting:
    return guest(
        name,
        dict(enumerate(used.pins)),
        vcpus=len(used.pins) + used.floating,
        cpuset=str(shared) if used.floating else None,
        emu=None if used.emulator is None else str(used.emulator),
        mem=used.memory_mib,
        node=used.cell,
        page=used.page_kib,
        facts={} if used.threads is None else {FLAVOR_POLICY: used.threads},
    )


def _device(device: CaseDevice) -> PciDevice:
    return PciDevice(
        address=PciAddress.parse(device.address),
        vendor_id=device.vendor_id,
        product_id=device.product_id,
        class_code="0200",
        cell=device.cell,
        type=device.type,
        parent=None if device.parent is None else PciAddress.parse(device.parent),
        serial="MT2113X00000" if device.serial else None,
    )


def request_of(case: Case) -> InstanceRequest:
    """What is asked for."""
    asked = case.guest
    cells = tuple(_cell(cell) for cell in asked.cells)
    return InstanceRequest(
        vcpus=sum(len(cell.vcpus) for cell in cells) or 1,
        memory_kib=sum(cell.memory_kib for cell in cells) or KIB_PER_MIB,
        cells=cells,
        cpu_policy=asked.policy,
        thread_policy=asked.threads,
        emulator_policy=asked.emulator,
        page_size=asked.page,
        devices=tuple(_request(request) for request in case.requests),
    )


def _cell(cell: CaseGuestCell) -> CellRequest:
    return CellRequest(
        id=cell.id,
        vcpus=CpuSet(cell.vcpus),
        pinned=CpuSet(cell.pinned),
        memory_kib=cell.memory_mib * KIB_PER_MIB,
    )


def _request(request: CaseRequest) -> PciRequest:
    specs = [dict(spec) for spec in request.specs]
    live = {spec.pop("live_migratable", None) for spec in specs}
    return PciRequest(
        id=request.id,
        specs=tuple(_pci_spec(spec) for spec in specs),
        count=request.count,
        numa_policy=request.policy,
        policy_source="alias",
        alias="alias",
        live_migratable=None if live == {None} else live == {"true"},
    )


def _pci_spec(said: dict[str, Any]) -> PciSpec:
    return PciSpec(
        vendor_id=said.pop("vendor_id", None),
        product_id=said.pop("product_id", None),
        device_type=said.pop("dev_type", None),
        tags=MappingProxyType(said),
    )


def in_novas_terms(case: Case, placement: Placement) -> dict[str, Any]:
    """For nova's books."""
    given = {one.request: sorted(map(str, one.devices)) for one in placement.devices}
    return {
        "cells": [_told(cell, placement) for cell in placement.cells],
        "devices": [given[request.id] for request in case.requests],
    }


def _told(cell: CellPlacement, placement: Placement) -> dict[str, Any]:
    own = placement.emulator_own
    return {
        "id": cell.host_cell,
        "pins": sorted([vcpu, cpu] for vcpu, cpu in cell.pins.items()),
        "page_kib": cell.page_size_kib,
        "reserved": [own] if own is not None and cell is placement.cells[0] else [],
    }


def _text(cpus: tuple[int, ...]) -> str:
    return str(CpuSet(cpus))
