"""One call sent by many at once, some of whom hang up before the answer comes."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable

import msgspec

from agent.core.claim.values import ClaimRequest
from agent.errors import RequestRefused
from agent.formats.claim_request import claim_document
from agent.formats.claim_view import ClaimAnswer
from agent.formats.envelope import Refusal
from tests.functional.lab import wait_until
from tests.race.asking import request
from tests.race.callers import at_once
from tests.race.hosts import CALL_S, RaceHost

SENDERS = 8


def check_duplicates(host: RaceHost, rounds: int, seed: int) -> None:
    """So many claims (the host has room for 20), each sent by eight at once; before and after a restart the same."""
    chance = random.Random(seed)
    sent = [check_sent_at_once(host, f"twin-{seed}-{number}", chance) for number in range(rounds)]
    refused = [check_refused_at_once(host, f"giant-{seed}-{number}", chance) for number in range(rounds)]
    ghosts = [check_ghost(host, f"ghost-{seed}-{number}") for number in range(rounds)]
    raced = [check_aborted_while_made(host, f"raced-{seed}-{number}") for number in range(rounds)]
    host.restart()
    for answer in sent:
        assert _place(host.client().get_claim(answer.claim.claim_id)) == _place(answer)
    for asked, refusal in refused:
        assert _refusal(host, asked) == refusal
    for asked in ghosts + raced:
        assert _refusal(host, asked).code == "ClaimEnded"
    for answer in sent:
        host.client().abort_claim(answer.claim.claim_id)
    assert host.claims().claims == ()


def check_sent_at_once(host: RaceHost, name: str, chance: random.Random) -> ClaimAnswer:
    """There is one claim, and all who waited are told the same of it; another request under its id is refused."""
    asked = request(f"claim-{name}", name)
    answers = at_once(_senders(host, asked, chance))
    told = [answer for answer in answers if isinstance(answer, ClaimAnswer)]
    kept = wait_until(lambda: _made(host, asked), "the claim", CALL_S)
    assert kept is not None
    assert all(_place(one) == _place(kept) for one in told), answers
    assert sum(one.is_new for one in told) <= 1
    assert len([one for one in host.claims().claims if one.instance == asked.instance]) == 1
    for other in (request(asked.claim_id, name, vcpus=2), request(asked.claim_id, f"{name}-other")):
        assert _refusal(host, other).code == "ClaimConflict"
    return kept


def check_refused_at_once(host: RaceHost, name: str, chance: random.Random) -> tuple[ClaimRequest, Refusal]:
    """More than the host has: all are told the same."""
    asked = request(f"claim-{name}", name, vcpus=40)
    answers = at_once(_senders(host, asked, chance))
    refusal = _refusal(host, asked)
    assert refusal.code == "ComputeResourcesUnavailable"
    for answer in answers:
        if isinstance(answer, RequestRefused):
            assert (answer.code, str(answer), answer.reasons) == (refusal.code, refusal.message, refusal.reasons)
        else:
            assert answer is None
    return asked, refusal


def check_ghost(host: RaceHost, name: str) -> ClaimRequest:
    """An id that was aborted before its call came is of no use any more, whoever sends it and how often."""
    asked = request(f"claim-{name}", name)
    aborted = host.client().abort_claim(asked.claim_id, "the call got no answer")
    assert (aborted.claim.state, aborted.claim.ended is not None) == ("ended", True)
    answers = at_once([lambda: host.client().claim(asked)] * SENDERS)
    assert {answer.code for answer in answers if isinstance(answer, RequestRefused)} == {"ClaimEnded"}
    assert all("(aborted)" in str(answer) for answer in answers)
    return asked


def check_aborted_while_made(host: RaceHost, name: str) -> ClaimRequest:
    """A claim and its abort at once: an abort that was answered has ended it, whichever of them came first."""
    asked = request(f"claim-{name}", name)
    half = SENDERS // 2
    calls = [lambda: host.client().claim(asked)] * half + [lambda: host.client().abort_claim(asked.claim_id)] * half
    answers = at_once(calls)
    for answer in answers[half:]:
        assert isinstance(answer, ClaimAnswer), answer
        assert answer.claim.ended is not None
        assert answer.claim.ended.how == "aborted"
    for told in answers[:half]:
        assert isinstance(told, ClaimAnswer) or told.code == "ClaimEnded", told
    assert [one for one in host.claims().claims if one.instance == asked.instance] == []
    return asked


def _senders(host: RaceHost, asked: ClaimRequest, chance: random.Random) -> list[Callable[[], ClaimAnswer | None]]:
    """Some wait for the answer, and one at least does not."""
    waits: list[Callable[[], ClaimAnswer | None]] = [lambda: host.client().claim(asked)]
    hangs_up: list[Callable[[], ClaimAnswer | None]] = [lambda: _hang_up(host, asked)]
    patient = chance.randrange(SENDERS)
    made = waits * patient + hangs_up * (SENDERS - patient)
    chance.shuffle(made)
    return made


def _hang_up(host: RaceHost, asked: ClaimRequest) -> None:
    """Send the whole request and go away."""
    body = msgspec.json.encode(claim_document(asked))
    head = (
        "POST /v1/claims HTTP/1.1\r\nHost: agent\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sender:
        sender.connect(str(host.socket))
        sender.sendall(head.encode() + body)


def _made(host: RaceHost, asked: ClaimRequest) -> ClaimAnswer | None:
    envelope = host.client().get(f"/v1/claims/{asked.claim_id}")
    return host.client().result(envelope, ClaimAnswer) if envelope.ok else None


def _refusal(host: RaceHost, asked: ClaimRequest) -> Refusal:
    refusal = host.client().post("/v1/claims", claim_document(asked)).refusal
    assert refusal is not None
    return refusal


def _place(answer: ClaimAnswer) -> tuple[object, ...]:
    return (answer.claim.claim_id, answer.claim.instance, answer.claim.placement, answer.claim.made_at)
