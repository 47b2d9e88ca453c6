"""An agent that promises: the daemon's own books, journal and local API over a host that the test describes."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from agent.adapters.http import FULL_SOCKET, READ_ONLY_SOCKET, LocalApi
from agent.adapters.journal import Journal, StateLock, Store
from agent.claims import Claims
from agent.client import LocalClient
from agent.core.claim.restore import book_of
from agent.core.claim.values import Moment
from agent.core.guest import Sighting
from agent.core.report import health, is_ready
from agent.core.snapshot import Findings, Identity, Snapshot, SourceState
from agent.formats.wall_time import rfc3339
from agent.handlers import TABLE, Handlers, LatestHostFacts
from agent.tracker import Tracker
from tests.builders import CONNECTION, Host, listing, processes

SOURCES = ("domains", "libvirt", "processes", "sysfs")
CALL_S = 60.0
STOP_S = 60.0


class PromisingAgent:
    """`folder`: of its two sockets. Ends with `stop`. state: where the journal is; None: one that goes with it."""

    def __init__(self, host: Host, *, state: Path | None = None) -> None:
        self._host = host
        self._temporary = tempfile.TemporaryDirectory(prefix="pa-", dir="/tmp")  # a socket's path must be short
        self.folder = Path(self._temporary.name)
        state = state or self.folder
        self._lock = StateLock(state)
        store = Store.open(state, lock=self._lock)
        identity, stored = store.begin("boot"), store.load()
        self.journal = Journal(store)
        self.tracker = Tracker(
            identity=Identity(agent_id=identity.agent_id, boot_id="boot", epoch=identity.epoch),
            config=host.config,
            since={},
            moment=_now,
            journal=self.journal,
            book=book_of(stored.records, stored.sequence),
        )
        claims = Claims(
            self.tracker,
            self.journal,
            host="host-a",
            facts=LatestHostFacts().of,
            why_blind=_why_not_known,
            reread=lambda _uuid: None,
            damaged=stored.damaged,
        )
        handlers = Handlers(
            snapshot=lambda: self.tracker.snapshot,
            clock=time.monotonic,
            now=lambda: rfc3339(time.time()),
            interval_s=lambda: math.inf,
            alive=lambda: None,
            claims=claims,
        )
        self._api = LocalApi(handlers.answer, handlers.refuse, self.folder, table=TABLE)
        self._api.start()

    @property
    def socket(self) -> Path:
        """The one that may change things."""
        return self.folder / FULL_SOCKET

    @property
    def read_only_socket(self) -> Path:
        """The one for everybody."""
        return self.folder / READ_ONLY_SOCKET

    @property
    def client(self) -> LocalClient:
        """Of the socket that may change things."""
        return LocalClient(self.socket, CALL_S)

    def look(self, *guests: Callable[[float], Sighting]) -> Snapshot:
        """A whole pass that shows exactly these guests, each made for the time of the pass."""
        now_s = time.monotonic()
        seen = tuple(make(now_s) for make in guests)
        return self.tracker.take_in(
            Findings(
                topology=self._host.topology,
                listing=listing(*(one.name for one in seen), at=now_s, connection=CONNECTION),
                processes=processes(at=now_s),
                sightings=seen,
                sources=tuple(SourceState(name=name, read_at=now_s) for name in SOURCES),
            )
        )

    def stop(self) -> None:
        """End it."""
        self._api.stop()
        self.journal.close(STOP_S)
        self._lock.release()
        self._temporary.cleanup()


def _now() -> Moment:
    wall_s = time.time()
    return Moment(boot_id="boot", monotonic_s=time.monotonic(), wall_s=wall_s, wall=rfc3339(wall_s))


def _why_not_known(snapshot: Snapshot) -> str | None:
    now_s = time.monotonic()
    if is_ready(snapshot, now_s=now_s, interval_s=math.inf):
        return None
    return " ".join(("The host is not known yet.", *health(snapshot, now_s=now_s, interval_s=math.inf).reasons))
