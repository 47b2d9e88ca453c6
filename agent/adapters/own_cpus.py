"""Which CPUs the daemon's own threads run on: none that belongs to guests."""

from __future__ import annotations

import os

import psutil

from agent.core.cpuset import CpuSet
from agent.core.words import plural


def restrict(cpus: CpuSet) -> str | None:
    """Bind every thread of this process, and all that it starts later, to `cpus`; psutil would bind only the main one.

    Returns why it could not be done, one sentence; None when done. A thread that ends meanwhile needs no CPUs.
    """
    process = psutil.Process()
    done: set[int] = set()
    # Again until nothing new is there: a thread that is not bound yet may just have started another one.
    while threads := {thread.id for thread in process.threads()} - done:
        for thread in threads:
            try:
                os.sched_setaffinity(thread, cpus)
            except ProcessLookupError:
                continue
            except OSError as error:
                return f"the agent cannot keep itself to {plural(cpus)}: {error}"
        done |= threads
    return None
