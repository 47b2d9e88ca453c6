"""What proves that a domain has come, is off, or is gone; and all that proves nothing (LEDGER R2)."""

from __future__ import annotations

import msgspec
import pytest

from agent.core.claim.proof import is_absent, is_gone, is_off, is_other_run, joined, shows_run
from agent.core.guest import RunIdentity
from agent.core.ledger import Ledger, account
from tests.builders import guest, ledger_of, listing, processes, qemu, unread, uuid_of
from tests.claim_world import Fault, World

A = uuid_of("a")
EMPTY = account(ledger_of(), listing(at=10.0), processes(at=10.5))


def test_a_complete_list_and_a_look_at_processes_without_it_prove_absence() -> None:
    assert is_absent(EMPTY, A, 9.0)


@pytest.mark.parametrize(
    ("ledger", "since_s"),
    [
        pytest.param(EMPTY, 10.0, id="a list that began with the claim's last step"),
        pytest.param(EMPTY, 10.2, id="a list from before the claim's last step, processes looked at after it"),
        pytest.param(ledger_of(), 9.0, id="no list at all"),
        pytest.param(account(ledger_of(), None, processes(at=10.5)), 9.0, id="libvirt out of reach"),
        pytest.param(
            account(ledger_of(), listing(at=10.0, complete=False), processes(at=10.5)),
            9.0,
            id="a list right after the connection came back, which is not complete yet",
        ),
        pytest.param(
            account(ledger_of(), listing(at=10.0, connection=0), processes(at=10.5)),
            9.0,
            id="a list over an earlier connection",
        ),
        pytest.param(
            msgspec.structs.replace(EMPTY, connection=2), 9.0, id="a reconnect under way, no list over it yet"
        ),
        pytest.param(
            account(ledger_of(), listing(at=10.0), processes(at=10.5, can_see=False)),
            9.0,
            id="processes of others cannot be seen",
        ),
        pytest.param(
            account(ledger_of(), listing(at=10.0), processes(qemu("a"), at=10.5)), 9.0, id="its QEMU process lives"
        ),
        pytest.param(
            account(ledger_of(), listing("a", at=10.0), processes(at=10.5)), 9.0, id="it is listed and not yet read"
        ),
        pytest.param(
            account(ledger_of(guest("a", at=5.0)), listing("a", at=10.0), processes(at=10.5)),
            9.0,
            id="it is listed, whatever was read of it",
        ),
        pytest.param(
            account(ledger_of(guest("a", at=10.2)), listing(at=10.0), processes(at=10.5)),
            9.0,
            id="it was seen after the list began",
        ),
        pytest.param(account(ledger_of(unread("a", at=5.0)), None, processes(at=10.5)), 9.0, id="it could not be read"),
    ],
)
def test_no_proof_of_absence(ledger: Ledger, since_s: float) -> None:
    assert not is_absent(ledger, A, since_s)
    assert not is_gone(ledger, A, since_s)


FAULTS: tuple[Fault, ...] = ("down", "incomplete", "old-connection", "blind")


@pytest.mark.parametrize("fault", FAULTS)
def test_no_faulty_look_ends_a_claim_that_is_overdue(fault: Fault) -> None:
    world = World()
    claim = world.claim("a")
    world.wait(2000.0, fault)
    assert world.state(claim) == "overdue"
    world.look()
    assert (world.state(claim), world.ending(claim)) == ("ended", "expired")


@pytest.mark.parametrize("fault", FAULTS)
def test_no_faulty_look_makes_a_guest_away(fault: Fault) -> None:
    world = World()
    claim = world.resident("a")
    world.vanish("a")
    world.wait(100.0, fault)
    assert world.state(claim) == "resident"
    world.look()
    assert world.state(claim) == "away"


@pytest.mark.parametrize("fault", [*FAULTS, "unreadable"])
def test_no_faulty_look_ends_an_aborted_claim_whose_domain_is_here(fault: Fault) -> None:
    world = World()
    claim = world.arriving("a")
    world.abort(claim)
    if fault != "unreadable":
        world.vanish("a")
    world.wait(100.0, fault)
    assert world.state(claim) == "arriving"


def test_a_list_right_after_a_reconnect_must_be_over_the_new_connection() -> None:
    world = World()
    claim = world.resident("a")
    world.vanish("a")
    world.reconnect()
    world.look("old-connection")
    assert world.state(claim) == "resident"
    world.look()
    assert world.state(claim) == "away"


def test_a_guest_whose_qemu_lives_on_is_not_gone_when_libvirt_says_so() -> None:
    world = World()
    claim = world.arriving("a")
    world.abort(claim)
    world.domains["a"].is_lost = True
    world.wait(60.0)
    assert world.state(claim) == "arriving"
    world.vanish("a")
    world.look()
    assert world.ending(claim) == "aborted"


def test_shut_off_needs_a_reading_after_the_step_and_no_qemu() -> None:
    off = account(ledger_of(guest("a", state="shut-off", at=10.0)), listing("a", at=9.9), processes(at=10.5))
    assert is_off(off, A, 9.0)
    assert is_gone(off, A, 9.0)
    assert not is_off(off, A, 10.0)
    unseen = account(
        ledger_of(guest("a", state="shut-off", at=10.0)), listing("a", at=9.9), processes(at=10.5, can_see=False)
    )
    alive = account(
        ledger_of(guest("a", state="shut-off", at=10.0)), listing("a", at=9.9), processes(qemu("a"), at=10.5)
    )
    early = account(ledger_of(guest("a", state="shut-off", at=10.0)), listing("a", at=9.9), processes(at=9.95))
    assert [is_off(ledger, A, 9.0) for ledger in (unseen, alive, early, ledger_of())] == [False] * 4


@pytest.mark.parametrize(
    ("before", "now", "is_other"),
    [
        (None, RunIdentity(libvirt_id=1), True),
        (RunIdentity(), RunIdentity(pid=7), True),
        (RunIdentity(libvirt_id=1), RunIdentity(), False),
        (None, RunIdentity(), False),
        (RunIdentity(libvirt_id=1), RunIdentity(libvirt_id=1, pid=7, started_at_boot_s=3.0), False),
        (RunIdentity(libvirt_id=1), RunIdentity(libvirt_id=2), True),
        (RunIdentity(libvirt_id=1), RunIdentity(pid=7, started_at_boot_s=3.0), False),
        (RunIdentity(libvirt_id=1, pid=7), RunIdentity(libvirt_id=2, pid=7), False),
        (RunIdentity(libvirt_id=1, pid=7), RunIdentity(libvirt_id=1, pid=8), True),
        (RunIdentity(pid=7, started_at_boot_s=3.0), RunIdentity(pid=7, started_at_boot_s=4.0), True),
        (RunIdentity(pid=7, started_at_boot_s=3.0), RunIdentity(pid=7), False),
    ],
)
def test_another_run_is_told_by_process_and_start_and_else_by_the_id(
    before: RunIdentity | None, now: RunIdentity, is_other: bool
) -> None:
    assert is_other_run(before, now) is is_other


def test_what_is_known_of_one_run_adds_up() -> None:
    whole = RunIdentity(libvirt_id=1, pid=7, started_at_boot_s=3.0)
    assert joined(RunIdentity(libvirt_id=1), RunIdentity(libvirt_id=1, pid=7, started_at_boot_s=3.0)) == whole
    assert joined(whole, RunIdentity(pid=7, started_at_boot_s=3.0)) == whole
    assert joined(whole, RunIdentity(libvirt_id=2, pid=9)) == RunIdentity(libvirt_id=2, pid=9)


def test_what_could_not_be_read_shows_no_run_and_what_libvirt_has_lost_does() -> None:
    run = RunIdentity(pid=7)
    assert not shows_run(msgspec.structs.replace(unread("a"), run=run))
    assert not shows_run(guest("a", state="shut-off"))
    assert not shows_run(guest("a"))
    assert shows_run(guest("a", run=run))
    assert shows_run(guest("a", state="unknown", run=run, validity="lost-by-libvirt"))
