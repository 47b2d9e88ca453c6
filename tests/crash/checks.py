"""What must hold after a daemon was killed and has come back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from agent.adapters.journal import read_steps
from agent.core.claim.table import FROM_CALLERS, TRANSITIONS
from agent.core.claim.values import State
from agent.core.cpuset import CpuSet
from agent.formats.envelope import Envelope
from tests.crash.play import Played, Scenario, Seen, picture
from tests.crash.stage import START_S, Agent
from tests.functional.lab import wait_until

_BY_ITSELF = {
    state: tuple(
        row.after
        for row in TRANSITIONS
        if row.before == state and row.event not in FROM_CALLERS and row.after not in {"ended", state}
    )
    for state in {row.before for row in TRANSITIONS}
}


_NEVER_HEARD_OF = ("refused", "ClaimNotFound")
"""A refusal, which takes nothing, is told at once and stored a moment later."""


def placements(answers: Iterable[Envelope | None]) -> dict[str, Any]:
    """Of claims in answers, by id."""
    found = {}
    for answer in answers:
        result: Any = None if answer is None else answer.result
        if isinstance(result, dict) and "claim" in result and result["claim"]["placement"] is not None:
            found[result["claim"]["claim_id"]] = result["claim"]["placement"]
    return found


def check_kept(agent: Agent, scenario: Scenario, model: Played, died: Played, first: int = 0) -> None:
    """All that was answered is there, and no more than what was asked last beside it.

    model: the same scenario without a kill. died: what was answered; its first step was `first`.
    """
    now, number = picture(agent, scenario), first + len(died.answers) - 1
    calls = list(zip(scenario.steps[number].calls, died.answers[-1], strict=True))
    # what follows from a look at the host takes nothing, so it counts before it is stored
    earliest = number - 1 if number > 0 and not scenario.steps[number - 1].calls else number
    for path, seen in now.items():
        touching = [answer is not None for call, answer in calls if path in call.touches]
        since = number + 1 if touching and all(touching) else earliest
        allowed = {known[path] for known in model.pictures[since : number + 2]}
        if not any(_may_follow(one, seen, scenario) for one in allowed):
            raise AssertionError(f"{path} is {seen}, not one of {allowed}; step {number}, log: {agent.dir / 'log'}")
    promised = placements(answer for answers in died.answers for answer in answers)
    for told in agent.result("/v1/claims")["claims"]:
        answered = promised.get(told["claim_id"], told["placement"])
        assert told["placement"] == answered, (told["claim_id"], told["placement"], answered)


def _may_follow(before: Seen, now: Seen, scenario: Scenario) -> bool:
    if before == now or (before[2:3] == ("refused",) and now == _NEVER_HEARD_OF):
        return True
    if before[0] != "claim" or now[0] != "claim" or before[2] is not None:
        return False
    return now[1] in _reachable(before[1]) if now[2] is None else scenario.is_timed and now[2] == "expired"


def _reachable(state: object) -> set[State]:
    """By evidence and by the clock alone, without an end."""
    found: set[State] = {one for one in _BY_ITSELF if one == state}
    while more := {one for known in found for one in _BY_ITSELF.get(known, ())} - found:
        found |= more
    return found


def check_sound(agent: Agent, scenario: Scenario) -> None:
    """Nothing is given out twice, the books add up, and the journal's steps lead to the claims that there are."""
    report, claims = agent.result("/v1/report"), agent.result("/v1/claims")["claims"]
    bad = [row for row in report["conflicts"] if row["kind"] not in scenario.kinds]
    assert not bad, bad
    _check_ids(claims)
    _check_usage(report["usage"], claims)
    wait_until(lambda: _are_of_their_steps(agent), f"the steps to lead to the claims, log: {agent.dir}/log", START_S)


def _check_ids(claims: list[Mapping[str, Any]]) -> None:
    ids = Counter(claim["claim_id"] for claim in claims)
    assert max(ids.values(), default=1) == 1, ids
    holders: Counter[str] = Counter()
    by_guest: dict[str, set[str]] = {}
    for claim in claims:
        holds = claim["holds"]
        own = {f"cpu {cpu}" for cpu in CpuSet.parse(holds["cpus"])} | {f"device {one}" for one in holds["devices"]}
        by_guest.setdefault(claim["instance"]["uuid"], set()).update(own)
    for own in by_guest.values():
        holders.update(own)
    twice = {what: count for what, count in holders.items() if count > 1}
    assert not twice, twice


def _check_usage(usage: Mapping[str, Any], claims: list[Mapping[str, Any]]) -> None:
    taken = CpuSet()
    for cell in usage["cells"]:
        total, used, promised, free = (CpuSet.parse(cell["dedicated"][key]) for key in _KEYS)
        assert free == total - used - promised, cell
        assert not used & promised, cell
        taken |= used | promised
        for row in cell["pages"]:
            assert row["free"] == row["total"] - row["reserved"] - row["used"] - row["promised"] >= 0, row
        pages = sum(
            page["count"]
            for claim in claims
            for page in claim["holds"]["pages"]
            if (page["cell"], page["size_kib"]) == (cell["id"], 2048)
        )
        seen = sum(row["used"] + row["promised"] for row in cell["pages"] if row["size_kib"] == 2048)
        assert seen <= pages, (cell["id"], seen, pages)
    for claim in claims:
        held = CpuSet.parse(claim["holds"]["cpus"])
        assert held <= taken, (claim, taken)


_KEYS = ("total", "used", "promised", "free")


def _are_of_their_steps(agent: Agent) -> bool:
    """Each claim is what its last step made of it, and each guest of a group was admitted beside none other.

    False: not, or what a look has just shown is not stored yet.
    """
    claims = agent.result("/v1/claims")["claims"]
    steps = read_steps(agent.state)
    numbers = [step.sequence for step in steps]
    assert numbers == sorted(set(numbers)), numbers
    last: dict[str, str] = {}
    for step in steps:
        if step.claim_id is not None and step.after is not None:
            last[step.claim_id] = step.after
        if step.event == "admitted":
            assert all(count == 0 for count in step.seats.values()), step
    alive = {claim_id: state for claim_id, state in last.items() if state != "ended"}
    return alive == {claim["claim_id"]: claim["state"] for claim in claims}
