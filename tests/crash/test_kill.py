"""Killed at each point of each scenario. Long: `tox -e crash`; tests/functional/test_kill.py has the short version."""

from __future__ import annotations

import pytest

from tests.crash.kill import kill_at, model_of
from tests.crash.scenarios import SCENARIOS
from tests.crash.stage import Stage


@pytest.mark.parametrize("name", SCENARIOS)
def test_wherever_it_is_killed_what_was_answered_stands_and_nothing_is_given_twice(stage: Stage, name: str) -> None:
    model = model_of(stage, SCENARIOS[name])
    failed = {}
    for point, place in enumerate(model.points, 1):
        try:
            kill_at(stage, model, point)
        except AssertionError as error:
            failed[f"{point} {place}"] = str(error)
    assert not failed
