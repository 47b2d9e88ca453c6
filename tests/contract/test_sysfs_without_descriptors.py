"""What a look at the real kernel finds when the process has no file descriptor left."""

from __future__ import annotations

import sys
from subprocess import run

LOOK = """
import os, resource
from pathlib import Path
from agent.core.snapshot import SourceState
from agent.look.topology import TopologyLook

look = TopologyLook(Path("/"), None, clock=lambda: 1.0, deep_interval_s=1e9)
before, _ = look.look(deep=False)
assert before is not None and before.cpus and before.memory_kib

lowest = os.dup(0)
os.close(lowest)
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, most))
blind, (state,) = look.look(deep=True)
resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 50, most))

after, states = look.look(deep=False)
print(blind, state.read_at, after.online == before.online, states == (SourceState(name="sysfs", read_at=1.0),))
print(state.problem)
"""


def test_a_process_without_a_free_descriptor_takes_nothing_it_sees_for_the_host() -> None:
    done = run([sys.executable, "-c", LOOK], capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == ""
    told, problem = done.stdout.splitlines()
    assert told == "None None True True"
    assert problem.startswith("/sys/devices/system/cpu could not be read: Too many open files (EMFILE), and ")
