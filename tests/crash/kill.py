"""Kills a daemon at one point of a scenario, lets it come back, and checks what it says then."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from tests.crash.checks import check_kept, check_sound
from tests.crash.disk import Disk, why_no_disks
from tests.crash.play import Call, Played, Scenario, picture, play
from tests.crash.stage import START_S, Agent, Stage, agent_on
from tests.functional.lab import wait_until

EXPIRED_S = 120.0
"""Far beyond the least time that a claim can have, and the 3 s after which libvirt's list is proof."""


class Model(NamedTuple):
    """A scenario without a kill. points: of the daemon's whole life, those before `begun` of its start."""

    scenario: Scenario
    played: Played
    points: list[str]
    begun: int


def model_of(stage: Stage, scenario: Scenario) -> Model:
    """Play it once, on a disk like those on which it is killed."""
    stage.empty()
    with _agent_on_disk(stage, scenario) as (agent, _):
        agent.start()
        assert agent.wait_ready(), agent.log()
        begun = len(agent.points())
        played = play(agent, scenario, looks=True)
        assert len(played.pictures) == len(scenario.steps) + 1, agent.log()
        check_sound(agent, scenario)
        return Model(scenario, played, agent.points(), begun)


def kill_at(stage: Stage, model: Model, point: int) -> None:
    """Kill at the point, look at what a power cut would have left, come back, and play on from the step it died in."""
    scenario = model.scenario
    stage.empty()
    with _agent_on_disk(stage, scenario) as (agent, disk):
        agent.start(point)
        died = play(agent, scenario) if agent.wait_ready() else Played([], [])
        agent.kill()
        if disk is not None:
            with _after_power_cut(stage, scenario, disk) as cut:
                _come_back(cut, model, died)
        _come_back(agent, model, died)
        _play_on(agent, model, max(0, len(died.answers) - 1))


def kill_and_leave(stage: Stage, model: Model, point: int) -> None:
    """Kill at the point, and nobody asks again: once the time is over nothing is held."""
    stage.empty()
    with agent_on(stage, model.scenario.config) as agent:
        agent.start(point)
        if agent.wait_ready():
            play(agent, model.scenario._replace(steps=model.scenario.steps[:1]))
        agent.kill()
        agent.start(is_watched=False)
        assert agent.wait_ready(), agent.log()
        wait_until(lambda: not agent.result("/v1/claims")["claims"], f"nothing to be held, log: {agent.dir}", EXPIRED_S)
        check_sound(agent, model.scenario)
        cells = agent.result("/v1/usage")["cells"]
        assert [cell["dedicated"]["free"] for cell in cells] == [cell["dedicated"]["total"] for cell in cells]


def _come_back(agent: Agent, model: Model, died: Played) -> None:
    agent.start()
    assert agent.wait_ready(), agent.log()
    assert "journal-damaged" not in agent.log()
    _check_identity(agent, died)
    if died.answers:
        check_kept(agent, model.scenario, model.played, died)
    check_sound(agent, model.scenario)


def _check_identity(agent: Agent, died: Played) -> None:
    told = agent.ask("GET", "/v1/health")
    assert told is not None
    for answer in (one for answers in died.answers for one in answers if one is not None):
        assert told.agent_id == answer.agent_id
        assert told.epoch > answer.epoch


def _play_on(agent: Agent, model: Model, first: int) -> None:
    """Each call is made again by whoever got no answer: all ends as if nobody had been killed."""
    for call, wanted_code in _refused_before(model, first):
        answer = agent.ask(call.method, call.path, call.body)
        assert answer is not None
        assert answer.refusal is not None
        assert answer.refusal.code == wanted_code
    again = play(agent, model.scenario, first=first)
    for number, answers in enumerate(again.answers, first):
        codes = [answer and answer.refusal and answer.refusal.code for answer in answers]
        wanted = [answer and answer.refusal and answer.refusal.code for answer in model.played.answers[number]]
        assert codes == wanted, (number, codes, wanted, answers)
    last = model.played.pictures[-1]
    wait_until(lambda: picture(agent, model.scenario) == last, f"all to be as {last}", START_S)
    check_sound(agent, model.scenario)


def _refused_before(model: Model, first: int) -> Iterator[tuple[Call, str]]:
    """Calls that were refused right before this step: their refusal may be lost, and is the same once more."""
    begin = first
    while begin > 0 and any(answer and answer.refusal for answer in model.played.answers[begin - 1]):
        begin -= 1
    for number in range(begin, first):
        for call, answer in zip(model.scenario.steps[number].calls, model.played.answers[number], strict=True):
            if answer is not None and answer.refusal is not None:
                yield call, answer.refusal.code


@contextlib.contextmanager
def _agent_on_disk(stage: Stage, scenario: Scenario) -> Iterator[tuple[Agent, Disk | None]]:
    """None: this machine has no loop devices, so power cuts are left out."""
    with agent_on(stage, scenario.config) as agent:
        disk = Disk(agent.dir / "disk", agent.state) if why_no_disks() is None else None
        try:
            yield agent, disk
        finally:
            agent.kill()
            if disk is not None:
                disk.remove()


@contextlib.contextmanager
def _after_power_cut(stage: Stage, scenario: Scenario, disk: Disk) -> Iterator[Agent]:
    with agent_on(stage, scenario.config) as agent:
        cut = disk.after_power_cut(agent.dir / "disk", agent.state)
        try:
            yield agent
        finally:
            agent.kill()
            cut.remove()


def places(model: Model, *, after: int = 0, until: int | None = None) -> tuple[int, ...]:
    """One point for each place in the code, at another step of the scenario each. after, until: only those between."""
    by_place: dict[str, list[int]] = {}
    for number, place in enumerate(model.points[after:until], after + 1):
        by_place.setdefault(place, []).append(number)
    return tuple(sorted(numbers[at % len(numbers)] for at, numbers in enumerate(by_place.values())))
