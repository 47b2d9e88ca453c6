"""The host in memory of tests/rig, with an agent that promises: the real claims and journal over its whole passes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from agent.adapters.journal import Journal, Store
from agent.adapters.journal.writer import Keeps
from agent.claims import Claims, Granted
from agent.core.claim.book import Book
from agent.core.claim.refusal import ClaimRefusal
from agent.core.claim.restore import book_of
from agent.core.claim.values import Claim, ClaimRequest, ClaimRules, Moment
from agent.core.cpuset import CpuSet
from agent.core.host_config import HostConfig
from agent.core.report import health, is_ready
from agent.core.snapshot import Snapshot, SourceState
from agent.formats.wall_time import rfc3339
from agent.handlers import LatestHostFacts
from agent.tracker import Tracker
from tests import moments
from tests.at_work import began
from tests.rig import INTERVAL_S, Rig

STOP_S = 60.0
MIB = 1024


class PromisingRig(Rig):
    """`restart_agent` ends the agent in order, and the next one has the journal of it; `kill_agent` cuts it off.

    wall_step_s: how far the wall clock was set. boot_id: of the host. host_name: as conductors know it. keeps: what
    the journal stores in, over its real store. agent_ids: of all agents that there were.
    """

    claims: Claims
    journal: Journal

    def __init__(
        self,
        folder: Path,
        configured: HostConfig | None = None,
        *,
        rules: ClaimRules | None = None,
        keeps: Callable[[Store], Keeps] = lambda store: store,
        **options: Any,
    ) -> None:
        self.state_path = folder / "state"
        self.state_path.mkdir()
        self.rules = rules or ClaimRules()
        self.boot_id, self.host_name, self.wall_step_s = "boot", "here", 0.0
        self.agent_ids: list[str] = []
        self._keeps = keeps
        self._journals: list[Journal] = []
        super().__init__(folder, configured, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: object, _where: TracebackType | None) -> None:
        self.stop_agent()

    # --- the agent -----------------------------------------------------------------------------

    def begin_tracker(self) -> Tracker:
        store = Store.open(self.state_path)
        identity, stored = store.begin(self.boot_id), store.load()
        self.agent_ids.append(identity.agent_id)
        self.journal = Journal(self._keeps(store))
        self._journals.append(self.journal)
        tracker = Tracker(
            identity=identity,
            config=self.config,
            since=self.since,
            moment=self.moment,
            journal=self.journal,
            book=book_of(stored.records, stored.sequence),
            rules=self.rules,
        )
        tracker.transact(began)
        self.claims = Claims(
            tracker,
            self.journal,
            host=self.host_name,
            facts=LatestHostFacts().of,
            why_blind=self._why_not_known,
            reread=self._reread,
            damaged=stored.damaged,
        )
        return tracker

    def _reread(self, uuid: str) -> None:
        self.watch.mark(uuid)

    def restart_agent(self, configured: HostConfig | None = None) -> None:
        self.stop_agent()
        super().restart_agent(configured)

    def stop_agent(self) -> None:
        """An orderly end, also of those that were killed, whose threads are still there."""
        while self._journals:
            self._journals.pop().close(STOP_S)

    def kill_agent(self) -> None:
        """SIGKILL, and a start: what the next agent finds are the files as they are now."""
        before, self.state_path = self.state_path, self.state_path.with_name(f"state-{self.epoch}")
        shutil.copytree(before, self.state_path)
        super().restart_agent()

    def moment(self) -> Moment:
        """Now, by every clock of the host."""
        at = moments.at(self.now, boot_id=self.boot_id)
        wall_s = at.wall_s + self.wall_step_s
        return msgspec.structs.replace(at, wall_s=wall_s, wall=rfc3339(wall_s))

    @property
    def book(self) -> Book:
        """The claims as they are now."""
        return self.tracker.snapshot.book

    def state(self, claim_id: str) -> str:
        """Of a claim; how it ended, when it has."""
        claim = self.book.claims.get(claim_id)
        return self.book.tombstones[claim_id].ending if claim is None else claim.state

    def _on_pass(self, before: Snapshot, after: Snapshot) -> None:
        super()._on_pass(before, after)
        self.claims.settle_damage()
        problem = self.journal.problem or self.claims.damaged
        self.tracker.report_source(SourceState(name="journal", read_at=None if problem else self.now, problem=problem))

    def _why_not_known(self, snapshot: Snapshot) -> str | None:
        if is_ready(snapshot, now_s=self.now, interval_s=INTERVAL_S):
            return None
        return " ".join(health(snapshot, now_s=self.now, interval_s=INTERVAL_S).reasons)

    # --- claims --------------------------------------------------------------------------------

    def granted(self, request: ClaimRequest) -> Claim:
        """The claim that is granted."""
        answer = self.claims.claim(request)
        assert isinstance(answer, Granted), answer
        return answer.claim

    def refused(self, request: ClaimRequest) -> ClaimRefusal:
        """The refusal that it gets."""
        answer = self.claims.claim(request)
        assert isinstance(answer, ClaimRefusal), answer
        return answer

    def define_promised(self, claim: Claim) -> None:
        """Its guest of one cell, defined with the place that it was promised."""
        placement = claim.placement
        assert placement is not None
        pins = {vcpu: cpu for cell in placement.cells for vcpu, cpu in cell.pins.items()}
        (cell,) = placement.cells or (None,)
        self.define(
            claim.instance.name,
            *(pins[vcpu] for vcpu in sorted(pins)),
            vcpus=placement.vcpus,
            emu=str(placement.emulator_cpus) if placement.emulator_cpus else None,
            mem=placement.memory_kib // MIB,
            node=None if cell is None else cell.host_cell,
            dev=[str(address) for given in placement.devices for address in given.devices],
        )

    def come(self, claim: Claim) -> None:
        """Its guest is started as promised."""
        self.define_promised(claim)
        self.start(claim.instance.name, *cpus_of(claim))


def cpus_of(claim: Claim) -> CpuSet:
    """The CPUs that were promised."""
    assert claim.placement is not None
    return CpuSet(cpu for cell in claim.placement.cells for cpu in cell.pins.values())
