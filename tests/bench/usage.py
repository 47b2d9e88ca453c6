"""Who holds what of 512 CPUs, for 500 pinned guests, beside nova's own bookkeeping of the same guests."""

from __future__ import annotations

import time
from collections.abc import Iterator

from agent.core.guest import Sighting
from agent.core.usage import fold
from tests.bench.rows import Row, median_row, milliseconds, times_cheaper
from tests.builders import Host, Node, guest, host
from tests.compat.nova_process import nova_process

CELLS, CPUS_OF_CELL, MIB_OF_CELL = 8, 64, 262144
GUESTS, MIB_OF_GUEST = 500, 2048
ROUNDS, OURS_A_ROUND = 5, 10

NOVA = "tests.bench.nova_usage"


def measure() -> Iterator[Row]:
    """Rounds of both by turns, so that a busy machine slows both; CPU time of one thread each."""
    machine, guests = _host(), _guests()
    held = len(fold(machine.topology, machine.config, guests).usage.holders)
    ours: list[float] = []
    tracker: list[float] = []
    alone: list[float] = []
    with nova_process(NOVA) as ask:
        version = ask(_for_nova())
        for _ in range(ROUNDS):
            as_tracker_s, alone_s, pinned = ask("")
            if pinned != held:
                raise RuntimeError(f"nova holds {pinned} CPUs of these guests, we {held}")
            tracker.append(as_tracker_s * 1e3)
            alone.append(alone_s * 1e3)
            ours += milliseconds(
                time.process_time, lambda: fold(machine.topology, machine.config, guests), OURS_A_ROUND
            )
    what = f"usage and conflicts of {GUESTS} pinned guests on {CELLS * CPUS_OF_CELL} CPUs"
    yield median_row(
        what, ours, "ms CPU", beside=(f"nova {version}, as its tracker does it", tracker), budget=times_cheaper(100)
    )
    yield median_row("the same", ours, "ms CPU", beside=("nova's folding function alone, no conflicts", alone))


def _host() -> Host:
    nodes = {cell: Node(f"{cell * CPUS_OF_CELL}-{(cell + 1) * CPUS_OF_CELL - 1}", MIB_OF_CELL) for cell in range(CELLS)}
    threads = [f"{cpu},{cpu + 1}" for cpu in range(0, CELLS * CPUS_OF_CELL, 2)]
    return host(nodes, dedicated=f"0-{CELLS * CPUS_OF_CELL - 1}", shared="", smt=threads)


def _guests() -> list[Sighting]:
    return [guest(f"g{n}", {0: n}, node=n // CPUS_OF_CELL, mem=MIB_OF_GUEST) for n in range(GUESTS)]


def _for_nova() -> dict[str, object]:
    return {
        "cells": [[cell, cell * CPUS_OF_CELL, CPUS_OF_CELL, MIB_OF_CELL] for cell in range(CELLS)],
        "guests": [[n // CPUS_OF_CELL, [n], MIB_OF_GUEST] for n in range(GUESTS)],
    }
