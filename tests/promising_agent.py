"""An agent that promises: its books and journal, and its local API on real sockets, by the clocks of this machine."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import ClassVar

from agent.adapters.http import FULL_SOCKET, READ_ONLY_SOCKET, LocalApi
from agent.client import LocalClient
from agent.core.claim.values import Moment
from agent.handlers import TABLE
from tests.at_work import AtWork, moment_of
from tests.builders import Host

CALL_S = 60.0


class PromisingAgent(AtWork):
    """`folder`: of its two sockets. state: where the journal is; None: in one that goes with it."""

    STEP_S: ClassVar[float] = 1e-6

    def __init__(self, on: Host | None = None, *, state: Path | None = None) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="pa-", dir="/tmp")  # a socket's path must be short
        self.folder = Path(self._temporary.name)
        super().__init__(state or self.folder, on)

    def __exit__(self, kind: type[BaseException] | None, error: object, where: TracebackType | None) -> None:
        super().__exit__(kind, error, where)
        self._temporary.cleanup()

    def start(self) -> None:
        super().start()
        self._api = LocalApi(self.handlers.answer, self.handlers.refuse, self.folder, table=TABLE)
        self._api.start()

    def stop(self) -> None:
        self._api.stop()
        super().stop()

    def moment(self) -> Moment:
        return moment_of(self.boot_id, time.monotonic(), time.time())

    def begin_look(self, _after_s: float) -> float:
        return time.monotonic()

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
