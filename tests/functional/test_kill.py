"""The daemon is killed at some of the places in its code that keep or tell something; at all: `tox -e crash`."""

from __future__ import annotations

from agent.adapters.journal import FILE
from tests.crash.conftest import stage
from tests.crash.kill import kill_and_leave, kill_at, model_of, places
from tests.crash.recover import LOG_FILE, check_torn_write, cut, flip, left_by_killed, unseen
from tests.crash.scenarios import CLAIMS, GUESTS, HOST, LATE
from tests.crash.stage import Stage

__all__ = ["stage"]


def test_claims_that_were_answered_stand_wherever_the_daemon_is_killed(stage: Stage) -> None:
    model = model_of(stage, CLAIMS)
    for point in places(model, after=model.begun)[::2]:
        kill_at(stage, model, point)


def test_a_start_that_is_killed_loses_nothing(stage: Stage) -> None:
    model = model_of(stage, HOST)
    for point in places(model, until=model.begun)[::5]:
        kill_at(stage, model, point)


def test_moves_and_changes_in_place_go_on_wherever_the_daemon_is_killed(stage: Stage) -> None:
    model = model_of(stage, GUESTS)
    for point in places(model, after=model.begun)[::6]:
        kill_at(stage, model, point)


def test_a_place_that_nobody_was_told_of_is_free_once_its_time_is_over(stage: Stage) -> None:
    model = model_of(stage, LATE)
    told = next(number for number, place in enumerate(model.points, 1) if place.startswith("before send"))
    kill_and_leave(stage, model, told)


def test_torn_files_lose_no_promise_unseen(stage: Stage) -> None:
    left = left_by_killed(stage, CLAIMS)
    for eighth in (0, 3, 7):
        check_torn_write(stage, left, eighth)
    size = left.log.stat().st_size
    assert not unseen(stage, left, LOG_FILE, flip, (40, size // 2, size - 100))
    assert not unseen(stage, left, LOG_FILE, cut, (0, 5000, size // 2))
    assert not unseen(stage, left, FILE, flip, (0, 18, 5000))
    assert not unseen(stage, left, FILE, cut, (0, 1, 5000))
