"""Two QEMU processes of one guest: libvirt knows one of them at most, and no word of libvirt hides the other."""

from __future__ import annotations

import msgspec

from agent.core.cpuset import CpuSet
from agent.core.guest import OtherProcess, RunIdentity, Sighting
from agent.core.ledger import Ledger, LivingProcess, account, see
from tests.builders import guest, h8, ledger_of, listing, processes, qemu, uuid_of

OLD = RunIdentity(pid=1000, started_at_boot_s=1.0)
NEW = RunIdentity(pid=2000, started_at_boot_s=25.0)


def _process(run: RunIdentity, cpus: str | None = None) -> LivingProcess:
    pins = None if cpus is None else CpuSet.parse(cpus)
    return msgspec.structs.replace(qemu("a"), run=run, cpus=pins, pins=pins)


BOTH = msgspec.structs.replace(_process(NEW), others=(OtherProcess(run=OLD, pins=CpuSet([3])),))


def _lost() -> Ledger:
    """Pinned to CPU 3, forgotten by libvirt, alive."""
    ledger = account(ledger_of(guest("a", {0: 3}, run=OLD)), listing("a", at=5.0), processes(_process(OLD), at=5.5))
    denied = see(ledger, guest("a", {0: 3}, state="shut-off", at=10.0))
    return account(denied, listing("a", at=10.1), processes(_process(OLD, "3"), at=10.5))


def _seen(ledger: Ledger) -> Sighting:
    return ledger.sightings[uuid_of("a")]


def _held(ledger: Ledger) -> str:
    on = h8()
    return str(on.folded(_seen(ledger)).holds[_seen(ledger).uuid].cpus)


def _started_again() -> Ledger:
    again = see(_lost(), guest("a", {0: 2}, run=NEW, at=30.0))
    return account(again, listing("a", at=30.1), processes(BOTH, at=30.5))


def test_a_lost_guest_that_libvirt_starts_again_holds_for_both_of_its_processes() -> None:
    seen = _seen(_started_again())
    assert (seen.validity, seen.run, seen.others) == ("valid", NEW, BOTH.others)
    assert _held(_started_again()) == "2-3"


def test_a_later_reading_does_not_hide_the_other_process_and_its_end_does() -> None:
    read_again = see(_started_again(), guest("a", {0: 4}, run=NEW, at=40.0))
    assert (_seen(read_again).others, _held(read_again)) == (BOTH.others, "3-4")
    ended = account(read_again, listing("a", at=40.1), processes(_process(NEW), at=40.5))
    assert (_seen(ended).others, _held(ended)) == ((), "4")


def test_where_processes_cannot_be_seen_the_other_one_is_not_taken_for_ended() -> None:
    blind = processes(_process(NEW), at=40.5, can_see=False)
    assert _seen(account(_started_again(), listing("a", at=40.1), blind)).others == BOTH.others
    nothing = processes(at=40.5, can_see=False)
    assert _seen(account(_started_again(), listing("a", at=40.1), nothing)).others == BOTH.others


def test_of_a_guest_without_any_process_none_lives_beside_it() -> None:
    ended = account(_started_again(), listing("a", at=40.1), processes(at=40.5))
    assert _seen(ended).others == ()


def test_while_libvirt_starts_a_lost_guest_again_it_stays_lost() -> None:
    starting = msgspec.structs.replace(guest("a", {0: 2}, state="paused", at=20.0), reason="starting-up")
    ledger = see(_lost(), starting)
    ledger = account(ledger, listing("a", at=20.1), processes(_process(OLD, "3"), at=20.5))
    assert (_seen(ledger).validity, _held(ledger)) == ("lost-by-libvirt", "3")


def test_a_process_that_outlives_the_new_one_holds_its_own_cpus_not_those_of_the_new_definition() -> None:
    destroyed = see(_started_again(), guest("a", {0: 2}, state="shut-off", at=50.0))
    left = account(destroyed, listing("a", at=50.1), processes(_process(OLD, "3"), at=50.5))
    assert (_seen(left).validity, _seen(left).run, _held(left)) == ("lost-by-libvirt", OLD, "3")


def test_a_lost_process_that_floats_as_far_as_the_kernel_tells_holds_what_its_definition_says() -> None:
    floating = msgspec.structs.replace(_process(OLD), cpus=CpuSet.parse("0-7"), pins=CpuSet())
    ledger = account(_lost(), listing("a", at=20.0), processes(floating, at=20.5))
    assert _held(ledger) == "3"
