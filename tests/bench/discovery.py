"""Reading the host from sysfs, beside lstopo on the same recorded tree."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from agent.adapters.sysfs import changing_facts, discover
from tests.bench.rows import Row, at_most, median_row, milliseconds
from tests.recorded_hosts import recorded_host

LARGE = "256ppc-8n8s4t"
WITH_DEVICES = "emulated-16cpu-4n-sriov"
ROUNDS = 15


def measure() -> Iterator[Row]:
    """CPU time: of this process for us, of the whole process for lstopo, by turns. The trees lie in memory."""
    with recorded_host(LARGE) as root:
        cpus = len(discover(root).cpus)
        if cpus != 256:
            raise RuntimeError(f"{LARGE} has {cpus} CPUs, not 256")
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(ROUNDS):
            ours += milliseconds(time.process_time, lambda: discover(root), 1)
            theirs.append(_lstopo(root))
        yield median_row("discovery of 256 CPUs", ours, "ms CPU", beside=("lstopo", theirs), budget=at_most(150))
        yield _facts("is a 256-CPU host still the same", root, ours)
    with recorded_host(WITH_DEVICES) as root:
        name = f"is a host with {len(discover(root).pci)} PCI functions still the same"
        yield _facts(name, root, milliseconds(time.process_time, lambda: discover(root), ROUNDS))


def _facts(what: str, root: Path, discovery: list[float]) -> Row:
    spent = milliseconds(time.process_time, lambda: changing_facts(root), 10 * ROUNDS)
    return median_row(what, spent, "ms CPU", beside=("its discovery", discovery))


def _lstopo(root: Path) -> float:
    environment = {**os.environ, "HWLOC_FSROOT": str(root), "HWLOC_COMPONENTS": "linux,stop"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = ["lstopo-no-graphics", "--of", "xml", "--whole-io", "--disallowed"]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3
