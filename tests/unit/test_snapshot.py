"""How findings make the next picture, and what counts as a change."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent.core.conflicts import Since
from agent.core.cpuset import CpuSet
from agent.core.guest import RunIdentity, Sighting
from agent.core.host_config import HostConfig
from agent.core.snapshot import (
    Findings,
    Identity,
    Snapshot,
    SourceState,
    configured,
    dated,
    first,
    material_changes,
    take_in,
    with_sources,
)
from agent.core.topology import EMPTY
from tests.builders import guest, h8, ledger_of, listing, processes, qemu, unread, uuid_of

FIRST = first(Identity(agent_id="a", boot_id="b", epoch=3), h8().config)
TWICE = "cpu-pinned-twice:cpu:3"


def found(*guests: Sighting, at: float, **fields: Any) -> Findings:
    """A complete pass over H8 that showed exactly these guests."""
    seen = tuple(msgspec.structs.replace(one, begun_at=at + 0.1) for one in guests)
    given: dict[str, Any] = {
        "topology": h8().topology,
        "listing": listing(*(one.name for one in guests), at=at),
        "processes": processes(at=at + 0.2),
        "sightings": seen,
    }
    return Findings(**(given | fields))


def free(snapshot: Snapshot) -> str:
    return str(snapshot.usage.host.dedicated.free)


def test_the_first_picture_knows_nothing_and_says_so() -> None:
    assert (FIRST.generation, FIRST.complete, FIRST.topology) == (0, False, EMPTY)
    assert (FIRST.usage.cells, FIRST.conflicts, free(FIRST)) == ((), (), "")
    assert FIRST.source("sysfs") == SourceState(name="sysfs", read_at=None, problem=None)


def test_findings_of_nothing_change_nothing_but_the_generation() -> None:
    before = take_in(FIRST, found(guest("a", {0: 2}), at=1.0))
    after = take_in(before, Findings())
    assert after == msgspec.structs.replace(before, generation=2)
    assert after.usage is before.usage


def test_an_equal_topology_is_the_one_that_was_known() -> None:
    before = take_in(FIRST, found(at=1.0))
    after = take_in(before, Findings(topology=h8().topology))
    assert after.topology is before.topology
    assert after.usage is before.usage


def test_another_topology_is_folded_anew() -> None:
    before = take_in(FIRST, found(at=1.0))
    after = take_in(before, Findings(topology=h8(online="0-4").topology))
    assert (free(before), free(after)) == ("2-7", "2-4")


def test_a_reading_over_an_old_connection_is_not_taken() -> None:
    before = take_in(FIRST, found(guest("a", {0: 2}), at=1.0, listing=listing("a", at=1.0, connection=2)))
    late = Findings(sightings=(guest("b", {0: 3}, at=9.0, connection=1),))
    assert set(take_in(before, late).ledger.sightings) == set(before.ledger.sightings)


def test_an_unreadable_guest_keeps_its_last_definition_and_holds_on() -> None:
    before = take_in(FIRST, found(guest("a", {0: 2}), guest("b", {0: 3}), at=1.0))
    seen_again = guest("a", {0: 2}, at=11.1), unread("b", state="unknown", problem="it hangs", at=11.0)
    living = processes(qemu("a"), qemu("b"), at=11.2)
    after = take_in(
        before,
        found(at=11.0, sightings=seen_again, processes=living, listing=listing("a", "b", at=11.0)),
    )
    seen = after.ledger.sightings[uuid_of("b")]
    assert (seen.validity, seen.problem, free(after)) == ("last-known", "it hangs", "4-7")


def test_absence_needs_a_complete_list_and_no_process() -> None:
    before = take_in(FIRST, found(guest("a", {0: 2}), at=1.0))
    partial = listing(at=11.0, complete=False)
    kept = [
        take_in(before, found(at=11.0, listing=partial)),
        take_in(before, found(at=11.0, listing=None)),
        take_in(before, found(at=11.0, processes=None)),
        take_in(before, found(at=11.0, processes=processes(at=11.2, can_see=False))),
        take_in(before, found(at=11.0, processes=processes(qemu("a", started_at_s=1.0), at=11.2))),
    ]
    assert [free(snapshot) for snapshot in kept] == ["3-7"] * 5
    assert free(take_in(before, found(at=11.0))) == "2-7"


def test_complete_stays_once_it_was_so() -> None:
    before = take_in(FIRST, found(at=1.0))
    assert [before.complete, take_in(before, Findings()).complete] == [True, True]
    assert not take_in(FIRST, Findings(topology=h8().topology)).complete


def test_a_failing_source_keeps_the_time_of_its_last_success() -> None:
    states = [
        SourceState(name="libvirt", read_at=5.0),
        SourceState(name="libvirt", problem="away"),
        SourceState(name="libvirt", problem="still away"),
        SourceState(name="libvirt", read_at=9.0),
    ]
    snapshot, told = FIRST, []
    for state in states:
        snapshot = with_sources(snapshot, state)
        told.append((snapshot.source("libvirt").read_at, snapshot.source("libvirt").problem))
    assert told == [(5.0, None), (5.0, "away"), (5.0, "still away"), (9.0, None)]
    assert snapshot.generation == 4


def test_sources_are_in_order_of_their_names_and_each_is_there_once() -> None:
    snapshot = with_sources(FIRST, SourceState(name="udev"), SourceState(name="libvirt"))
    snapshot = with_sources(
        snapshot, SourceState(name="journal", problem="full"), SourceState(name="udev", read_at=2.0)
    )
    assert [state.name for state in snapshot.sources] == ["journal", "libvirt", "udev"]
    assert snapshot.source("udev").read_at == 2.0


def test_another_configuration_is_folded_over_what_is_known() -> None:
    before = take_in(FIRST, found(guest("a", {0: 2}), at=1.0))
    after = configured(before, HostConfig(dedicated=CpuSet.parse("4-7"), shared=CpuSet.parse("0-1")))
    assert (free(after), after.generation, after.ledger) == ("4-7", before.generation + 1, before.ledger)
    assert [row.kind for row in after.conflicts] == ["pinned-outside-dedicated"]


def test_dates_are_given_by_id_and_else_are_now() -> None:
    both = take_in(FIRST, found(guest("a", {0: 2, 1: 3}), guest("b", {0: 2, 1: 3}), at=1.0))
    rows = {row.id: row.since for row in dated(both, {TWICE: Since(at="before")}, "now").conflicts}
    assert rows == {"cpu-pinned-twice:cpu:2": "now", TWICE: "before"}


def test_a_picture_whose_rows_all_have_dates_stays_as_it_is() -> None:
    both = take_in(FIRST, found(guest("a", {0: 3}), guest("b", {0: 3}), at=1.0))
    once = dated(both, {}, "now")
    assert dated(once, {TWICE: Since(at="other")}, "later") is once
    assert dated(FIRST, {}, "now") is FIRST


SEEN = guest("a", {0: 2}, at=1.0)


@pytest.mark.parametrize(
    "fields",
    [
        {"state": "paused"},
        {"reason": "migration"},
        {"persistent": False},
        {"validity": "last-known"},
        {"problem": "a field was left out"},
        {"run": RunIdentity(libvirt_id=7)},
        {"kernel_cpus": CpuSet((1,))},
        {"domain": None},
        {"name": "renamed"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_matters_of_a_guest_is_a_change(fields: dict[str, Any]) -> None:
    after = msgspec.structs.replace(SEEN, begun_at=2.0, **fields)
    assert material_changes(ledger_of(SEEN), ledger_of(after)) == (SEEN.uuid,)


@pytest.mark.parametrize("fields", [{"begun_at": 2.0}, {"xml_at": 0.5}])
def test_the_time_of_a_reading_is_no_change(fields: dict[str, Any]) -> None:
    assert material_changes(ledger_of(SEEN), ledger_of(msgspec.structs.replace(SEEN, **fields))) == ()


def test_guests_that_came_and_went_are_changes() -> None:
    before, after = ledger_of(SEEN, guest("b")), ledger_of(SEEN, guest("c"))
    assert material_changes(before, after) == (uuid_of("b"), uuid_of("c"))
    assert material_changes(before, before) == ()
