"""What is told of a snapshot, and how healthy it is called."""

from __future__ import annotations

import msgspec
import pytest

from agent.core.holds import host_sets
from agent.core.host_config import AcceptRule
from agent.core.ledger import Ledger
from agent.core.report import Health, Report, health, report
from agent.core.snapshot import Identity, Snapshot, SourceState
from agent.core.topology import replace_problems
from agent.core.values import Problem
from agent.formats.wire import from_json, to_json
from tests.builders import Host, guest, h8, ledger_of, unread

IDENTITY = Identity(agent_id="agent", boot_id="boot", epoch=3)
FRESH = tuple(SourceState(name=name, read_at=100.0) for name in ("domains", "libvirt", "processes", "sysfs"))


def _snapshot(on: Host, ledger: Ledger, *, sources: tuple[SourceState, ...] = FRESH, complete: bool = True) -> Snapshot:
    made = on.folded(*ledger.sightings.values())
    return Snapshot(
        identity=IDENTITY,
        generation=7,
        config=on.config,
        topology=on.topology,
        ledger=ledger,
        seen=made,
        sets=host_sets(on.topology, on.config),
        usage=made.usage,
        conflicts=made.conflicts,
        sources=sources,
        complete=complete,
    )


def _health(snapshot: Snapshot, now_s: float = 101.0) -> Health:
    return health(snapshot, now_s=now_s, interval_s=10.0)


def _with_sources(*states: SourceState) -> tuple[SourceState, ...]:
    names = {state.name for state in states}
    return tuple(state for state in FRESH if state.name not in names) + states


def test_a_report_has_guests_by_name_with_what_they_hold_and_the_age_of_their_reading() -> None:
    ledger = ledger_of(guest("b", {0: 3}, at=90.0), guest("a", {0: 2}, at=95.0, state="shut-off"))
    told = report(_snapshot(h8(), ledger), now_s=101.0, interval_s=10.0)
    assert [(one.sighting.name, str(one.holds.cpus), one.age_s) for one in told.guests] == [
        ("a", "", 6.0),
        ("b", "3", 11.0),
    ]
    assert (told.agent_id, told.epoch, told.generation) == ("agent", 3, 7)
    assert (told.health.guests_active, told.health.guests_inactive) == (1, 1)
    assert from_json(to_json(told), Report) == told


def test_a_fresh_look_without_contradictions_is_ok_and_ready() -> None:
    told = _health(_snapshot(h8(), ledger_of(guest("a", {0: 2}))))
    assert (told.status, told.ready, told.reasons) == ("ok", True, ())
    assert all(source.ok for source in told.sources)


def test_a_conflict_degrades_and_is_counted() -> None:
    told = _health(_snapshot(h8(), ledger_of(guest("a", {0: 2}), guest("b", {0: 2}))))
    assert (told.status, told.ready, told.conflicts) == ("degraded", True, 1)
    assert told.reasons == ("1 conflict (cpu-pinned-twice): see agentctl conflicts.",)


def test_an_accepted_conflict_is_counted_apart_and_does_not_degrade() -> None:
    on = h8()
    rule = AcceptRule(kind="cpu-pinned-twice", guest="a")
    accepting = Host(on.topology, msgspec.structs.replace(on.config, accept=(rule,)))
    told = _health(_snapshot(accepting, ledger_of(guest("a", {0: 2}), guest("b", {0: 2}))))
    assert (told.status, told.conflicts, told.conflicts_accepted) == ("ok", 0, 1)


def test_libvirt_out_of_reach_is_degraded_with_the_last_known_usage_then_not_ready() -> None:
    lost = SourceState(name="libvirt", read_at=100.0, problem="libvirt is stopped")
    snapshot = _snapshot(h8(), ledger_of(guest("a", {0: 2})), sources=_with_sources(lost))
    soon = _health(snapshot, now_s=112.0)
    assert (soon.status, soon.ready) == ("degraded", True)
    assert soon.reasons == ("libvirt: libvirt is stopped (last read 12 s ago).",)
    later = _health(snapshot, now_s=121.0)
    assert (later.status, later.ready) == ("degraded", False)


def test_libvirt_never_reached_is_down() -> None:
    sources = (SourceState(name="sysfs", read_at=100.0), SourceState(name="libvirt", problem="no socket"))
    told = _health(_snapshot(h8(), Ledger(), sources=sources, complete=False))
    assert (told.status, told.ready) == ("down", False)
    assert "libvirt: no socket (never read)." in told.reasons


def test_a_source_older_than_two_intervals_is_stale_unless_it_is_read_on_change_only() -> None:
    old = (SourceState(name="sysfs", read_at=80.0), SourceState(name="nodedev", read_at=1.0))
    told = _health(_snapshot(h8(), Ledger(), sources=_with_sources(*old)))
    assert not told.ready
    assert told.reasons == ("sysfs: last read 21 s ago.",)
    assert {source.name: source.ok for source in told.sources}["nodedev"]


@pytest.mark.parametrize("name", ["sysfs", "libvirt", "domains", "processes"])
def test_each_source_that_every_pass_reads_can_be_stale(name: str) -> None:
    told = _health(_snapshot(h8(), Ledger(), sources=_with_sources(SourceState(name=name, read_at=80.0))))
    assert (told.status, told.ready) == ("degraded", False)
    assert [source.name for source in told.sources if not source.ok] == [name]


def test_before_the_first_complete_pass_nothing_is_ready() -> None:
    told = _health(_snapshot(h8(), Ledger(), complete=False))
    assert (told.status, told.ready) == ("degraded", False)
    assert told.reasons == ("No complete look at the host and its guests has been made yet.",)


def test_guests_that_cannot_be_read_degrade_and_say_when_free_is_uncertain() -> None:
    told = _health(_snapshot(h8(), ledger_of(unread("a"))))
    assert told.status == "degraded"
    assert told.reasons == (
        "What was last known counts for 1 guest not readable now: see agentctl guests.",
        "The CPUs of a guest are unknown, so CPUs called free may not be: see agentctl usage.",
    )


def test_problems_of_the_topology_are_counted_and_do_not_degrade() -> None:
    on = h8()
    odd = replace_problems(on.topology, (Problem(source="sysfs", what="two files differ"),))
    told = _health(_snapshot(Host(odd, on.config), Ledger()))
    assert (told.status, told.problems) == ("ok", 1)
