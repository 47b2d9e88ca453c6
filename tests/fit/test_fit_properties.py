"""Any small host and any guest: the answer is the oracle's, a yes breaks no rule, a no says what is true.

The same is asked of cases that hypothesis draws, which it makes small when they fail, and of many more that a number
stands for (`tests.fit.guests.seeded`). FIT_EXAMPLES=20 makes it twenty times as many of both, and those of hypothesis
others each time.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import msgspec
from hypothesis import given, settings

from agent.core.fit.decide import fit
from agent.core.fit.rules import NoFit
from agent.core.placement import Placement
from tests.fit import oracle
from tests.fit.guests import Case, cases, seeded
from tests.fit.truth import untrue
from tests.fit.violations import violations

ROOT = Path(__file__).parents[2]
MORE = int(os.environ.get("FIT_EXAMPLES", "1"))
SEEDS = range(400 * MORE)
look = settings(max_examples=50 * MORE, derandomize=MORE == 1)


def answer(case: Case) -> Placement | NoFit:
    """Of the code that is tried."""
    return fit(case.request, case.host.offer(), case.how)


def faults(case: Case) -> list[str]:
    """What is wrong with the answer to a case."""
    found, room = answer(case), case.host.room()
    expected = oracle.possible(case.request, room, case.how)
    if isinstance(found, Placement) != expected:
        return [f"the oracle says {expected}, the answer is {found}"]
    if isinstance(found, Placement):
        return violations(found, case.request, room, case.how)
    if not found.reasons or len(set(map(repr, found.reasons))) < len(found.reasons):
        return [f"{len(found.reasons)} reasons: {found.reasons}"]
    return [f"{reason}: {fault}" for reason in found.reasons for fault in untrue(reason, case.request, room)]


@look
@given(cases())
def test_the_answer_is_the_oracles_a_yes_breaks_no_rule_and_the_reasons_of_a_no_are_true(case: Case) -> None:
    assert faults(case) == []


def test_so_is_the_answer_to_every_numbered_case() -> None:
    found = {seed: faults(seeded(seed)) for seed in SEEDS}
    assert {seed: wrong for seed, wrong in found.items() if wrong} == {}


def test_the_order_of_device_requests_does_not_matter() -> None:
    for seed in SEEDS:
        host, request, how = seeded(seed)
        offer = host.offer()
        said = {
            isinstance(fit(msgspec.structs.replace(request, devices=order), offer, how), Placement)
            for order in itertools.permutations(request.devices)
        }
        assert len(said) == 1, seed


def test_the_same_question_has_the_same_answer() -> None:
    for seed in SEEDS:
        assert answer(seeded(seed)) == answer(seeded(seed)), seed


ANSWERS = """
import hashlib
from agent.core.fit.decide import fit
from agent.formats.wire import to_json
from tests.fit.guests import seeded
said = [to_json(fit(case.request, case.host.offer(), case.how)) for case in map(seeded, range(300))]
print(hashlib.sha256(b"".join(said)).hexdigest())
"""


def test_the_answer_does_not_hang_on_how_this_process_orders_its_sets() -> None:
    def digest(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", ANSWERS]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout

    assert digest("1") == digest("2")
