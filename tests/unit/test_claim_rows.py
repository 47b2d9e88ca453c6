"""Rows about claims: drift, overdue, stuck moves, guests that are here against what was said."""

from __future__ import annotations

import re
import shlex
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from agent.core.claim.book import Book
from agent.core.claim.values import Claim, Departure, Ending, Move, State, Tombstone
from agent.core.conflicts import Conflict
from agent.core.cpuset import CpuSet
from agent.core.guest import RunIdentity, Sighting
from agent.core.holds import hold, host_sets
from tests.builders import function, guest, h8, uuid_of
from tests.builders_claims import book_with, claim_of, place, rows_of

DAY_S = 86400.0
SINCE, SINCE_S = "2026-11-01T00:00:00Z", 1793491200.0
VF = "0000:3b:02.0"
RUN, LATER_RUN = RunIdentity(libvirt_id=1, pid=10), RunIdentity(libvirt_id=2, pid=20)
ON = h8(pci=(function(VF, "type-VF"),))


def drifted(claim: Claim, seen: Sighting) -> str | None:
    """The cause of the row, None: there is none."""
    rows = [row for row in rows_of(ON, book_with(claim), seen) if row.kind == "claim-drift"]
    return rows[0].cause if rows else None


def resident(*, dev: tuple[str, ...] = ()) -> Claim:
    return claim_of("web", place(2, 3, mem=1024, dev=dev), state="resident")


def test_a_guest_that_is_as_it_was_promised_has_no_row() -> None:
    seen = guest("web", {0: 2, 1: 3}, mem=1024, node=0, dev=(VF,))
    assert rows_of(ON, book_with(resident(dev=(VF,))), seen) == ()


def test_a_row_of_drift_tells_in_numbers_what_differs() -> None:
    seen = guest("web", {0: 2, 1: 5}, mem=2048, node=0)
    assert drifted(resident(dev=(VF,)), seen) == (
        "web is not as claim claim-web says: it is pinned to CPU 5 instead of CPU 3; "
        f"it lacks device {VF}, which it was promised; it has 2048 MiB of cell 0 and was promised 1024 MiB"
    )


def test_a_row_of_drift_names_the_commands_that_settle_it() -> None:
    (row,) = rows_of(ON, book_with(resident()), guest("web", {0: 2, 1: 5}, mem=1024, node=0))
    for command in (
        "agentctl claim accept-observed claim-web",
        "virsh vcpupin web 1 3 --live --config",
        "agentctl claim release claim-web",
    ):
        assert f"`{command}`" in row.action


def test_of_a_guest_of_nova_no_pin_is_proposed() -> None:
    (row,) = rows_of(ON, book_with(resident()), guest("web", {0: 2, 1: 5}, mem=1024, node=0, maker="nova"))
    assert "virsh" not in row.action


def test_where_floating_vcpus_are_confined_is_no_drift_but_their_number_is() -> None:
    claim = claim_of("web", place(2, floating=2, shared="0-1"), state="resident")
    assert drifted(claim, guest("web", {0: 2}, vcpus=3, cpuset="0", node=0)) is None
    assert drifted(claim, guest("web", {0: 2}, vcpus=2, cpuset="0-1", node=0)) == (
        "web is not as claim claim-web says: it has 1 floating vCPU and was promised 2"
    )


def test_memory_that_was_rounded_is_no_drift() -> None:
    rounded = guest("web", {0: 2, 1: 3}, mem=1024, node=0)
    domain = rounded.domain
    assert domain is not None
    less = msgspec.structs.replace(domain, memory_kib=domain.memory_kib - 1000)
    assert drifted(resident(), msgspec.structs.replace(rounded, domain=less)) is None


def test_what_was_accepted_is_no_drift_any_more() -> None:
    seen = guest("web", {0: 5}, mem=2048, node=0)
    observed = hold(seen, host_sets(ON.topology, ON.config))
    assert drifted(claim_of("web", place(2), state="resident", observed=observed), seen) is None


@given(st.sampled_from([state for state in get_args(State) if state not in {"resident", "ended"}]))
def test_only_a_guest_that_has_arrived_and_stays_drifts(state: State) -> None:
    seen = guest("web", {0: 5}, mem=2048, node=0)
    assert drifted(claim_of("web", place(2), state=state), seen) is None


@given(st.sampled_from(("off", "unread", "lost")))
def test_a_guest_that_is_not_seen_to_run_does_not_drift(how: str) -> None:
    seen = guest("web", {0: 5}, mem=2048, node=0)
    changes: dict[str, dict[str, object]] = {
        "off": {"state": "shut-off"},
        "unread": {"validity": "last-known", "domain": None},
        "lost": {"validity": "lost-by-libvirt"},
    }
    assert drifted(resident(), msgspec.structs.replace(seen, **changes[how])) is None


def test_a_claim_whose_domain_has_not_come_in_time_is_told_of() -> None:
    (row,) = rows_of(ON, book_with(claim_of("web", place(2), state="overdue")))
    assert (row.id, row.severity) == (f"claim-overdue:guest:{uuid_of('web')}", "warning")
    assert "`agentctl claim renew claim-web`" in row.action
    assert "`agentctl claim abort claim-web`" in row.action


def test_a_move_that_nobody_can_tell_the_end_of_is_an_error() -> None:
    claim = claim_of("web", place(2), state="doubtful", move_id="m1", peer="n2", reason="the host went down in it")
    (row,) = rows_of(ON, book_with(claim))
    assert (row.kind, row.severity) == ("migration-stuck", "error")
    assert row.cause.endswith("ended: the host went down in it")
    assert "`agentctl migration finish m1 --outcome HOW` (confirmed, reverted or failed)" in row.action
    assert f"`agentctl instance forget {uuid_of('web')} --moved-to n2`" in row.action


def test_a_move_that_waits_for_its_end_is_told_of_after_a_day_with_its_age() -> None:
    claim = claim_of("web", place(2), state="parked", move_id="m1", kind="resize")
    move = Move(move_id="m1", kind="resize", instance=uuid_of("web"), opened_at=SINCE, at_s=SINCE_S)
    book = book_with(claim)._replace(moves=Map({"m1": move}))
    assert rows_of(ON, book) == rows_of(ON, book, now_s=SINCE_S + DAY_S - 1) == ()
    (row,) = rows_of(ON, book, now_s=SINCE_S + 3.5 * DAY_S)
    assert (row.kind, row.severity) == ("migration-stuck", "warning")
    assert "The resize of web (claim claim-web) has waited for 3 days" in row.cause


def test_a_guest_that_was_said_to_live_elsewhere_and_is_active_here_is_an_error() -> None:
    moved = Departure(instance=uuid_of("web"), at=SINCE, moved_to="n2")
    (row,) = rows_of(ON, Book(departures=Map({moved.instance: moved})), guest("web"))
    assert (row.kind, row.severity) == ("guest-elsewhere", "error")
    assert "said to live on n2" in row.cause
    assert rows_of(ON, Book(departures=Map({moved.instance: moved})), guest("web", state="shut-off")) == ()
    left = msgspec.structs.replace(moved, moved_to=None)
    assert rows_of(ON, Book(departures=Map({moved.instance: left})), guest("web")) == ()


def buried(ending: Ending, run: RunIdentity | None = None) -> Book:
    """A book in which the claim of web ended so; run: of the domain at that time."""
    grave = Tombstone(claim_id="c", ending=ending, ended_at=SINCE, at_s=0.0, sequence=1, claim=claim_of("web", run=run))
    return Book(tombstones=Map({"c": grave}), ends=Map({uuid_of("web"): ("c",)}))


def kinds(rows: tuple[Conflict, ...]) -> list[str]:
    return [row.kind for row in rows]


@given(st.sampled_from(("aborted", "expired", "gone", "failed", "reverted")))
def test_a_domain_that_comes_after_its_claim_has_ended_is_told_of(ending: Ending) -> None:
    assert kinds(rows_of(ON, buried(ending), guest("web", run=RUN))) == ["arrived-without-claim"]


@given(st.sampled_from(("released", "left", "replaced")))
def test_a_domain_may_run_on_when_its_claim_was_given_up_on_purpose(ending: Ending) -> None:
    assert rows_of(ON, buried(ending), guest("web", run=RUN)) == ()


def test_a_domain_that_runs_on_though_its_claim_was_aborted_is_told_of_with_what_to_do() -> None:
    claim = claim_of("web", place(2), state="arriving", ending="aborted", run=RUN)
    (row,) = rows_of(ON, book_with(claim), guest("web", {0: 2}, node=0, run=RUN))
    assert (row.id, row.severity) == (f"arrived-without-claim:guest:{uuid_of('web')}", "warning")
    assert (
        row.cause
        == "web is here (running) though its claim claim-web was aborted, which holds until the domain is gone"
    )
    assert f"`virsh destroy {uuid_of('web')}`" in row.action
    assert "`agentctl claim confirm claim-web`" in row.action
    assert rows_of(ON, book_with(claim), guest("web", state="shut-off")) == rows_of(ON, book_with(claim)) == ()


@given(st.sampled_from(("arriving", "resident")))
def test_a_domain_that_stays_though_its_move_was_called_off_is_told_of_with_the_other_host(state: State) -> None:
    claim = claim_of("web", place(2), state=state, ending="reverted", peer="n2", run=RUN, kind="live_migration")
    (row,) = rows_of(ON, book_with(claim), guest("web", {0: 2}, mem=512, node=0, run=RUN, state="paused"))
    assert (row.kind, row.severity) == ("arrived-without-claim", "warning")
    assert "is here (paused) though its move was called off" in row.cause
    assert "whether it lives on n2" in row.action
    way = "confirm" if state == "arriving" else "release"
    assert f"`agentctl claim {way} claim-web`" in row.action


def test_a_domain_that_ran_before_the_claim_was_made_has_not_come_late() -> None:
    assert rows_of(ON, buried("aborted", RUN), guest("web", run=RUN)) == ()
    assert kinds(rows_of(ON, buried("aborted", RUN), guest("web", run=LATER_RUN))) == ["arrived-without-claim"]


ODD = "-a; touch x $(id)"
"""An id that somebody has sent, and that a shell would act upon."""


@pytest.mark.parametrize(
    ("state", "more", "verbs"),
    [
        ("overdue", {}, ("claim renew", "claim abort")),
        ("doubtful", {"move_id": ODD, "peer": ODD}, ("migration finish",)),
        ("doubtful", {"peer": ODD}, ("instance forget",)),
        ("arriving", {"ending": "aborted", "run": RUN}, ("claim confirm",)),
        ("resident", {}, ("claim accept-observed", "claim release")),
    ],
)
def test_a_command_that_a_row_proposes_can_be_pasted_whatever_the_id_is(
    state: State, more: dict[str, Any], verbs: tuple[str, ...]
) -> None:
    claim = claim_of("web", place(2), state=state, claim_id=ODD, **more)
    seen = () if state in {"overdue", "doubtful"} else (guest("web", {0: 5}, node=0, run=RUN),)
    (row,) = rows_of(ON, book_with(claim), *seen)
    commands = [shlex.split(one) for one in re.findall("`(agentctl [^`]*)`", row.action)]
    for verb in verbs:
        (words,) = [words for words in commands if words[1:3] == verb.split()]
        assert ODD in words or f"--moved-to={ODD}" in words
        assert ODD not in words or words[words.index(ODD) - 1] == "--"


def test_a_guest_that_no_claim_was_ever_made_for_has_no_row() -> None:
    assert rows_of(ON, Book(), guest("web", run=RUN)) == ()


@given(st.sets(st.integers(2, 7), min_size=1, max_size=3), st.sets(st.integers(2, 7), min_size=1, max_size=3))
def test_pins_that_are_set_as_proposed_end_the_drift(promised: set[int], seen: set[int]) -> None:
    claim = claim_of("web", place(*sorted(promised)), state="resident")
    pins = dict(enumerate(sorted(seen)[: len(promised)]))
    here = guest("web", pins, vcpus=len(promised), cpuset="0-1", node=0)
    rows = rows_of(ON, book_with(claim), here)
    for row in rows:
        for part in row.action.split("`virsh vcpupin web ")[1:]:
            vcpu, cpu = part.split()[:2]
            pins[int(vcpu)] = int(cpu)
    assert rows_of(ON, book_with(claim), guest("web", pins, vcpus=len(promised), cpuset="0-1", node=0)) == ()
    assert CpuSet(pins.values()) == CpuSet(promised)
