"""Where the configuration names what the host does not have now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import MappingProxyType

from agent.core.cpuset import CpuSet
from agent.core.guest import Sighting
from agent.core.host_config import AcceptRule, HostConfig
from agent.core.topology import HostTopology
from agent.core.values import Problem
from agent.core.words import plural


def misfits(topology: HostTopology, config: HostConfig) -> tuple[Problem, ...]:
    """One row for each option that names CPUs or pools that guests cannot use now; none before the host was seen."""
    return (*_cpu_sets(topology, config), *_pools(topology, config)) if topology.cpus else ()


def rules_without_guest(config: HostConfig, guests: Iterable[Sighting]) -> tuple[AcceptRule, ...]:
    """Rules of what is accepted that name none of the guests; no fault, as one file may serve many hosts."""
    here = {"*"}.union(*((one.name, one.uuid) for one in guests)) if config.accept else set()
    return tuple(rule for rule in config.accept if rule.guest not in here)


def _cpu_sets(topology: HostTopology, config: HostConfig) -> Iterator[Problem]:
    for name, cpus in (("cpu_dedicated_set", config.dedicated), ("cpu_shared_set", config.shared)):
        missing = (cpus or CpuSet()) - topology.usable
        if missing:
            yield Problem(
                source="configuration",
                what=f"[compute] {name} names {plural(missing)}, not usable on this host, left out until that changes",
                values=MappingProxyType({"configured": str(cpus), "usable": str(topology.usable)}),
            )


def _pools(topology: HostTopology, config: HostConfig) -> Iterator[Problem]:
    pools = {(cell.id, pool.size_kib) for cell in topology.cells for pool in cell.pages}
    pools |= {(cell.id, topology.page_size_kib) for cell in topology.cells}
    for row in config.reserved_pages:
        if (row.cell, row.size_kib) not in pools:
            yield Problem(
                source="configuration",
                what=f"reserved_huge_pages names pages of {row.size_kib} KiB of cell {row.cell}, which has none",
                values=MappingProxyType({"configured": str(row.count)}),
            )
