"""Does a guest fit, beside nova 34's answer to the same question."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from agent.core.fit import fit as fit_guest
from agent.core.fit import host_facts, offer_of
from agent.core.placement import Placement
from agent.core.usage import fold
from agent.formats.wire import to_builtins
from tests.bench import fit_cases
from tests.bench.rows import Beside, Budget, Row, at_most, median_row, milliseconds, times_cheaper
from tests.compat.fit_cases import Case
from tests.compat.fit_ours import config_of, request_of, sightings_of, topology_of
from tests.compat.nova_process import Ask, nova_process

NOVA = "tests.bench.nova_fit_times"
HOSTS, GUESTS = (2, 4, 8, 16), (1, 2, 4, 8, 16)
ROUNDS, STOP_S = 45, 2.0
CROWDED, CROWDED_ROUNDS = 300, 9


def measure() -> Iterator[Row]:
    """CPU time of one thread. Where nova was stopped, its time and the ratio are at least what is said."""
    with nova_process(NOVA) as ask:
        for host_cells in HOSTS:
            for guest_cells in (cells for cells in GUESTS if cells <= host_cells):
                for name, situation in fit_cases.SITUATIONS.items():
                    what = f"{guest_cells} on {host_cells} cells, {name}"
                    row, ours = _beside(what, situation(guest_cells, host_cells), ask)
                    yield row
                    if (guest_cells, host_cells) == (8, 16):
                        yield median_row("the same", ours, "ms CPU", budget=at_most(5))
        for count, least in ((512, None), (2048, times_cheaper(50))):
            for name, near in (("fits", True), ("none near", False)):
                what = f"claim of 2 of {count} virtual functions, {name}"
                case = fit_cases.virtual_functions(count, near=near)
                yield _beside(what, case, ask, budget=least, is_claim=True)[0]
    yield from _crowded()


def _beside(
    what: str, case: Case, ask: Ask, *, budget: Budget | None = None, is_claim: bool = False
) -> tuple[Row, list[float]]:
    work = _work(case)
    ours = milliseconds(time.process_time, work, ROUNDS)
    told = ask({"case": to_builtins(case), "stop_s": STOP_S, "is_claim": is_claim})
    says_yes = isinstance(work(), Placement)
    is_wrong = told["fits"] is False and says_yes
    # what nova keeps of a pair of cells may refuse what fits (see tests/compat/fit_differences); the rest is a fault
    if told["fits"] not in {None, says_yes} and not (is_wrong and len(case.guest.cells) > 1):
        raise RuntimeError(f"{what}: nova says {told['fits']}, we {says_yes}")
    value, nova = statistics.median(ours), statistics.median(told["spent_s"]) * 1e3
    beside = Beside(what="nova, wrongly no" if is_wrong else "nova", value=nova, is_at_least=told["fits"] is None)
    allowed = budget or times_cheaper(1 if max(value, nova) > 1 else 0.5)
    return Row(what=what, value=value, unit="ms CPU", samples=len(ours), beside=beside, budget=allowed), ours


def _work(case: Case) -> Callable[[], Any]:
    """What a claim does: topology and configuration are as they were, usage is of the moment."""
    topology, config = topology_of(case), config_of(case)
    facts, request = host_facts(topology, config), request_of(case)
    usage = fold(topology, config, sightings_of(case)).usage
    return lambda: fit_guest(request, offer_of(facts, usage))


def _crowded() -> Iterator[Row]:
    works = [_work(fit_cases.crowded(seed)) for seed in range(CROWDED)]
    # round by round, so that no case has all of its measurements in one slow moment of the machine
    rounds = [[milliseconds(time.process_time, work, 1)[0] for work in works] for _ in range(CROWDED_ROUNDS)]
    by_case = list(zip(*rounds, strict=True))
    what = f"8 on 16 cells, up to 5 requests for 64 devices, {CROWDED} by chance"
    yield median_row(what, [statistics.median(spent) for spent in by_case], "ms CPU")
    slowest = max(map(min, by_case))
    yield Row(what="the slowest of them", value=slowest, unit="ms CPU", samples=CROWDED_ROUNDS, budget=at_most(5))
