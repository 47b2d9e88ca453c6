"""Claims at work on a host that is only thought of: the real tracker, claims, journal and handlers, and looks made by
hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar, Self

import msgspec

from agent.adapters.journal import Journal, StateLock, Store
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
from agent.formats import wire
from agent.formats.digest import digest_of
from agent.formats.envelope import ApiRequest, ApiResponse, Envelope, Peer
from agent.formats.wall_time import rfc3339
from agent.handlers import Handlers, LatestHostFacts
from agent.tracker import Tracker
from tests.builders import Host, h8, listing, processes, uuid_of

MIB = 1024
STOP_S = 60.0
WALL_S = 1_796_040_000.0
PEER = Peer(pid=4711, uid=107, gid=108)
SOURCES = ("domains", "libvirt", "processes", "sysfs")


def pinned(vcpus: int, mib: int = 256) -> InstanceRequest:
    """A guest of one cell, each vCPU with a CPU of its own."""
    every = CpuSet(range(vcpus))
    cell = CellRequest(id=0, vcpus=every, memory_kib=mib * MIB, pinned=every)
    return InstanceRequest(vcpus=vcpus, memory_kib=mib * MIB, cells=(cell,), cpu_policy="dedicated")


def build(claim_id: str = "c1", name: str = "web", vcpus: int = 2, **changes: Any) -> dict[str, Any]:
    """The body of a build of a guest with vCPUs of its own, 64 MiB."""
    flavor: Mapping[str, Any] = {
        "vcpus": vcpus,
        "memory_mb": 64,
        "extra_specs": {"hw:cpu_policy": "dedicated", "hw:numa_nodes": "1"},
    }
    instance = {"uuid": uuid_of(name), "name": name}
    return {"claim_id": claim_id, "kind": "build", "instance": instance, "spec": {"flavor": flavor}, **changes}


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
    """One agent after the other over one state folder. now_s: monotonic; it passes only by `look` and by hand, and the
    wall clock goes with it. reread: uuids of guests whose domains were to be read again."""

    STEP_S: ClassVar[float] = 0.1
    """Between the list of a look, the definitions, and the processes."""

    def __init__(self, state_path: Path, on: Host | None = None, *, rules: ClaimRules | None = None) -> None:
        self.host, self.rules = on or h8(), rules or ClaimRules()
        self.state_path = state_path
        state_path.mkdir(exist_ok=True)
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
        self._lock = StateLock(self.state_path)
        store = Store.open(self.state_path, lock=self._lock)
        identity, stored = store.begin(self.boot_id), store.load()
        self.journal = Journal(store)
        self.tracker = Tracker(
            identity=identity,
            config=self.host.config,
            since=store.conflict_since(),
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
            why_blind=lambda snapshot: None if snapshot.complete else "The host was not looked at yet.",
            reread=self.reread.append,
            damaged=stored.damaged,
        )
        self.handlers = Handlers(
            snapshot=lambda: self.tracker.snapshot,
            clock=lambda: self.moment().monotonic_s,
            now=lambda: self.moment().wall,
            interval_s=lambda: 1e9,
            alive=lambda: None,
            claims=self.claims,
            wall_s=lambda: self.moment().wall_s,
            why_not_stored=lambda: self.journal.problem,
        )

    def stop(self) -> None:
        """An orderly end of the agent."""
        self.journal.close(STOP_S)
        self._lock.release()

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
        return moment_of(self.boot_id, self.now_s, WALL_S + self.now_s)

    def begin_look(self, after_s: float) -> float:
        """When a look begins that is so long after the last; what comes then comes after it."""
        at_s = self.now_s + after_s
        self.now_s = at_s + 1.0
        return at_s

    def look(self, *guests: Sighting, after_s: float = 10.0, living: Sequence[LivingProcess] = ()) -> Snapshot:
        """A pass that finds exactly these guests."""
        at = self.begin_look(after_s)
        self.claims.settle_damage()
        return self.tracker.take_in(
            Findings(
                topology=self.host.topology,
                listing=listing(*(one.name for one in guests), at=at),
                processes=processes(*living, at=at + 2 * self.STEP_S),
                sightings=tuple(msgspec.structs.replace(one, begun_at=at + self.STEP_S) for one in guests),
                sources=tuple(SourceState(name=name, read_at=at) for name in SOURCES),
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

    # --- as over agent.sock ----------------------------------------------------------------------

    def answer(self, method: str, path: str, document: object = None, **fields: Any) -> ApiResponse:
        """To a request with this body: bytes, or plain data that is sent as JSON."""
        body = b"" if document is None else document if isinstance(document, bytes) else json.dumps(document).encode()
        told: dict[str, Any] = {
            "content_type": "application/json" if body else None,
            "writable": True,
            "query": MappingProxyType({}),
        }
        return self.handlers.answer(
            ApiRequest(**{"method": method, "path": path, "peer": PEER, "body": body, **told, **fields})
        )

    def ask(self, method: str, path: str, document: object = None, **fields: Any) -> tuple[int, Envelope]:
        """The status and what it answers."""
        answer = self.answer(method, path, document, **fields)
        return answer.status, wire.from_json(answer.body, Envelope)

    def result(self, method: str, path: str, document: object = None) -> Any:
        """What it answers when it says yes."""
        status, told = self.ask(method, path, document)
        assert (status, told.refusal) == (200, None)
        return told.result


def began(_current: Snapshot, draft: Draft) -> None:
    """What a start of the agent does to the claims that it finds."""
    boot = draft.book.boot
    restarted(draft, None if boot is None else boot.boot_id)
    draft.begin_boot()


def moment_of(boot_id: str, monotonic_s: float, wall_s: float) -> Moment:
    """A moment; wall_s: seconds since 1970."""
    return Moment(boot_id=boot_id, monotonic_s=monotonic_s, wall_s=wall_s, wall=rfc3339(wall_s))
