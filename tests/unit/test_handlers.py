"""What the local API answers, path by path."""

from __future__ import annotations

import json
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from agent.core.report import Report, report
from agent.core.snapshot import Findings, Identity, Snapshot, SourceState, first, take_in, with_sources
from agent.formats import wire
from agent.formats.envelope import ApiRequest, ApiResponse, Envelope, Peer, Refusal
from agent.formats.snapshot_file import saved
from agent.handlers import PATHS, PROBES, TABLE, Handlers
from tests.builders import guest, h8, listing, processes

IDENTITY = Identity(agent_id="agent-1", boot_id="boot-1", epoch=3)
NOW = "2026-11-30T12:00:00Z"
AT_S, INTERVAL_S = 105.0, 10.0
PEER = Peer(pid=1, uid=0, gid=0)
SOURCES = tuple(SourceState(name=name, read_at=100.0) for name in ("domains", "libvirt", "processes", "sysfs"))
EMPTY = first(IDENTITY, h8().config)


def looked() -> Snapshot:
    """Two guests on CPU 3, read five seconds ago."""
    guests = (guest("a", {0: 2, 1: 3}, at=100.1), guest("b", {0: 3}, at=100.1))
    found = Findings(
        topology=h8().topology,
        listing=listing("a", "b", at=100.0),
        processes=processes(at=100.2),
        sightings=guests,
        sources=SOURCES,
    )
    return take_in(EMPTY, found)


class Api:
    """Handlers over one snapshot. stuck: what `alive` says."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self.snapshot = looked() if snapshot is None else snapshot
        self.stuck: str | None = None
        self.taken = 0
        self.handlers = Handlers(
            snapshot=self._take,
            clock=lambda: AT_S,
            now=lambda: NOW,
            interval_s=lambda: INTERVAL_S,
            alive=lambda: self.stuck,
        )

    def _take(self) -> Snapshot:
        self.taken += 1
        return self.snapshot

    @property
    def report(self) -> Report:
        return report(self.snapshot, now_s=AT_S, interval_s=INTERVAL_S)

    def get(self, path: str, **fields: Any) -> ApiResponse:
        return self.handlers.answer(ApiRequest(**{"method": "GET", "path": path, "peer": PEER, **fields}))


@pytest.fixture
def api() -> Api:
    return Api()


def envelope(answer: ApiResponse) -> Envelope:
    return wire.from_json(answer.body, Envelope)


def text(answer: ApiResponse) -> tuple[int, str, str]:
    return answer.status, answer.content_type, answer.body.decode()


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_is_an_envelope_that_says_of_which_picture_it_is(api: Api, path: str) -> None:
    answer = api.get(path)
    assert (answer.status, answer.content_type) == (HTTPStatus.OK, "application/json")
    document = json.loads(answer.body)
    result = document.pop("result")
    assert result is not None
    assert document == {
        "v": 1,
        "agent_id": "agent-1",
        "boot_id": "boot-1",
        "epoch": 3,
        "generation": 1,
        "now": NOW,
        "ok": True,
        "refusal": None,
    }


@pytest.mark.parametrize("path", [*PATHS, *PROBES])
def test_an_answer_is_made_of_one_picture(api: Api, path: str) -> None:
    api.get(path)
    assert api.taken == 1


def test_each_path_gives_its_part_of_the_report(api: Api) -> None:
    told = json.loads(wire.to_json(api.report))
    results = {path: envelope(api.get(path)).result for path in PATHS}
    assert results == {
        "/v1/topology": told["topology"],
        "/v1/domains": {"domains": told["guests"]},
        "/v1/usage": {"epoch": 3, "generation": 1, **told["usage"]},
        "/v1/conflicts": told["conflicts"],
        "/v1/health": told["health"],
        "/v1/report": told,
        "/v1/snapshot": json.loads(wire.to_json(saved(api.snapshot))),
    }
    assert [row["id"] for row in results["/v1/conflicts"]] == ["cpu-pinned-twice:cpu:3"]
    assert [one["sighting"]["name"] for one in results["/v1/domains"]["domains"]] == ["a", "b"]


def test_conflicts_are_sent_once(api: Api) -> None:
    report = api.get("/v1/report").body
    assert report.count(b'"cause":') == len(api.report.conflicts) == 1
    assert "conflicts" not in envelope(api.get("/v1/usage")).result


def test_a_result_reads_back_as_the_value_it_was(api: Api) -> None:
    assert wire.from_builtins(envelope(api.get("/v1/report")).result, Report) == api.report


def test_ages_are_those_of_the_moment_of_the_answer(api: Api) -> None:
    told = envelope(api.get("/v1/health")).result
    assert {source["name"]: source["age_s"] for source in told["sources"]} == {state.name: 5.0 for state in SOURCES}


def test_head_is_answered_as_get(api: Api) -> None:
    assert api.get("/v1/health", method="HEAD") == api.get("/v1/health")
    assert api.get("/livez", method="HEAD") == api.get("/livez")


@pytest.mark.parametrize("path", [*PATHS, *PROBES])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_are_refused_everywhere(api: Api, path: str, method: str) -> None:
    answer = api.get(path, method=method, writable=True)
    refusal = envelope(answer).refusal
    assert refusal is not None
    assert (answer.status, refusal.code, refusal.retry) == (405, "InvalidRequest", "never")
    assert refusal.message == f"{method} {path}: only GET and HEAD"
    assert dict(answer.headers) == {"Allow": "GET, HEAD"}


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/", "/v1/Topology", "/v1/topology/", "/v2/health", "/v1/../livez", "/é"]
)
def test_an_unknown_path_is_refused_with_those_that_are_known(api: Api, path: str) -> None:
    answer = api.get(path)
    refusal = envelope(answer).refusal
    assert refusal is not None
    assert (answer.status, refusal.code) == (404, "InvalidRequest")
    assert refusal.message.startswith(f"there is no {path!r}; known are /v1/topology, /v1/domains")
    assert refusal.message.endswith("/healthz, /livez, /readyz")


@pytest.mark.parametrize("extra", [{"query": MappingProxyType({"pretty": ""})}, {"body": b"{}"}])
def test_a_query_or_a_body_that_nobody_reads_is_refused(api: Api, extra: dict[str, Any]) -> None:
    answer = api.get("/v1/usage", **extra)
    refusal = envelope(answer).refusal
    assert refusal is not None
    assert (answer.status, refusal.message) == (400, "/v1/usage takes no query and no body")


def test_a_refusal_says_of_which_picture_it_is_and_carries_no_result(api: Api) -> None:
    told = envelope(api.get("/nothing"))
    assert (told.ok, told.result, told.agent_id, told.epoch, told.generation) == (False, None, "agent-1", 3, 1)


def test_a_request_that_no_handler_sees_is_refused_with_the_current_picture(api: Api) -> None:
    answer = api.handlers.refuse("InternalError", "The agent made a mistake.", 500)
    assert (answer.status, answer.content_type) == (500, "application/json")
    assert envelope(answer) == Envelope(
        agent_id="agent-1",
        boot_id="boot-1",
        epoch=3,
        generation=1,
        now=NOW,
        ok=False,
        refusal=Refusal(code="InternalError", message="The agent made a mistake."),
    )


def test_who_is_refused_because_too_much_waits_may_come_again(api: Api) -> None:
    told = envelope(api.handlers.refuse("AgentNotReady", "Too much waits.", 503)).refusal
    assert told == Refusal(code="AgentNotReady", message="Too much waits.", retry="later")


def test_an_unknown_method_of_the_calls_is_refused_by_name(api: Api) -> None:
    told = api.handlers.call("destroy_everything")
    assert told.refusal is not None
    assert told.refusal.message.startswith("there is no method 'destroy_everything'; known are abort_claim, accept_j")
    assert all(route.call in told.refusal.message for route in TABLE.routes)


@pytest.mark.parametrize("path", PROBES)
def test_probes_of_a_well_host_say_ok(api: Api, path: str) -> None:
    assert text(api.get(path)) == (200, "text/plain; charset=utf-8", "ok\n")


@pytest.mark.parametrize("path", PROBES)
@pytest.mark.parametrize("stuck", [None, "no pass has ended for 99 s"])
def test_probes_say_in_headers_of_which_picture_they_are(api: Api, path: str, stuck: str | None) -> None:
    api.stuck = stuck
    assert dict(api.get(path).headers) == {"X-Compute-Agent-Epoch": "3", "X-Compute-Agent-Generation": "1"}


@pytest.mark.parametrize("path", PROBES)
def test_every_probe_fails_while_no_pass_ends_and_says_why(api: Api, path: str) -> None:
    api.stuck = "no pass has ended for 99 s"
    assert text(api.get(path)) == (503, "text/plain; charset=utf-8", "no pass has ended for 99 s\n")


def test_before_the_first_look_it_lives_and_is_not_ready() -> None:
    api = Api(EMPTY)
    status, _, said = text(api.get("/readyz"))
    assert (status, said) == (503, "No complete look at the host and its guests has been made yet.\n")
    assert [api.get(path).status for path in ("/livez", "/healthz")] == [200, 200]


def test_a_host_whose_guests_were_never_seen_is_down() -> None:
    api = Api(with_sources(EMPTY, SourceState(name="libvirt", problem="No socket. Start libvirtd.")))
    status, _, said = text(api.get("/healthz"))
    assert status == 503
    assert "libvirt: No socket. Start libvirtd (never read)." in said
    assert api.get("/livez").status == 200


def test_old_readings_are_not_ready_and_still_healthy_enough_to_serve() -> None:
    old = tuple(msgspec.structs.replace(state, read_at=80.0) for state in SOURCES)
    api = Api(with_sources(looked(), *old))
    status, _, said = text(api.get("/readyz"))
    assert (status, "libvirt: last read 25 s ago." in said) == (503, True)
    assert api.get("/healthz").status == 200


def test_conflicts_fail_no_probe(api: Api) -> None:
    assert api.report.health.status == "degraded"
    assert [api.get(path).status for path in PROBES] == [200, 200, 200]
