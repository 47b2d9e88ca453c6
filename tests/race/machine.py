"""Whatever may happen to a host, its libvirt, its agent and the agent's callers, in any order, over the real books,
passes and journal; and what must be true all the same (LEDGER 3)."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import get_args

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent.adapters.journal import FILE
from agent.claims import Granted
from agent.core.claim.refusal import REMEMBERED, ClaimRefusal
from agent.core.claim.restore import book_of
from agent.core.claim.values import (
    BRINGS_A_GUEST,
    Claim,
    ClaimContext,
    ClaimKind,
    ClaimRequest,
    ClaimRules,
    Outcome,
    Tombstone,
)
from agent.core.cpuset import CpuSet
from agent.core.guest import DomainState
from agent.core.instance import Group, Instance
from agent.core.snapshot import Findings, Wish
from agent.errors import LibvirtTimeout
from agent.formats.journal_rows import from_row
from tests.at_work import asked, pinned
from tests.builders import uuid_of
from tests.promising_rig import PromisingRig, cpus_of

NAMES = ("a", "b", "c", "d")
CPUS = range(2, 8)
COMING: tuple[ClaimKind, ...] = ("build", "unshelve", "evacuate", "live_migration", "resize", "cold_migration")
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
VERBS = ("confirm", "abort", "release", "renew", "recheck", "accept_observed")
TURNS: tuple[tuple[DomainState, str], ...] = (
    ("running", "booted"),
    ("running", "migrated"),
    ("running", "postcopy"),
    ("paused", "migration"),
    ("paused", "starting-up"),
    ("paused", "user"),
    ("paused", "postcopy-failed"),
    ("crashed", "panicked"),
)
RULES = ClaimRules(ttl_s=MappingProxyType(dict.fromkeys(get_args(ClaimKind), 60.0)), away_grace_s=100.0)
STEP_S = 28.0
"""A pass after a longer pause would be one after a stall."""

WAIT_S = 60.0
_MEMORY = Path("/dev/shm")


class HostMachine(RuleBasedStateMachine):
    """One cell with six CPUs for pinned guests; four guests that want one to three each."""

    names = st.sampled_from(NAMES)

    def __init__(self) -> None:
        super().__init__()
        self._undo = contextlib.ExitStack()
        where = str(_MEMORY) if _MEMORY.is_dir() else None
        folder = self._undo.enter_context(tempfile.TemporaryDirectory(prefix="machine-", dir=where))
        self.rig = self._undo.enter_context(PromisingRig(Path(folder), rules=RULES))
        self.pins: dict[str, CpuSet] = {}
        """Of the domains that run, also where libvirt has lost them."""
        self.answers: dict[str, tuple[ClaimRequest, Granted | ClaimRefusal]] = {}
        self.late: list[Findings] = []
        self.ids = self.generation = 0

    @initialize(runs=st.booleans())
    def begin(self, runs: bool) -> None:
        if runs:
            self._run("a", [2, 3])
        self.rig.one_pass(5.0)

    # --- callers -------------------------------------------------------------------------------------

    @rule(
        name=names,
        kind=st.sampled_from(COMING),
        vcpus=st.integers(1, 3),
        is_member=st.sampled_from((True, True, False)),
    )
    def claim(self, name: str, kind: ClaimKind, vcpus: int, is_member: bool) -> None:
        self._claim(name, kind, vcpus, self._group() if is_member else None, None)

    @rule(name=names, kind=st.sampled_from(("rebuild", "resize")), vcpus=st.integers(1, 3))
    def claim_in_place(self, name: str, kind: ClaimKind, vcpus: int) -> None:
        self._claim(name, kind, vcpus, None, None)

    @precondition(lambda self: self.rig.book.claims)
    @rule(data=st.data(), kind=st.sampled_from(COMING), vcpus=st.integers(1, 3))
    def claim_instead(self, data: st.DataObject, kind: ClaimKind, vcpus: int) -> None:
        old = self._some(data)
        self._claim(old.instance.name, kind, vcpus, None, old.claim_id)

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def claim_again(self, data: st.DataObject) -> None:
        """The same call gets the same answer, as long as there is one to give."""
        request, was = self.answers[data.draw(st.sampled_from(sorted(self.answers)))]
        is_known = request.claim_id in {**self.rig.book.claims, **self.rig.book.tombstones}
        told = self.rig.claims.claim(request)
        if not is_known or isinstance(was, ClaimRefusal):
            assert told == was or not is_known
            self.answers[request.claim_id] = (request, told)
        elif isinstance(told, Granted):
            assert (told.claim.claim_id, told.is_new) == (request.claim_id, False)
        else:
            assert told.code == "ClaimEnded"

    @precondition(lambda self: self.rig.book.claims)
    @rule(data=st.data(), verb=st.sampled_from(VERBS))
    def call(self, data: st.DataObject, verb: str) -> None:
        claim = self._some(data)
        self._tried(lambda: getattr(self.rig.claims, verb)(claim.claim_id))

    @rule(name=names)
    def abort_before_it_comes(self, name: str) -> None:
        """What comes late under the id has ended already."""
        claim_id = self._new_id()
        assert isinstance(self.rig.claims.abort(claim_id), Tombstone)
        told = self.rig.claims.claim(asked(claim_id, name, pinned(1)))
        assert isinstance(told, ClaimRefusal)
        assert told.code == "ClaimEnded"

    @rule(name=names, is_cold=st.booleans())
    def hold(self, name: str, is_cold: bool) -> None:
        kind: ClaimKind = "cold_migration" if is_cold else "live_migration"
        guest = Instance(uuid=uuid_of(name), name=name)
        self._tried(lambda: self.rig.claims.hold_for_move(self._new_id(), kind, guest, "peer", is_cold))

    @precondition(lambda self: self.rig.book.moves)
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES))
    def finish(self, data: st.DataObject, outcome: Outcome) -> None:
        move_id = data.draw(st.sampled_from(sorted(self.rig.book.moves)))
        self._tried(lambda: self.rig.claims.finish_move(move_id, outcome))

    @rule(name=names)
    def forget(self, name: str) -> None:
        self._tried(lambda: self.rig.claims.forget(uuid_of(name), "peer"))

    @rule(members=st.sets(names), reason=st.sampled_from((None, None, None, "a new disk")))
    def tell(self, members: set[str], reason: str | None) -> None:
        self.generation += 1
        self.rig.claims.set_group(self._group(*sorted(members)))
        self.rig.claims.set_maintenance(reason)

    # --- domains ---------------------------------------------------------------------------------------

    @rule(name=names, how=st.sampled_from(TURNS))
    def come(self, name: str, how: tuple[DomainState, str]) -> None:
        """The guest starts as it was promised, or where its pins happen to be."""
        if name not in self.pins:
            placed = [one for one in self.rig.book.claims_of(uuid_of(name)) if one.placement is not None]
            self._run(name, sorted(cpus_of(placed[-1])) if placed else [2])
            self.rig.libvirt.set_state(uuid_of(name), *how)

    @rule(name=names, pins=st.lists(st.sampled_from(CPUS), min_size=1, max_size=3, unique=True))
    def come_elsewhere(self, name: str, pins: list[int]) -> None:
        if name not in self.pins:
            self._run(name, pins)

    @rule(name=names, how=st.sampled_from(TURNS))
    def turn(self, name: str, how: tuple[DomainState, str]) -> None:
        if self._is_listed_active(name):
            self.rig.libvirt.set_state(uuid_of(name), *how)

    @rule(name=names, how=st.sampled_from(("shutdown", "migrated", "failed", "undefined", "defined", "lost", "found")))
    def change(self, name: str, how: str) -> None:
        """Its run ends; it is no more defined, or is; libvirt loses it while QEMU lives on, which then ends."""
        uuid, is_listed = uuid_of(name), uuid_of(name) in self.rig.libvirt.domains
        if how == "undefined" and is_listed:
            self.rig.libvirt.undefine(uuid)
        elif how == "defined" and name not in self.pins:
            self.rig.define(name, 2)
        elif how == "lost" and self._is_listed_active(name):
            del self.rig.libvirt.domains[uuid]
        elif how == "found":
            self._end_lost(name)
        elif how in {"shutdown", "migrated", "failed"} and self._is_listed_active(name):
            self._stop(name)
            if uuid in self.rig.libvirt.domains:
                self.rig.libvirt.set_state(uuid, "shut-off", how)

    # --- libvirt, looks ------------------------------------------------------------------------------------

    @rule(name=names, how=st.sampled_from(("hangs", "refuses lists", "is well", "is gone", "is back", "is back")))
    def trouble(self, name: str, how: str) -> None:
        """What becomes of libvirt."""
        match how:
            case "hangs":
                self.rig.libvirt.fail(uuid_of(name), LibvirtTimeout("no answer"))
            case "refuses lists":
                self.rig.libvirt.fail_list(LibvirtTimeout("no answer"))
            case "is gone":
                self.rig.libvirt.lose("libvirtd has ended")
            case "is back":
                self.rig.libvirt.heal()
                self.rig.libvirt.reconnect()
            case _:
                self.rig.libvirt.heal()

    @rule(after_s=st.sampled_from((0.5, 5.0, 12.0, STEP_S)))
    def look(self, after_s: float) -> None:
        self._pass(after_s)

    @rule(passes=st.integers(3, 8))
    def wait(self, passes: int) -> None:
        for _ in range(passes):
            self._pass(STEP_S)

    @rule()
    def look_by_hand(self) -> None:
        """What is found, taken in twice."""
        self.rig.now += 3.0
        found = self.rig.look.findings(self.rig.tracker.snapshot, Wish(domains=True, periodic=True))
        self.rig.tracker.take_in(found)
        self._check_no_news(found)
        self.late = [*self.late, found][-4:]

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def late_readings(self, data: st.DataObject) -> None:
        """What was taken in before comes once more, late."""
        self.rig.one_pass()  # what the clock brings is no news of theirs
        for found in data.draw(st.permutations(self.late)):
            self._check_no_news(found)

    # --- the agent, the host -----------------------------------------------------------------------------------

    @rule(is_killed=st.booleans())
    def restart(self, is_killed: bool) -> None:
        before = self.rig.book
        (self.rig.kill_agent if is_killed else self.rig.restart_agent)()
        self.late = []
        assert set(self.rig.book.claims) == set(before.claims)

    @rule()
    def reboot(self) -> None:
        """No domain survives, and the monotonic clock begins anew."""
        before = set(self.rig.book.claims)
        self.rig.stop_agent()
        for name in list(self.pins):
            self._stop(name)
        self.rig.wall_step_s += self.rig.now
        self.rig.now, self.rig.boot_id = 5.0, f"{self.rig.boot_id}+"
        self.rig.libvirt.reconnect()
        self.rig.restart_agent()
        self.late = []
        assert set(self.rig.book.claims) == before

    @rule(stall_s=st.sampled_from((0.0, 500.0)), step_s=st.sampled_from((-1e6, 0.0, 1e6)))
    def jump(self, stall_s: float, step_s: float) -> None:
        """No pass for some time, or another wall clock time."""
        self.rig.now += stall_s
        self.rig.wall_step_s += step_s

    # --- what is always true -----------------------------------------------------------------------------------

    @invariant()
    def nothing_that_is_promised_is_offered(self) -> None:
        free = self._free()
        for claim in self.rig.book.claims.values():
            if claim.placement is not None:
                assert not cpus_of(claim) & free, claim
        placed = [one for one in self.rig.book.claims.values() if one.placement is not None]
        for one in placed:
            for other in placed:
                if one.instance.uuid < other.instance.uuid:
                    assert not cpus_of(one) & cpus_of(other), (one, other)

    @invariant()
    def nothing_that_was_seen_to_run_and_still_does_is_offered(self) -> None:
        sightings, free = self.rig.tracker.snapshot.ledger.sightings, self._free()
        for name, pins in self.pins.items():
            seen, text = sightings.get(uuid_of(name)), self.rig.libvirt.domains.get(uuid_of(name))
            if seen is not None and text is not None and seen.run.libvirt_id == text.libvirt_id is not None:
                assert not pins & free, seen

    @invariant()
    def the_journal_has_the_books(self) -> None:
        self._written()
        assert all(claim.state != "pending" for claim in self.rig.book.claims.values())
        with contextlib.closing(sqlite3.connect(self.rig.state_path / FILE)) as database:
            rows = database.execute("SELECT kind, key, value FROM record").fetchall()
        kept, known = (
            book_of([from_row(*row) for row in rows], 0)._asdict(),
            self.rig.book._replace(sequence=0)._asdict(),
        )
        other = {name: (part, known[name]) for name, part in kept.items() if part != known[name]}
        assert not other, other

    @invariant()
    def an_instance_has_one_owner_and_one_that_comes_or_changes(self) -> None:
        for name in NAMES:
            roles = [claim.role for claim in self.rig.book.claims_of(uuid_of(name))]
            assert roles.count("owner") <= 1, roles
            assert len(roles) <= 2, roles

    @invariant()
    def no_claim_is_left_as_it_was_for_a_fault_of_ours(self) -> None:
        assert self.rig.tracker.snapshot.source("claims").problem is None

    def teardown(self) -> None:
        """When nothing happens any more and all graces are over: what is taken is what is here, and what is claimed."""
        with self._undo:
            self.rig.libvirt.heal()
            self.rig.libvirt.reconnect()
            for name in NAMES:
                self._end_lost(name)
            for _ in range(24):
                self._pass(STEP_S)
            self.the_journal_has_the_books()
            self._check_rest()

    def _check_rest(self) -> None:
        taken = CpuSet(cpu for pins in self.pins.values() for cpu in pins)
        for claim in self.rig.book.claims.values():
            taken |= CpuSet() if claim.placement is None else cpus_of(claim)
            taken |= CpuSet() if claim.observed is None else claim.observed.cpus
            is_paired = any(one.role == "in_place" for one in self.rig.book.claims_of(claim.instance.uuid))
            is_here = claim.instance.uuid in self.rig.libvirt.domains
            assert is_here or is_paired or claim.state in {"leaving", "parked", "doubtful"}, claim
        assert self._free() == CpuSet(CPUS) - taken

    # --- helpers ---------------------------------------------------------------------------------------------------

    def _claim(self, name: str, kind: ClaimKind, vcpus: int, group: Group | None, replaces: str | None) -> None:
        claim_id = self._new_id()
        move_id = None if kind in BRINGS_A_GUEST else f"move-{claim_id}"
        context = ClaimContext(move_id=move_id, replaces=replaces, peer=None if move_id is None else "peer")
        request = asked(claim_id, name, pinned(vcpus), kind=kind, group=group, context=context)
        before = self.rig.book
        told = self.rig.claims.claim(request)
        self.answers[claim_id] = (request, told)
        if isinstance(told, Granted):
            assert (told.is_new, self.rig.state(claim_id)) == (True, "reserved")
            if group is not None and told.claim.role != "in_place":
                self._check_seat(name, group.id)
        else:
            assert set(self.rig.book.claims) == set(before.claims)
            assert (claim_id in self.rig.book.tombstones) == (told.code in REMEMBERED)

    def _pass(self, after_s: float) -> None:
        """No look ends a claim whose QEMU lives, nor for absence while its domain is still defined or only unseen."""
        before, is_blind = self.rig.book, not self.rig.libvirt.is_connected
        self.rig.one_pass(after_s)
        for claim_id in set(before.claims) - set(self.rig.book.claims):
            was, tombstone = before.claims[claim_id], self.rig.book.tombstones[claim_id]
            if was.role != "in_place" and tombstone.ending != "replaced":
                assert was.instance.name not in self.pins, (was, tombstone)
            if was.role != "in_place" and tombstone.ending in {"expired", "gone"}:
                assert uuid_of(was.instance.name) not in self.rig.libvirt.domains, (was, tombstone)
                assert not is_blind, (was, tombstone)
        for claim in self.rig.book.claims.values():
            was_here = claim.claim_id in before.claims and before.claims[claim.claim_id].state != "away"
            if claim.state == "away" and was_here:
                assert claim.instance.name not in self.pins, claim
                assert claim.instance.uuid not in self.rig.libvirt.domains, claim

    def _end_lost(self, name: str) -> None:
        if name in self.pins and not self._is_listed_active(name):
            self.rig.end_process(name)
            del self.pins[name]

    def _check_seat(self, name: str, group: str) -> None:
        """No other member of the group is here."""
        book, sightings = self.rig.book, self.rig.tracker.snapshot.ledger.sightings
        was_here = uuid_of(name) in sightings and uuid_of(name) not in book.departures
        for member in () if was_here else book.members.values():
            if member.group == group and member.instance != uuid_of(name):
                seen = sightings.get(member.instance)
                assert not book.claims_of(member.instance), member
                assert seen is None or not seen.is_active, member

    def _check_no_news(self, found: Findings) -> None:
        before = self.rig.tracker.snapshot
        after = self.rig.tracker.take_in(found)
        assert after.ledger.sightings == before.ledger.sightings
        assert after.book == before.book
        assert after.usage == before.usage

    def _tried(self, call: Callable[[], object]) -> None:
        """What is refused has changed nothing."""
        before = self.rig.book
        told = call()
        if isinstance(told, ClaimRefusal):
            assert self.rig.book == before, told

    def _written(self) -> None:
        done = threading.Event()
        self.rig.journal.write((), (), is_taker=False, on_done=lambda _problem: done.set())
        assert done.wait(WAIT_S)

    def _run(self, name: str, pins: list[int]) -> None:
        self.rig.run(name, *pins)
        self.pins[name] = CpuSet(pins)

    def _stop(self, name: str) -> None:
        del self.pins[name]
        if uuid_of(name) in self.rig.libvirt.domains:
            self.rig.end(name)
        else:
            self.rig.end_process(name)

    def _is_listed_active(self, name: str) -> bool:
        text = self.rig.libvirt.domains.get(uuid_of(name))
        return name in self.pins and text is not None and text.libvirt_id is not None

    def _free(self) -> CpuSet:
        return self.rig.tracker.snapshot.usage.host.dedicated.free

    def _group(self, *members: str) -> Group:
        return Group(
            id="group",
            policy="anti-affinity",
            members=tuple(map(uuid_of, members)),
            generation=self.generation,
        )

    def _some(self, data: st.DataObject) -> Claim:
        return self.rig.book.claims[data.draw(st.sampled_from(sorted(self.rig.book.claims)))]

    def _new_id(self) -> str:
        self.ids += 1
        return f"id-{self.ids}"
