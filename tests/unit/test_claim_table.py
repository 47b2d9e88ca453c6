"""The table of a claim's life: what is in it happens, and nothing else does."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from agent.core.claim.book import Book, Draft, IllegalStep
from agent.core.claim.life import CALLS, Refused, explain, may
from agent.core.claim.table import FROM_CALLERS, MEANING, STATES, TRANSITIONS, Event, after, events
from agent.core.claim.values import Claim, ClaimRules, Moment, Role, State, Step
from tests.claim_world import instance

STATE_NAMES: tuple[State, ...] = get_args(State)
EVENTS: tuple[Event, ...] = get_args(Event)
ROLES: tuple[Role, ...] = get_args(Role)
EVERY = [(state, event, role) for state in STATE_NAMES for event in EVENTS for role in ROLES]
NOW = Moment(boot_id="b", monotonic_s=50.0, wall_s=1.8e9, wall="now")


def claim(state: State, role: Role) -> Claim:
    return Claim(
        claim_id="c-1",
        kind="build",
        role=role,
        state=state,
        instance=instance("a"),
        digest="d",
        ttl_s=900.0,
        sequence=1,
        made_at="then",
        state_since="then",
        changed_at_s=10.0,
    )


def drafted(one: Claim) -> Draft:
    before = Draft(Book(), NOW, ClaimRules())
    before.admit(one, Step(sequence=0, at="", event="admitted"))
    return Draft(before.done().book, NOW, ClaimRules())


@pytest.mark.parametrize(("state", "event", "role"), [row for row in EVERY if after(*row) is not None])
def test_what_the_table_has_leads_where_it_says(state: State, event: Event, role: Role) -> None:
    one = claim(state, role)
    draft, then = drafted(one), after(state, event, role)
    one = draft.book.claims["c-1"]
    if then == "ended":
        assert draft.end(one, event, "aborted").ending == "aborted"
        assert "c-1" not in draft.book.claims
        with pytest.raises(IllegalStep):
            drafted(one).move_on(one, event)
    else:
        moved = draft.move_on(one, event, reason="why")
        assert (moved.state, draft.book.claims["c-1"]) == (then, moved)
        assert moved.changed_at_s == (10.0 if then == state else NOW.monotonic_s)
        with pytest.raises(IllegalStep):
            drafted(one).end(one, event, "aborted")


@pytest.mark.parametrize("state", STATE_NAMES)
@pytest.mark.parametrize("role", ROLES)
def test_what_the_table_has_not_is_refused_and_changes_nothing(state: State, role: Role) -> None:
    draft = drafted(claim(state, role))
    before, one = draft.book, draft.book.claims["c-1"]
    others = [event for event in EVENTS if after(state, event, role) is None]
    assert others
    for event in others:
        for step in (draft.move_on, lambda one, event: draft.end(one, event, "aborted")):
            with pytest.raises(IllegalStep) as raised:
                step(one, event)
            assert (raised.value.claim, raised.value.event) == (one, event)
        assert not may(one, event)
    assert (draft.book, draft.done().records, draft.done().steps) == (before, (), ())


def test_no_transition_is_there_twice() -> None:
    rows = [(row.before, row.event, role) for row in TRANSITIONS for role in row.roles]
    assert len(rows) == len(set(rows))


def test_each_state_is_reached_from_pending_and_leads_to_an_end_for_its_roles() -> None:
    for role in ROLES:
        ahead: set[State] = {"pending"}
        for _ in STATE_NAMES:
            ahead |= {then for state in ahead for event in events(state, role) if (then := after(state, event, role))}
        missing = {state for state in STATE_NAMES if events(state, role)} - ahead
        assert (role, missing) == (role, set())
    assert {row.before for row in TRANSITIONS} == set(STATE_NAMES)


def test_from_each_state_an_end_can_be_reached() -> None:
    for role in ROLES:
        to_end: set[State] = {"ended"}
        for _ in STATE_NAMES:
            to_end |= {s for s in STATE_NAMES if any(after(s, event, role) in to_end for event in events(s, role))}
        stuck = {state for state in STATE_NAMES if events(state, role)} - to_end
        assert (role, stuck) == (role, set())


def test_each_event_and_each_state_has_its_meaning_and_each_event_its_row() -> None:
    assert tuple(MEANING) == EVENTS
    assert tuple(STATES) == STATE_NAMES
    assert {row.event for row in TRANSITIONS} == set(EVENTS)
    assert set(CALLS) | {"set-aside"} == FROM_CALLERS


@pytest.mark.parametrize("state", STATE_NAMES)
@pytest.mark.parametrize("role", ROLES)
def test_a_refused_call_says_what_the_claim_is_and_what_may_be_done_with_it(state: State, role: Role) -> None:
    one = msgspec.structs.replace(claim(state, role), move_id="m 1")
    allowed = {event for event in events(state, role) if event in CALLS}
    for event in FROM_CALLERS:
        text = explain(IllegalStep(one, event))
        begin = f"Cannot {CALLS.get(event, event)}: claim c-1 of instance a is {state} ({STATES[state]}); "
        assert text.startswith(begin + ("possible now: `" if allowed else "ask again when that has changed"))
        assert {name for name, way in WAYS.items() if f"`agentctl {way}" in text} == {
            "finish" if name.startswith("finish") else name for name in allowed
        }


WAYS: dict[str, str] = {
    "renew": "claim renew c-1`",
    "confirm": "claim confirm c-1`",
    "abort": "claim abort c-1`",
    "release": "claim release c-1`",
    "accept-observed": "claim accept-observed c-1`",
    "hold": "migration hold MOVE --instance ",
    "finish": "migration finish 'm 1' --outcome HOW`",
    "replace": "claim build --replaces c-1 ",
    "forget": "instance forget ",
}


def test_a_refused_call_reads_like_this() -> None:
    assert explain(IllegalStep(claim("arriving", "owner"), "release")) == (
        "Cannot release: claim c-1 of instance a is arriving (its domain has come, and has not run here for long enough"
        " to be called arrived); possible now: `agentctl claim renew c-1`, `agentctl claim confirm c-1`,"
        f" `agentctl claim abort c-1`, `agentctl instance forget {claim('arriving', 'owner').instance.uuid}`"
    )


def test_what_else_is_in_the_way_is_said_in_the_place_of_what_is_possible() -> None:
    text = explain(
        Refused(claim("resident", "owner"), "hold", "it is part of move m-1, which has to be finished first")
    )
    assert text == (
        "Cannot hold for a move: claim c-1 of instance a is resident, and it is part of move m-1, which has to be"
        " finished first"
    )
