"""Claims, moves, groups and maintenance as whoever calls meets them, over the agent's own books and a journal."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from agent.core.guest import RunIdentity
from agent.core.ledger import Holds
from agent.formats import wire
from agent.formats.claim_view import ClaimAnswer, ClaimList, GroupInfo, MoveView
from agent.formats.route import Route
from agent.handlers import STATUS_OF, TABLE, Handlers
from tests.at_work import AtWork, build
from tests.builders import guest, unread, uuid_of


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AtWork]:
    """CPUs 2 to 7 are for pinned guests; nobody is here."""
    with AtWork(tmp_path / "state") as made:
        made.look()
        yield made


def claim(agent: AtWork, *names: Any, **changes: Any) -> ClaimAnswer:
    return wire.from_builtins(agent.result("POST", "/v1/claims", build(*names, **changes)), ClaimAnswer)


def refusal(agent: AtWork, method: str, path: str, document: object = None) -> tuple[int, str, str, str]:
    status, told = agent.ask(method, path, document)
    assert told.refusal is not None
    return status, told.refusal.code, told.refusal.retry, told.refusal.message


# --- a claim from its yes to its end ---------------------------------------------------------------


def test_a_build_is_told_its_place_and_holds_it(agent: AtWork) -> None:
    told = claim(agent)
    one = told.claim
    assert (told.is_new, told.remarks, told.guarantee, told.ignored) == (True, (), None, ())
    assert (one.claim_id, one.kind, one.role, one.state) == ("c1", "build", "owner", "reserved")
    assert one.placement is not None
    assert one.holds == Holds(
        uuid=uuid_of("web"),
        cpus=one.placement.cells[0].cpus,
        cell_memory_kib=MappingProxyType({0: 65536}),
    )
    assert (one.made_at, one.deadline_at) == (agent.moment().wall, "2026-11-30T12:31:51Z")
    assert agent.result("GET", "/v1/usage")["host"]["dedicated"]["promised"] == str(one.holds.cpus)
    read = wire.from_builtins(agent.result("GET", "/v1/claims/c1"), ClaimAnswer)
    assert (read.is_new, read.claim) == (False, one)


def test_the_same_request_again_gets_the_same_claim_and_another_one_a_conflict(agent: AtWork) -> None:
    first, again = claim(agent), claim(agent, context={"ttl_s": 20})
    assert (again.is_new, again.claim) == (False, first.claim)
    assert refusal(agent, "POST", "/v1/claims", build(vcpus=3))[:3] == (409, "ClaimConflict", "never")


def test_what_does_not_fit_is_refused_with_each_reason_as_a_sentence_and_as_data(agent: AtWork) -> None:
    status, told = agent.ask("POST", "/v1/claims", build(vcpus=7))
    no = told.refusal
    assert no is not None
    assert (status, no.code, no.retry) == (409, "ComputeResourcesUnavailable", "elsewhere")
    assert len(no.reasons) == len(no.details) == 1
    assert agent.ask("POST", "/v1/claims", build(vcpus=7))[1].refusal == no
    ended = agent.result("GET", "/v1/claims/c1")["claim"]["ended"]
    assert (ended["how"], ended["refusal"]["code"]) == ("refused", "ComputeResourcesUnavailable")


def test_the_digest_of_a_fit_is_that_of_its_claim(agent: AtWork) -> None:
    asked = build()
    fit = agent.result("POST", "/v1/fit", {"instance": asked["instance"], **asked["spec"]})
    told = claim(agent)
    assert told.claim.digest == fit["digest"]
    other = {**build(), "claim_id": "c2", "binding": fit["binding"], "digest": fit["digest"]}
    del other["spec"]
    assert refusal(agent, "POST", "/v1/claims", other)[1] == "InstanceBusy"
    assert agent.ask("POST", "/v1/claims", other)[1].refusal.claim_id == "c1"  # type: ignore[union-attr]


def test_what_of_the_context_means_nothing_here_is_told(agent: AtWork) -> None:
    assert claim(agent, context={"ttl_s": 30, "request_id": "req-1"}).ignored == ("request_id",)


def test_a_claim_can_be_renewed_confirmed_released_and_is_gone_then(agent: AtWork) -> None:
    claim(agent)
    renewed = agent.result("POST", "/v1/claims/c1/renew", {"ttl_s": 3600})["claim"]
    assert renewed["deadline_at"] == "2026-11-30T13:16:51Z"
    assert refusal(agent, "POST", "/v1/claims/c1/release")[:2] == (409, "IllegalTransition")
    assert refusal(agent, "POST", "/v1/claims/c1/confirm")[:2] == (409, "IllegalTransition")
    pins = renewed["placement"]["cells"][0]["pins"]
    run = RunIdentity(libvirt_id=1, pid=1000)
    here = guest("web", {int(vcpu): cpu for vcpu, cpu in pins.items()}, mem=64, node=0, run=run)
    agent.look(here)
    assert agent.result("POST", "/v1/claims/c1/confirm")["claim"]["state"] == "resident"
    released = agent.result("POST", "/v1/claims/c1/release", {"reason": "shelved"})["claim"]
    assert (released["state"], released["ended"]["how"], released["holds"]) == ("ended", "released", None)
    assert refusal(agent, "POST", "/v1/claims/c1/renew")[:2] == (410, "ClaimEnded")
    assert agent.result("GET", "/v1/claims") == {"claims": []}


def test_an_abort_of_an_id_that_was_never_seen_stops_a_call_that_comes_late(agent: AtWork) -> None:
    ended = agent.result("POST", "/v1/claims/c1/abort", {"reason": "no answer came"})["claim"]
    assert (ended["claim_id"], ended["state"], ended["ended"]["how"]) == ("c1", "ended", "aborted")
    assert refusal(agent, "POST", "/v1/claims", build())[:3] == (410, "ClaimEnded", "never")


def test_all_claims_are_listed_the_earliest_first(agent: AtWork) -> None:
    for number, name in enumerate(("web", "db", "mail")):
        claim(agent, f"c{number}", name, vcpus=1)
    listed = wire.from_builtins(agent.result("GET", "/v1/claims"), ClaimList)
    assert [one.claim_id for one in listed.claims] == ["c0", "c1", "c2"]


@pytest.mark.parametrize(
    ("method", "path", "document"),
    [
        ("GET", "/v1/claims/x", None),
        ("POST", "/v1/claims/x/renew", {}),
        ("POST", "/v1/claims/x/confirm", {}),
        ("POST", "/v1/claims/x/release", {}),
        ("POST", "/v1/claims/x/accept-observed", {}),
        ("POST", "/v1/claims/x/recheck", {}),
        ("GET", "/v1/moves/x", None),
        ("POST", "/v1/moves/x/finish", {"outcome": "confirmed"}),
        ("GET", "/v1/groups/x", None),
    ],
)
def test_what_is_not_known_is_not_found(agent: AtWork, method: str, path: str, document: object) -> None:
    assert refusal(agent, method, path, document)[:2] == (404, "ClaimNotFound")


def test_ids_may_hold_what_parts_a_path(agent: AtWork) -> None:
    name = "a/b?c=%2F ä"
    claim(agent, name)
    for verb, method in (("", "GET"), ("renew", "POST")):
        parts = ("", "v1", "claims", name, verb) if verb else ("", "v1", "claims", name)
        status, told = agent.ask(method, "/".join(parts), parts=parts)
        assert (status, told.result["claim"]["claim_id"]) == (200, name)


# --- moves, groups, maintenance --------------------------------------------------------------------


def test_a_guest_that_no_claim_made_gets_one_when_it_is_about_to_leave(agent: AtWork) -> None:
    agent.look(guest("old", {0: 2}))
    body = {"kind": "cold_migration", "instance": {"uuid": uuid_of("old"), "name": "old"}, "peer": "there"}
    one = agent.result("POST", "/v1/moves/m1/hold", body)["claim"]
    assert (one["role"], one["state"], one["move_id"], one["peer"]) == ("owner", "leaving", "m1", "there")
    move = wire.from_builtins(agent.result("GET", "/v1/moves/m1"), MoveView)
    assert (move.kind, move.instance, move.source, move.outcome) == (
        "cold_migration",
        uuid_of("old"),
        one["claim_id"],
        None,
    )
    done = agent.result("POST", "/v1/moves/m1/finish", {"outcome": "failed"})
    assert done["outcome"] == "failed"


def test_a_guest_that_is_half_of_a_move_is_not_changed_in_place_and_the_move_is_named(agent: AtWork) -> None:
    claim(agent, kind="resize", context={"move_id": "m1", "peer": "there"})
    here = guest("web", {0: 2}, run=RunIdentity(libvirt_id=1, pid=7))
    agent.look(here)
    agent.result("POST", "/v1/claims/c1/confirm")
    asked = build(claim_id="c2", kind="rebuild", context={"move_id": "m2"})
    assert refusal(agent, "POST", "/v1/claims", asked)[1:] == (
        "InstanceBusy",
        "later",
        (
            "Instance web has claim c1 here already (resize, resident): finish move m1 first:"
            " `agentctl migration finish m1 --outcome HOW` (confirmed, reverted or failed)"
        ),
    )
    agent.result("POST", "/v1/moves/m1/finish", {"outcome": "confirmed"})
    assert claim(agent, claim_id="c3", kind="rebuild", context={"move_id": "m3"}).claim.role == "in_place"


def test_a_move_id_is_of_one_guest_alone(agent: AtWork) -> None:
    agent.look(guest("a", {0: 2}), guest("b", {0: 3}))
    held = {"kind": "live_migration", "peer": "there"}
    agent.result("POST", "/v1/moves/m1/hold", {**held, "instance": {"uuid": uuid_of("a"), "name": "a"}})
    other = {**held, "instance": {"uuid": uuid_of("b"), "name": "b"}}
    said = (
        "ClaimConflict",
        "never",
        f"Move id m1 was used before for another guest (instance {uuid_of('a')}): use a new id",
    )
    assert refusal(agent, "POST", "/v1/moves/m1/hold", other)[1:] == said
    asked = build(kind="live_migration", context={"move_id": "m1", "peer": "there"})
    assert refusal(agent, "POST", "/v1/claims", asked)[1:] == said
    assert agent.result("POST", "/v1/moves/m1/finish", {"outcome": "failed"})["instance"] == uuid_of("a")


def test_a_move_goes_on_when_one_claim_of_it_takes_the_place_of_another(agent: AtWork) -> None:
    claim(agent, kind="resize", context={"move_id": "m1", "peer": "there"})
    claim(agent, claim_id="c2", kind="resize", context={"move_id": "m1", "peer": "there", "replaces": "c1"})
    move = wire.from_builtins(agent.result("GET", "/v1/moves/m1"), MoveView)
    assert (move.destination, move.outcome) == ("c2", None)
    claim(agent, claim_id="c3", kind="resize", context={"move_id": "m2", "peer": "there", "replaces": "c2"})
    assert agent.result("GET", "/v1/moves/m1")["outcome"] == "failed"


@pytest.mark.parametrize("is_ended", [False, True])
def test_a_claim_takes_the_place_of_no_other_guests_claim(agent: AtWork, is_ended: bool) -> None:
    claim(agent)
    if is_ended:
        agent.result("POST", "/v1/claims/c1/abort")
    other = {"uuid": uuid_of("b"), "name": "b"}
    told = refusal(agent, "POST", "/v1/claims", build(claim_id="c2", instance=other, context={"replaces": "c1"}))
    assert told[1:3] == ("ClaimNotFound", "never")
    assert "which is none of instance" in told[3]


def test_a_change_in_place_of_a_guest_that_is_forgotten_has_failed(agent: AtWork) -> None:
    agent.look(guest("old", {0: 2}, run=RunIdentity(libvirt_id=1, pid=7)))
    old = {"uuid": uuid_of("old"), "name": "old"}
    asked = claim(agent, claim_id="c3", kind="resize", instance=old, context={"move_id": "m3"})
    assert asked.claim.role == "in_place"
    assert agent.result("POST", "/v1/claims/c3/confirm")["claim"]["state"] == "parked"
    agent.result("POST", f"/v1/instances/{uuid_of('old')}/forget", {"moved_to": "there"})
    assert agent.result("GET", "/v1/moves/m3")["outcome"] == "failed"


def test_a_claim_is_not_confirmed_before_its_domain_was_seen_and_may_be_later(agent: AtWork) -> None:
    claim(agent)
    assert refusal(agent, "POST", "/v1/claims/c1/confirm")[1:3] == ("IllegalTransition", "later")


def test_what_a_domain_holds_is_not_accepted_while_it_cannot_be_read(agent: AtWork) -> None:
    claim(agent)
    agent.look(guest("web", {0: 2}, run=RunIdentity(libvirt_id=1, pid=7)))
    agent.result("POST", "/v1/claims/c1/confirm")
    agent.restart()
    agent.look(unread("web"))
    assert refusal(agent, "POST", "/v1/claims/c1/accept-observed")[1:3] == ("IllegalTransition", "later")
    agent.look(guest("web", {0: 5}, run=RunIdentity(libvirt_id=1, pid=7)))
    assert agent.result("POST", "/v1/claims/c1/accept-observed")["claim"]["holds"]["cpus"] == "5"


def test_a_group_is_told_with_who_is_seated_and_holds_in_the_next_claim(agent: AtWork) -> None:
    agent.look(guest("old", {0: 2}))
    group = {"policy": "anti-affinity", "members": [uuid_of("old"), uuid_of("web")], "generation": 3}
    told = wire.from_builtins(agent.result("PUT", "/v1/groups/g1", group), GroupInfo)
    assert (told.id, told.policy, told.generation, told.seated) == ("g1", "anti-affinity", 3, (uuid_of("old"),))
    assert {one.instance: one.seated for one in told.members} == {uuid_of("old"): True, uuid_of("web"): False}
    assert agent.result("GET", "/v1/groups/g1") == json.loads(wire.to_json(told))
    asked = build(context={"group": {"id": "g1", **group}})
    status, code, retry, message = refusal(agent, "POST", "/v1/claims", asked)
    assert (status, code, retry) == (409, "GroupAffinityViolation", "elsewhere")
    assert "Anti-affinity instance group policy was violated" in message


def test_maintenance_refuses_new_guests_with_its_reason_until_it_ends(agent: AtWork) -> None:
    assert agent.result("GET", "/v1/maintenance") == {"maintenance": None}
    kept = agent.result("PUT", "/v1/maintenance", {"reason": "new memory"})
    assert kept == {"maintenance": {"reason": "new memory", "since": agent.moment().wall}}
    assert agent.result("GET", "/v1/maintenance") == kept
    status, code, _, message = refusal(agent, "POST", "/v1/claims", build())
    assert (status, code, "new memory" in message) == (503, "HostInMaintenance", True)
    assert agent.result("PUT", "/v1/maintenance", {"reason": None}) == {"maintenance": None}
    assert claim(agent, "c2").is_new


def test_an_instance_that_lives_elsewhere_is_forgotten(agent: AtWork) -> None:
    agent.look(guest("old", {0: 2}, state="shut-off"))
    told = agent.result("POST", f"/v1/instances/{uuid_of('old')}/forget", {"moved_to": "there"})
    assert told == {"instance": uuid_of("old"), "at": agent.moment().wall, "moved_to": "there"}


def test_a_journal_that_is_right_may_be_accepted_too(agent: AtWork) -> None:
    assert agent.result("POST", "/v1/journal/accept") == {"was_damaged": False}


def test_before_the_first_look_nobody_is_admitted_and_claims_are_read(tmp_path: Path) -> None:
    with AtWork(tmp_path / "state") as agent:
        status, code, retry, message = refusal(agent, "POST", "/v1/claims", build())
        assert (status, code, retry, message) == (503, "AgentNotReady", "later", "The host was not looked at yet.")
        assert agent.result("GET", "/v1/claims") == {"claims": []}


# --- how a request is sent -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [None, "text/plain", "application/json; charset=latin-1", "application/jsonx"])
def test_a_change_must_say_that_it_is_json(agent: AtWork, kind: str | None) -> None:
    status, told = agent.ask("POST", "/v1/claims", build(), content_type=kind)
    assert told.refusal is not None
    assert (status, told.refusal.code) == (415, "InvalidRequest")
    assert agent.result("GET", "/v1/claims") == {"claims": []}


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"']
)
def test_json_may_be_said_in_each_way(agent: AtWork, kind: str) -> None:
    assert agent.ask("POST", "/v1/claims", build(), content_type=kind)[0] == 200


@pytest.mark.parametrize("kind", [None, "application/x-www-form-urlencoded", "application/json"])
def test_a_question_may_be_asked_as_curl_does(agent: AtWork, kind: str | None) -> None:
    assert agent.ask("POST", "/v1/fit", build()["spec"], content_type=kind)[0] == 200


@pytest.mark.parametrize(
    ("body", "status", "fault"),
    [
        (b"", 400, "The request is empty"),
        (b"{", 400, "The request is not JSON"),
        (b"[]", 400, "An object is expected, not a list"),
        (b'{"claim_id": "a", "claim_id": "b"}', 400, 'The request has "claim_id" twice'),
        (b" " * (256 * 1024 + 1), 413, "The body is longer than 262144 bytes."),
        (json.dumps({"v": 2}).encode(), 400, "v: 2 is not known here; 1 is"),
        (json.dumps({"v": True}).encode(), 400, "v: true is not known here; 1 is"),
        (json.dumps({"expected_agent_id": "x"}).encode(), 400, "expected_agent_id: this is agent "),
    ],
)
def test_a_body_that_cannot_be_meant_is_refused_in_a_sentence(
    agent: AtWork, body: bytes, status: int, fault: str
) -> None:
    found, told = agent.ask("POST", "/v1/claims", body, content_type="application/json")
    assert told.refusal is not None
    assert (found, told.refusal.message[: len(fault)]) == (status, fault)


def test_an_unknown_version_has_a_code_of_its_own(agent: AtWork) -> None:
    assert refusal(agent, "POST", "/v1/claims", {**build(), "v": 2})[1] == "UnsupportedVersion"
    own = agent.ask("GET", "/v1/health")[1].agent_id
    assert agent.ask("POST", "/v1/claims", {**build(), "v": 1, "expected_agent_id": own})[0] == 200


def test_the_body_may_repeat_what_the_path_says_and_not_contradict_it(agent: AtWork) -> None:
    claim(agent)
    assert agent.ask("POST", "/v1/claims/c1/renew", {"claim_id": "c1"})[0] == 200
    assert refusal(agent, "POST", "/v1/claims/c1/renew", {"claim_id": "c2"})[3].startswith(
        "claim_id: another than in the"
    )


def path_of(route: Route) -> str:
    """A path of this row, of things that are not there."""
    named = {"uuid": uuid_of("x"), "address": "0000:3b:00.0"}
    return route.path.format_map({name: named.get(name, "x") for name in route.parameters})


@pytest.mark.parametrize("route", [one for one in TABLE.routes if one.work == "change"], ids=lambda one: one.call)
def test_no_change_is_made_over_the_socket_that_only_reads(agent: AtWork, route: Route) -> None:
    status, told = agent.ask(route.method, path_of(route), {}, writable=False)
    assert (status, told.ok) == (405, False)


@pytest.mark.parametrize("route", [one for one in TABLE.routes if one.asks is not None], ids=lambda one: one.call)
def test_an_unknown_field_is_refused_by_name_everywhere(agent: AtWork, route: Route) -> None:
    status, told = agent.ask(route.method, path_of(route), {"from_the_future": 1})
    assert told.refusal is not None
    assert status == 400
    assert any(reason.startswith("from_the_future: unknown.") for reason in told.refusal.reasons)


def test_each_change_leaves_one_line_with_who_asked_and_nothing_of_what_was_sent(
    agent: AtWork, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "agent.handlers")
    agent.ask("POST", "/v1/claims", build("c 1=[x"))
    agent.ask("POST", "/v1/claims/c2/renew", {"ttl_s": 20})
    agent.ask("PUT", "/v1/maintenance", {"reason": "secret"})
    agent.ask("POST", "/v1/claims", b"{", content_type="application/json")
    agent.ask("GET", "/v1/claims")
    assert [record.getMessage() for record in caplog.records if record.name == "agent.handlers.answer"] == [
        "change method=POST path=/v1/claims claim=c 1\\x3d\\x5bx code=ok pid=4711 uid=107 gid=108",
        "change method=POST path=/v1/claims/c2/renew claim=c2 code=ClaimNotFound pid=4711 uid=107 gid=108",
        "change method=PUT path=/v1/maintenance claim=- code=ok pid=4711 uid=107 gid=108",
        "change method=POST path=/v1/claims claim=- code=InvalidRequest pid=4711 uid=107 gid=108",
    ]


# --- the methods without HTTP ----------------------------------------------------------------------


def test_each_method_is_one_dict_in_and_one_envelope_out(agent: AtWork) -> None:
    for route in TABLE.routes:
        told = agent.handlers.call(route.call, {"from_the_future": 1})
        assert (told.ok, told.refusal and told.refusal.code) == (False, "InvalidRequest")
    told = agent.handlers.call("claim", build())
    assert told.ok
    assert agent.handlers.call("get_claim", {"claim_id": "c1"}).ok


def test_an_agent_that_promises_nothing_says_so(agent: AtWork) -> None:
    only_looks = Handlers(
        snapshot=lambda: agent.tracker.snapshot,
        clock=lambda: agent.now_s,
        now=lambda: agent.moment().wall,
        interval_s=lambda: 1e9,
        alive=lambda: None,
    )
    told = only_looks.call("claim", build())
    assert told.refusal is not None
    assert (told.refusal.code, told.refusal.retry) == ("AgentNotReady", "elsewhere")


def test_each_code_that_a_path_may_refuse_with_has_a_status() -> None:
    assert {code for route in TABLE.routes for code in route.refuses} <= set(STATUS_OF)
