"""Guests to come, as flavors, images and ports can ask for them; and whole cases of a host and a guest."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import strategies as st

from agent.core.cpuset import CpuSet
from agent.core.fit.rules import FitRules
from agent.core.instance import CellRequest, CpuPolicy, EmulatorPolicy, InstanceRequest, PageWord, ThreadPolicy
from agent.core.pci import DeviceType
from agent.core.pci_request import PciNumaPolicy, PciRequest, PciSpec
from tests.fit.hosts import UNIT_KIB, Host, Pick, T, Tags, Theme, any_host, tagged

THEMES = (
    Theme(),
    Theme(cpus=False),
    Theme(memory=False, devices=False),
    Theme(cpus=False, memory=False),
    Theme(is_thin=True),
    Theme(cpus=False, is_thin=True),
    Theme(cpus=False, devices=False, is_thin=True),
)
CPU_POLICIES: tuple[CpuPolicy | None, ...] = (None, "shared", "dedicated", "dedicated", "dedicated", "mixed")
THREAD_POLICIES: tuple[ThreadPolicy | None, ...] = (None, "prefer", "require", "isolate")
EMULATOR_POLICIES: tuple[EmulatorPolicy | None, ...] = (None, None, "isolate", "share")
PAGES: tuple[int | PageWord | None, ...] = (None, None, "small", "large", "any", 4, 2048, 1048576)
NUMA_POLICIES: tuple[PciNumaPolicy, ...] = ("required", "socket", "preferred", "legacy")
DEVICE_TYPES: tuple[DeviceType | None, ...] = (None, None, None, "type-PCI", "type-VF", "type-VF", "type-PF", "vdpa")

SOME_TAGS: tuple[Tags, ...] = ({"physical_network": "net1"}, {"physical_network": None}, {"remote_managed": "True"})
TAGS: tuple[Tags, ...] = (*(Tags() for _ in range(12)), *SOME_TAGS)


class Case(NamedTuple):
    """A host, a guest that wants to come, and how the operator wants guests placed."""

    host: Host
    request: InstanceRequest
    how: FitRules


def any_case(pick: Pick, most_cells: int = 3) -> Case:
    """A host and a guest that has rarely more cells than it."""
    theme = pick(THEMES)
    host = any_host(pick, theme, most_cells)
    most = min(most_cells, len(host.topology.cells) + pick((0, 0, 0, 0 if theme.is_thin else 1)))
    how = FitRules(pack=pick((False, True)), share_cells=pick((False, False, False, True)))
    return Case(host, any_guest(pick, theme, most), how)


@st.composite
def cases(draw: st.DrawFn, most_cells: int = 3) -> Case:
    """Cases that hypothesis draws and makes smaller."""

    def pick(options: Sequence[T], /) -> T:
        return options[draw(st.integers(0, len(options) - 1))]

    return any_case(pick, most_cells)


def seeded(seed: int, most_cells: int = 3) -> Case:
    """The case of a number; ten times faster than one that hypothesis draws."""
    return any_case(random.Random(seed).choice, most_cells)


def any_guest(pick: Pick, theme: Theme, most_cells: int) -> InstanceRequest:
    """With and without cells; masks, threads and emulator only where the CPU policy has them."""
    devices = _devices(pick, theme) if theme.devices else ()
    count = pick((most_cells,) if theme.is_thin else (0, *range(1, most_cells + 1), most_cells))
    if not count:
        return InstanceRequest(vcpus=pick((1, 2, 6)), memory_kib=pick((1, 3, 9)) * UNIT_KIB, devices=devices)
    policy = pick(("dedicated", None) if theme.is_thin else CPU_POLICIES)
    sizes = [pick((1, 1, 2, 2, 3, 4) if theme.cpus else (1,)) for _ in range(count)]
    starts = list(itertools.accumulate(sizes, initial=0))
    every = CpuSet(range(starts[-1]))
    pinned = _pinned(pick, policy, every)
    kib = [pick((1, 1, 2, 2, 4) if theme.memory else (1,)) * UNIT_KIB for _ in range(count)]
    vcpus = [CpuSet(range(start, start + size)) for start, size in zip(starts, sizes, strict=False)]
    return InstanceRequest(
        vcpus=len(every),
        memory_kib=sum(kib),
        cells=tuple(
            CellRequest(id=n, vcpus=mine, memory_kib=memory, pinned=mine & pinned)
            for n, (mine, memory) in enumerate(zip(vcpus, kib, strict=True))
        ),
        cpu_policy=policy,
        thread_policy=pick(THREAD_POLICIES) if pinned and theme.cpus else None,
        emulator_policy=pick(EMULATOR_POLICIES) if pinned and theme.cpus else None,
        realtime=pick((CpuSet(), CpuSet(), CpuSet([0]), every)) & pinned,
        page_size=pick(("any",) if theme.is_thin else PAGES) if theme.memory else None,
        devices=devices,
    )


def _pinned(pick: Pick, policy: CpuPolicy | None, every: CpuSet) -> CpuSet:
    if policy == "mixed":
        # at least one of each kind where there are two
        return CpuSet([vcpu for vcpu in every if pick((False, True))][: max(len(every) - 1, 1)] or [every.lowest])
    return every if policy == "dedicated" else CpuSet()


def _devices(pick: Pick, theme: Theme) -> tuple[PciRequest, ...]:
    """Requests whose kinds of devices overlap; any devices where they are not what decides."""
    is_picky = not theme.is_thin
    return tuple(
        PciRequest(
            id=f"request-{n}",
            specs=tuple(_spec(pick) for _ in range(pick((1, 1, 2)))) if is_picky else (PciSpec(vendor_id="8086"),),
            count=pick((1, 1, 2)),
            numa_policy=pick(NUMA_POLICIES),
            live_migratable=pick((None,) * 14 + (True, False)) if is_picky else None,
            parent_ifname=pick((None,) * 15 + ("eth0",)) if is_picky else None,
        )
        for n in range(pick((0, 1, 1, 2, 3) if is_picky else (0, 1)))
    )


def _spec(pick: Pick) -> PciSpec:
    return PciSpec(
        vendor_id=pick((None, "8086")),
        product_id=pick((None, None, None, "10fb", "10ed")),
        device_type=pick(DEVICE_TYPES),
        tags=tagged(pick(TAGS)),
        resource_class=pick((None,) * 15 + ("CUSTOM_NIC",)),
        traits=pick(((),) * 15 + (("CUSTOM_FAST",),)),
    )
