"""Callers that do as they like with claims they know of, all at once; and what each of them was answered."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from agent.core.claim.values import ClaimRequest
from agent.core.instance import Group
from agent.errors import RequestRefused
from agent.formats import wire
from agent.formats.claim_request import claim_document
from agent.formats.claim_view import ClaimAnswer
from agent.formats.envelope import Envelope
from tests.race.asking import WAYS_IN, request
from tests.race.hosts import RaceHost

T = TypeVar("T")

GROUPS = tuple(
    Group(id=f"group-{limit}", policy="anti-affinity", max_server_per_host=limit, generation=1) for limit in (1, 2, 4)
)
INSTANCES = 48
"""Half of them have room; as many as share a group are in each."""

SIZES = ((1, 1), (1, 1), (2, 1), (2, 1), (3, 1), (4, 2))
"""vCPUs and cells."""

VERBS = ("claim", "claim", "claim", "claim", "abort", "abort", "renew", "recheck", "replace", "replace", "again",
         "confirm", "revert", "read")  # fmt: skip


class Call(NamedTuple):
    """verb: of VERBS. request: where the call was for a claim."""

    caller: int
    verb: str
    claim_id: str
    request: ClaimRequest | None
    answer: Envelope

    @property
    def code(self) -> str | None:
        """Of its refusal."""
        return None if self.answer.refusal is None else self.answer.refusal.code

    @property
    def told(self) -> ClaimAnswer:
        """The claim that it was told of."""
        assert self.answer.refusal is None, self
        return wire.from_builtins(self.answer.result, ClaimAnswer)


class Known:
    """The claims that any caller has asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: list[ClaimRequest] = []

    def add(self, asked: ClaimRequest) -> ClaimRequest:
        """One more."""
        with self._lock:
            self._requests.append(asked)
        return asked

    def any(self, chance: random.Random) -> ClaimRequest | None:
        """One of the latest."""
        with self._lock:
            return chance.choice(self._requests[-INSTANCES:]) if self._requests else None

    def all(self) -> list[ClaimRequest]:
        """Each."""
        with self._lock:
            return list(self._requests)


class Caller(threading.Thread):
    """Makes so many calls and keeps what was answered, in order."""

    def __init__(self, host: RaceHost, known: Known, number: int, calls: int, seed: int) -> None:
        super().__init__(name=f"caller-{number}")
        self._client, self._known, self._number, self._left = host.client(), known, number, calls
        self._chance = random.Random(seed * 1000 + number)
        self._made = 0
        self.calls: list[Call] = []

    def run(self) -> None:
        """All of it."""
        while self._left:
            self._left -= 1
            verb = self._chance.choice(VERBS)
            old = self._known.any(self._chance)
            self.calls.append(self._claim(None) if old is None or verb == "claim" else self._do(verb, old))

    def _do(self, verb: str, old: ClaimRequest) -> Call:
        path, claim_id = f"/v1/claims/{old.claim_id}", old.claim_id
        match verb:
            case "replace":
                return self._claim(old)
            case "again":
                return self._post(verb, "/v1/claims", claim_document(old), old)
            case "revert":
                move = old.context.move_id or f"move-{claim_id}"
                answer = self._client.post(f"/v1/moves/{move}/finish", {"outcome": "reverted"})
                return Call(self._number, verb, claim_id, None, answer)
            case "read":
                return Call(self._number, verb, claim_id, None, self._client.get(path))
        return Call(self._number, verb, claim_id, None, self._client.post(f"{path}/{verb}", {}))

    def _claim(self, old: ClaimRequest | None) -> Call:
        chance = self._chance
        number = chance.randrange(INSTANCES) if old is None else int(old.instance.name.partition("-")[2])
        vcpus, cells = chance.choice(SIZES)
        self._made += 1
        asked = request(
            f"claim-{self._number}-{self._made}",
            f"guest-{number}",
            chance.choice(WAYS_IN),
            vcpus=vcpus,
            cells=cells,
            group=GROUPS[number % 6] if number % 6 < len(GROUPS) else None,
            replaces=None if old is None else old.claim_id,
        )
        return self._post("claim", "/v1/claims", claim_document(asked), self._known.add(asked))

    def _post(self, verb: str, path: str, document: object, asked: ClaimRequest) -> Call:
        return Call(self._number, verb, asked.claim_id, asked, self._client.post(path, document))


def run_callers(host: RaceHost, callers: int, calls: int, seed: int) -> list[list[Call]]:
    """What each of so many callers was answered, each to so many calls."""
    known = Known()
    threads = [Caller(host, known, number, calls, seed) for number in range(callers)]
    together(threads)
    for thread in threads:
        assert len(thread.calls) == calls, f"{thread.name} has ended of a fault of its own (see above)"
    return [thread.calls for thread in threads]


def together(threads: Sequence[threading.Thread]) -> None:
    """Run them to their end."""
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def at_once(calls: Sequence[Callable[[], T]]) -> list[T | RequestRefused]:
    """What each of these gets that are made at one instant."""
    gate, answers = threading.Barrier(len(calls)), dict[int, T | RequestRefused]()

    def ask(number: int, call: Callable[[], T]) -> None:
        gate.wait()
        try:
            answers[number] = call()
        except RequestRefused as error:
            answers[number] = error

    together([threading.Thread(target=ask, args=(number, call)) for number, call in enumerate(calls)])
    return [answers[number] for number in range(len(calls))]
