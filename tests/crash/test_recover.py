"""Starts on what a killed daemon or a bad disk has left, and starts that are killed themselves."""

from __future__ import annotations

import random
import shutil

import pytest

from agent.adapters.journal import FILE, LAST_GOOD_FILE, MARK_FILE
from tests.crash.recover import (
    LOG_FILE,
    Left,
    agent_on_copy,
    check_all_there,
    check_right_or_refusing,
    check_torn_write,
    cut,
    flip,
    left_by_killed,
    unseen,
)
from tests.crash.scenarios import CLAIMS
from tests.crash.stage import Stage

PARTS = (FILE, LOG_FILE)


@pytest.fixture(scope="module")
def left(stage: Stage) -> Left:
    """Some claims in the file, the last ones only in its log."""
    return left_by_killed(stage, CLAIMS)


@pytest.fixture(scope="module")
def ruined(left: Left, tmp_path_factory: pytest.TempPathFactory) -> Left:
    """The same with a file that is no database any more, and no log."""
    folder = tmp_path_factory.mktemp("ruined") / "state"
    shutil.copytree(left.folder, folder)
    flip(folder / FILE, 0)
    (folder / LOG_FILE).unlink()
    return left._replace(folder=folder)


def test_a_start_that_is_killed_anywhere_is_made_good_by_the_next(stage: Stage, left: Left) -> None:
    with agent_on_copy(stage, left) as agent:
        agent.start()
        assert agent.wait_ready()
        points = len(agent.points())
    for point in range(1, points + 1):
        with agent_on_copy(stage, left) as agent:
            agent.start(point)
            agent.wait_ready()
            agent.kill()
            agent.start()
            assert agent.wait_ready(), agent.log()
            check_all_there(agent, left)


@pytest.mark.parametrize("eighth", range(8))
def test_a_last_write_that_is_torn_is_as_if_it_had_not_been_made(stage: Stage, left: Left, eighth: int) -> None:
    check_torn_write(stage, left, eighth)


def test_a_repair_that_is_killed_anywhere_is_made_good_by_the_next(stage: Stage, ruined: Left) -> None:
    with agent_on_copy(stage, ruined) as agent:
        agent.start()
        assert agent.wait_ready()
        points = len(agent.points())
        assert not check_right_or_refusing(agent, ruined)
    for point in range(1, points + 1):
        with agent_on_copy(stage, ruined) as agent:
            agent.start(point)
            agent.wait_ready()
            agent.kill()
            agent.start()
            assert agent.wait_ready(), agent.log()
            assert not check_right_or_refusing(agent, ruined), point


@pytest.mark.parametrize("name", PARTS)
def test_a_flipped_byte_costs_no_promise_unseen(stage: Stage, left: Left, name: str) -> None:
    size = (left.folder / name).stat().st_size
    assert not unseen(stage, left, name, flip, random.Random(4).sample(range(size), 60))


@pytest.mark.parametrize("name", PARTS)
def test_a_file_that_was_cut_costs_no_promise_unseen(stage: Stage, left: Left, name: str) -> None:
    size = (left.folder / name).stat().st_size
    assert not unseen(stage, left, name, cut, sorted({0, 1, 99, 100, 4096, *range(0, size, size // 40)}))


@pytest.mark.parametrize("name", [*PARTS, LAST_GOOD_FILE, MARK_FILE])
def test_a_file_that_is_gone_costs_no_promise_unseen(stage: Stage, left: Left, name: str) -> None:
    assert not unseen(stage, left, name, lambda file, _: file.unlink(), [0])
