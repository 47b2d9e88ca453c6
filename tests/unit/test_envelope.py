"""One body for every answer."""

from __future__ import annotations

import json

from agent.core.cpuset import CpuSet
from agent.core.snapshot import Identity
from agent.core.topology import HostCell
from agent.formats import wire
from agent.formats.envelope import Envelope, Refusal, refused, respond, success

IDENTITY = Identity(agent_id="a1", boot_id="b1", epoch=3)
NOW = "2026-11-30T12:00:00Z"
CELL = HostCell(id=1, cpus=CpuSet([4, 5, 6]), memory_kib=1024)


def test_an_answer_says_of_which_picture_of_which_start_of_which_agent_it_is() -> None:
    body = json.loads(wire.to_json(success(IDENTITY, 17, NOW, {"cpus": CpuSet([4, 5, 6])})))
    assert body == {
        "v": 1,
        "agent_id": "a1",
        "boot_id": "b1",
        "epoch": 3,
        "generation": 17,
        "now": NOW,
        "ok": True,
        "result": {"cpus": "4-6"},
        "refusal": None,
    }


def test_a_result_comes_out_as_the_value_that_went_in() -> None:
    read = wire.from_json(wire.to_json(success(IDENTITY, 17, NOW, CELL)), Envelope)
    assert wire.from_builtins(read.result, HostCell) == CELL


def test_a_refusal_survives_the_way_with_every_field() -> None:
    no = Refusal(code="AgentNotReady", message="No pass yet.", retry="later", reasons=("domains: never read",))
    sent = refused(IDENTITY, 0, NOW, no)
    assert (sent.ok, sent.result) == (False, None)
    assert wire.from_json(wire.to_json(sent), Envelope) == sent


def test_an_answer_is_json_with_status_200_unless_said_otherwise() -> None:
    envelope = success(IDENTITY, 1, NOW, None)
    assert (respond(envelope).status, respond(envelope).content_type) == (200, "application/json")
    assert respond(envelope, 404).status == 404
