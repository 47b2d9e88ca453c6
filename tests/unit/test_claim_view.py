"""What is told of claims, moves and groups."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.core.claim.refusal import ClaimRefusal
from agent.core.claim.values import Claim, Deadline, GroupRule, Membership, Move, Tombstone
from agent.core.instance import Group, Instance
from agent.core.ledger import Holds
from agent.core.reason_text import sentence
from agent.formats import wire
from agent.formats.claim_view import (
    ClaimView,
    claim_document,
    claim_view,
    group_info,
    move_view,
    refusal_of,
    tombstone_document,
    tombstone_view,
)
from agent.formats.envelope import Refusal
from tests.moments import at
from tests.unit.test_wire import anything

NOW = msgspec.structs.replace(at(1000.0), wall_s=1_796_040_000.0, wall="2026-11-30T12:00:00Z")
CLAIM = Claim(
    claim_id="c1",
    kind="live_migration",
    role="incoming",
    state="reserved",
    instance=Instance(uuid="u1", name="web"),
    digest="d1",
    ttl_s=120.0,
    sequence=4,
    made_at="2026-11-30T11:59:00Z",
    state_since="2026-11-30T11:59:30Z",
    changed_at_s=970.0,
    group=Group(id="g1", policy="anti-affinity"),
    move_id="m1",
    peer="there",
    deadline=Deadline(boot_id=NOW.boot_id, at_s=1090.4),
    reason="asked for",
)
HOLDS = Holds(uuid="u1", host_memory_kib=5)


def test_a_claim_is_told_with_its_deadline_by_the_wall_clock() -> None:
    told = claim_document(CLAIM, now=NOW, holds=HOLDS)
    expected = {
        "claim_id": "c1",
        "kind": "live_migration",
        "role": "incoming",
        "state": "reserved",
        "state_since": "2026-11-30T11:59:30Z",
        "instance": {"uuid": "u1", "name": "web"},
        "digest": "d1",
        "move_id": "m1",
        "peer": "there",
        "placement": None,
        "group": "g1",
        "made_at": "2026-11-30T11:59:00Z",
        "deadline_at": "2026-11-30T12:01:30Z",
        "holds": wire.to_builtins(HOLDS),
        "reason": "asked for",
        "ended": None,
    }
    assert {name: told[name] for name in expected} == expected


@pytest.mark.parametrize("deadline", [None, Deadline(boot_id="another", at_s=1.0)])
def test_no_deadline_and_one_of_another_boot_are_null(deadline: Deadline | None) -> None:
    claim = msgspec.structs.replace(CLAIM, deadline=deadline)
    assert claim_view(claim, now=NOW, holds=None).deadline_at is None


def test_the_deadline_goes_with_the_wall_clock_and_not_with_the_time_of_the_question() -> None:
    later = msgspec.structs.replace(NOW, monotonic_s=1060.0, wall_s=NOW.wall_s + 60.0)
    assert claim_view(CLAIM, now=later, holds=None).deadline_at == claim_view(CLAIM, now=NOW, holds=None).deadline_at
    jumped = msgspec.structs.replace(NOW, wall_s=NOW.wall_s + 3600)
    assert claim_view(CLAIM, now=jumped, holds=None).deadline_at == "2026-11-30T13:01:30Z"


def ended(**fields: object) -> Tombstone:
    known = {"claim_id": "c1", "ending": "aborted", "ended_at": NOW.wall, "at_s": NOW.wall_s, "sequence": 9}
    return Tombstone(**{**known, **fields})  # type: ignore[arg-type]


def test_an_ended_claim_is_told_with_how_and_holds_nothing() -> None:
    told = tombstone_view(ended(claim=CLAIM, digest="d1", instance="u1"), now=NOW)
    assert (told.state, told.state_since, told.deadline_at, told.holds) == ("ended", NOW.wall, None, None)
    assert (told.kind, told.made_at) == (CLAIM.kind, CLAIM.made_at)
    assert told.ended is not None
    assert (told.ended.how, told.ended.at, told.ended.refusal) == ("aborted", NOW.wall, None)


def test_an_id_that_was_aborted_before_it_was_seen_is_told_without_a_claim() -> None:
    told = tombstone_document(ended(), now=NOW)
    assert (told["claim_id"], told["state"], told["kind"], told["instance"]) == ("c1", "ended", None, None)
    assert told["ended"] == {"how": "aborted", "at": NOW.wall, "refusal": None}


def test_a_deadline_in_the_second_half_of_a_second_is_not_told_as_of_the_next() -> None:
    due_at_90_9_s = msgspec.structs.replace(NOW, wall_s=NOW.wall_s + 0.5)
    assert claim_view(CLAIM, now=due_at_90_9_s, holds=None).deadline_at == "2026-11-30T12:01:30Z"


def test_a_refused_claim_is_told_with_the_answer_that_it_got() -> None:
    no = ClaimRefusal(code="HostInMaintenance", message="New memory.", retry="elsewhere")
    told = tombstone_view(ended(ending="refused", refusal=no, instance="u1", digest="d1"), now=NOW)
    assert (told.instance, told.digest, told.reason) == (Instance(uuid="u1"), "d1", "New memory.")
    assert told.ended is not None
    assert told.ended.refusal == Refusal(code="HostInMaintenance", message="New memory.", retry="elsewhere")


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(refusal=anything(ClaimRefusal))
def test_a_refusal_keeps_each_reason_as_data_and_as_a_sentence(refusal: ClaimRefusal) -> None:
    told = refusal_of(refusal)
    assert (told.code, told.message, told.retry, told.claim_id) == (
        refusal.code,
        refusal.message,
        refusal.retry,
        refusal.claim_id,
    )
    assert told.details == refusal.reasons
    assert told.reasons == tuple(sentence(reason) for reason in refusal.reasons)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_what_is_told_of_any_claim_reads_back_as_it_was(data: st.DataObject) -> None:
    claim = data.draw(anything(Claim))
    told = claim_view(claim, now=NOW, holds=data.draw(st.none() | anything(Holds)))
    assert wire.from_builtins(json.loads(wire.to_json(told)), ClaimView) == told


def test_a_group_is_told_with_who_is_seated_by_uuid() -> None:
    rule = GroupRule(id="g1", policy="affinity", max_server_per_host=2, generation=3)
    members = [Membership(group="g1", instance=name, generation=3, last_here_at_s=0.0) for name in ("b", "a")]
    told = group_info(rule, members, ["b"])
    assert (told.rules.max_server_per_host, told.seated) == (2, ("b",))
    assert [(one.instance, one.seated) for one in told.members] == [("a", False), ("b", True)]


@settings(max_examples=20)
@given(move=anything(Move))
def test_a_move_is_told_whole_but_for_what_its_removal_needs(move: Move) -> None:
    told = wire.to_builtins(move_view(move))
    assert told == {name: value for name, value in wire.to_builtins(move).items() if name != "at_s"}
