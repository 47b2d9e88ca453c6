"""Three real guests by claims, through all that happens to guests, libvirtd and the agent. More: `tox -e race`."""

from __future__ import annotations

from pathlib import Path

from agent.core.cpuset import CpuSet
from tests.functional.claimed import ALL, PINNED, Claimed
from tests.functional.lab import Libvirtd


def test_guests_stay_in_the_books_as_libvirt_and_the_kernel_have_them_whatever_dies(
    libvirtd: Libvirtd, tmp_path: Path
) -> None:
    with Claimed(libvirtd, tmp_path) as here:
        three_come(here)
        one_is_off_while_both_daemons_die(here)
        one_is_rebooted_as_nova_does(here)
        one_is_rebooted_while_both_daemons_die(here)
        one_is_given_up(here)


def three_come(here: Claimed) -> None:
    for name in ("a", "b"):
        here.claim(name, *PINNED)
    here.claim("c")
    assert here.promised["a"] | here.promised["b"] == ALL
    here.check()
    here.refuses_another()
    for name in "abc":
        here.define(name)
        here.start(name)
    for name in "abc":
        assert here.wait_for(name, "resident", domain="running").deadline_at is None
    here.check()


def one_is_off_while_both_daemons_die(here: Claimed) -> None:
    here.power_off("a")
    here.wait_for("a", "resident", domain="shut-off")
    here.check()
    here.libvirtd.kill()
    here.kill_agent()
    here.start_agent()
    here.refuses_another()
    here.libvirtd.start()
    for name, domain in (("a", "shut-off"), ("b", "running"), ("c", "running")):
        here.wait_for(name, "resident", domain=domain)
    here.check()
    here.start("a")
    here.wait_for("a", "resident", domain="running")
    here.check()


def one_is_rebooted_as_nova_does(here: Claimed) -> None:
    here.undefine("b")
    here.wait_for("b", "away", domain="absent")
    here.check()
    here.refuses_another()
    here.redefine("b")
    here.wait_for("b", "resident", domain="running")
    here.check()


def one_is_rebooted_while_both_daemons_die(here: Claimed) -> None:
    here.undefine("c")
    here.kill_agent()
    here.libvirtd.kill()
    here.libvirtd.start()
    here.start_agent()
    here.redefine("c")
    here.wait_for("c", "resident", domain="running")
    here.check()


def one_is_given_up(here: Claimed) -> None:
    here.undefine("a")
    here.wait_for("a", "away", domain="absent")
    assert here.client().release_claim("a").claim.ended is not None
    assert here.free() == here.promised["a"]
    here.check()


def test_a_guest_that_was_started_elsewhere_drifts_until_that_is_accepted(libvirtd: Libvirtd, tmp_path: Path) -> None:
    with Claimed(libvirtd, tmp_path) as here:
        here.claim("a", *PINNED)
        (cpu,), (other,) = here.promised["a"], ALL - here.promised["a"]
        here.define("a", lambda text: text.replace(f'cpuset="{cpu}"', f'cpuset="{other}"'))
        here.start("a")
        here.wait_for("a", "resident", domain="running")
        assert here.pins("a") == CpuSet([other])
        (row,) = here.daemon.wait_for(lambda told: bool(told.conflicts), "the drift to show").conflicts
        assert (row.kind, row.owners[0].name) == ("claim-drift", "a")
        assert f"pinned to CPU {other} instead of CPU {cpu}" in row.cause
        assert here.free() == CpuSet()
        here.refuses_another()

        here.promised["a"], here.is_exact = CpuSet([other]), False
        accepted = here.client().accept_observed("a").claim
        assert accepted.holds is not None
        assert (accepted.holds.cpus, here.free()) == (CpuSet([other]), CpuSet([cpu]))
        here.check()


def test_a_claim_whose_guest_does_not_come_expires_and_a_late_guest_gets_its_place_if_that_is_free(
    libvirtd: Libvirtd, tmp_path: Path
) -> None:
    with Claimed(libvirtd, tmp_path) as here:
        for name in ("p", "q"):
            assert here.claim(name, *PINNED, ttl_s=10.0).state == "reserved"
            here.define(name)
        here.wait_for("q", "overdue", domain="shut-off")
        assert here.free() == CpuSet()
        here.refuses_another()
        for name in ("p", "q"):
            here.libvirtd.virsh("undefine", name)
        kept = {name: here.of(name) for name in ("p", "q")}
        for name, view in kept.items():
            ended = here.wait_for(name, "expired", domain="absent").ended
            assert ended is not None
            assert view.deadline_at is not None
            assert ended.at >= view.deadline_at
        assert here.free() == ALL

        here.redefine("p")
        here.wait_for("p", "resident", domain="running")
        here.check()
        here.claim("r", *PINNED)
        here.redefine("q")
        rows = here.daemon.wait_for(lambda told: len(told.conflicts) == 2, "the late guest to show").conflicts
        assert sorted(row.kind for row in rows) == ["arrived-without-claim", "cpu-pinned-twice"]
        assert here.of("q").ended is not None
        assert here.free() == CpuSet()
