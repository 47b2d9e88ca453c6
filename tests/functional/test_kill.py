"""The daemon is killed once at each place in its code that keeps or tells something; all points: `tox -e crash`."""

from __future__ import annotations

from tests.crash.conftest import stage
from tests.crash.kill import kill_at, model_of, places
from tests.crash.scenarios import CLAIMS, GUESTS, HOST
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
