"""What a host offers, counted again from its topology, configuration and guests without the books."""

from __future__ import annotations

from collections.abc import Iterator

from agent.core.cpuset import CpuSet
from agent.core.fit.host import CellOffer
from agent.core.guest import ObservedDomain
from agent.core.topology import HostCell
from tests.fit.guests import seeded
from tests.fit.hosts import Host
from tests.fit.rules import REMOTE, members, offered
from tests.fit.test_fit_properties import SEEDS


def domains(host: Host) -> list[ObservedDomain]:
    """Of the guests that could be read."""
    return [guest.domain for guest in host.guests if guest.domain is not None]


def cpu_sets(host: Host) -> tuple[CpuSet, CpuSet]:
    """CPUs for pinned and for floating guests that can be used now."""
    config, usable = host.config, host.topology.usable
    if config.dedicated is None and config.shared is None:
        return usable, usable
    return (config.dedicated or CpuSet()) & usable, (config.shared or CpuSet()) & usable


def taken(host: Host) -> CpuSet:
    """CPUs of pinned vCPUs, and of the cores of guests that isolate theirs."""
    siblings = {cpu.id: cpu.siblings for cpu in host.topology.cpus}
    dedicated, shared = cpu_sets(host)
    # A vCPU on the single shared CPU of a cell floats.
    floating = [only for cell in host.topology.cells if len(only := (shared - dedicated) & cell.cpus) == 1]
    found = CpuSet()
    for domain in domains(host):
        for pin in (pin for pin in domain.vcpu_pins if pin.cpus not in floating):
            found |= pin.cpus
            if "isolate" in domain.facts.values():
                found |= siblings[pin.cpus.lowest]
    return found


def cell_differences(host: Host, cell: HostCell, said: CellOffer) -> Iterator[str]:
    dedicated, shared = (part & cell.cpus for part in cpu_sets(host))
    sockets = {cpu.socket for cpu in host.topology.cpus if cpu.id in cell.cpus}
    cores = {cpu.siblings & (dedicated | shared) for cpu in host.topology.cpus if cpu.id in dedicated | shared}
    pools = sum(pool.total * pool.size_kib for pool in cell.pages)
    counted = {
        "dedicated": (members(said.facts.dedicated), frozenset(dedicated)),
        "shared": (members(said.facts.shared), frozenset(shared)),
        "free": (members(said.free_cpus), frozenset(dedicated - taken(host))),
        "socket": (said.facts.socket, min(sockets, key=str) if len(sockets) == 1 else None),
        "cores": (
            {members(core.members) for core in said.facts.cores},
            {frozenset(core) for core in cores if core & dedicated},
        ),
        "threads": (said.facts.threads, max(map(len, cores), default=1)),
        "memory_total": (said.total_kib, cell.memory_kib - pools),
        "allowed": (said.facts.allowed, cell.allowed),
        "has_cpus": (said.facts.has_cpus, bool(cell.cpus)),
    }
    for name, (found, expected) in counted.items():
        if found != expected:
            yield f"cell {cell.id} {name} is {found}, counted {expected}"


def device_differences(host: Host) -> Iterator[str]:
    held = {device.address for domain in domains(host) for device in domain.devices}
    offer = host.offer()
    for device in host.topology.pci:
        family = {one.address for one in host.topology.pci if device.address == one.parent}
        family |= {device.address} | ({device.parent} if device.parent is not None else set())
        # A remote-managed function is a virtual one, told to its manager by the serial number of its card.
        is_offered = any(
            spec.matches(device)
            and (REMOTE not in spec.tags or (device.serial is not None and device.type != "type-PF"))
            for spec in host.config.device_spec
        )
        expected = is_offered and not family & held
        number = offer.facts.devices.number[device.address]
        if (number in offered(offer) and bool(offer.free_devices >> number & 1)) != expected:
            yield f"{device.address} is free: {not expected}"


def test_what_a_host_offers_is_what_can_be_counted_on_it() -> None:
    found: dict[int, list[str]] = {}
    for seed in SEEDS:
        host = seeded(seed).host
        cells = zip(host.topology.cells, host.offer().cells, strict=True)
        found[seed] = [wrong for cell, said in cells for wrong in cell_differences(host, cell, said)]
        found[seed] += device_differences(host)
    assert {seed: wrong for seed, wrong in found.items() if wrong} == {}
