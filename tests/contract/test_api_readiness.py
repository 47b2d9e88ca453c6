"""Whether the agent says ready is whether guests can be admitted; and its words are those of the API."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from agent.adapters.journal import FILE
from agent.formats import wire
from agent.formats.envelope import Envelope
from tests.at_work import AtWork
from tests.builders import guest, uuid_of
from tests.functional.lab import wait_until

PATIENCE_S = 60.0
NIL = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AtWork]:
    with AtWork(tmp_path / "state") as made:
        made.look(guest("old"))
        yield made


def probe(agent: AtWork, path: str) -> tuple[int, str]:
    answer = agent.answer("GET", path)
    return answer.status, answer.body.decode()


def health(agent: AtWork) -> Any:
    return wire.to_builtins(agent.handlers.call("get_health").result)


def refusal(told: Envelope) -> tuple[str, tuple[str, ...]]:
    assert told.refusal is not None
    return told.refusal.message, told.refusal.reasons


def build(**more: object) -> dict[str, object]:
    spec = {"flavor": {"vcpus": 1, "memory_mb": 64}}
    instance = {"uuid": uuid_of("a"), "name": "a"}
    return {"claim_id": "c1", "kind": "build", "instance": instance, "spec": spec, **more}


def test_it_is_not_ready_while_nothing_can_be_stored_and_says_why(agent: AtWork) -> None:
    assert probe(agent, "/readyz") == (HTTPStatus.OK, "ok\n")
    assert health(agent)["ready"] is True
    file = agent.state_path / FILE
    file.rename(file.with_name("aside"))
    agent.journal.check()
    wait_until(lambda: agent.journal.problem is not None, "the journal to look", PATIENCE_S)
    status, text = probe(agent, "/readyz")
    assert status == HTTPStatus.SERVICE_UNAVAILABLE
    assert "No guest is admitted: " in text
    assert "is gone from under the agent" in text
    found = health(agent)
    assert (found["ready"], found["status"]) == (False, "degraded")
    assert wire.to_builtins(agent.handlers.report())["health"] == found
    assert probe(agent, "/livez")[0] == HTTPStatus.OK
    assert probe(agent, "/healthz")[0] == HTTPStatus.OK
    assert agent.handlers.fit({"flavor": {"vcpus": 1, "memory_mb": 64}}).ok, "a question is not a promise"


def test_it_is_not_ready_while_a_damaged_journal_keeps_admissions_closed(agent: AtWork) -> None:
    (agent.state_path / FILE).write_bytes(b"x" * 5000)
    agent.restart()
    agent.look(guest("old"))
    status, text = probe(agent, "/readyz")
    assert status == HTTPStatus.SERVICE_UNAVAILABLE
    assert "No guest is admitted: journal-damaged: " in text
    assert probe(agent, "/livez")[0] == HTTPStatus.OK
    assert agent.claims.accept_journal() is None
    assert probe(agent, "/readyz") == (HTTPStatus.OK, "ok\n")
    assert health(agent)["ready"] is True


@pytest.mark.parametrize("kind", ["build", "rebuild", "evacuate", "unshelve"])
def test_what_is_no_move_is_not_held_for_one(agent: AtWork, kind: str) -> None:
    body = {"move_id": "m", "kind": kind, "instance": {"uuid": uuid_of("old"), "name": "old"}}
    message, _ = refusal(agent.handlers.call("hold_for_move", body))
    assert message == f'kind: "{kind}" is none of resize, cold_migration, live_migration'
    assert not agent.book.claims


@pytest.mark.parametrize(("version", "text"), [(None, "null"), (True, "true"), ("x", '"x"'), ([1], "a list")])
def test_a_version_is_told_as_json_has_it(agent: AtWork, version: object, text: str) -> None:
    assert refusal(agent.handlers.call("claim", build(v=version)))[0] == f"v: {text} is not known here; 1 is"


def test_a_number_that_is_too_large_is_told_in_words(agent: AtWork) -> None:
    for number in ("1e999", "9" * 5000):
        body = f'{{"claim_id": "x", "context": {{"ttl_s": {number}}}}}'
        answer = agent.answer("POST", "/v1/claims", body.encode())
        assert answer.status == HTTPStatus.BAD_REQUEST
        assert b"out of range" in answer.body
        assert b"$" not in answer.body


def test_the_uuid_of_no_instance_is_refused_for_what_it_is(agent: AtWork) -> None:
    message, reasons = refusal(agent.handlers.call("claim", build(instance={"uuid": NIL, "name": "a"})))
    assert reasons == ("instance.uuid: all zeros, which is the uuid of no instance",)
    assert message == reasons[0]
    assert "all zeros" in refusal(agent.handlers.call("forget_instance", {"uuid": NIL}))[0]


def test_a_request_that_did_not_come_in_time_may_be_sent_again(agent: AtWork) -> None:
    late = agent.handlers.refuse("InvalidRequest", "The request did not come in time.", HTTPStatus.REQUEST_TIMEOUT)
    assert b'"retry":"later"' in late.body
    other = agent.handlers.refuse("InvalidRequest", "No HTTP.", HTTPStatus.BAD_REQUEST)
    assert b'"retry":"never"' in other.body
