"""The daemon over a machine that nobody is on: all that is held there is held by claims."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from agent.client import LocalClient
from agent.core.cpuset import CpuSet
from agent.formats.claim_view import ClaimList
from agent.handlers.reads import UsageAnswer
from tests.builders_sysfs import Node, build_tree
from tests.functional.daemon import Daemon
from tests.functional.lab import wait_until

NODES = {0: Node(cpus="0-15", mem_mib=15 * 1024), 1: Node(cpus="16-31", mem_mib=15 * 1024)}
CONFIG = "[tracker]\ninterval = 20\n[compute]\ncpu_dedicated_set = 0-31\n"
CALL_S = 120.0
"""Far more than an answer takes; a loaded machine may be slow."""


class Cell(NamedTuple):
    """What guests may have of a cell while nobody is there."""

    cpus: CpuSet
    memory_kib: int


class Room(NamedTuple):
    """cells: by id. memory_kib: of the host as a whole, which keeps some for itself."""

    cells: Mapping[int, Cell]
    memory_kib: int


class RaceHost:
    """A daemon whose machine has two cells of 16 CPUs and 15 GiB. root: of its tree. room: what was free when it was
    started first."""

    room: Room

    def __init__(self, root: Path) -> None:
        build_tree(root, nodes=NODES)
        self.daemon = Daemon(None, config=CONFIG, arguments=["--sysfs-root", str(root)])
        self.state = self.daemon.dir / "state"

    def start(self) -> None:
        """Until claims are taken."""
        self.daemon.start()
        wait_until(lambda: self.daemon.health().ready, "the daemon to be ready", CALL_S)

    def restart(self) -> None:
        """End it in good order, and start it anew."""
        assert self.daemon.stop() == 0, self.daemon.log()
        self.start()

    def client(self) -> LocalClient:
        """Of the socket that may change things."""
        return LocalClient(self.daemon.dir / "sock/agent.sock", CALL_S)

    @property
    def socket(self) -> Path:
        """The same socket."""
        return self.daemon.dir / "sock/agent.sock"

    def claims(self) -> ClaimList:
        """All that hold."""
        return self.client().list_claims()

    def free(self) -> Room:
        """What a claim would find free now."""
        usage = self.client().value("/v1/usage", UsageAnswer)
        cells = {cell.id: Cell(cell.dedicated.free, cell.memory_kib.free) for cell in usage.cells}
        return Room(cells, usage.host.memory_kib.free)


@contextmanager
def race_host() -> Iterator[RaceHost]:
    """One that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="race-") as root:
        host = RaceHost(Path(root))
        try:
            host.start()
            host.room = host.free()
            yield host
        finally:
            host.daemon.clean()
