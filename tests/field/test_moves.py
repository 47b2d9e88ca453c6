"""Field cases about claims of guests that move, are resized, or do not get there after all.

The kinds are resize, migration-abort, post-copy, restart-source, repin and sriov-migration, as far as the books of one
host decide them; what drives a migration is asked for by hand.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from agent.claims import Granted
from agent.core.claim.refusal import ClaimRefusal
from agent.core.claim.values import ClaimContext, ClaimKind, Move, Tombstone
from agent.core.cpuset import CpuSet
from agent.core.guest import Sighting
from agent.core.instance import CellRequest, Group, Instance, InstanceRequest
from agent.core.reasons import SharedCpusShort
from agent.core.snapshot import Snapshot
from tests import builders
from tests.at_work import AtWork, asked, pinned
from tests.builders import Node, function, h8, host, uuid_of
from tests.field.claims import offering
from tests.field.orders import cpus_of, free, of_run, taken
from tests.fit.requests import asks, wants

MIB = 1024
DAY_S = 86400.0
VF = "0000:3b:02.0"


def looked(at_work: AtWork, *guests: Sighting, for_s: float) -> Snapshot:
    """Passes for so long."""
    end_s = at_work.now_s + for_s
    while at_work.now_s < end_s:
        at_work.look(*guests)
    return at_work.tracker.snapshot


def holding(at_work: AtWork, name: str, move_id: str, *, is_cold: bool = False, peer: str = "h2") -> None:
    instance = Instance(uuid=uuid_of(name), name=name)
    kind: ClaimKind = "cold_migration" if is_cold else "live_migration"
    assert isinstance(at_work.claims.hold_for_move(move_id, kind, instance, peer, is_cold), Granted)


def state(at_work: AtWork, name: str) -> str:
    """Of the only claim of a guest."""
    (claim,) = at_work.book.claims_of(uuid_of(name))
    return claim.state


def now(seen: Sighting, **changes: object) -> Sighting:
    """The same run, seen otherwise."""
    return msgspec.structs.replace(seen, **changes)


# --- resize ------------------------------------------------------------------------------------------


def test_resize_same_host_counts_the_larger(tmp_path: Path) -> None:
    """LP#1790204. Of amounts the larger counts, of CPUs both sets (docs/ledger.md, R4)."""
    on = host({0: Node("0-7", 16384)}, dedicated="", shared="0-7", reserve_mem=0)
    a = of_run("a", 1, mem=6144)
    assert a.domain is not None
    as_nova_defines = {
        "vcpus": 6,
        "vcpus_online": CpuSet(range(6)),
        "cpuset": CpuSet(range(8)),
        "mode": None,
        "nodeset": CpuSet(),
    }
    domain = msgspec.structs.replace(a.domain, **as_nova_defines)
    a = now(a, domain=domain)
    with AtWork(tmp_path, builders.configured(on, cpu_allocation_ratio=1.0)) as at_work:
        at_work.look(a)
        assert floating(at_work) == (6, 6144)
        assert at_work.granted(asked("r1", "a", asks(8, 12288, nodes=0), kind="resize")).role == "in_place"
        assert floating(at_work) == (8, 12288)
        at_work.look(a)
        assert floating(at_work) == (8, 12288)
        move = at_work.claims.finish_move("r1", "reverted")
        assert isinstance(move, Move)
        at_work.look(a)
        assert floating(at_work) == (6, 6144)


def test_a_pinned_guest_that_is_resized_in_place_has_both_sets_and_may_use_its_own_again(tmp_path: Path) -> None:
    """The last line of resize-same-host-counts-the-larger."""
    a = of_run("a", 1, 6, 7, mem=1024)
    with AtWork(tmp_path) as at_work:
        at_work.look(a)
        r1 = at_work.granted(asked("r1", "a", pinned(3, 2048), kind="resize"))
        both = cpus_of(r1) | CpuSet([6, 7])
        assert taken(at_work.look(a)) == (both, 2048 * MIB)
        assert isinstance(at_work.claims.confirm("r1"), Granted)
        assert taken(at_work.look(a)) == (both, 2048 * MIB)
        assert isinstance(at_work.claims.finish_move("r1", "reverted"), Move)
        assert taken(at_work.look(a)) == (CpuSet([6, 7]), 1024 * MIB)
        assert cpus_of(at_work.granted(asked("r2", "a", pinned(6), kind="resize"))) == CpuSet(range(2, 8))


def floating(at_work: AtWork) -> tuple[int, int]:
    """How many vCPUs float, and memory (MiB) of guests without cells."""
    row = at_work.tracker.snapshot.usage.host
    return row.shared.used + row.shared.promised, (row.memory_kib.used + row.memory_kib.promised) // MIB


# --- migration-abort -----------------------------------------------------------------------------------


def test_abort_frees_destination(tmp_path: Path) -> None:
    """LP#1715182."""
    group = Group(id="g1", policy="anti-affinity")
    request = asked("m1", "a", pinned(3, 2048), kind="live_migration", group=group)
    with AtWork(tmp_path) as at_work:
        empty = at_work.look().usage
        at_work.granted(request)
        looked(at_work, for_s=30.0)
        assert taken(at_work.tracker.snapshot) == (CpuSet([2, 3, 4]), 2048 * MIB)
        assert isinstance(at_work.claims.abort("m1", "cancelled"), Tombstone)
        assert (at_work.look().usage, seated(at_work)) == (empty, ())

        at_work.granted(msgspec.structs.replace(request, claim_id="m2"))
        for _ in range(5):
            looked(at_work, for_s=100.0)
            assert isinstance(at_work.claims.renew("m2"), Granted)
        assert taken(at_work.tracker.snapshot)[0] == CpuSet([2, 3, 4])
        looked(at_work, for_s=120.0 + 60.0 + 30.0)
        assert at_work.book.tombstones["m2"].ending == "expired"
        assert (at_work.tracker.snapshot.usage, seated(at_work)) == (empty, ())


def seated(at_work: AtWork) -> tuple[str, ...]:
    view = at_work.claims.group("g1")
    assert not isinstance(view, ClaimRefusal)
    return view.seated


def test_abort_suspended_is_not_success(tmp_path: Path) -> None:
    """LP#1788014. That no job is there any more is found out by what drives the migration."""
    a = of_run("a", 1, 2, mem=1024)
    with AtWork(tmp_path) as at_work:
        at_work.look(a)
        holding(at_work, "a", "m1")
        for seen in (now(a, state="paused", reason="migration"), now(a, state="paused", reason="migrated"), a):
            at_work.look(seen)
            assert (state(at_work, "a"), taken(at_work.tracker.snapshot)) == ("leaving", (CpuSet([2]), 1024 * MIB))
        move = at_work.claims.finish_move("m1", "failed")
        assert isinstance(move, Move)
        assert move.outcome == "failed"
        at_work.look(a)
        assert (state(at_work, "a"), taken(at_work.tracker.snapshot)) == ("resident", (CpuSet([2]), 1024 * MIB))


def test_abort_old_migration_record(tmp_path: Path) -> None:
    """LP#1600304. Asked for or not: it waits no longer than any claim does after a restart."""
    with AtWork(tmp_path) as at_work:
        at_work.look()
        at_work.granted(asked("m-old", "a", pinned(2, 2048), kind="live_migration"))
        at_work.granted(asked("m-older", "z", pinned(2, 2048), kind="live_migration"))
        at_work.stop()
        at_work.now_s, at_work.boot_id = 60 * DAY_S, "another"
        at_work.start()
        at_work.look()
        assert str(free(at_work.tracker.snapshot)) == "6-7"
        assert isinstance(at_work.claims.abort("m-old", "a is on another host, in migration m-new"), Tombstone)
        assert at_work.granted(asked("m-new", "a", pinned(1), kind="live_migration")).state == "reserved"
        assert isinstance(at_work.claims.abort("m-new"), Tombstone)
        assert str(free(looked(at_work, for_s=120.0 + 60.0 + 30.0))) == "2-7"
        assert [at_work.book.tombstones[one].ending for one in ("m-old", "m-older")] == ["aborted", "expired"]


@pytest.mark.parametrize("is_told", [True, False], ids=["finished", "only forgotten"])
def test_abort_cold_move_leaves_pins(tmp_path: Path, is_told: bool) -> None:
    """OpenNebula/one#6596."""
    on = host({0: Node("0-11", 16384)}, dedicated="0-11", shared="")
    v1, v2 = of_run("v1", 1, *range(11)), of_run("v2", 2, 11)
    with AtWork(tmp_path, on) as at_work:
        at_work.look(v1)
        assert str(cpus_of(at_work.granted(asked("k2", "v2", pinned(1))))) == "11"
        assert str(free(looked(at_work, v1, v2, for_s=30.0))) == ""
        holding(at_work, "v2", "m1", is_cold=True)
        at_work.look(v1)
        assert (state(at_work, "v2"), str(free(at_work.tracker.snapshot))) == ("parked", "")
        if is_told:
            assert isinstance(at_work.claims.finish_move("m1", "confirmed"), Move)
        else:
            looked(at_work, v1, for_s=2000.0)
            assert str(free(at_work.tracker.snapshot)) == "", "it may be reverted still"
            assert not isinstance(at_work.claims.forget(uuid_of("v2"), "h2"), ClaimRefusal)
        assert str(free(at_work.look(v1))) == "11"
        assert at_work.book.tombstones["k2"].ending == "left"


# --- sriov-migration ------------------------------------------------------------------------------------


def test_sriov_failed_preparation_touches_nothing(tmp_path: Path) -> None:
    """LP#1944619. The agent makes no call that changes a guest."""
    card = offering(h8(pci=(function(VF, "type-VF", pf="0000:3b:00.0"),)))
    a = of_run("a", 1, dev=(VF,))
    for name in ("source", "destination"):
        (tmp_path / name).mkdir()
    with AtWork(tmp_path / "source", card) as source, AtWork(tmp_path / "destination", card) as destination:
        source.look(a)
        empty = destination.look().usage
        holding(source, "a", "m1")
        wanted = asks(nodes=0, pci=(wants(type="type-VF"),))
        moving = ClaimContext(move_id="m1", peer="h1")
        destination.granted(asked("c1", "a", wanted, kind="live_migration", context=moving))
        assert [owner.name for row in destination.tracker.snapshot.usage.pci for owner in row.owners] == ["a"]
        assert isinstance(source.claims.finish_move("m1", "failed"), Move)
        assert isinstance(destination.claims.finish_move("m1", "failed"), Move)
        after = source.look(a)
        assert ([owner.name for row in after.usage.pci for owner in row.owners], after.conflicts) == (["a"], ())
        assert state(source, "a") == "resident"
        assert destination.look().usage == empty


# --- post-copy ------------------------------------------------------------------------------------------


def test_postcopy_failed_is_nobodys_free_memory(tmp_path: Path) -> None:
    """RHBZ#1354343. The half that knows of nothing yet holds on, whatever it is told of the other."""
    for name in ("source", "destination"):
        (tmp_path / name).mkdir()
    with AtWork(tmp_path / "source") as source, AtWork(tmp_path / "destination") as destination:
        a = of_run("a", 1, 2, mem=4096)
        source.look(a)
        holding(source, "a", "m1")
        destination.look(of_run("x", 1, 2))
        made = destination.granted(asked("c1", "a", pinned(1, 4096), kind="live_migration"))
        arriving = now(of_run("a", 2, *cpus_of(made), mem=4096), state="running", reason="postcopy")
        destination.look(arriving)
        for _ in range(3):
            here = source.look(now(a, state="paused", reason="postcopy"))
            assert (state(source, "a"), taken(here)) == ("leaving", (CpuSet([2]), 4096 * MIB))
            there = destination.look(now(arriving, state="paused", reason="postcopy-failed"))
            assert (state(destination, "a"), taken(there)) == ("doubtful", (cpus_of(made), 4096 * MIB))
            (row,) = there.conflicts
            assert (row.kind, row.severity, "failed in post-copy" in row.cause) == ("migration-stuck", "error", True)
        torn = source.look(now(a, state="paused", reason="postcopy-failed"))
        assert (state(source, "a"), taken(torn), [one.severity for one in torn.conflicts]) == (
            "doubtful",
            (CpuSet([2]), 4096 * MIB),
            ["error"],
        )


def test_postcopy_source_not_polled(tmp_path: Path) -> None:
    """RHBZ#1354343. A pass asks libvirt for no figure of a guest; m2 waits for nothing but the disk."""
    a, b = of_run("a", 1, 2, mem=4096), of_run("b", 2, 3)
    with AtWork(tmp_path) as at_work:
        at_work.look(a, b)
        holding(at_work, "a", "m1")
        after = at_work.look(now(a, state="paused", reason="postcopy"), b)
        seen = after.ledger.sightings[uuid_of("a")]
        assert (seen.state, seen.reason, str(after.holds[seen.uuid].cpus)) == ("paused", "postcopy", "2")
        holding(at_work, "b", "m2")
        assert (state(at_work, "a"), state(at_work, "b")) == ("leaving", "leaving")


# --- restart-source -------------------------------------------------------------------------------------


def test_source_restarts_in_mid_migration(tmp_path: Path) -> None:
    """LP#1753676."""
    a = of_run("a", 1, 2, 3, mem=1024)
    with AtWork(tmp_path) as at_work:
        at_work.look(a)
        holding(at_work, "a", "m1")
        at_work.restart()
        at_work.look(a)
        assert state(at_work, "a") == "leaving"
        refusal = at_work.refused(asked("k1", "a", pinned(2, 2048), kind="resize"))
        assert refusal.code == "InstanceBusy"
        looked(at_work, a, for_s=40.0)
        after = at_work.look(now(a, state="shut-off", reason="migrated"))
        assert str(free(after)) == "2-7"
        move = at_work.claims.get_move("m1")
        assert isinstance(move, Move)
        assert move.outcome == "confirmed"


def test_source_or_destination_after_restart(tmp_path: Path) -> None:
    """RHBZ#1877632. With the journal; without, libvirt's job has to tell."""
    b = of_run("b", 1, 7, mem=1024)
    with AtWork(tmp_path) as at_work:
        at_work.look(b)
        m1 = at_work.granted(asked("m1", "a", pinned(1, 1024), kind="live_migration"))
        holding(at_work, "b", "m2")
        a = now(of_run("a", 2, *cpus_of(m1), mem=1024), state="paused", reason="migration")
        leaving = now(b, state="paused", reason="migration")
        at_work.look(a, leaving)
        at_work.restart()
        at_work.look(a, leaving)
        told = {claim.instance.name: (claim.role, claim.state) for claim in at_work.claims.list_claims()}
        assert told == {"a": ("incoming", "arriving"), "b": ("owner", "leaving")}


# --- repin ------------------------------------------------------------------------------------------------


def test_repin_zero_pinned_cell(tmp_path: Path) -> None:
    """LP#1994526. No two vCPUs of a guest float on one CPU (nova's rule), so cells need two shared ones."""
    cells = (
        CellRequest(id=0, vcpus=CpuSet([0, 1]), memory_kib=1024 * MIB, pinned=CpuSet([0, 1])),
        CellRequest(id=1, vcpus=CpuSet([2, 3]), memory_kib=1024 * MIB),
    )
    mixed = InstanceRequest(vcpus=4, memory_kib=2048 * MIB, cells=cells, cpu_policy="mixed")
    nodes = {0: Node("0-3", 8192), 1: Node("4-7", 8192)}
    for name in ("as given", "roomier"):
        (tmp_path / name).mkdir()
    with AtWork(tmp_path / "as given", host(nodes, dedicated="1-3,5-7", shared="0,4")) as at_work:
        at_work.look()
        no = at_work.refused(asked("m1", "a", mixed, kind="live_migration"))
        assert {(reason.guest_cell, type(reason)) for reason in no.reasons if isinstance(reason, SharedCpusShort)} == {
            (1, SharedCpusShort)
        }
        assert all(isinstance(reason, SharedCpusShort) for reason in no.reasons), "the cell without pins is no reason"
    with AtWork(tmp_path / "roomier", host(nodes, dedicated="2-3,6-7", shared="0-1,4-5")) as at_work:
        at_work.look()
        made = at_work.granted(asked("m1", "a", mixed, kind="live_migration")).placement
        assert made is not None
        first, second = made.cells
        assert (len(first.cpus), str(second.cpus), first.host_cell != second.host_cell) == (2, "", True)
        assert str(second.shared_cpus) == {0: "0-1", 1: "4-5"}[second.host_cell]
        assert at_work.tracker.snapshot.usage.host.dedicated.promised == first.cpus
