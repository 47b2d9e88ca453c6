"""What each CPU of a host is to its guests, as one letter."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from agent.core.conflicts import Conflict
from agent.core.cpuset import CpuSet
from agent.core.topology import Cpu, HostTopology
from agent.core.usage import Usage
from agent.core.values import ReadOnlyMap


class CpuState(enum.Enum):
    """letter, what it means; in the order in which a CPU that is several of them is shown as the first."""

    CONFLICT = ("C", "conflict: see `agentctl conflicts`")
    OFFLINE = ("x", "offline")
    UNKNOWN = ("?", "could not be read")
    PINNED = ("P", "pinned by a guest")
    PROMISED = ("p", "promised to a guest that does not use it yet")
    WITHHELD = ("w", "withheld from guests by a cpuset")
    ISOLATED = ("i", "isolated by the kernel, held by no guest")
    FREE = (".", "free for pinned guests")
    SHARED = ("s", "shared by floating guests")
    HOST = ("h", "left to the host")

    @property
    def letter(self) -> str:
        """The one character of the map."""
        return self.value[0]

    @property
    def meaning(self) -> str:
        """What the legend says."""
        return self.value[1]


class CpuBooks:
    """Sets of CPUs to look a CPU's state up in, built once for a map."""

    def __init__(self, usage: Usage, conflicts: Iterable[Conflict]) -> None:
        held = CpuSet(holder.cpu for holder in usage.holders)
        self.promised = CpuSet(row.cpu for row in usage.holders if all(owner.type == "claim" for owner in row.owners))
        self.pinned = held - self.promised
        self.dedicated = usage.host.dedicated.total
        self.shared = usage.host.shared_cpus
        self.conflicting = conflicting_cpus(conflicts)

    def state(self, cpu: Cpu) -> CpuState:
        """The one state that matters most."""
        facts = (
            (CpuState.CONFLICT, cpu.id in self.conflicting),
            (CpuState.OFFLINE, cpu.online is False),
            (CpuState.UNKNOWN, cpu.online is None),
            (CpuState.PINNED, cpu.id in self.pinned),
            (CpuState.PROMISED, cpu.id in self.promised),
            (CpuState.WITHHELD, not cpu.allowed),
            (CpuState.ISOLATED, cpu.isolated),
            (CpuState.FREE, cpu.id in self.dedicated),
            (CpuState.SHARED, cpu.id in self.shared),
        )
        return next((state for state, holds in facts if holds), CpuState.HOST)


def conflicting_cpus(conflicts: Iterable[Conflict]) -> CpuSet:
    """CPUs that a conflict is about, those aside that the configuration accepts."""
    return CpuSet(
        int(row.resource.id)
        for row in conflicts
        if row.resource.kind == "cpu" and not row.accepted and row.resource.id.isdecimal()
    )


def cpu_states(topology: HostTopology, usage: Usage, conflicts: Iterable[Conflict]) -> ReadOnlyMap[int, CpuState]:
    """State by CPU number, for every CPU of the topology."""
    books = CpuBooks(usage, conflicts)
    return MappingProxyType({cpu.id: books.state(cpu) for cpu in topology.cpus})


def by_state(states: Mapping[int, CpuState]) -> tuple[tuple[CpuState, CpuSet], ...]:
    """Each state that occurs and its CPUs, in the order of CpuState."""
    sets = {state: CpuSet(cpu for cpu, its in states.items() if its is state) for state in CpuState}
    return tuple((state, cpus) for state, cpus in sets.items() if cpus)
