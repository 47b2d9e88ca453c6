"""Starts on what a killed daemon or a bad disk has left, and starts that are killed themselves."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.adapters.journal import FILE, LAST_GOOD_FILE
from tests.crash.checks import check_kept, check_sound
from tests.crash.play import Played
from tests.crash.recover import (
    LOG_HEADER,
    Left,
    agent_on_copy,
    check_all_there,
    check_right_or_refusing,
    commits,
    left_by_killed,
)
from tests.crash.scenarios import CLAIMS
from tests.crash.stage import Stage

PARTS = (FILE, f"{FILE}-wal")


@pytest.fixture(scope="module")
def left(stage: Stage) -> Left:
    """Some claims in the file, the last ones only in its log."""
    return left_by_killed(stage, CLAIMS)


def flip(file: Path, at: int) -> None:
    """Turn one byte."""
    data = bytearray(file.read_bytes())
    data[at] ^= 0xFF
    file.write_bytes(data)


def cut(file: Path, at: int) -> None:
    """Leave so many bytes."""
    file.write_bytes(file.read_bytes()[:at])


def try_start(stage: Stage, left: Left, harm: Callable[[Path], None]) -> bool:
    """Whether all was there on a copy that was harmed so."""
    with agent_on_copy(stage, left) as agent:
        harm(agent.state)
        agent.start(is_watched=False)
        assert agent.wait_ready(), agent.log()
        return check_right_or_refusing(agent, left)


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


def test_a_repair_that_is_killed_anywhere_is_made_good_by_the_next(stage: Stage, left: Left) -> None:
    with agent_on_copy(stage, left) as agent:
        flip(agent.state / FILE, 4096 + 100)
        agent.start()
        assert agent.wait_ready()
        points = len(agent.points())
        assert not check_right_or_refusing(agent, left)
    for point in range(1, points + 1):
        with agent_on_copy(stage, left) as agent:
            flip(agent.state / FILE, 4096 + 100)
            agent.start(point)
            agent.wait_ready()
            agent.kill()
            agent.start()
            assert agent.wait_ready(), agent.log()
            assert not check_right_or_refusing(agent, left), point


def test_a_last_write_that_is_torn_is_as_if_it_had_not_been_made(stage: Stage, left: Left) -> None:
    ends = commits(left.log.read_bytes())
    start, end = ends[-2], ends[-1]
    unanswered = Played([*left.played.answers[:-1], (None,) * len(left.played.answers[-1])], left.played.pictures)
    for eighth in range(8):
        with agent_on_copy(stage, left) as agent:
            cut(agent.state / f"{FILE}-wal", start + (end - start) * eighth // 8)
            agent.start(is_watched=False)
            assert agent.wait_ready(), agent.log()
            check_kept(agent, left.scenario, left.played, unanswered)
            check_sound(agent, left.scenario)


@pytest.mark.parametrize("name", PARTS)
def test_a_flipped_byte_costs_no_promise_unseen(stage: Stage, left: Left, name: str) -> None:
    size = (left.folder / name).stat().st_size
    chosen = random.Random(4).sample(range(size), 40)
    unseen = {}
    for at in chosen:
        try:
            try_start(stage, left, lambda folder, at=at: flip(folder / name, at))  # type: ignore[misc]
        except AssertionError as error:
            unseen[at] = str(error)
    assert not unseen


@pytest.mark.parametrize("name", PARTS)
def test_a_file_that_was_cut_costs_no_promise_unseen(stage: Stage, left: Left, name: str) -> None:
    size = (left.folder / name).stat().st_size
    unseen = {}
    for at in sorted({0, 1, 99, LOG_HEADER, 4096, *range(0, size, size // 30)}):
        try:
            try_start(stage, left, lambda folder, at=at: cut(folder / name, at))  # type: ignore[misc]
        except AssertionError as error:
            unseen[at] = str(error)
    assert not unseen


@pytest.mark.parametrize("name", [*PARTS, LAST_GOOD_FILE])
def test_a_file_that_is_gone_costs_no_promise_unseen(stage: Stage, left: Left, name: str) -> None:
    try_start(stage, left, lambda folder: (folder / name).unlink())
