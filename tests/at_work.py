"""Claims at work on a host that is only thought of: the real tracker, claims and journal, and looks made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from agent.adapters.journal import Journal, Store
from agent.claims import Claims, Granted
from agent.core.claim.book import Book, Draft
from agent.core.claim.refusal import ClaimRefusal
from agent.core.claim.restore import book_of, restarted
from agent.core.claim.values import Claim, ClaimContext, ClaimKind, ClaimRequest, ClaimRules, Moment
from agent.core.cpuset import CpuSet
from agent.core.guest import Sighting
from agent.core.instance import CellRequest, Group, Instance, InstanceRequest
from agent.core.ledger import LivingProcess
from agent.core.snapshot import Findings, Snapshot, SourceState
from agent.formats.digest import digest_of
from agent.handlers import LatestHostFacts
from agent.tracker import Tracker
from tests import moments
from tests.builders import Host, h8, listing, processes, uuid_of

MIB = 1024


def pinned(vcpus: int, mib: int = 256) -> InstanceRequest:
    """A guest of one cell, each vCPU with a CPU of its own."""
    every = CpuSet(range(vcpus))
    cell = CellRequest(id=0, vcpus=every, memory_kib=mib * MIB, pinned=every)
    return InstanceRequest(vcpus=vcpus, memory_kib=mib * MIB, cells=(cell,), cpu_policy="dedicated")


def asked(
    claim_id: str,
    name: str,
    binding: InstanceRequest,
    *,
    kind: ClaimKind = "build",
    group: Group | None = None,
    context: ClaimContext | None = None,
) -> ClaimRequest:
    """A request as a conductor makes it, with its digest."""
    uuid = uuid_of(name)
    return ClaimRequest(
        claim_id=claim_id,
        kind=kind,
        instance=Instance(uuid=uuid, name=name),
        binding=binding,
        digest=digest_of(kind, uuid, binding, group),
        group=group,
        context=context or ClaimContext(),
    )


class AtWork:
    """One agent after the other over one state folder. now_s: monotonic; it passes only by `look` and by hand."""

    def __init__(self, state_path: Path, on: Host | None = None, *, rules: ClaimRules | None = None) -> None:
        self.host, self.rules = on or h8(), rules or ClaimRules()
        self.state_path = state_path
        self.now_s = 1000.0
        self.boot_id = "boot"
        self.reread: list[str] = []
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: object, _where: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """A start of the agent on what the folder has."""
        store = Store.open(self.state_path)
        identity, stored = store.begin(self.boot_id), store.load()
        self.journal = Journal(store)
        self.tracker = Tracker(
            identity=identity,
            config=self.host.config,
            since={},
            moment=self.moment,
            journal=self.journal,
            book=book_of(stored.records, stored.sequence),
            rules=self.rules,
        )
        self.tracker.transact(began)
        self.claims = Claims(
            self.tracker,
            self.journal,
            host="here",
            facts=LatestHostFacts().of,
            why_blind=lambda snapshot: None if snapshot.complete else "nothing was looked at yet",
            reread=self.reread.append,
            damaged=stored.damaged,
        )

    def stop(self) -> None:
        """An orderly end of the agent."""
        self.journal.close(60.0)

    def restart(self) -> Book:
        """Stop, start; the book as it was before."""
        self.stop()
        before = self.book
        self.start()
        return before

    @property
    def book(self) -> Book:
        """The claims as they are now."""
        return self.tracker.snapshot.book

    def moment(self) -> Moment:
        """Now."""
        return moments.at(self.now_s, wall=f"t{self.now_s:09.0f}", boot_id=self.boot_id)

    def look(self, *guests: Sighting, after_s: float = 10.0, living: Sequence[LivingProcess] = ()) -> Snapshot:
        """A pass that finds exactly these guests."""
        self.now_s += after_s
        at = self.now_s
        self.now_s += 1.0
        return self.tracker.take_in(
            Findings(
                topology=self.host.topology,
                listing=listing(*(one.name for one in guests), at=at),
                processes=processes(*living, at=at + 0.2),
                sightings=tuple(msgspec.structs.replace(one, begun_at=at + 0.1) for one in guests),
                sources=(SourceState(name="sysfs", read_at=at),),
            )
        )

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


def began(_current: Snapshot, draft: Draft) -> None:
    """What a start of the agent does to the claims that it finds."""
    boot = draft.book.boot
    restarted(draft, None if boot is None else boot.boot_id)
    draft.begin_boot()
