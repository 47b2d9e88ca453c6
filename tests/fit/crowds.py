"""Small hosts that just have room for several cells of one guest on one host cell, or just have not."""

from __future__ import annotations

import itertools
import random

from agent.core.cpuset import CpuSet
from agent.core.fit.rules import FitRules
from agent.core.instance import CellRequest, CpuPolicy, InstanceRequest, PageWord, ThreadPolicy
from agent.core.pci import PciDevice
from agent.core.pci_request import PciRequest
from tests import builders
from tests.builders import Node, configured, function, guest
from tests.fit.guests import Case
from tests.fit.hosts import UNIT_KIB, Host, Pick
from tests.fit.requests import wants

UNIT_MIB = UNIT_KIB // 1024
POLICIES: tuple[ThreadPolicy, ...] = ("require", "require", "isolate", "prefer")
PAGES: tuple[int | PageWord | None, ...] = (None, None, "large", "any", "any", 2048)
CPU_POLICIES: tuple[CpuPolicy, ...] = ("dedicated", "dedicated", "mixed")
OTHERS: tuple[CpuPolicy | None, ...] = ("dedicated", None)
SHARING = FitRules(share_cells=True)


def crowded(seed: int) -> Case:
    """The case of a number: one to three host cells, two to four guest cells that may be together."""
    pick: Pick = random.Random(seed).choice
    host_cells = pick((1, 1, 2, 2, 3))
    scarce = pick(("cpus", "cpus", "memory", "devices"))
    made = _host(pick, host_cells, scarce)
    taken = [cpu for cpu in made.topology.online if pick((True, False, False, False))] if scarce == "cpus" else []
    guests = [guest("r1", dict(enumerate(taken[:3])), mem=64)] if taken else []
    return Case(Host(made.topology, made.config, tuple(guests)), _guest(pick, host_cells, scarce), SHARING)


def _host(pick: Pick, host_cells: int, scarce: str) -> builders.Host:
    nodes: dict[int, Node] = {}
    siblings: list[str] = []
    first = 0
    most = {1: 9, 2: 7, 3: 4}[host_cells] if scarce == "cpus" else 4
    for number in range(host_cells):
        cores = _cores(pick, first, most) if scarce == "cpus" else [(first + n,) for n in range(most)]
        siblings += [",".join(map(str, core)) for core in cores]
        last = cores[-1][-1]
        nodes[number] = _node(pick, f"{first}-{last}", scarce)
        first = last + 1
    every = CpuSet(range(first))
    shared = CpuSet(cpu for cpu in every if pick((False,) * 6 + (True,)))
    made = builders.host(
        nodes,
        dedicated=str(every - shared or every),
        shared=str(shared if shared != every else CpuSet()),
        smt=siblings,
        pci=_devices(pick, host_cells) if scarce == "devices" else (),
        pci_filter=("*:*:*.*",),
        reserve_mem=pick((0, 0, UNIT_MIB)),
        ratio_mem=pick((1.0, 1.0, 0.5, 1.5)),
    )
    return configured(made, share_cells=True)


def _cores(pick: Pick, first: int, most: int) -> list[tuple[int, ...]]:
    cores: list[tuple[int, ...]] = []
    size = pick(((2,), (2, 4), (2, 3, 4), (1, 2, 3), (4,)))
    while first < most + (cores[0][0] if cores else first):
        cores.append(tuple(range(first, first + pick(size))))
        first = cores[-1][-1] + 1
    return cores


def _node(pick: Pick, cpus: str, scarce: str) -> Node:
    if scarce != "memory":
        return Node(cpus, 64 * UNIT_MIB)
    pages = {2048: pick((0, 128, 256, 384)), 1048576: pick((0, 1, 2))}
    huge_mib = sum(size * count for size, count in pages.items()) // 1024
    return Node(cpus, pick((0, 2, 4, 6, 8, 16)) * UNIT_MIB + huge_mib, {s: n for s, n in pages.items() if n})


def _devices(pick: Pick, host_cells: int) -> list[PciDevice]:
    return [function(f"0000:{bus:02x}:00.0", numa=pick((None, *range(host_cells)))) for bus in range(1, pick((3, 5)))]


def _guest(pick: Pick, host_cells: int, scarce: str) -> InstanceRequest:
    count = pick((2, 3)) if host_cells == 3 else pick((2, 3, 3, 4))
    is_cpus, is_memory = scarce == "cpus", scarce == "memory"
    sizes = [pick((1, 1, 2, 2, 3, 4) if is_cpus else (1, 1, 2)) for _ in range(count)]
    starts = list(itertools.accumulate(sizes, initial=0))
    policy = pick(CPU_POLICIES if is_cpus else OTHERS)
    every = CpuSet(range(starts[-1]))
    pinned = CpuSet(vcpu for vcpu in every if vcpu != 1 or policy == "dedicated") if policy else CpuSet()
    kib = [pick((1, 1, 2, 4, 4, 8) if is_memory else (1,)) * UNIT_KIB for _ in range(count)]
    return InstanceRequest(
        vcpus=len(every),
        memory_kib=sum(kib),
        cells=tuple(
            CellRequest(id=n, vcpus=mine, memory_kib=kib[n], pinned=mine & pinned)
            for n, mine in enumerate(CpuSet(range(starts[n], starts[n + 1])) for n in range(count))
        ),
        cpu_policy=policy,
        thread_policy=pick(POLICIES) if is_cpus else None,
        emulator_policy=pick((None, "isolate")) if is_cpus else None,
        page_size=pick(PAGES) if is_memory else None,
        devices=_wanted(pick) if scarce == "devices" else (),
    )


def _wanted(pick: Pick) -> tuple[PciRequest, ...]:
    return tuple(
        wants(f"a{n}", pick((1, 1, 2)), policy=pick(("required", "required", "legacy", "preferred")))
        for n in range(pick((1, 2)))
    )
