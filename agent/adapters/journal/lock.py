"""One agent at a time on a state folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from agent.adapters.journal.place import Place
from agent.errors import JournalError, TwinRunning

LOCK_FILE = "agent.lock"


class StateLock:
    """Held as long as this process may use the state folder."""

    def __init__(self, state_path: Path) -> None:
        """Take the lock, making the folder when it is missing.

        Raises TwinRunning, with the other's process id, when another process has it; JournalError when the folder
        cannot be made or opened.
        """
        self._file: int | None = _open_lock_file(state_path)
        self._place = Place(state_path / LOCK_FILE, self._file)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:  # what flock(2) says of a lock that somebody has
            other = os.pread(self._file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            self.release()
            raise TwinRunning(
                f"Another compute-agent (process {other}) uses the state folder {state_path}. "
                "Stop it, or give this one another folder with --state-path."
            ) from error
        except OSError as error:
            self.release()
            raise JournalError(
                f"The state folder {state_path} knows no locks: {error.strerror}. Use a local disk."
            ) from error
        # the number is for people only: a full or read-only disk must not keep the daemon from starting
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def check(self) -> None:
        """Raises JournalError when the lock file is gone or another: a twin would not be refused any more."""
        self._place.check()

    def release(self) -> None:
        """Give it up. Fine to repeat; the kernel does it too when the process ends."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _open_lock_file(state_path: Path) -> int:
    path = state_path / LOCK_FILE
    try:
        state_path.mkdir(mode=0o750, parents=True, exist_ok=True)
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # read-only by now, but ours before
    except OSError as error:
        raise JournalError(
            f"The state folder {state_path} cannot be used: {error.strerror}. Make it writable for the daemon's user, "
            "or give another one with --state-path."
        ) from error
