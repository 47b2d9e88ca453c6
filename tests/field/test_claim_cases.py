"""Field cases about promises that outlive the agent: restarts, the journal's disk, clocks, and claims that leak.

The kinds are restart-destination, journal, identity, claim-leak, clock, liveness and duplicate-rpc. Where a case says
"release" of a guest that has not come, that is an abort here; where it says what the conductor is asked, the conductor
calls.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.adapters.journal import FILE, Store
from agent.claims import Granted, GroupView
from agent.core.claim.refusal import ClaimRefusal
from agent.core.claim.values import Claim, ClaimContext, ClaimRules, Tombstone
from agent.core.instance import Group
from agent.core.reasons import CpusShort
from agent.core.usage import Usage
from agent.errors import JournalError
from tests.at_work import asked
from tests.builders import uuid_of
from tests.builders_sysfs import Pci
from tests.contract.journal_disk import Disk
from tests.fit.requests import asks, wants
from tests.promising_rig import PromisingRig, cpus_of
from tests.rig import H8, INTERVAL_S, filtered, free, held, kinds

MIB = 1024
APART = Group(id="g1", policy="anti-affinity", members=(uuid_of("a"), uuid_of("b")))
ONE_DEVICE = asks(nodes=0, pci=(wants(),))
CARD = Pci(address="0000:5e:00.0", numa=0)
PATIENCE_S = 60.0


def until(rig: PromisingRig, at_s: float) -> None:
    """Timed passes until so many seconds after the rig's start."""
    while rig.now < at_s:
        rig.one_pass(min(INTERVAL_S, at_s - rig.now))


def seated(rig: PromisingRig, group_id: str) -> tuple[str, ...]:
    view = rig.claims.group(group_id)
    assert isinstance(view, GroupView)
    return view.seated


# --- restart-destination ---------------------------------------------------------------------------


def test_destination_restarts_between_claim_and_arrival(tmp_path: Path) -> None:
    """kubevirt/kubevirt#18764."""
    with PromisingRig(tmp_path) as rig:
        rig.one_pass()
        m1 = rig.granted(asked("m1", "a", asks(4, 2048), kind="live_migration", group=APART))
        rig.kill_agent()
        rig.one_pass(3.0)
        assert rig.book.claims["m1"].placement == m1.placement
        (short,) = rig.refused(asked("k1", "x", asks(3))).reasons
        assert isinstance(short, CpusShort)
        assert (short.asked, str(short.free)) == (3, "6-7")
        assert rig.refused(asked("k2", "b", asks(1), group=APART)).code == "GroupAffinityViolation"
        rig.define_promised(m1)
        rig.start("a", *cpus_of(m1))
        rig.libvirt.set_state(uuid_of("a"), "running", "migrated")
        after = rig.one_pass(56.0)
        assert (held(after), free(after), kinds(after)) == (str(cpus_of(m1)), "6-7", [])
        assert (rig.state("m1"), rig.book.claims["m1"].role) == ("resident", "owner")
        row = after.usage.cells[0].memory_kib
        assert (row.used, row.promised) == (2048 * MIB, 0)


def test_a_destination_that_is_killed_before_the_answer_holds_nothing(tmp_path: Path) -> None:
    """The last line of destination-restarts-between-claim-and-arrival."""
    disks: list[Disk] = []

    def keeps(store: Store) -> Disk:
        disks.append(Disk(store))
        return disks[-1]

    with PromisingRig(tmp_path, keeps=keeps) as rig:
        disks[0].go.release(100)
        rig.one_pass()
        while disks[0].go.acquire(blocking=False):
            pass
        answers: list[Granted | ClaimRefusal] = []
        m1 = asked("m1", "a", asks(4), kind="live_migration", group=APART)
        caller = threading.Thread(target=lambda: answers.append(rig.claims.claim(m1)))
        caller.start()
        while "m1" not in rig.book.claims:
            caller.join(0.001)
        assert (rig.state("m1"), free(rig.tracker.snapshot), answers) == ("pending", "6-7", [])
        before = rig.claims
        rig.kill_agent()
        disks[0].go.release(100)
        disks[1].go.release(100)
        caller.join(PATIENCE_S)
        assert rig.claims is not before
        after = rig.one_pass(3.0)
        assert (free(after), dict(rig.book.claims)) == ("2-7", {})
        assert rig.granted(asked("k2", "b", asks(1), group=APART)).state == "reserved"


def test_destination_devices_not_ready_after_start(tmp_path: Path) -> None:
    """kubernetes/kubernetes#118559."""
    cards = [CARD, Pci(address="0000:5f:00.0", numa=0)]
    with PromisingRig(tmp_path, filtered("*:00.0"), **H8, pci=cards) as rig:
        rig.run("a", mem=512, dev=(CARD.address,))
        rig.one_pass()
        rig.set_tree(**H8)
        rig.restart_agent()
        first = rig.one_pass(1.0)
        assert [(seen.name, seen.state) for seen in first.ledger.sightings.values()] == [("a", "running")]
        assert kinds(first) == [], "no guest is called ill while the host shows no device at all"
        assert [str(address) for address in first.holds[uuid_of("a")].devices] == [CARD.address]
        no = rig.refused(asked("k1", "x", ONE_DEVICE))
        assert (no.code, no.retry) == ("AgentNotReady", "later")
        assert CARD.address in no.message
        rig.set_tree(**H8, pci=cards)
        second = rig.one_pass(8.0)
        assert kinds(second) == []
        assert devices_of(rig.granted(asked("k2", "y", ONE_DEVICE))) == ["0000:5f:00.0"]
        assert rig.refused(asked("k3", "z", ONE_DEVICE)).code == "PciRequestError"


# --- journal -----------------------------------------------------------------------------------------


def test_journal_disk_full(tmp_path: Path) -> None:
    """VictoriaMetrics/operator#582. On a disk that is really full: tests/contract/test_journal_faults.py."""
    disks: list[Disk] = []

    def keeps(store: Store) -> Disk:
        disks.append(Disk(store))
        disks[-1].go.release(1000)
        return disks[-1]

    with PromisingRig(tmp_path, keeps=keeps) as rig:
        rig.run("a", 2)
        rig.one_pass()
        k0 = rig.granted(asked("k0", "w", asks(1)))
        disks[0].fault = JournalError("Cannot store a change: database or disk is full")
        no = rig.refused(asked("k1", "x", asks(2)))
        assert (no.code, "full" in no.message) == ("JournalUnavailable", True)
        assert (free(rig.tracker.snapshot), set(rig.book.claims)) == ("4-7", {"k0"})
        rig.one_pass(1.0)
        rig.one_pass(1.0)
        assert rig.report().health.status == "degraded"
        assert any("full" in reason for reason in rig.report().health.reasons)
        rig.end("a")
        assert free(rig.one_pass(1.0)) == "2,4-7"
        assert isinstance(rig.claims.release("k0"), ClaimRefusal), "it has not come"
        assert isinstance(rig.claims.abort("k0"), Tombstone)
        assert free(rig.tracker.snapshot) == "2-7"
        assert k0.claim_id not in rig.book.claims
        disks[0].fault = None
        k2 = rig.granted(asked("k2", "y", asks(6)))
        assert str(cpus_of(k2)) == "2-7"
        rig.restart_agent()
        after = rig.one_pass(1.0)
        assert (free(after), {claim_id: one.placement for claim_id, one in rig.book.claims.items()}) == (
            "",
            {"k2": k2.placement},
        )
        assert (rig.state("k0"), rig.claims.damaged) == ("aborted", None)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _whole: b"",
    "cut": lambda whole: whole[: len(whole) * 7 // 10],
    "with the end of an older one": lambda whole: whole + whole[len(whole) // 2 :],
}


def test_journal_empty_after_power_loss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """kubernetes/kubernetes#52222. Where the file is cut, in all its ways: tests/contract/test_journal_torn.py."""
    with PromisingRig(tmp_path) as rig:
        rig.run("a", 2)
        rig.one_pass()
        kept = rig.granted(asked("k0", "x", asks(1)))
        for name, damage in DAMAGES.items():
            rig.stop_agent()
            file = rig.state_path / FILE
            whole = file.read_bytes()
            file.write_bytes(damage(whole))
            beside = set(rig.state_path.iterdir())
            rig.restart_agent()
            after = rig.one_pass(1.0)
            assert held(after).startswith("2"), name
            assert rig.book.claims["k0"].placement == kept.placement, name
            health = rig.report().health
            if name == "with the end of an older one":  # which sqlite does not read
                assert (rig.claims.damaged, health.status) == (None, "ok")
                continue
            aside = [path for path in set(rig.state_path.iterdir()) - beside if ".damaged-" in path.name]
            assert damage(whole) in [path.read_bytes() for path in aside], name
            rig.one_pass(1.0)
            assert any("journal.sqlite was" in reason for reason in rig.report().health.reasons), name
            no = rig.refused(asked(f"k-{name}", "y", asks(1), group=APART))
            assert (no.code, no.retry, no.message.startswith("journal-damaged: ")) == ("AgentNotReady", "later", True)
            assert rig.claims.accept_journal() is None
            rig.one_pass(1.0)
            assert rig.report().health.status == "ok"


def test_enospc_that_is_not_a_full_disk(tmp_path: Path) -> None:
    """hashicorp/nomad#23405. The agent writes no file of the kernel's."""
    with PromisingRig(tmp_path) as rig:
        before = {path: path.stat().st_mtime_ns for path in sorted(rig.root.rglob("*"))}
        rig.one_pass()
        assert rig.granted(asked("k1", "x", asks(2))).state == "reserved"
        rig.one_pass(INTERVAL_S)
        assert {path: path.stat().st_mtime_ns for path in sorted(rig.root.rglob("*"))} == before
        assert rig.journal.problem is None


# --- identity ------------------------------------------------------------------------------------------


def test_identity_host_renamed(tmp_path: Path) -> None:
    """nova@e258164f5a. The key is the agent's own id; the name is only what a rule of a group may name."""
    together = Group(id="g2", policy="affinity", hosts=("cmp1",))
    with PromisingRig(tmp_path) as rig:
        rig.host_name = "cmp1"
        rig.run("a", 2)
        rig.restart_agent()
        rig.one_pass()
        k0 = rig.granted(asked("k0", "x", asks(1)))
        rig.host_name = "cmp1.example.org"
        rig.restart_agent()
        after = rig.one_pass(1.0)
        assert len(set(rig.agent_ids)) == 1
        assert (after.identity.agent_id, after.identity.epoch) == (rig.agent_ids[0], 3)
        assert (held(after), rig.book.claims["k0"].placement) == ("2-3", k0.placement)
        assert rig.refused(asked("k1", "y", asks(1), group=together)).code == "GroupAffinityViolation"


def test_identity_two_hosts_one_uuid(tmp_path: Path) -> None:
    """kubernetes-sigs/kind#1027. Whatever the hardware says of itself, each state folder has an id of its own."""
    for name in ("h1", "h2"):
        (tmp_path / name).mkdir()
    with PromisingRig(tmp_path / "h1") as h1, PromisingRig(tmp_path / "h2") as h2:
        h1.libvirt.capabilities = h2.libvirt.capabilities = "<capabilities><host><uuid>U</uuid></host></capabilities>"
        ids = [rig.one_pass().identity.agent_id for rig in (h1, h2)]
        assert len(set(ids)) == 2
        h1.restart_agent()
        assert h1.one_pass().identity.agent_id == ids[0]


# --- claim-leak ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_seen", [True, False], ids=["seen by a pass", "between two passes"])
def test_leak_failed_build(tmp_path: Path, is_seen: bool) -> None:
    """LP#1712718. Who is a member is remembered for a while; who has a seat is what counts."""
    apart = Group(id="g1", policy="anti-affinity", members=(uuid_of("x"), uuid_of("y")))
    wanted = asks(2, 1024, pci=(wants(),))
    with PromisingRig(tmp_path, filtered("*:5e:00.0"), **H8, pci=[CARD]) as rig:
        usage = told(rig)
        k1 = rig.granted(asked("k1", "x", wanted, group=apart))
        assert (free(rig.tracker.snapshot), devices_of(k1), seated(rig, "g1")) == (
            "4-7",
            [CARD.address],
            (uuid_of("x"),),
        )
        rig.one_pass(INTERVAL_S)
        rig.come(k1)
        if is_seen:
            rig.one_pass(1.0)
        rig.end("x")
        rig.libvirt.undefine(uuid_of("x"))
        if is_seen:
            rig.one_pass(1.0)
            assert [failure.claim_id for failure in rig.book.failures] == ["k1"]
        assert isinstance(rig.claims.abort("k1", "build failed"), Tombstone)
        assert told(rig, 1.0) == usage
        assert seated(rig, "g1") == ()
        assert rig.granted(asked("k2", "y", wanted, group=apart)).placement == k1.placement


def test_a_failed_build_that_nobody_releases_is_told_with_its_age_and_ends(tmp_path: Path) -> None:
    """The last line of leak-failed-build."""
    with PromisingRig(tmp_path) as rig:
        usage = told(rig)
        k1 = rig.granted(asked("k1", "x", asks(2), context=ClaimContext(ttl_s=300.0)))
        start = rig.now
        until(rig, start + 200.0)
        (claim,) = rig.report().claims
        assert (claim.claim_id, claim.state, claim.since) == ("k1", "reserved", k1.made_at)
        until(rig, start + 310.0)
        assert [(row.kind, row.owners[0].name) for row in rig.report().conflicts] == [("claim-overdue", "x")]
        until(rig, start + 400.0)
        assert (rig.state("k1"), told(rig)) == ("expired", usage)


def test_leak_unshelve_fails_at_network(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """LP#1862633. A limit, and a grace in which whoever knows the guest can still renew or abort."""
    caplog.set_level(logging.INFO, "agent.reporter")
    with PromisingRig(tmp_path) as rig:
        usage = told(rig)
        start = rig.now
        rig.granted(asked("k1", "x", asks(2, 1024), kind="unshelve", context=ClaimContext(ttl_s=300.0)))
        until(rig, start + 6.0)
        assert (rig.state("k1"), free(rig.tracker.snapshot)) == ("reserved", "4-7")
        until(rig, start + 301.0)
        assert (rig.state("k1"), free(rig.tracker.snapshot)) == ("overdue", "4-7")
        until(rig, start + 400.0)
        assert (rig.state("k1"), told(rig)) == ("expired", usage)
    ends = [record.getMessage() for record in caplog.records if "claims_ended" in record.getMessage()]
    (line,) = ends
    assert "claims_ended=[k1=expired (36" in line


# --- clock ---------------------------------------------------------------------------------------------


def test_clock_steps_back(tmp_path: Path) -> None:
    """giampaolo/psutil#2542. Deadlines and readings are told by the monotonic clock, runs by the kernel's."""
    with PromisingRig(tmp_path, rules=ClaimRules(overdue_grace_s=0.0)) as rig:
        rig.one_pass()
        b = rig.granted(asked("k0", "b", asks(1)))
        rig.come(b)
        until(rig, rig.now + 30.0)
        assert rig.state("k0") == "resident"
        run = rig.tracker.snapshot.ledger.sightings[uuid_of("b")].run
        start = rig.now
        m1 = asked("m1", "a", asks(1), kind="live_migration", context=ClaimContext(ttl_s=300.0))
        rig.granted(m1)
        generations = [rig.tracker.snapshot.generation]
        until(rig, start + 10.0)
        rig.wall_step_s -= 3600.0
        for at_s in (70.0, 130.0, 290.0):
            until(rig, start + at_s)
            generations.append(rig.tracker.snapshot.generation)
            assert rig.state("m1") == "reserved"
        until(rig, start + 301.0)
        until(rig, start + 311.0)
        assert rig.state("m1") == "expired"
        assert generations == sorted(set(generations))
        assert rig.tracker.snapshot.ledger.sightings[uuid_of("b")].run == run
        assert (rig.state("k0"), rig.book.failures) == ("resident", ())


def test_clock_host_frozen(tmp_path: Path) -> None:
    """systemd/systemd#20284. A real daemon: tests/functional/test_claimed_guests; one pass: tests/unit/test_watch."""
    with PromisingRig(tmp_path) as rig:
        rig.one_pass()
        m1 = asked("m1", "a", asks(1, 512), kind="live_migration", context=ClaimContext(ttl_s=90.0))
        rig.granted(m1)
        rig.one_pass(10.0)
        rig.one_pass(121.0)
        assert (rig.state("m1"), free(rig.tracker.snapshot)) == ("reserved", "3-7")
        until(rig, rig.now + 110.0)
        assert rig.state("m1") == "reserved", "nobody could renew: as much time as after a restart"
        assert isinstance(rig.claims.renew("m1"), Granted)
        rig.now += 121.0
        rig.kill_agent()
        rig.one_pass()
        assert rig.state("m1") == "reserved"
        until(rig, rig.now + 200.0)
        assert rig.state("m1") == "expired"


# --- liveness -------------------------------------------------------------------------------------------


def test_alive_forced_up_after_fencing(tmp_path: Path) -> None:
    """LP#1922053. The comparison is the conductor's: it says of each guest that is another host's that it moved."""
    with PromisingRig(tmp_path) as rig:
        rig.one_pass()
        k0 = rig.granted(asked("k0", "a", asks(1)))
        rig.come(k0)
        until(rig, rig.now + 30.0)
        assert rig.state("k0") == "resident"
        rig.one_pass(900.0)
        assert not isinstance(rig.claims.forget(uuid_of("a"), "h2"), ClaimRefusal)
        assert rig.state("k0") == "left"
        after = rig.one_pass(1.0)
        (row,) = after.conflicts
        assert (row.kind, row.severity, row.owners[0].name) == ("guest-elsewhere", "error", "a")
        assert (held(after), rig.libvirt.domains[uuid_of("a")].state) == ("2", "running")
        assert 2 not in cpus_of(rig.granted(asked("k1", "x", asks(5))))
        rig.end("a")
        assert free(rig.one_pass(1.0)) == "2"


def test_alive_first_figures_are_not_real(tmp_path: Path) -> None:
    """RHBZ#2026263."""
    with PromisingRig(tmp_path) as rig:
        rig.run("a", 2)
        rig.one_pass()
        k0 = rig.granted(asked("k0", "x", asks(1)))
        rig.restart_agent()
        early = rig.report()
        assert (early.health.ready, early.health.status) == (False, "degraded")
        assert "No complete look at the host and its guests has been made yet." in early.health.reasons
        assert (str(early.usage.host.dedicated.total), str(early.usage.host.dedicated.free)) == ("", "")
        assert early.usage.host.memory_kib.free <= 0
        assert [claim.claim_id for claim in early.claims] == ["k0"]
        no = rig.refused(asked("k1", "y", asks(1)))
        assert (no.code, no.retry) == ("AgentNotReady", "later")
        after = rig.one_pass(5.0)
        assert (held(after), rig.book.claims["k0"].placement) == ("2-3", k0.placement)


# --- duplicate-rpc ------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True], ids=["one agent", "restarts between"])
def test_rpc_claim_delivered_twice(tmp_path: Path, restarts: bool) -> None:
    """LP#1935883. Whatever carries the copies."""
    k1 = asked("k1", "x", asks(2))
    with PromisingRig(tmp_path) as rig:
        rig.one_pass()
        first = rig.granted(k1)
        if restarts:
            rig.restart_agent()
        again = rig.claims.claim(k1)
        assert isinstance(again, Granted)
        assert (again.is_new, again.claim.placement) == (False, first.placement)
        assert free(rig.one_pass(1.0)) == "4-7"
        assert isinstance(rig.claims.abort("k1"), Tombstone)
        if restarts:
            rig.restart_agent()
            rig.one_pass(1.0)
        late = rig.refused(k1)
        assert (late.code, "aborted" in late.message) == ("ClaimEnded", True)
        assert free(rig.one_pass(1.0)) == "2-7"


def test_rpc_reply_cannot_be_delivered(tmp_path: Path) -> None:
    """LP#1905965. What became of it is asked for by the claim's own id."""
    k1 = asked("k1", "x", asks(2))
    with PromisingRig(tmp_path) as rig:
        rig.one_pass()
        usage = rig.tracker.snapshot.usage
        lost = rig.granted(k1)
        until(rig, rig.now + 30.0)
        found = rig.claims.get_claim("k1")
        assert isinstance(found, Claim)
        assert found.placement == lost.placement
        assert rig.granted(k1).placement == lost.placement
        until(rig, rig.now + 900.0 + 60.0 + 2 * INTERVAL_S)
        assert (rig.state("k1"), rig.tracker.snapshot.usage) == ("expired", usage)


# --- what is told ------------------------------------------------------------------------------------


def told(rig: PromisingRig, after_s: float = 1.0) -> Usage:
    """All numbers, after another pass."""
    return rig.one_pass(after_s).usage


def devices_of(claim: Claim) -> list[str]:
    assert claim.placement is not None
    return [str(address) for given in claim.placement.devices for address in given.devices]
