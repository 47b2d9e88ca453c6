"""Readings in any order, and absence only with proof."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.cpuset import CpuSet
from agent.core.guest import DomainState, Sighting
from agent.core.ledger import Ledger, Listing, Processes, account, connect, join, see, see_all
from tests.builders import (
    CONNECTION,
    NOT_RUN,
    guest,
    ledger_of,
    listing,
    passed,
    processes,
    qemu,
    unread,
    uuid_of,
)

NAMES = ("a", "b", "c")
TIMES = st.integers(0, 6).map(float)
STATES: tuple[DomainState, ...] = ("running", "paused", "shut-off", "unknown")


@st.composite
def readings(draw: st.DrawFn) -> Sighting:
    """One reading of one of three guests, over the current connection or an older one, with or without its XML."""
    name, at = draw(st.sampled_from(NAMES)), draw(TIMES)
    state = draw(st.sampled_from(STATES))
    connection = draw(st.sampled_from((CONNECTION, CONNECTION, CONNECTION, CONNECTION + 1)))
    if draw(st.booleans()):
        return msgspec.structs.replace(unread(name, state=state, at=at), connection=connection)
    seen = guest(name, {0: draw(st.integers(0, 2))}, state=state, at=at, connection=connection)
    return msgspec.structs.replace(seen, memory_elsewhere=draw(st.sampled_from((CpuSet(), CpuSet([1])))))


@st.composite
def processes_seen(draw: st.DrawFn) -> Processes:
    """QEMU processes of some of the guests."""
    names = draw(st.sets(st.sampled_from(NAMES)))
    living = [
        qemu(name, pid=draw(st.integers(1, 2)), started_at_s=draw(st.none() | st.just(0.0))) for name in sorted(names)
    ]
    return processes(*living, at=draw(TIMES), can_see=draw(st.booleans()))


@st.composite
def listings(draw: st.DrawFn) -> Listing:
    """A list of some of the guests, perhaps incomplete or of another connection."""
    names = draw(st.sets(st.sampled_from(NAMES)))
    connection = draw(st.sampled_from((CONNECTION, CONNECTION + 1)))
    return listing(*sorted(names), at=draw(TIMES), complete=draw(st.booleans()), connection=connection)


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    """A ledger with a history of readings and looks at processes."""
    ledger = see_all(connect(Ledger(), CONNECTION), draw(st.lists(readings(), max_size=6)))
    for _ in range(draw(st.integers(0, 2))):
        ledger = account(ledger, draw(st.none() | listings()), draw(processes_seen()))
        ledger = see_all(ledger, draw(st.lists(readings(), max_size=3)))
    return ledger


@given(st.lists(readings(), max_size=8), st.data())
def test_readings_give_the_same_ledger_in_any_order_and_any_number(seen: list[Sighting], data: st.DataObject) -> None:
    start = connect(Ledger(), CONNECTION)
    again = data.draw(st.lists(st.sampled_from(seen), max_size=4)) if seen else []
    shuffled = data.draw(st.permutations(seen + again))
    one_by_one = start
    for reading in shuffled:
        one_by_one = see(one_by_one, reading)
    assert one_by_one == see_all(start, seen)


@given(readings(), readings(), readings())
def test_joining_readings_does_not_depend_on_grouping(one: Sighting, two: Sighting, three: Sighting) -> None:
    a, b, c = (msgspec.structs.replace(reading, uuid="u") for reading in (one, two, three))
    assert join(a, a) == a
    assert join(a, b) == join(b, a)
    assert join(join(a, b), c) == join(a, join(b, c))


@given(ledgers(), listings(), processes_seen())
def test_nothing_is_dropped_without_proof(before: Ledger, listed: Listing, alive: Processes) -> None:
    after = account(before, listed, alive)
    for uuid in before.sightings.keys() - after.sightings.keys():
        last = before.sightings[uuid].begun_at
        assert listed.complete
        assert listed.connection == before.connection
        assert uuid not in listed.uuids
        assert alive.can_see
        assert uuid not in alive.living
        assert last < listed.begun_at
        assert last < alive.begun_at


@given(ledgers(), st.none() | listings(), processes_seen())
def test_whatever_has_a_living_process_holds(before: Ledger, listed: Listing | None, alive: Processes) -> None:
    after = account(before, listed, alive)
    is_new = before.processes is None or alive.begun_at >= before.processes.begun_at
    for uuid in alive.living if is_new else ():
        known = before.sightings.get(uuid)
        if known is None or known.begun_at < alive.begun_at:
            assert after.sightings[uuid].is_active


@given(ledgers(), listings() | st.none(), processes_seen())
def test_taking_account_twice_changes_nothing_more(before: Ledger, listed: Listing | None, alive: Processes) -> None:
    once = account(before, listed, alive)
    assert account(once, listed, alive) == once


@given(ledgers(), processes_seen(), TIMES)
def test_without_a_list_no_guest_goes(before: Ledger, alive: Processes, at: float) -> None:
    failed = listing(at=at, complete=False)
    stale = listing(at=at, connection=CONNECTION + 1)
    for listed in (None, failed, stale):
        assert before.sightings.keys() <= account(before, listed, alive).sightings.keys()


@given(ledgers())
def test_a_full_pass_decides_whatever_came_before(before: Ledger) -> None:
    shown = (guest("a", {0: 1}), guest("b", {0: 2}, state="shut-off"))
    alive = [qemu("a", pid=7)]
    once = passed(before, *shown, at=100.0, living=alive)
    fresh = passed(connect(Ledger(), CONNECTION), *shown, at=100.0, living=alive)
    settled = passed(once, *shown, at=200.0, living=alive)
    assert once.sightings.keys() == fresh.sightings.keys()
    assert settled == passed(fresh, *shown, at=200.0, living=alive)


@given(ledgers(), readings())
def test_a_reading_from_before_the_proof_of_absence_brings_nothing_back(before: Ledger, late: Sighting) -> None:
    gone = passed(before, at=100.0)
    assert gone.sightings == {}
    assert see(gone, late) is gone


def test_a_pass_that_finds_nothing_new_keeps_the_very_same_sightings() -> None:
    before = passed(ledger_of(guest("a", {0: 1}), guest("b", state="shut-off")), guest("a", {0: 1}), at=5.0)
    after = account(before, listing("a", at=6.0), processes(at=6.1))
    assert after.sightings is before.sightings


def test_a_reading_over_an_older_connection_does_not_apply() -> None:
    ledger = connect(ledger_of(guest("a", {0: 2})), CONNECTION + 1)
    assert see(ledger, guest("a", {0: 3}, at=50.0, connection=CONNECTION)) is ledger
    assert see(ledger, guest("a", {0: 3}, at=50.0, connection=CONNECTION + 1)) is not ledger


def test_a_reconnect_alone_changes_nothing_that_is_known() -> None:
    ledger = ledger_of(guest("a", {0: 2}))
    again = connect(ledger, CONNECTION + 1)
    assert again.sightings is ledger.sightings
    assert connect(again, CONNECTION) is again
    assert account(again, listing(at=50.0), processes(at=50.5)).sightings == ledger.sightings


def test_an_unreadable_definition_keeps_the_last_known_pins_until_it_is_read_again() -> None:
    read = guest("a", {0: 2}, at=1.0)
    ledger = see(ledger_of(read), unread("a", problem="not well-formed", at=5.0))
    seen = ledger.sightings[uuid_of("a")]
    assert (seen.validity, seen.domain, seen.xml_at, seen.problem) == (
        "last-known",
        read.domain,
        1.0,
        "not well-formed",
    )
    again = guest("a", {0: 3}, at=9.0)
    assert see(ledger, again).sightings[uuid_of("a")] == again


def test_a_guest_of_unknown_state_is_off_once_no_process_of_it_lives() -> None:
    off = guest("a", {0: 2}, state="shut-off")
    unsure = see(ledger_of(off), unread("a", state="unknown", problem="timeout", at=5.0))
    assert unsure.sightings[uuid_of("a")].is_active
    settled = account(unsure, listing("a", at=6.0), processes(at=6.5)).sightings[uuid_of("a")]
    assert (settled.state, settled.validity, settled.domain) == ("shut-off", "last-known", off.domain)
    blind = account(unsure, listing("a", at=6.0), processes(at=6.5, can_see=False))
    assert blind.sightings[uuid_of("a")].is_active


@pytest.mark.parametrize(("begun_at", "is_known"), [(9.9, False), (10.0, True)])
def test_a_late_reading_is_of_a_guest_that_was_gone_only_if_it_began_before_the_list(
    begun_at: float, is_known: bool
) -> None:
    ledger = account(ledger_of(), listing(at=10.0), processes(at=10.5))
    assert (uuid_of("a") in see(ledger, guest("a", {0: 2}, at=begun_at)).sightings) == is_known


def test_a_guest_that_stops_is_not_taken_for_lost() -> None:
    alive = qemu("a", started_at_s=0.01)
    ledger = account(ledger_of(guest("a", {0: 2})), listing("a", at=5.0), processes(alive, at=5.5))
    stopped = see(ledger, guest("a", {0: 2}, state="shut-off", at=10.0))
    assert not stopped.sightings[uuid_of("a")].is_active
    after = account(stopped, listing("a", at=11.0), processes(at=11.5))
    assert after.sightings[uuid_of("a")].validity == "valid"


def test_a_guest_that_has_just_started_is_held_and_not_called_lost() -> None:
    ledger = account(ledger_of(), listing(at=5.0), processes(at=5.5))
    started = account(ledger, listing(at=10.0), processes(qemu("a", started_at_s=10.2, cpus="2"), at=10.5))
    seen = started.sightings[uuid_of("a")]
    assert (seen.name, seen.validity, seen.is_active, str(seen.kernel_cpus)) == ("a", "last-known", True, "2")
    shown = guest("a", {0: 2}, at=12.0)
    assert see(started, shown).sightings[uuid_of("a")] == shown


def test_a_process_that_libvirt_never_names_is_lost_in_the_second_pass() -> None:
    alive = qemu("a", cpus="2-3")
    first = account(ledger_of(), listing(at=10.0), processes(alive, at=10.5))
    assert first.sightings[uuid_of("a")].validity == "last-known"
    second = account(first, listing(at=20.0), processes(alive, at=20.5))
    assert second.sightings[uuid_of("a")].validity == "lost-by-libvirt"


def test_a_process_older_than_the_list_that_lacks_it_is_lost_at_once() -> None:
    alive = qemu("a", started_at_s=1.0)
    ledger = account(ledger_of(), listing(at=10.0), processes(alive, at=10.5))
    assert ledger.sightings[uuid_of("a")].validity == "lost-by-libvirt"


def test_a_process_without_libvirt_is_held_as_last_known() -> None:
    ledger = account(ledger_of(), None, processes(qemu("a", started_at_s=0.01, cpus="2"), at=10.5))
    ledger = account(ledger, None, processes(qemu("a", started_at_s=0.01, cpus="2"), at=20.5))
    seen = ledger.sightings[uuid_of("a")]
    assert (seen.validity, seen.state) == ("last-known", "unknown")


def test_shut_off_of_a_lost_guest_is_no_news_until_its_process_ends() -> None:
    alive = qemu("a", started_at_s=0.01)
    running = guest("a", {0: 2})
    ledger = account(ledger_of(running), listing("a", at=5.0), processes(alive, at=5.5))
    ledger = see(ledger, guest("a", {0: 4}, state="shut-off", at=10.0))
    lost = account(ledger, listing("a", at=10.1), processes(alive, at=10.5))
    assert lost.sightings[uuid_of("a")].validity == "lost-by-libvirt"
    denied = see(lost, guest("a", {0: 4}, state="shut-off", at=20.0))
    assert denied.sightings[uuid_of("a")].validity == "lost-by-libvirt"
    ended = account(denied, listing("a", at=20.1), processes(at=20.5)).sightings[uuid_of("a")]
    assert (ended.state, ended.validity, ended.run) == ("shut-off", "last-known", NOT_RUN)
    gone = account(denied, listing(at=20.1), processes(at=20.5))
    assert gone.sightings == {}


def test_shut_off_of_a_lost_guest_is_no_news_either_when_it_is_told_twice() -> None:
    alive = qemu("a", started_at_s=0.01)
    ledger = account(ledger_of(guest("a", {0: 2})), listing("a", at=5.0), processes(alive, at=5.5))
    off = guest("a", {0: 2}, state="shut-off", at=10.0)
    lost = account(see(ledger, off), listing("a", at=10.1), processes(alive, at=10.5))
    again = guest("a", {0: 2}, state="shut-off", at=20.0)
    once = see(lost, again)
    assert once.sightings[uuid_of("a")].is_active
    assert see_all(lost, (again, again, off)) == see(see(once, again), off) == once


def test_a_process_of_a_guest_called_shut_off_is_lost_once_libvirt_says_so_again() -> None:
    off, alive = guest("a", {0: 2}, state="shut-off"), qemu("a")
    held = account(ledger_of(off), listing("a", at=10.0), processes(alive, at=10.5))
    assert (held.sightings[uuid_of("a")].validity, held.sightings[uuid_of("a")].state) == ("last-known", "unknown")
    still = account(held, listing("a", at=20.0), processes(alive, at=20.5))
    assert still.sightings[uuid_of("a")].validity == "last-known"
    denied = see(still, guest("a", {0: 2}, state="shut-off", at=30.0))
    lost = account(denied, listing("a", at=30.1), processes(alive, at=30.5))
    assert lost.sightings[uuid_of("a")].validity == "lost-by-libvirt"
    restarted = account(denied, listing("a", at=30.1), processes(qemu("a", pid=2), at=30.5))
    assert restarted.sightings[uuid_of("a")].validity == "last-known"


def test_a_late_reading_of_a_lost_guest_brings_its_definition() -> None:
    alive = qemu("a", started_at_s=1.0, cpus="0-7")
    lost = account(ledger_of(), listing(at=10.0), processes(alive, at=10.5))
    late = guest("a", {0: 2}, at=9.0)
    seen = see(lost, late).sightings[uuid_of("a")]
    assert (seen.validity, seen.domain, seen.xml_at) == ("lost-by-libvirt", late.domain, 9.0)


def test_a_lost_guest_is_found_again_when_libvirt_shows_it_active() -> None:
    alive = qemu("a", started_at_s=0.01)
    lost = account(ledger_of(guest("a", {0: 2})), listing(at=10.0), processes(alive, at=10.5))
    assert lost.sightings[uuid_of("a")].validity == "lost-by-libvirt"
    found = guest("a", {0: 2}, at=20.0)
    assert see(lost, found).sightings[uuid_of("a")] == found


def test_an_empty_list_without_sight_of_processes_drops_nothing() -> None:
    ledger = ledger_of(guest("a", {0: 2}))
    assert account(ledger, listing(at=10.0), processes(at=10.5, can_see=False)).sightings == ledger.sightings
    assert account(ledger, listing(at=10.0), processes(at=10.5)).sightings == {}


def test_what_lies_elsewhere_is_known_as_long_as_the_definition_it_was_read_with() -> None:
    seen = msgspec.structs.replace(guest("a", {0: 2}, at=1.0), memory_elsewhere=CpuSet([1]))
    before = ledger_of(seen)
    unreadable = see(before, unread("a", at=2.0))
    assert str(unreadable.sightings[uuid_of("a")].memory_elsewhere) == "1"
    read_again = see(unreadable, guest("a", {0: 2}, at=3.0))
    assert str(read_again.sightings[uuid_of("a")].memory_elsewhere) == ""


def test_of_a_guest_that_is_found_off_nothing_lies_anywhere() -> None:
    seen = msgspec.structs.replace(guest("a", {0: 2}, at=1.0), memory_elsewhere=CpuSet([1]))
    unclear = see(ledger_of(seen), unread("a", state="unknown", at=2.0))
    off = account(unclear, listing("a", at=3.0), processes(at=3.5)).sightings[uuid_of("a")]
    assert (off.state, str(off.memory_elsewhere)) == ("shut-off", "")
