"""What outlives the daemon: who this agent is, how often it started, since when each conflict stands (sqlite)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from time import time

from agent.core.snapshot import Identity

FILE = "journal.sqlite"
LAST_GOOD_FILE = "journal.last-good.sqlite"
LOCK_FILE = "agent.lock"


class StateLock:
    """Held as long as this process may use the state folder."""

    def __init__(self, state_path: Path) -> None:
        """Take the lock, making the folder when it is missing.

        Raises TwinRunning, with the other's process id, when another process has it; JournalError when the folder cannot
        be made or opened.
        """
        raise NotImplementedError

    def release(self) -> None:
        """Give it up. Fine to repeat; the kernel does it too when the process ends."""
        raise NotImplementedError


class Journal:
    """One open journal. Any thread may call; calls are served one after another. Every method that writes has written
    durably when it returns, and raises JournalError with the cause (disk full, read-only, ...) when it did not, in which
    case nothing of it is stored."""

    problem: str | None
    """What was wrong with the file and what became of it, one sentence; None: it was fine. For the source report."""

    @classmethod
    def open(cls, state_path: Path, wall: Callable[[], float] = time) -> Journal:
        """Open or make the journal of this folder. wall: seconds since 1970, names what is moved aside.

        A damaged file is moved aside and kept; the last good copy takes its place, else a new one (see `problem`).
        Raises JournalError when the folder cannot be used, or a newer release wrote the file.
        """
        raise NotImplementedError

    def begin(self, boot_id: str) -> Identity:
        """Count a start: the same agent_id for ever, an epoch that no earlier start had. Raises JournalError."""
        raise NotImplementedError

    def last_identity(self, boot_id: str) -> Identity | None:
        """The identity that the last `begin` stored, with this boot; None when there was none or it cannot be read."""
        raise NotImplementedError

    def conflict_since(self) -> dict[str, str]:
        """Since when each conflict stands: conflict id -> RFC 3339 text. Raises JournalError."""
        raise NotImplementedError

    def remember_conflicts(self, since: Mapping[str, str]) -> None:
        """Store exactly these rows in place of those before; an unchanged mapping costs no write. Raises JournalError."""
        raise NotImplementedError

    def close(self) -> None:
        """Write a last good copy and close. Fine to repeat."""
        raise NotImplementedError
