"""Killed at each point of each scenario. Long: `tox -e crash`; tests/functional/test_kill.py has the short version."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.crash.kill import Model, kill_and_leave, kill_at, model_of
from tests.crash.scenarios import LATE, SCENARIOS
from tests.crash.stage import Stage


@pytest.mark.parametrize("name", SCENARIOS)
def test_wherever_it_is_killed_what_was_answered_stands_and_nothing_is_given_twice(stage: Stage, name: str) -> None:
    model = model_of(stage, SCENARIOS[name])
    check_points(model, range(1, len(model.points) + 1), lambda point: kill_at(stage, model, point))


def test_what_nobody_was_told_of_holds_nothing_once_its_time_is_over(stage: Stage) -> None:
    model = model_of(stage, LATE)
    told = model.points.index(next(place for place in model.points if place.startswith("after send")))
    check_points(model, range(model.begun + 1, told + 2), lambda point: kill_and_leave(stage, model, point))


def check_points(model: Model, points: Iterable[int], check: Callable[[int], None]) -> None:
    """All of them, though some fail."""
    failed = {}
    for point in points:
        try:
            check(point)
        except AssertionError as error:
            failed[f"{point} {model.points[point - 1]}"] = str(error)
    assert not failed
