"""The daemon is killed once at each place in its code that keeps or tells something; all points: `tox -e crash`."""

from __future__ import annotations

from tests.crash.conftest import stage
from tests.crash.kill import kill_and_leave, kill_at, model_of, places
from tests.crash.scenarios import CLAIMS, GUESTS, HOST, LATE
from tests.crash.stage import Stage

__all__ = ["stage"]


def test_claims_that_were_answered_stand_wherever_the_daemon_is_killed(stage: Stage) -> None:
    model = model_of(stage, CLAIMS)
    for point in places(model, after=model.begun):
        kill_at(stage, model, point)


def test_a_start_that_is_killed_loses_nothing(stage: Stage) -> None:
    model = model_of(stage, HOST)
    for point in places(model, until=model.begun)[::3]:
        kill_at(stage, model, point)


def test_moves_and_changes_in_place_go_on_wherever_the_daemon_is_killed(stage: Stage) -> None:
    model = model_of(stage, GUESTS)
    for point in places(model, after=model.begun)[::4]:
        kill_at(stage, model, point)


def test_a_place_that_nobody_was_told_of_is_free_once_its_time_is_over(stage: Stage) -> None:
    model = model_of(stage, LATE)
    told = next(number for number, place in enumerate(model.points, 1) if place.startswith("before send"))
    kill_and_leave(stage, model, told)
