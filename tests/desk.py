"""Where claims are made: the agent's own tracker, journal on a disk, claims and handlers, on a host in a few lines."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

from agent.adapters.journal import Journal, StateLock, Store
from agent.claims import Claims
from agent.core.claim.restore import book_of
from agent.core.claim.values import ClaimRules, Moment
from agent.core.guest import Sighting
from agent.core.snapshot import Findings, Snapshot, SourceState
from agent.formats import wire
from agent.formats.envelope import ApiRequest, ApiResponse, Envelope, Peer
from agent.formats.wall_time import rfc3339
from agent.handlers import Handlers, LatestHostFacts
from agent.tracker import Tracker
from tests.builders import Host, h8, listing, processes, uuid_of

BOOT = "00000000-0000-0000-0000-00000000b007"
WALL_S = 1_796_040_000.0
PEER = Peer(pid=4711, uid=107, gid=108)
SOURCES = ("domains", "libvirt", "processes", "sysfs")


class Desk:
    """now_s: monotonic, moved by hand; the wall clock goes with it."""

    def __init__(self, folder: Path, host: Host | None = None, rules: ClaimRules | None = None) -> None:
        self.now_s = 1000.0
        self.host = h8() if host is None else host
        self.reread: list[str] = []
        folder.mkdir(exist_ok=True)
        self._lock = StateLock(folder)
        store = Store.open(folder, lock=self._lock)
        identity = store.begin(BOOT)
        stored = store.load()
        self.journal = Journal(store)
        self.tracker = Tracker(
            identity=identity,
            config=self.host.config,
            since=store.conflict_since(),
            moment=self.moment,
            journal=self.journal,
            book=book_of(stored.records, stored.sequence),
            rules=rules,
        )
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
            clock=lambda: self.now_s,
            now=lambda: self.moment().wall,
            interval_s=lambda: 1e9,
            alive=lambda: None,
            claims=self.claims,
            wall_s=lambda: self.moment().wall_s,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.journal.close(60.0)
        self._lock.release()

    def moment(self) -> Moment:
        """Now."""
        wall_s = WALL_S + self.now_s
        return Moment(boot_id=BOOT, monotonic_s=self.now_s, wall_s=wall_s, wall=rfc3339(wall_s))

    def look(self, *guests: Sighting, names: tuple[str, ...] = ()) -> Snapshot:
        """One pass that sees these guests. names: theirs."""
        self.now_s += 10.0
        found = Findings(
            topology=self.host.topology,
            listing=listing(*names, at=self.now_s),
            processes=processes(at=self.now_s + 0.2),
            sightings=guests,
            sources=tuple(SourceState(name=name, read_at=self.now_s) for name in SOURCES),
        )
        return self.tracker.take_in(found)

    def answer(self, method: str, path: str, document: object = None, **fields: Any) -> ApiResponse:
        """Over agent.sock, as JSON."""
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

    def settled(self) -> None:
        """All that was changed is on the disk."""
        deadline_s = time.monotonic() + 60
        while any(claim.state == "pending" for claim in self.claims.list_claims()):
            assert time.monotonic() < deadline_s
            time.sleep(0.01)


def build(claim_id: str = "c1", name: str = "web", vcpus: int = 2, **changes: Any) -> dict[str, Any]:
    """The body of a build of a guest with vCPUs of its own, 64 MiB."""
    flavor: Mapping[str, Any] = {
        "vcpus": vcpus,
        "memory_mb": 64,
        "extra_specs": {"hw:cpu_policy": "dedicated", "hw:numa_nodes": "1"},
    }
    instance = {"uuid": uuid_of(name), "name": name}
    return {"claim_id": claim_id, "kind": "build", "instance": instance, "spec": {"flavor": flavor}, **changes}
