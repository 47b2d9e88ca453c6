"""Flavor, image and ports to what must be found on a host, or to every contradiction in them."""

from __future__ import annotations

from agent.core.flavor.cells import Size, cell_count, cells, explicit_cells, without_cells
from agent.core.flavor.cpu_topology import cpu_topology
from agent.core.flavor.cpus import CpuPolicies, cpu_policies
from agent.core.flavor.devices import devices
from agent.core.flavor.group import note_group
from agent.core.flavor.known_properties import note_others, unknown
from agent.core.flavor.memory import memory_locked, page_size
from agent.core.flavor.reading import UNREAD, Reading, Unread
from agent.core.host_config import HostConfig
from agent.core.instance import (
    MOST_MEMORY_MB,
    MOST_VCPUS,
    CellRequest,
    Flavor,
    InstanceRequest,
    PageWord,
    RequestSpec,
)
from agent.core.request_faults import FaultKind, Faults, Property, Requested, RequestFault

__all__ = ["FaultKind", "Faults", "Property", "RequestFault", "Requested", "request_of"]


def request_of(spec: RequestSpec, config: HostConfig) -> Requested | Faults:
    """What the guest needs of a host, by nova's rules; or all faults that do not follow from another. Never raises.

    config: for the aliases of devices, and whether there are shared CPUs for the emulator of a realtime guest.
    """
    reading = Reading(spec)
    vcpus, memory_mb = _vcpus(reading, spec.flavor), _memory_mb(reading, spec.flavor)
    policies = cpu_policies(reading, vcpus, config)
    pages = page_size(reading)
    locked = memory_locked(reading, is_realtime=policies.is_realtime)
    parted = _cells(reading, vcpus, memory_mb, policies, pages)
    topology = cpu_topology(reading, vcpus)
    given = devices(reading, spec.ports, config.alias)
    strange = unknown(reading)
    if reading.faults or vcpus is UNREAD or memory_mb is UNREAD:
        return Faults(faults=tuple(reading.faults))
    note_others(reading)
    note_group(reading, spec.group)
    request = InstanceRequest(
        vcpus=vcpus,
        memory_kib=memory_mb * 1024,
        cells=parted,
        cpu_policy=policies.policy,
        thread_policy=policies.thread_policy,
        emulator_policy=policies.emulator_policy,
        realtime=policies.realtime,
        page_size=pages if pages is not UNREAD else None,
        memory_locked=locked,
        cpu_topology=topology,
        devices=given,
    )
    return Requested(request=request, unknown=strange, notes=tuple(reading.notes))


def _vcpus(reading: Reading, flavor: Flavor) -> int | Unread:
    if 1 <= flavor.vcpus <= MOST_VCPUS:
        return flavor.vcpus
    said = _number("vcpus", flavor.vcpus)
    return reading.refuse(
        "vcpus-range",
        said,
        found=f"{said} is not between 1 and {MOST_VCPUS}.",
        change="Set the flavor's vcpus to the number of CPUs of the guest.",
    )


def _memory_mb(reading: Reading, flavor: Flavor) -> int | Unread:
    if 1 <= flavor.memory_mb <= MOST_MEMORY_MB:
        return flavor.memory_mb
    said = _number("memory_mb", flavor.memory_mb)
    return reading.refuse(
        "memory-range",
        said,
        found=f"{said} is not between 1 and {MOST_MEMORY_MB} MiB.",
        change="Set the flavor's memory_mb to the MiB of the guest.",
    )


def _number(name: str, value: int) -> Property:
    # Python refuses to write an int of thousands of digits
    text = str(value) if value.bit_length() < 64 else f"{'-' if value < 0 else ''}2**{value.bit_length() - 1}"
    return Property(name=name, value=text, where="flavor")


def _cells(
    reading: Reading,
    vcpus: int | Unread,
    memory_mb: int | Unread,
    policies: CpuPolicies,
    pages: int | PageWord | Unread | None,
) -> tuple[CellRequest, ...]:
    """A guest has cells when it asks for them, for a page size or persistent memory, or when it has pins."""
    number, explicit = cell_count(reading), explicit_cells(reading)
    pins = policies.policy in {"dedicated", "mixed"}
    wanted = number is not None or pages is not None or pins or reading.flavor("pmem") is not None
    if not wanted:
        without_cells(reading, explicit)
        return ()
    if vcpus is UNREAD or memory_mb is UNREAD or number is UNREAD:
        return ()
    return cells(reading, Size(vcpus=vcpus, memory_mb=memory_mb), explicit, number, policies.pinned)
