"""The line that a pass logs, word for word."""

from __future__ import annotations

import logging

import msgspec
import pytest

from agent.core.cpuset import CpuSet
from agent.core.guest import Sighting
from agent.core.host_config import AcceptRule, HostConfig, ReservedPages
from agent.core.ledger import Processes
from agent.core.snapshot import (
    Findings,
    Identity,
    Snapshot,
    SourceState,
    configured,
    first,
    take_in,
    with_sources,
)
from agent.core.topology import HostTopology
from agent.reporter import report_pass, status_line
from tests.builders import guest, h8, listing, processes, unread

FIRST = first(Identity(agent_id="a", boot_id="b", epoch=3), h8().config)
FINE = tuple(SourceState(name=name, read_at=1.0) for name in ("domains", "libvirt", "processes", "sysfs"))


def seen(
    before: Snapshot,
    *guests: Sighting,
    at: float,
    topology: HostTopology | None = None,
    living: Processes | None = None,
) -> Snapshot:
    """The next snapshot, after a complete pass that found exactly these guests."""
    found = Findings(
        topology=topology,
        listing=listing(*(one.name for one in guests), at=at),
        processes=living or processes(at=at + 0.2),
        sightings=tuple(msgspec.structs.replace(one, begun_at=at + 0.1) for one in guests),
        sources=FINE,
    )
    return take_in(before, found)


def start(*guests: Sighting) -> Snapshot:
    return seen(FIRST, *guests, at=1.0, topology=h8().topology)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "agent.reporter")
    return caplog


def told(lines: pytest.LogCaptureFixture, before: Snapshot, after: Snapshot) -> list[tuple[str, str]]:
    lines.clear()
    report_pass(before, after)
    return [(record.levelname, record.getMessage()) for record in lines.records]


def test_the_first_complete_pass_tells_what_is_there(lines: pytest.LogCaptureFixture) -> None:
    after = start(guest("a", {0: 2}), guest("b", {0: 3}))
    assert told(lines, FIRST, after) == [
        ("INFO", "pass epoch=3 generation=1 guests=2 conflicts=0 free_dedicated=4-7 guests_came=[a; b]")
    ]


def test_the_first_pass_over_an_empty_host_has_its_line_too(lines: pytest.LogCaptureFixture) -> None:
    assert told(lines, FIRST, start()) == [
        ("INFO", "pass epoch=3 generation=1 guests=0 conflicts=0 free_dedicated=2-7")
    ]


def test_a_conflict_that_other_guests_have_now_has_gone_and_appeared(lines: pytest.LogCaptureFixture) -> None:
    before = start(guest("a", {0: 3}), guest("b", {0: 3}))
    ((level, line),) = told(lines, before, seen(before, guest("c", {0: 3}), guest("d", {0: 3}), at=2.0))
    assert level == "WARNING"
    assert "conflicts=1 " in line
    assert " appeared=[cpu-pinned-twice:cpu:3 (c, d)] gone=[cpu-pinned-twice:cpu:3] " in line


def test_a_pass_that_changed_nothing_logs_nothing(lines: pytest.LogCaptureFixture) -> None:
    before = start(guest("a", {0: 2}))
    assert told(lines, before, seen(before, guest("a", {0: 2}), at=11.0)) == []


def test_a_topology_that_was_read_anew_and_is_the_same_logs_nothing(lines: pytest.LogCaptureFixture) -> None:
    before = start()
    after = seen(before, at=11.0, topology=h8().topology)
    assert after.topology is before.topology
    assert told(lines, before, after) == []


def test_a_new_conflict_is_a_warning_that_names_its_holders(lines: pytest.LogCaptureFixture) -> None:
    before = start(guest("a", {0: 2, 1: 3}))
    after = seen(before, guest("a", {0: 2, 1: 3}), guest("b", {0: 3}), at=11.0)
    assert told(lines, before, after) == [
        (
            "WARNING",
            (
                "pass epoch=3 generation=2 guests=2 conflicts=1 free_dedicated=4-7"
                " appeared=[cpu-pinned-twice:cpu:3 (a, b)] guests_came=[b]"
            ),
        )
    ]


def test_a_conflict_that_went_is_no_warning(lines: pytest.LogCaptureFixture) -> None:
    before = start(guest("a", {0: 3}), guest("b", {0: 3}))
    after = seen(before, guest("a", {0: 3}), at=11.0)
    assert told(lines, before, after) == [
        (
            "INFO",
            (
                "pass epoch=3 generation=2 guests=1 conflicts=0 free_dedicated=2,4-7"
                " gone=[cpu-pinned-twice:cpu:3] guests_went=[b]"
            ),
        )
    ]


def test_of_many_rows_five_are_named_and_the_rest_counted(lines: pytest.LogCaptureFixture) -> None:
    pairs = [guest(f"{name}{cpu}", {0: cpu}) for cpu in (2, 3, 4, 5, 6, 7) for name in "ab"]
    before = start()
    ((level, line),) = told(lines, before, seen(before, *pairs, at=11.0))
    assert level == "WARNING"
    assert line.startswith(
        "pass epoch=3 generation=2 guests=12 conflicts=6 free_dedicated=- appeared=[cpu-pinned-twice:cpu:2 ("
    )
    appeared, came = line.removesuffix("]").split(" guests_came=[")
    assert appeared.endswith(" and 1 more]")
    assert appeared.count("cpu-pinned-twice") == 5
    assert came.endswith(" and 7 more")
    assert len(came.split("; ")) == 5


def test_a_guest_that_changed_is_named_with_its_state(lines: pytest.LogCaptureFixture) -> None:
    before = start(guest("a", {0: 2}), guest("b", {0: 3}))
    after = seen(before, guest("a", {0: 2}, state="paused"), guest("b", {0: 5}), at=11.0)
    assert told(lines, before, after) == [
        (
            "INFO",
            (
                "pass epoch=3 generation=2 guests=2 conflicts=0 free_dedicated=3-4,6-7"
                " guests_changed=[a=paused; b=running]"
            ),
        )
    ]


def test_a_source_that_fails_is_a_warning_once_and_its_healing_a_line(lines: pytest.LogCaptureFixture) -> None:
    before = start()
    away = Findings(sources=(SourceState(name="libvirt", problem="libvirtd was stopped. Start it."),))
    failed = take_in(before, away)
    assert told(lines, before, failed) == [
        (
            "WARNING",
            (
                "pass epoch=3 generation=2 guests=0 conflicts=0 free_dedicated=2-7"
                " sources_failed=[libvirt (libvirtd was stopped. Start it.)]"
            ),
        )
    ]
    still = take_in(failed, away)
    assert told(lines, failed, still) == []
    assert told(lines, still, seen(still, at=31.0)) == [
        ("INFO", "pass epoch=3 generation=4 guests=0 conflicts=0 free_dedicated=2-7 sources_healed=[libvirt]")
    ]


def test_what_ails_several_sources_is_said_once(lines: pytest.LogCaptureFixture) -> None:
    before = start()
    problems = {"libvirt": "It was stopped.", "nodedev": "It was stopped.", "sysfs": "It cannot be read."}
    away = Findings(sources=tuple(SourceState(name=name, problem=problem) for name, problem in problems.items()))
    ((level, line),) = told(lines, before, take_in(before, away))
    assert level == "WARNING"
    assert line.endswith(" sources_failed=[libvirt, nodedev (It was stopped.); sysfs (It cannot be read.)]")


def test_while_libvirt_was_never_there_one_line_says_so_and_no_more_follow(lines: pytest.LogCaptureFixture) -> None:
    away = Findings(topology=h8().topology, sources=(SourceState(name="libvirt", problem="no socket"),))
    one = take_in(FIRST, away)
    assert told(lines, FIRST, one) == [
        (
            "WARNING",
            "pass epoch=3 generation=1 guests=0 conflicts=0 free_dedicated=2-7 sources_failed=[libvirt (no socket)]",
        )
    ]
    two = take_in(one, away)
    assert told(lines, one, two) == []
    assert told(lines, two, seen(two, at=31.0)) == [
        ("INFO", "pass epoch=3 generation=3 guests=0 conflicts=0 free_dedicated=2-7 sources_healed=[libvirt]")
    ]


def test_cpus_that_went_offline_or_came_are_named(lines: pytest.LogCaptureFixture) -> None:
    before = start()
    less = seen(before, at=11.0, topology=h8(online="0-4,6").topology)
    assert told(lines, before, less) == [
        (
            "WARNING",
            (
                "pass epoch=3 generation=2 guests=0 conflicts=0 free_dedicated=2-4,6 configuration=["
                "[compute] cpu_dedicated_set names CPUs 5,7, not usable on this host, left out until that changes]"
                " topology=online-5,7"
            ),
        )
    ]
    assert told(lines, less, seen(less, at=21.0, topology=h8().topology)) == [
        ("INFO", "pass epoch=3 generation=3 guests=0 conflicts=0 free_dedicated=2-7 topology=online+5,7")
    ]


def test_another_change_of_the_host_is_told_as_a_change(lines: pytest.LogCaptureFixture) -> None:
    before = start()
    after = seen(before, at=11.0, topology=h8(pages={2048: 8}).topology)
    assert told(lines, before, after) == [
        ("INFO", "pass epoch=3 generation=2 guests=0 conflicts=0 free_dedicated=2-7 topology=changed")
    ]


def test_a_configuration_that_names_what_is_not_there_is_a_warning_once(lines: pytest.LogCaptureFixture) -> None:
    before = start()
    odd = HostConfig(
        dedicated=CpuSet.parse("2-9"),
        shared=CpuSet.parse("0-1"),
        reserved_pages=(ReservedPages(cell=0, size_kib=2048, count=4),),
    )
    after = configured(before, odd)
    ((level, line),) = told(lines, before, after)
    assert level == "WARNING"
    assert line.endswith(
        "configuration=[[compute] cpu_dedicated_set names CPUs 8-9, not usable on this host, left out until that"
        " changes; reserved_huge_pages names pages of 2048 KiB of cell 0, which has none]"
    )
    assert told(lines, after, seen(after, at=11.0)) == []


def test_conflicts_that_a_reload_made_are_told_by_the_next_pass(lines: pytest.LogCaptureFixture) -> None:
    before = start(guest("a", {0: 2}))
    reloaded = configured(before, HostConfig(dedicated=CpuSet.parse("4-7"), shared=CpuSet.parse("0-1")))
    ((level, line),) = told(lines, before, seen(reloaded, guest("a", {0: 2}), at=11.0))
    assert (level, "appeared=[pinned-outside-dedicated:guest:" in line) == ("WARNING", True)


def test_status_names_guests_conflicts_and_free_cpus() -> None:
    snapshot = start(guest("a", {0: 2}), guest("b", {0: 2}), guest("off", {0: 3}, state="shut-off"))
    assert status_line(snapshot) == "2 active of 3 guests, 1 conflict, free dedicated CPUs 3-7"


def test_status_names_the_sources_that_cannot_be_read() -> None:
    snapshot = with_sources(
        start(*(guest(f"g{cpu}", {0: cpu}) for cpu in range(2, 8))),
        SourceState(name="journal", problem="disk full"),
        SourceState(name="libvirt", problem="gone"),
    )
    assert status_line(snapshot) == (
        "6 active of 6 guests, no conflicts, no free dedicated CPU; cannot read: journal, libvirt"
    )


def test_an_owner_without_a_name_is_told_by_its_uuid(lines: pytest.LogCaptureFixture) -> None:
    nameless = msgspec.structs.replace(unread("x", state="running"), name="")
    before = start()
    after = seen(before, msgspec.structs.replace(nameless, validity="lost-by-libvirt"), at=11.0)
    ((_, line),) = told(lines, before, after)
    assert f"({nameless.uuid})" in line


def accepting(before: Snapshot, *guests: str) -> Snapshot:
    """The next snapshot, after a reload that accepts these guests' shared CPUs."""
    rules = tuple(AcceptRule(kind="cpu-pinned-twice", guest=one) for one in guests)
    return configured(before, msgspec.structs.replace(before.config, accept=rules))


def test_an_accept_rule_that_names_no_guest_here_is_told_at_the_first_look_and_not_again(
    lines: pytest.LogCaptureFixture,
) -> None:
    before = accepting(FIRST, "a", "nobody", "*", guest("b").uuid)
    after = seen(before, guest("a", {0: 2}), guest("b", {0: 3}), at=1.0, topology=h8().topology)
    ((level, line),) = told(lines, before, after)
    assert (level, line.partition(" accept_")[2]) == ("INFO", "names_no_guest_here=[cpu-pinned-twice:nobody]")
    assert told(lines, after, seen(after, guest("a", {0: 2}), guest("b", {0: 3}), at=11.0)) == []


def test_an_accept_rule_whose_guest_went_or_that_a_reload_brought_is_told(lines: pytest.LogCaptureFixture) -> None:
    before = start(guest("a", {0: 2}), guest("b", {0: 3}))
    reloaded = accepting(before, "a", "typo")
    ((_, line),) = told(lines, before, reloaded)
    assert line.endswith(" free_dedicated=4-7 accept_names_no_guest_here=[cpu-pinned-twice:typo]")
    ((level, line),) = told(lines, reloaded, seen(reloaded, guest("b", {0: 3}), at=11.0))
    assert level == "INFO"
    assert line.endswith(" guests_went=[a] accept_names_no_guest_here=[cpu-pinned-twice:a]")
