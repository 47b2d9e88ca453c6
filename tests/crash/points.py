"""Places in the daemon's work at which it can be killed: each step of its journal, each fsync, each reply.

They are seen by Python's own profile hook, before and after the call into C, so nothing of the agent is replaced.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import sqlite3
import sys
import threading
import time
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

_JOURNAL = frozenset({"execute", "executemany", "executescript", "backup"})
_FILES = frozenset({"fsync", "rename", "posix_fallocate"})
_ALL = _JOURNAL | _FILES | {"send"}

AFTER = "after"

HELD_S = 0.1
"""So long the thread stands still at the point before all end: what another one tells too early gets out."""


class Points:
    """Counts them, notes each in a file, and ends the process at one of them as kill -9 does. kill_at: from 1 on."""

    def __init__(self, notes: Path, kill_at: int | None, replies: str) -> None:
        """replies: how the name begins under which the socket was bound whose replies are points."""
        self._notes = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._numbers = itertools.count(1)
        self._kill_at, self._replies = kill_at, replies

    def watch(self) -> None:
        """From now on, in this thread and all that are started later."""
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    def _see(self, frame: FrameType, event: str, call: Any) -> None:
        if event.startswith("c_") and call.__name__ in _ALL and self._is_point(call):
            moment = "before" if event == "c_call" else AFTER if event == "c_return" else "failed"
            place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
            os.write(self._notes, f"{moment} {call.__name__} {place}\n".encode())
            if next(self._numbers) == self._kill_at:
                time.sleep(HELD_S)
                os.kill(os.getpid(), signal.SIGKILL)

    def _is_point(self, call: Any) -> bool:
        on = getattr(call, "__self__", None)
        if isinstance(on, sqlite3.Connection):
            return call.__name__ in _JOURNAL
        if isinstance(on, ModuleType):
            return call.__name__ in _FILES
        if not isinstance(on, socket.socket) or on.family != socket.AF_UNIX:
            return False
        return Path(on.getsockname()).name.startswith(self._replies)
