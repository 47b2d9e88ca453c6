"""Keeping the agent's threads to CPUs, each time in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
PROGRAM = """
import json, os, sys, threading
from agent.adapters import own_cpus
from agent.core.cpuset import CpuSet

def told() -> None:
    ready.wait()
    restricted.wait()
    seen.append(sorted(os.sched_getaffinity(0)))

ready, restricted, seen = threading.Barrier(4), threading.Event(), []
threads = [threading.Thread(target=told) for _ in range(3)]
for thread in threads:
    thread.start()
ready.wait()
problem = own_cpus.restrict(CpuSet.parse(sys.argv[1]))
restricted.set()
later = threading.Thread(target=lambda: seen.append(sorted(os.sched_getaffinity(0))))
later.start()
for thread in (*threads, later):
    thread.join()
print(json.dumps([problem, sorted(os.sched_getaffinity(0)), seen]))
"""


def restricted_to(cpus: str) -> tuple[str | None, list[int], list[list[int]]]:
    """What `restrict` says, then the CPUs of the main thread, then those of three threads before it and one after."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, cpus], capture_output=True, text=True, check=True, timeout=60, cwd=CHECKOUT
    )
    problem, main, others = json.loads(done.stdout)
    return problem, main, others


@pytest.mark.parametrize("cpu", sorted(os.sched_getaffinity(0))[:2])
def test_every_thread_and_each_later_one_keeps_to_the_cpus(cpu: int) -> None:
    assert restricted_to(str(cpu)) == (None, [cpu], [[cpu]] * 4)


def test_cpus_that_are_not_there_are_told_and_change_nothing() -> None:
    everywhere = sorted(os.sched_getaffinity(0))
    problem, main, others = restricted_to("1023")
    assert problem is not None
    assert problem.startswith("the agent cannot keep itself to CPU 1023: ")
    assert (main, others) == (everywhere, [everywhere] * 4)
