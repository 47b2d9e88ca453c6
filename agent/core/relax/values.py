"""Changes that would make a guest fit that does not: one value for each kind. `core/relax/text` has the words.

They are told only when the fit was run with them and said yes (`core/relax/search`), and never for a claim.
"""

from __future__ import annotations

from typing import Literal

from agent.core.cpuset import CpuSet
from agent.core.instance import CpuPolicy, EmulatorPolicy, PageWord, ThreadPolicy
from agent.core.pci_request import PciNumaPolicy, PolicySource
from agent.core.values import Value


class CellShortfall(Value, frozen=True, kw_only=True):
    """What a host cell would have to have free beside what it has. cpus: dedicated CPUs that others have now, the
    fewest that help; floating: vCPUs; pages: of page_size_kib."""

    cell: int
    cpus: CpuSet = CpuSet()
    floating: int = 0
    memory_kib: int = 0
    pages: int = 0
    page_size_kib: int | None = None


class MoreFree(Value, frozen=True, kw_only=True, tag="more-free"):
    """It would fit if others gave this back. cells: by id. floating, memory_kib: in any cell, beside what the cells
    have to get."""

    cells: tuple[CellShortfall, ...] = ()
    floating: int = 0
    memory_kib: int = 0


class OtherDevicePolicy(Value, frozen=True, kw_only=True, tag="other-device-policy"):
    """It would fit if these requests had that policy. sources: where each has the one that it has now."""

    requests: tuple[str, ...]
    policy: PciNumaPolicy
    sources: tuple[PolicySource, ...]


class OtherCpuPolicy(Value, frozen=True, kw_only=True, tag="other-cpu-policy"):
    """It would fit with that policy for all vCPUs, in one cell where it has none. was: the policy that it has now."""

    policy: Literal["dedicated"]
    was: CpuPolicy | None


class OtherThreadPolicy(Value, frozen=True, kw_only=True, tag="other-thread-policy"):
    """It would fit with that thread policy of the CPUs."""

    policy: ThreadPolicy


class OtherEmulatorPolicy(Value, frozen=True, kw_only=True, tag="other-emulator-policy"):
    """It would fit with that policy for the emulator's threads; None: beside the vCPUs, nothing said."""

    policy: EmulatorPolicy | None


class OtherPageSize(Value, frozen=True, kw_only=True, tag="other-page-size"):
    """It would fit with pages of that size, in KiB or as a word."""

    page_size: int | PageWord


class OtherCells(Value, frozen=True, kw_only=True, tag="other-cells"):
    """It would fit with so many cells, vCPUs and memory spread evenly over them (hw:numa_nodes)."""

    count: int


class FewerVcpus(Value, frozen=True, kw_only=True, tag="fewer-vcpus"):
    """It would fit with so many vCPUs, the most that were found to do; of each cell as many are left out, and its
    memory stays."""

    vcpus: int


class LessMemory(Value, frozen=True, kw_only=True, tag="less-memory"):
    """It would fit with so much memory, spread as it is: the most that was found by halving, at least half of it."""

    memory_kib: int


class FewerDevices(Value, frozen=True, kw_only=True, tag="fewer-devices"):
    """It would fit if that request asked for so many devices, the most that do; 0: without them."""

    request: str
    count: int


class ShareCells(Value, frozen=True, kw_only=True, tag="share-cells"):
    """It would fit if several of its cells might go to one host cell, which is a matter of the configuration."""


class Leaving(Value, frozen=True, kw_only=True):
    """A guest that would have to go. cells: host cells in which it holds something."""

    uuid: str
    name: str
    cells: CpuSet = CpuSet()

    @property
    def label(self) -> str:
        """Its name, or its uuid where the name shows nothing."""
        return self.name if self.name.strip() else self.uuid


class GuestsLeave(Value, frozen=True, kw_only=True, tag="guests-leave"):
    """It would fit if these guests were not here, and no fewer of them would do."""

    guests: tuple[Leaving, ...]


class MaintenanceEnds(Value, frozen=True, kw_only=True, tag="maintenance-ends"):
    """It would fit if the host took new guests again."""


Relaxation = (
    MoreFree
    | OtherDevicePolicy
    | OtherCpuPolicy
    | OtherThreadPolicy
    | OtherEmulatorPolicy
    | OtherPageSize
    | OtherCells
    | ShareCells
    | FewerDevices
    | FewerVcpus
    | LessMemory
    | GuestsLeave
    | MaintenanceEnds
)


class Relaxations(Value, frozen=True, kw_only=True):
    """found: the smallest first. untried: changes that were not looked at, since the bound on tries was met; mostly
    that one of many guests left."""

    found: tuple[Relaxation, ...] = ()
    untried: int = 0
