"""Scenarios as data, and playing them against a daemon that may die in the middle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from agent.formats.envelope import Envelope
from tests.crash.stage import CONFIG, START_S, Agent
from tests.functional.lab import wait_until

Seen = tuple[object, ...]
"""What counts of a thing that the agent tells of."""


class Call(NamedTuple):
    """One request. touches: paths whose answer it may change."""

    method: str
    path: str
    body: Mapping[str, Any]
    touches: tuple[str, ...]


class Step(NamedTuple):
    """calls: asked at once. act: what happens on the host. until: path and state that are waited for then."""

    calls: tuple[Call, ...] = ()
    act: Callable[[Agent], None] | None = None
    until: tuple[str, str] | None = None


class Scenario(NamedTuple):
    """watched: paths of all that it changes. kinds: conflicts that it brings. is_timed: claims may end by the clock."""

    name: str
    steps: tuple[Step, ...]
    watched: tuple[str, ...]
    kinds: frozenset[str] = frozenset()
    config: str = CONFIG
    is_timed: bool = False


class Played(NamedTuple):
    """answers: of each step that was begun, None where none came; the last step is the one in which it died, if it did.
    pictures: before the first step and after each, where they were taken."""

    answers: list[tuple[Envelope | None, ...]]
    pictures: list[dict[str, Seen]]


def play(agent: Agent, scenario: Scenario, *, first: int = 0, looks: bool = False) -> Played:
    """The steps from `first` on, until the daemon dies. looks: take a picture after each."""
    played = Played([], [picture(agent, scenario)] if looks else [])
    for step in scenario.steps[first:]:
        answers = _asked(agent, step.calls)
        played.answers.append(answers)
        if None in answers or agent.has_ended() or not _done(agent, step):
            break
        if looks:
            played.pictures.append(picture(agent, scenario))
    return played


def picture(agent: Agent, scenario: Scenario) -> dict[str, Seen]:
    """What counts of all that the scenario changes; empty once the daemon is dead."""
    told = {path: agent.ask("GET", path) for path in scenario.watched}
    return {path: what_counts(path, answer) for path, answer in told.items() if answer is not None}


def what_counts(path: str, answer: Envelope) -> Seen:
    """Without times, and ids that the agent made."""
    if answer.refusal is not None:
        return ("refused", answer.refusal.code)
    result: Any = answer.result
    match path.split("/")[2]:
        case "claims":
            claim = result["claim"]
            how = None if claim["ended"] is None else claim["ended"]["how"]
            return ("claim", claim["state"], how, claim["role"], claim["move_id"])
        case "moves":
            return ("move", result["outcome"], result["source"] is None, result["destination"])
        case "groups":
            return ("group", result["policy"], result["generation"], str(result["members"]), str(result["seated"]))
        case "maintenance":
            return ("maintenance", result["maintenance"] and result["maintenance"]["reason"])
    raise AssertionError(path)


def _asked(agent: Agent, calls: tuple[Call, ...]) -> tuple[Envelope | None, ...]:
    if not calls:
        return ()
    with ThreadPoolExecutor(len(calls)) as pool:
        return tuple(pool.map(partial(_answered, agent), calls))


def _answered(agent: Agent, call: Call) -> Envelope | None:
    """Asked again where the agent says that passes come late on a busy machine; no test is about that."""
    answers: list[Envelope | None] = []

    def is_answered() -> bool:
        answers[:] = [agent.ask(call.method, call.path, call.body)]
        refusal = None if answers[0] is None else answers[0].refusal
        return refusal is None or refusal.code != "AgentNotReady" or "journal-damaged" in refusal.message

    wait_until(is_answered, f"an answer to {call.path}, log: {agent.dir / 'log'}", START_S)
    return answers[0]


def _done(agent: Agent, step: Step) -> bool:
    """False: the daemon has died meanwhile."""
    if step.act is not None:
        step.act(agent)
    if step.until is None:
        return True
    path, wanted = step.until

    def look() -> bool:
        answer = agent.ask("GET", path)
        return agent.has_ended() if answer is None else wanted in what_counts(path, answer)

    wait_until(look, f"{path} to be {wanted}, log: {agent.dir / 'log'}", START_S)
    return not agent.has_ended()
