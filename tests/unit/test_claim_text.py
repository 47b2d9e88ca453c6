"""Claims as people read them: each state says what it is, what may be done, and nothing that is not told steers."""

from __future__ import annotations

import shlex
from types import MappingProxyType
from typing import get_args

import pytest

from agent.core.claim.table import FROM_CALLERS, TRANSITIONS
from agent.core.claim.values import Role, State
from agent.core.cpuset import CpuSet
from agent.core.instance import Instance
from agent.core.ledger import Holds, PageHold
from agent.core.pci import PciAddress
from agent.core.placement import CellPlacement, GivenDevices, Placement
from agent.render.claim_text import (
    ADVICE,
    ClaimPage,
    GroupPage,
    claim_line,
    claim_text,
    claims_text,
    group_text,
    refused_text,
    until,
)
from tests.hostile import POISON, unsafe

ID, UUID = "c1aa", "6b0e7d9c-6d55-4bd4-9d3c-6f6c3f9b9d31"
MADE, NOW_S = "2026-11-30T12:00:00Z", 1796040010.0
PF = PciAddress.parse("0000:3b:00.0")
WEB = ClaimPage(
    claim_id=ID,
    state="reserved",
    kind="build",
    role="owner",
    instance=Instance(uuid=UUID, name="web"),
    since=MADE,
    made_at=MADE,
    deadline_at="2026-11-30T12:15:00Z",
    group="g1",
    placement=Placement(
        vcpus=2,
        memory_kib=1048576,
        cells=(
            CellPlacement(
                guest_cell=0,
                host_cell=1,
                vcpus=CpuSet([0, 1]),
                memory_kib=1048576,
                page_size_kib=2048,
                pins=MappingProxyType({0: 4, 1: 5}),
                idle_cpus=CpuSet([6]),
            ),
        ),
        emulator_cpus=CpuSet([4, 5]),
        devices=(GivenDevices(request="alias:nic", devices=(PF,)),),
    ),
    holds=Holds(
        uuid=UUID,
        cpus=CpuSet([4, 5]),
        sibling_cpus=CpuSet([6]),
        pages=(PageHold(cell=1, size_kib=2048, count=512),),
        devices=(PF,),
    ),
)
WHOLE = f"""\
claim c1aa
reserved: its place is kept until its domain comes
  guest      web  {UUID}
  kind       build
  since      2026-11-30T12:00:00Z (10 s ago)
  deadline   2026-11-30T12:15:00Z (in 14 min 50 s)
  group      g1
  holds      CPUs 4-5 for itself; 512 pages of 2 MiB of cell 1; keeps CPU 6
             idle; device 0000:3b:00.0
  place      vCPUs 0-1 and 1 GiB
    guest cell 0 on cell 1
      pinned     vCPUs 0-1 on CPUs 4-5
      memory     1 GiB in 2 MiB pages
      kept idle  CPU 6, siblings that thread policy isolate keeps from everybody
    emulator     CPUs 4-5
    devices      0000:3b:00.0 for alias:nic
  next       start the guest: its place, as parts of its domain
               agentctl claim show c1aa --domain-xml
             it is here: do not wait
               agentctl claim confirm c1aa
             more time
               agentctl claim renew c1aa
             the guest does not come: give its place back
               agentctl claim abort c1aa
"""


def test_a_claim_is_told_on_one_page() -> None:
    assert claim_text(WEB, now_s=NOW_S) == WHOLE


STATES = [(state, role) for state in get_args(State) for role in get_args(Role)]


@pytest.mark.parametrize(("state", "role"), STATES)
def test_each_state_says_what_it_means_and_offers_just_what_the_table_allows(state: State, role: Role) -> None:
    text = " ".join(claim_text(WEB._replace(state=state, role=role, move_id="m1"), now_s=NOW_S, width=1000).split())
    said = {
        "confirm": f"agentctl claim confirm {ID}",
        "renew": f"agentctl claim renew {ID}",
        "abort": f"agentctl claim abort {ID}",
        "release": f"agentctl claim release {ID}",
        "finish-confirmed": "agentctl migration finish m1 --outcome HOW",
    }
    rows = [row for row in TRANSITIONS if row.before == state and role in row.roles]
    allowed = {row.event for row in rows if row.event in FROM_CALLERS}
    assert {event for event, word in said.items() if word in text} == allowed & said.keys()
    assert f"agentctl instance forget {UUID}" not in text or "forget" in allowed
    assert f" {state}: " in text


def test_what_has_ended_offers_nothing_but_a_new_claim() -> None:
    text = claim_text(WEB._replace(state="ended", ended="expired", deadline_at=None), now_s=NOW_S)
    assert "ended (expired): it holds nothing any more" in text
    assert text.endswith("  next       nothing: claim it anew, under a new id\n")


ODD = "-a; touch x $(id)"


@pytest.mark.parametrize("state", get_args(State))
def test_each_command_of_a_page_can_be_pasted_whatever_the_ids_are(state: State) -> None:
    page = WEB._replace(claim_id=ODD, state=state, move_id=ODD, peer=ODD)
    lines = [line for line in claim_text(page, now_s=NOW_S).splitlines() if line.startswith(f"{'':15}agentctl ")]
    words = [shlex.split(line) for line in lines]
    assert all(one[-2:] == ["--", ODD] or one[-1] == f"--moved-to={ODD}" for one in words)
    assert bool(words) == (state not in {"pending", "ended"})


def test_a_claim_that_waits_for_its_domain_to_go_says_so_everywhere() -> None:
    page = WEB._replace(state="arriving", ending="aborted", deadline_at=None)
    text = claim_text(page, now_s=NOW_S)
    assert "  ends       as aborted, by itself, once its domain is gone; until then it holds\n" in text
    assert "it shall stay after all\n               agentctl claim confirm c1aa\n" in text
    assert "agentctl claim abort" not in text
    said = "build of web; ends (aborted) once its domain is gone; CPUs 4-5\n"
    assert claim_line(page, now_s=NOW_S, width=99) == f"claim {ID}: arriving, {said}"
    assert claims_text([page], now_s=NOW_S, width=99) == f"{ID}  arriving  {said}"


def test_a_change_in_place_is_not_told_of_as_a_guest_that_comes() -> None:
    page = WEB._replace(kind="resize", role="in_place", move_id="m1")
    text = claim_text(page, now_s=NOW_S)
    assert "reserved: what its guest is to have is kept until that is changed\n" in text
    assert "change the guest: what it is to have, as parts of its domain\n" in text
    assert "the guest stays as it is: give back what was kept for it\n" in text
    assert "until its domain comes" not in text
    assert "start the guest" not in text
    coming = claim_text(page._replace(role="incoming", kind="cold_migration"), now_s=NOW_S)
    assert "bring the guest here: its place, as parts of its domain\n" in coming


def test_a_guest_that_no_claim_made_is_not_called_a_build() -> None:
    page = WEB._replace(state="resident", placement=None, deadline_at=None, is_observed=True)
    assert "  kind       observed: no claim made this guest; it holds what is seen of it\n" in claim_text(
        page, now_s=NOW_S
    )
    assert claim_line(page, now_s=NOW_S) == f"claim {ID}: resident, guest web, which no claim made; CPUs 4-5\n"


def test_ids_and_states_stand_in_columns_and_an_id_is_never_broken() -> None:
    long = WEB._replace(claim_id=UUID, state="resident", deadline_at=None)
    longer = WEB._replace(claim_id="x" * 60, deadline_at=None)
    assert claims_text([WEB._replace(deadline_at=None), long, longer], now_s=NOW_S) == (
        f"{ID:<36}  reserved  build of web; CPUs 4-5\n"
        f"{UUID}  resident  build of web; CPUs 4-5\n"
        f"{'x' * 60}  reserved  build of\n    web; CPUs 4-5\n"
    )


def test_an_id_that_was_aborted_before_anybody_claimed_under_it_has_no_guest() -> None:
    page = ClaimPage(claim_id=ID, state="ended", ended="aborted", since=MADE)
    assert claim_line(page, now_s=NOW_S) == f"claim {ID}: ended (aborted), before there was a claim\n"
    assert "guest " not in claim_text(page, now_s=NOW_S)


def test_a_list_has_the_id_first_and_what_each_holds_and_until_when() -> None:
    away = WEB._replace(claim_id="c2bb", state="away", deadline_at=None, holds=None, reason="its domain is undefined")
    assert claims_text([WEB, away], now_s=NOW_S) == (
        "c1aa  reserved  build of web; CPUs 4-5; until 2026-11-30T12:15:00Z (in 14 min 50\n                s)\n"
        "c2bb  away      build of web; its domain is undefined\n"
    )
    assert claims_text([], now_s=NOW_S) == "no claims\n"


@pytest.mark.parametrize(
    ("retry", "advice"),
    [("elsewhere", "Try another host."), ("later", "Ask this host again later."), ("never", "Asking the same")],
)
def test_a_refusal_says_why_and_whether_and_where_to_ask_again(retry: str, advice: str) -> None:
    text = refused_text("There is no room.", ("cell 0 is full", "cell 1 is full"), ADVICE[retry])
    assert text.startswith("Refused: There is no room.\n  - cell 0 is full\n  - cell 1 is full\n" + advice)


def test_where_the_sentence_is_for_programs_whoever_is_in_the_way_comes_first() -> None:
    text = refused_text("Build was re-scheduled: violated.", ("web1 is here",), "Try another host.", for_callers=True)
    assert text == (
        "Refused: web1 is here\n  - what callers are told: Build was re-scheduled: violated.\nTry another host.\n"
    )
    assert refused_text("Violated.", (), "No.", for_callers=True) == "Refused: Violated.\nNo.\n"


def test_a_reason_that_is_the_message_itself_is_said_once() -> None:
    assert refused_text("No: it is off.", ("it is off",), "later").count("it is off") == 1
    closed = refused_text("It is off (new power): take another one.", ("It is off (new power): `on` ends that",), "No.")
    assert closed == "Refused: It is off (new power): take another one.\nNo.\n"


def test_a_time_that_is_none_is_shown_as_it_stands() -> None:
    assert until("soon", NOW_S) == "soon"


def test_a_group_names_its_members_and_who_of_them_counts_here() -> None:
    page = GroupPage("g1", "anti-affinity", 2, 7, {UUID: True, "other": False}, (UUID,))
    assert group_text(page) == (
        "group g1\n  policy     anti-affinity, at most 2 on a host\n  generation 7\n"
        f"  member     {UUID}, has a seat here\n  member     other\n  seats      1 seat taken on this host\n"
    )


def test_nothing_that_an_agent_tells_steers_the_terminal() -> None:
    bad = WEB._replace(
        claim_id=ID + POISON,
        instance=Instance(uuid=UUID + POISON, name="web" + POISON),
        since=MADE + POISON,
        deadline_at=POISON,
        move_id="m" + POISON,
        peer="h" + POISON,
        group="g" + POISON,
        reason=POISON,
        ended=POISON,
    )
    texts = [claim_text(bad._replace(state=state), now_s=NOW_S) for state in get_args(State)]
    texts += [claims_text([bad], now_s=NOW_S), claim_line(bad, now_s=NOW_S)]
    texts.append(refused_text(POISON, (POISON,), POISON))
    texts.append(group_text(GroupPage("g" + POISON, "affinity", 1, None, {POISON: True}, ("x" + POISON,))))
    assert [unsafe(text) for text in texts if unsafe(text)] == []
    assert [line for text in texts for line in text.splitlines() if line.startswith("agentctl: forged")] == []
