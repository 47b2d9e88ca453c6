"""Run by the Python that has nova: how long it looks for a place for a guest.

Each line in is {"case": ..., "stop_s": ..., "is_claim": ...} (a case of tests/compat/fit_cases); each line out is
{"fits": ..., "spent_s": [...]} with CPU seconds, or {"fits": null, "spent_s": [stop_s]} when it was stopped. is_claim:
the whole claim and not the fit alone.
"""

from __future__ import annotations

import importlib
import json
import logging
import signal
import sys
import time
from typing import Any

from tests.compat import nova_objects
from tests.compat.nova_objects import CONF, Plain, hardware

exception: Any = importlib.import_module("nova.exception")

MOST_ROUNDS, ENOUGH_S = 45, 0.5


class Stopped(BaseException):
    """Not to be caught by nova."""


def measure(told: Plain) -> Plain:
    """Rounds until there are enough; the first is bounded, and alone when it was long. Time of the thread: that of the
    process comes in ticks of the kernel as long as such a bound is set, and for a while after."""
    CONF.set_override("packing_host_numa_cells_allocation_strategy", told["case"]["host"]["pack"], group="compute")
    work = _round(told["case"])
    signal.setitimer(signal.ITIMER_PROF, told["stop_s"])
    try:
        fits, first_s = _timed(work, is_claim=told["is_claim"])
    except Stopped:
        return {"fits": None, "spent_s": [told["stop_s"]]}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    spent = [first_s] if first_s > ENOUGH_S else []
    while not spent or (len(spent) < MOST_ROUNDS and sum(spent) < ENOUGH_S):
        spent.append(_timed(_round(told["case"]), is_claim=told["is_claim"])[1])
    return {"fits": fits, "spent_s": spent}


def _round(case: Plain) -> Plain:
    """Objects of its own for each round: fitting changes the guest, and a claim the pools."""
    host = nova_objects.host_of(case)
    return {
        "host": host,
        "guest": nova_objects.guest_of(case),
        "limits": nova_objects.limits_of(case),
        "requests": nova_objects.requests_of(case).requests,
        "pools": nova_objects.pools_of(case, host),
    }


def _timed(work: Plain, *, is_claim: bool) -> tuple[bool, float]:
    """Whether it fits, and CPU seconds."""
    pools, requests = work["pools"], work["requests"]
    begun = time.thread_time()
    fitted = hardware.numa_fit_instance_to_host(
        work["host"], work["guest"], None, work["limits"], pci_requests=requests, pci_stats=pools
    )
    fits = fitted is not None
    if is_claim and fits:
        fits = pools.support_requests(requests, None) and bool(pools.consume_requests(requests, fitted.cells))
    return fits, time.thread_time() - begun


def stop(_number: int, _frame: object) -> None:
    """The bound is reached."""
    raise Stopped


def main() -> None:
    """Answer until the caller has no more."""
    logging.disable()
    signal.signal(signal.SIGPROF, stop)
    nova_objects.register()
    CONF([], project="nova", default_config_files=[], default_config_dirs=[], use_env=False)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(measure(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
