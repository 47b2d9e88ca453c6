"""What the local API answers to the question whether a guest fits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from agent.core.dry_run import FitAnswer
from agent.core.flavor import Property
from agent.core.reasons import CpusShort
from agent.core.snapshot import configured
from agent.formats import wire
from agent.formats.envelope import ApiRequest, ApiResponse, Envelope, Refusal
from agent.formats.request import LONGEST_REQUEST
from agent.formats.snapshot_file import restored, saved
from agent.handlers import Handlers, LatestHostFacts
from tests.unit.test_handlers import AT_S, EMPTY, INTERVAL_S, NOW, PEER, Api, looked

PINNED: Mapping[str, object] = {"hw:cpu_policy": "dedicated"}


@pytest.fixture
def api() -> Api:
    """CPUs 2 to 7 are for pinned guests, who have 2 and 3 already."""
    return Api()


def request(vcpus: int = 2, extra_specs: Mapping[str, object] = PINNED) -> dict[str, Any]:
    return {"flavor": {"vcpus": vcpus, "memory_mb": 64, "extra_specs": dict(extra_specs)}}


def post(api: Api, body: object, **fields: Any) -> ApiResponse:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return api.handlers.answer(ApiRequest(**{"method": "POST", "path": "/v1/fit", "peer": PEER, "body": raw, **fields}))


def result(answer: ApiResponse) -> dict[str, Any]:
    assert answer.status == HTTPStatus.OK
    told: dict[str, Any] = wire.from_json(answer.body, Envelope).result
    return told


def refusal(answer: ApiResponse) -> Refusal:
    told = wire.from_json(answer.body, Envelope).refusal
    assert told is not None
    return told


def test_a_guest_that_fits_is_told_its_place_and_of_which_picture(api: Api) -> None:
    told = result(post(api, request()))
    assert set(told) == {"fits", "placement", "unknown", "notes", "binding", "digest", "epoch", "generation"}
    assert (told["fits"], told["epoch"], told["generation"]) == (True, 3, 1)
    assert told["placement"]["cells"][0]["pins"] == {"0": 4, "1": 5}


def test_a_guest_that_does_not_fit_is_told_every_reason_with_who_holds_what(api: Api) -> None:
    told = result(post(api, request(vcpus=5)))
    assert (told["fits"], "placement" in told) == (False, False)
    answer = wire.from_builtins(told, FitAnswer)
    (reason,) = answer.reasons
    assert isinstance(reason, CpusShort)
    assert (reason.asked, str(reason.free)) == (5, "4-7")
    assert {owner.name for row in reason.holders for owner in row.owners} == {"a", "b"}


def test_what_was_not_understood_is_told_beside_the_answer(api: Api) -> None:
    told = result(post(api, request(extra_specs={**PINNED, "hw:no_such_thing": 1})))
    assert (told["fits"], told["unknown"]) == (True, ["hw:no_such_thing"])


def test_a_wrong_request_is_refused_with_each_fault_by_its_path(api: Api) -> None:
    answer = post(api, {"flavor": {"vcpus": "2"}})
    told = refusal(answer)
    assert (answer.status, told.code, told.retry) == (HTTPStatus.BAD_REQUEST, "InvalidRequest", "never")
    assert told.reasons == ('flavor.vcpus: a whole number is expected, not "2"', "flavor.memory_mb: missing")
    assert told.message == 'flavor.vcpus: a whole number is expected, not "2" and 1 more'


def test_a_request_that_contradicts_itself_is_refused_with_what_to_change(api: Api) -> None:
    told = refusal(post(api, request(extra_specs={"hw:cpu_policy": "nix"})))
    assert told.code == "InvalidRequest"
    (reason,) = told.reasons
    assert reason.startswith("hw:cpu_policy=nix of the flavor is none of")
    assert "Set hw:cpu_policy" in reason
    (fault,) = told.faults
    assert fault.kind == "cpu-policy-unknown"
    assert fault.properties == (Property(name="hw:cpu_policy", value="nix", where="flavor"),)
    assert reason == f"{fault.found} {fault.change}"


@pytest.mark.parametrize("path", ["/v1/fit", "/v1/snapshot"])
def test_before_the_first_complete_look_the_answer_is_to_ask_later(path: str) -> None:
    early = Api(EMPTY)
    answer = post(early, request()) if path == "/v1/fit" else early.get(path)
    told = refusal(answer)
    assert (answer.status, told.code, told.retry) == (HTTPStatus.SERVICE_UNAVAILABLE, "AgentNotReady", "later")
    assert told.reasons == ("No complete look at the host and its guests has been made yet.",)


def test_nothing_is_promised_on_a_picture_that_is_out_of_date() -> None:
    late = Handlers(
        snapshot=looked, clock=lambda: AT_S + 1000, now=lambda: NOW, interval_s=lambda: INTERVAL_S, alive=lambda: None
    )
    told = late.fit(request()).refusal
    assert told is not None
    assert (told.code, told.retry) == ("AgentNotReady", "later")


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
def test_only_a_post_asks(api: Api, method: str) -> None:
    answer = post(api, request(), method=method)
    assert answer.status == HTTPStatus.METHOD_NOT_ALLOWED
    assert refusal(answer).message == f"{method} /v1/fit: only POST"


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "The request is empty"),
        (b"\0\xff", 400, "The request is not JSON"),
        (b"[" * 200_000, 400, "The request is nested too deeply"),
        (b"[]", 400, "An object is expected"),
        (b'{"flavor":{"vcpus":' + b"9" * 4000 + b',"memory_mb":1}}', 400, "flavor.vcpus: it is not between"),
        (b" " * (LONGEST_REQUEST + 1), 413, "The body is longer than 262144 bytes."),
    ],
)
def test_absurd_bodies_are_refused_in_a_sentence(api: Api, body: bytes, status: int, message: str) -> None:
    answer = post(api, body)
    told = refusal(answer)
    assert (answer.status, told.code) == (status, "InvalidRequest")
    assert told.message.startswith(message)
    assert told.message.isprintable()


def test_a_query_has_no_meaning_and_is_refused(api: Api) -> None:
    answer = post(api, request(), query=MappingProxyType({"count": "3"}))
    assert answer.status == HTTPStatus.BAD_REQUEST


def test_a_saved_snapshot_gives_the_same_answer(api: Api) -> None:
    kept = restored(saved(api.snapshot))
    away = Api(msgspec.structs.replace(kept, sources=api.snapshot.sources))
    for vcpus in (2, 5):
        assert result(post(away, request(vcpus))) == result(post(api, request(vcpus)))


def test_facts_are_kept_while_host_and_configuration_stay_the_same() -> None:
    facts, host = LatestHostFacts(), looked()
    first = facts.of(host)
    assert facts.of(msgspec.structs.replace(host, generation=9)) is first
    other = configured(host, msgspec.structs.replace(host.config, pack_cells=True))
    assert facts.of(other) is not first
    assert facts.of(host) is not first
