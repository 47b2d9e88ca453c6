"""Run by the Python that has nova: folds guests into a host as nova's resource tracker does, and times it.

First line in: {"cells": [[id, first CPU, CPUs, MiB]], "guests": [[cell, [host CPUs], MiB]]}; first line out: nova's
version. Each further line in is one round; its line out is [CPU seconds as the tracker does it, CPU seconds of the
folding function alone, CPUs pinned at the end].

nova's modules are loaded by name, since the environment that checks types has no nova.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from importlib import metadata
from typing import Any

objects: Any = importlib.import_module("nova.objects")
hardware: Any = importlib.import_module("nova.virt.hardware")


def host_of(cells: list[list[int]]) -> Any:
    """The host as nova's libvirt driver describes it: two threads a core, small pages and no huge ones."""
    return objects.NUMATopology(
        cells=[
            objects.NUMACell(
                id=number,
                cpuset=set(),
                pcpuset=set(range(first, first + count)),
                memory=memory_mib,
                socket=number,
                cpu_usage=0,
                memory_usage=0,
                pinned_cpus=set(),
                siblings=[{cpu, cpu + 1} for cpu in range(first, first + count, 2)],
                mempages=[objects.NUMAPagesTopology(size_kb=4, total=memory_mib * 256, used=0, reserved=0)],
                network_metadata=objects.NetworkMetadata(physnets=set(), tunneled=False),
            )
            for number, first, count, memory_mib in cells
        ]
    )


def guest_of(cell: int, cpus: list[int], memory_mib: int) -> Any:
    """A guest of one cell with dedicated CPUs, fitted."""
    return objects.InstanceNUMATopology(
        cells=[
            objects.InstanceNUMACell(
                id=cell,
                cpuset=set(),
                pcpuset=set(range(len(cpus))),
                cpuset_reserved=None,
                memory=memory_mib,
                pagesize=4,
                cpu_policy="dedicated",
                cpu_thread_policy=None,
                cpu_pinning=dict(enumerate(cpus)),
            )
        ]
    )


def as_the_tracker(host: Any, guests: list[Any]) -> Any:
    """One update of all instances: the host travels through its JSON once for each (ComputeNode.numa_topology)."""
    text = host._to_json()
    for guest in guests:
        before = objects.NUMATopology.obj_from_db_obj(text)
        text = hardware.numa_usage_from_instance_numa(before, guest, False)._to_json()
    return objects.NUMATopology.obj_from_db_obj(text)


def function_alone(host: Any, guests: list[Any]) -> Any:
    """The same without JSON."""
    for guest in guests:
        host = hardware.numa_usage_from_instance_numa(host, guest, False)
    return host


def main() -> None:
    """Rounds on demand."""
    objects.register_all()
    told = json.loads(sys.stdin.readline())
    host = host_of(told["cells"])
    guests = [guest_of(*guest) for guest in told["guests"]]
    say(metadata.version("nova"))
    for _ in sys.stdin:
        begun = time.process_time()
        after = as_the_tracker(host, guests)
        between = time.process_time()
        alone = function_alone(host, guests)
        ended = time.process_time()
        pinned = [sorted(cpu for cell in one.cells for cpu in cell.pinned_cpus) for one in (after, alone)]
        if pinned[0] != pinned[1]:
            raise RuntimeError(f"nova disagrees with itself: {pinned}")
        say([between - begun, ended - between, len(pinned[0])])


def say(what: object) -> None:
    """One line to the caller."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
