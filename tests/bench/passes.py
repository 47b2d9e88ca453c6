"""A pass over 1000 guests of libvirt's test driver: everything new, everything again, and nothing changed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

from tests.bench.guests import uuid_of
from tests.bench.rig import CPUS, Agent, TestDriver, test_driver
from tests.bench.rows import Row, median_row, milliseconds, times_cheaper

GUESTS, CHANGED = 1000, 10
FEW, UNCHANGED_A_ROUND = 7, 7
EVENTS_S = 0.1
"""Until libvirt's events of a change have come."""


def measure() -> Iterator[Row]:
    """CPU time of this process, in which the test driver runs too; first and unchanged passes by turns."""
    with test_driver(GUESTS) as driver:
        full: list[float] = []
        unchanged: list[float] = []
        listing: list[float] = []
        agent = driver.agent()
        for _ in range(FEW):
            del agent
            agent = driver.agent()
            full.append(_one_pass(agent))
            _one_pass(agent)  # libvirt's view of the host is verified twice after a change
            unchanged += milliseconds(time.process_time, agent.watch.one_pass, UNCHANGED_A_ROUND)
            listing += milliseconds(time.process_time, driver.libvirt.list_domains, UNCHANGED_A_ROUND)
        again = _passes(FEW, lambda: _everything_wanted(agent))
        marked = _passes(FEW, lambda: _marked(agent))
        rounds = itertools.count(1)
        changed = _passes(FEW, lambda: _restarted(driver, agent, rounds))
        timed = _passes(FEW, lambda: _timed(agent))
        guests = len(agent.tracker.snapshot.ledger.sightings)
        if guests != GUESTS:
            raise RuntimeError(f"the agent sees {guests} guests, not {GUESTS}")
    beside = ("the first pass", full)
    yield median_row(
        f"pass over {GUESTS} unchanged guests", unchanged, "ms CPU", beside=beside, budget=times_cheaper(20)
    )
    yield median_row("of it libvirt's list", listing, "ms CPU")
    yield median_row(f"pass with {CHANGED} guests marked by events", marked, "ms CPU", beside=beside)
    yield median_row(f"pass with {CHANGED} guests changed (usage folded anew)", changed, "ms CPU", beside=beside)
    yield median_row("timed pass (reads 1/30 of the definitions again)", timed, "ms CPU", beside=beside)
    yield median_row("pass that reads everything again", again, "ms CPU", beside=beside)


def _passes(times: int, ready: Callable[[], Agent]) -> list[float]:
    spent = []
    for _ in range(times):
        agent = ready()
        spent.append(_one_pass(agent))
    return spent


def _one_pass(agent: Agent) -> float:
    return milliseconds(time.process_time, agent.watch.one_pass, 1)[0]


def _everything_wanted(agent: Agent) -> Agent:
    agent.watch.wake(host=True)
    return _marked(agent, GUESTS)


def _marked(agent: Agent, guests: int = CHANGED) -> Agent:
    for number in range(guests):
        agent.watch.mark(uuid_of(number))
    return agent


def _restarted(driver: TestDriver, agent: Agent, round_: Iterator[int]) -> Agent:
    shift = 4 * next(round_)
    for number in range(CHANGED):
        first = 8 + (2 * number + shift) % (CPUS - 8)
        driver.run_anew(number, (first, first + 1))
    time.sleep(EVENTS_S)
    return agent


def _timed(agent: Agent) -> Agent:
    agent.make_timed_pass_due()
    return agent
