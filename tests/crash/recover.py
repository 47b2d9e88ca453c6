"""A state folder as a killed daemon left it, and what is done to its files before the next start."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from agent.adapters.journal import FILE, MARK_FILE
from agent.formats.envelope import Envelope
from tests.crash.checks import check_kept, check_sound
from tests.crash.play import Played, Scenario, play
from tests.crash.scenarios import claim, spec
from tests.crash.stage import Agent, Stage, agent_on

LOG_FILE = f"{FILE}-wal"
LOG_HEADER, FRAME = 32, 24 + 4096
"""Bytes, of sqlite's write-ahead log."""


class Left(NamedTuple):
    """played: with pictures; the daemon was killed after its last step, all of which were answered."""

    folder: Path
    scenario: Scenario
    played: Played

    @property
    def log(self) -> Path:
        return self.folder / LOG_FILE


def left_by_killed(stage: Stage, scenario: Scenario) -> Left:
    """Play all steps, kill the daemon, and keep its folder."""
    stage.empty()
    with agent_on(stage, scenario.config) as agent:
        agent.start()
        assert agent.wait_ready(), agent.log()
        played = play(agent, scenario, looks=True)
        assert len(played.pictures) == len(scenario.steps) + 1, agent.log()
        agent.kill()
        return Left(agent.state, scenario, played)


@contextlib.contextmanager
def agent_on_copy(stage: Stage, left: Left) -> Iterator[Agent]:
    """A daemon that is not started yet, on a copy of the folder."""
    with agent_on(stage, left.scenario.config) as agent:
        shutil.copytree(left.folder, agent.state)
        yield agent


def check_all_there(agent: Agent, left: Left) -> None:
    """Nothing is missing and nothing was damaged."""
    check_kept(agent, left.scenario, left.played, left.played)
    check_sound(agent, left.scenario)
    assert why_refused(agent) != "AgentNotReady"


def why_refused(agent: Agent, claim_id: str = "probe") -> str | None:
    """Of a new claim; None: it was made, and is aborted again."""
    answer = ask_for_place(agent, claim_id)
    assert answer is not None
    if answer.refusal is None:
        assert agent.ask("POST", f"/v1/claims/{claim_id}/abort", {}) is not None
        return None
    return answer.refusal.code


def ask_for_place(agent: Agent, claim_id: str) -> Envelope | None:
    """A claim of a guest of one CPU."""
    call = claim(claim_id, spec("z"))
    return agent.ask(call.method, call.path, call.body)


def check_right_or_refusing(agent: Agent, left: Left) -> bool:
    """What was promised is there, or nothing new is promised until somebody says that the books are right.

    True: it was all there.
    """
    answer = ask_for_place(agent, "probe")
    assert answer is not None
    if answer.refusal is None or answer.refusal.code != "AgentNotReady":
        assert agent.ask("POST", "/v1/claims/probe/abort", {}) is not None
        check_all_there(agent, left)
        return True
    assert "journal-damaged" in answer.refusal.message
    assert "agentctl journal accept" in answer.refusal.message
    accepted = agent.ask("POST", "/v1/journal/accept", {})
    assert accepted is not None
    assert accepted.ok
    assert why_refused(agent, "probe-2") is None
    check_sound(agent, left.scenario)
    return False


def flip(file: Path, at: int) -> None:
    """Turn one byte."""
    data = bytearray(file.read_bytes())
    data[at] ^= 0xFF
    file.write_bytes(data)


def cut(file: Path, at: int) -> None:
    """Leave so many bytes."""
    file.write_bytes(file.read_bytes()[:at])


def unseen(
    stage: Stage, left: Left, name: str, harm: Callable[[Path, int], None], places: Iterable[int]
) -> dict[int, str]:
    """Where a file that was harmed so made a start go wrong, or lose promises without a word. One start for each."""
    found = {}
    for at in places:
        with agent_on_copy(stage, left) as agent:
            harm(agent.state / name, at)
            agent.start(is_watched=False)
            try:
                assert agent.wait_ready(), agent.log()
                check_right_or_refusing(agent, left)
            except AssertionError as error:
                found[at] = str(error)
    return found


def check_torn_write(stage: Stage, left: Left, eighth: int) -> None:
    """So many eighths of the last write came to the disk before the power failed: it is as if nobody had asked.

    The mark, which nobody syncs, is gone.
    """
    start, end = commits(left.log.read_bytes())[-2:]
    unanswered = Played([*left.played.answers[:-1], (None,) * len(left.played.answers[-1])], left.played.pictures)
    with agent_on_copy(stage, left) as agent:
        cut(agent.state / LOG_FILE, start + (end - start) * eighth // 8)
        (agent.state / MARK_FILE).unlink()
        agent.start(is_watched=False)
        assert agent.wait_ready(), agent.log()
        check_kept(agent, left.scenario, left.played, unanswered)
        check_sound(agent, left.scenario)
        assert why_refused(agent) != "AgentNotReady"


def commits(log: bytes) -> tuple[int, ...]:
    """Where each transaction of a write-ahead log ends, as an offset."""
    salt, ends, at = log[16:24], [], LOG_HEADER
    while at + FRAME <= len(log) and log[at + 8 : at + 16] == salt:
        if int.from_bytes(log[at + 4 : at + 8], "big"):
            ends.append(at + FRAME)
        at += FRAME
    return tuple(ends)
