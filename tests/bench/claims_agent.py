"""An agent whose claims are measured: its local API with an echo on it, its tracker's lock with a clock on it."""

from __future__ import annotations

import grp
import math
import os
import socket
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from agent.adapters.http import FULL_SOCKET, LocalApi
from agent.adapters.journal import Journal, Store
from agent.claims import Claims
from agent.core.claim.restore import book_of
from agent.core.claim.values import ClaimRequest, Moment
from agent.core.conflicts import Since
from agent.core.cpuset import CpuSet
from agent.core.guest import Sighting
from agent.core.instance import CellRequest, Group, Instance, InstanceRequest
from agent.core.snapshot import Findings, SourceState
from agent.formats.claim_request import claim_document
from agent.formats.digest import digest_of
from agent.formats.envelope import ApiRequest, ApiResponse
from agent.formats.journal_rows import Row, StepRow
from agent.formats.route import Route, Table
from agent.formats.wall_time import rfc3339
from agent.handlers import TABLE, Handlers, LatestHostFacts
from agent.tracker import Tracker
from tests.builders import Host, listing, processes, uuid_of

ECHO = "/v1/echo"
SOURCES = ("domains", "libvirt", "processes", "sysfs")
STOP_S = 60.0
KIB_OF_VCPU = 64 << 10


class CountedStore:
    """A journal's store, and how many transactions it has made: each is one fsync of the write-ahead log."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.commits = 0

    @property
    def problem(self) -> str | None:
        return self._store.problem

    def write(self, rows: Sequence[Row], steps: Sequence[StepRow]) -> None:
        self._store.write(rows, steps)
        self.commits += 1

    def check_room(self) -> None:
        self._store.check_room()

    def make_room(self) -> None:
        self._store.make_room()

    def remember_conflicts(self, since: Mapping[str, Since]) -> None:
        self._store.remember_conflicts(since)

    def accept_damage(self) -> None:
        self._store.accept_damage()

    def check(self) -> None:
        self._store.check()

    def upkeep(self) -> float | None:
        return self._store.upkeep()

    def close(self) -> None:
        self._store.close()


class Held(NamedTuple):
    """How long a lock was held once. cpu_s: of the thread that held it."""

    wall_s: float
    cpu_s: float


class ClockedLock:
    """A lock that notes how long it is held. The clocks are read under it, which is counted too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at = (0.0, 0.0)
        self.held: list[Held] = []

    def __enter__(self) -> None:
        self._lock.acquire()
        self._at = (time.perf_counter(), time.thread_time())

    def __exit__(self, *_: object) -> None:
        wall_s, cpu_s = self._at
        self.held.append(Held(time.perf_counter() - wall_s, time.thread_time() - cpu_s))
        self._lock.release()


class MeasuredAgent:
    """The daemon's tracker, journal (on the disk of the folder for temporary files), claims and local API."""

    def __init__(self, on: Host) -> None:
        self._on = on
        self._folder = tempfile.TemporaryDirectory(prefix="ca-", dir="/tmp")  # a path of a socket must be short
        self.folder = Path(self._folder.name)
        store = Store.open(self.folder / "state")
        identity, stored = store.begin("boot"), store.load()
        self.store = CountedStore(store)
        self.journal = Journal(self.store)
        self.lock = ClockedLock()
        self.tracker = Tracker(
            identity=identity,
            config=on.config,
            since={},
            moment=moment,
            journal=self.journal,
            book=book_of(stored.records, stored.sequence),
            lock=self.lock,
        )
        self.claims = Claims(
            self.tracker,
            self.journal,
            host="bench",
            facts=LatestHostFacts().of,
            why_blind=lambda _snapshot: None,
            reread=lambda _uuid: None,
        )
        self._handlers = Handlers(
            snapshot=lambda: self.tracker.snapshot,
            clock=time.monotonic,
            now=lambda: rfc3339(time.time()),
            interval_s=lambda: math.inf,
            alive=lambda: None,
            claims=self.claims,
        )
        echo = Route("POST", ECHO, "echo", "change", "Nothing", None, longest_body=1024)
        self._api = LocalApi(
            self._answer,
            self._handlers.refuse,
            self.folder,
            grp.getgrgid(os.getegid()).gr_name,
            table=Table((*TABLE.routes, echo)),
        )
        self._api.start()

    def look(self, guests: Sequence[Sighting]) -> None:
        """A pass that sees these guests, each read anew."""
        now_s = time.monotonic()
        self.tracker.take_in(
            Findings(
                topology=self._on.topology,
                listing=listing(*(one.name for one in guests), at=now_s),
                processes=processes(at=now_s),
                sightings=tuple(msgspec.structs.replace(one, begun_at=now_s) for one in guests),
                sources=tuple(SourceState(name=name, read_at=now_s) for name in SOURCES),
            )
        )

    def post(self, path: str, body: bytes) -> bytes:
        """The whole answer, as it comes over the socket."""
        head = f"POST {path} HTTP/1.1\r\nHost: agent\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        answer = bytearray()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(str(self.folder / FULL_SOCKET))
            client.sendall(f"{head}\r\n\r\n".encode() + body)
            while piece := client.recv(1 << 16):
                answer += piece
        return bytes(answer)

    def stop(self) -> None:
        """End it."""
        self._api.stop()
        self.journal.close(STOP_S)
        self._folder.cleanup()

    def _answer(self, asked: ApiRequest) -> ApiResponse:
        return ApiResponse(body=b"{}") if asked.path == ECHO else self._handlers.answer(asked)


def moment() -> Moment:
    """Now."""
    wall_s = time.time()
    return Moment(boot_id="boot", monotonic_s=time.monotonic(), wall_s=wall_s, wall=rfc3339(wall_s))


def build(name: str, vcpus: int = 1, group: Group | None = None) -> ClaimRequest:
    """A build of a guest with CPUs of its own in one cell."""
    cpus = CpuSet(range(vcpus))
    cell = CellRequest(id=0, vcpus=cpus, pinned=cpus, memory_kib=vcpus * KIB_OF_VCPU)
    asked = InstanceRequest(vcpus=vcpus, memory_kib=vcpus * KIB_OF_VCPU, cells=(cell,), cpu_policy="dedicated")
    uuid = uuid_of(name)
    return ClaimRequest(
        claim_id=f"claim-{name}",
        kind="build",
        instance=Instance(uuid=uuid, name=name),
        binding=asked,
        digest=digest_of("build", uuid, asked, group),
        group=group,
    )


def body_of(request: ClaimRequest) -> bytes:
    """As it is sent."""
    return msgspec.json.encode(claim_document(request))
