"""A server group of three whose members come at one instant, each by a way of its own."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from agent.core.claim.values import ClaimKind
from agent.core.instance import Group
from agent.core.reasons import GroupViolated
from agent.errors import RequestRefused
from agent.formats.claim_view import ClaimAnswer
from agent.formats.envelope import Refusal
from tests.builders import uuid_of
from tests.race.asking import request
from tests.race.callers import at_once
from tests.race.hosts import RaceHost

WAYS: tuple[ClaimKind, ...] = ("build", "resize", "unshelve", "evacuate", "live_migration")

MESSAGE = "Build of instance {} was re-scheduled: Anti-affinity instance group policy was violated"
LIVE_MESSAGE = (
    "Migration pre-check error: Failed to validate instance group policy due to: Build of instance {} was "
    "re-scheduled: Anti-affinity instance group policy was violated."
)


def check_rounds(host: RaceHost, rounds: int, *, limit: int, seed: int) -> None:
    """So many groups, each with so many places on this host."""
    chance = random.Random(seed)
    for number, ways in enumerate(_ways(rounds)):
        check_round(host, f"{limit}-{number}", chance.sample(ways, len(ways)), limit, knows=chance.random() < 0.5)
    assert host.claims().claims == ()


def check_round(host: RaceHost, name: str, ways: list[ClaimKind], limit: int, *, knows: bool) -> None:
    """knows: each request names all members of the group."""
    names = [f"{name}-{way}-{number}" for number, way in enumerate(ways)]
    group = Group(
        id=name,
        policy="anti-affinity",
        max_server_per_host=limit,
        members=tuple(map(uuid_of, names)) if knows else (),
        generation=1,
    )
    asked = [request(f"claim-{one}", one, way, group=group) for one, way in zip(names, ways, strict=True)]
    answers = at_once([lambda one=one: host.client().claim(one) for one in asked])  # type: ignore[misc]
    inside = [answer.claim for answer in answers if isinstance(answer, ClaimAnswer)]
    assert len(inside) == limit, (ways, answers)
    for one, way, answer in zip(names, ways, answers, strict=True):
        if isinstance(answer, RequestRefused):
            _check_loser(host, one, way, answer, [told.claim_id for told in inside])
    for told in inside:
        if told.kind == "live_migration":  # what pre_live_migration asks: who came first is in nobody's way
            host.client().recheck_claim(told.claim_id)
    assert len(host.client().get_group(name).seated) == limit
    for told in inside:
        host.client().abort_claim(told.claim_id)


def _check_loser(host: RaceHost, name: str, way: ClaimKind, answer: RequestRefused, inside: list[str]) -> None:
    """It is told the sentence that callers of nova know, and who is in the way: those who are inside."""
    refusal = _remembered(host, name)
    message = LIVE_MESSAGE if way == "live_migration" else MESSAGE
    told = (refusal.code, refusal.retry, refusal.message)
    assert told == ("GroupAffinityViolation", "elsewhere", message.format(uuid_of(name)))
    assert (answer.code, answer.retry, str(answer)) == told
    (reason,) = refusal.details
    assert isinstance(reason, GroupViolated)
    assert sorted(f"claim-{one.name}" for one in reason.members) == sorted(inside)


def _remembered(host: RaceHost, name: str) -> Refusal:
    """The refusal that the same request would get once more."""
    ended = host.client().get_claim(f"claim-{name}").claim.ended
    assert ended is not None
    assert ended.refusal is not None
    return ended.refusal


def _ways(rounds: int) -> Iterator[tuple[ClaimKind, ...]]:
    """All choices of three, one way more than once too, again and again."""
    return itertools.islice(itertools.cycle(itertools.combinations_with_replacement(WAYS, 3)), rounds)
