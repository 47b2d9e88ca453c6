"""The last good copy of an open journal, made beside its work."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

from agent.adapters.journal.files import FILE, LAST_GOOD_FILE, Damaged, says_damage, write_copy
from agent.errors import JournalError

LOG = logging.getLogger(__name__)

COPY_INTERVAL_S = 60.0
LEAST_SHARE = 50
"""A copy that takes long, of a large journal or on a slow disk, is made so many times its duration apart."""

LOG_BYTES = 4 << 20
"""So much in the log has it folded in, copy or not: a long one makes the next start slow."""

_PAGES_BYTES = 6 * 4096
"""What a write puts into the log beside its rows: the pages that they share, of the tables and the index."""


class LastGood:
    """Folds the log into the journal and copies that, each time in a thread with a connection of its own."""

    def __init__(
        self,
        folder: Path,
        check: Callable[[], None],
        on_damage: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """check: raises JournalError where the folder is not ours any more, or its journal is known to be damaged.
        on_damage: is told that it is, and how, by the thread that finds it. clock: monotonic seconds."""
        self._folder, self._check, self._on_damage, self._clock = folder, check, on_damage, clock
        self._is_stale = False
        self._logged_bytes = 0
        self._next_copy_at = clock() + COPY_INTERVAL_S
        self._thread: threading.Thread | None = None

    def wrote(self, size_bytes: int) -> None:
        """Something was written that no copy has."""
        self._is_stale = True
        self._logged_bytes += size_bytes + _PAGES_BYTES

    def upkeep(self) -> float | None:
        """Begin what is due. Seconds until this is to be called again; None: not before something was written."""
        if not self._is_stale:
            return None
        wait_s = self._next_copy_at - self._clock()
        if self._thread is not None and self._thread.is_alive():
            return max(wait_s, 1.0)
        if wait_s > 0 and self._logged_bytes < LOG_BYTES:
            return wait_s
        is_copy_due = wait_s <= 0
        self._logged_bytes = 0
        self._is_stale = not is_copy_due
        self._thread = threading.Thread(target=self._run, args=(is_copy_due,), name="journal copy", daemon=True)
        self._thread.start()
        return max(wait_s, 1.0) if self._is_stale else COPY_INTERVAL_S  # it may have failed by then

    def end(self) -> None:
        """Wait until nothing of it is at work."""
        if self._thread is not None:
            self._thread.join()

    def _run(self, is_copy_due: bool) -> None:
        began = self._clock()
        try:
            self._fold(is_copy_due)
        except (JournalError, sqlite3.Error, OSError) as error:
            LOG.warning("journal has no fresh copy: %s", error)
            self._is_stale = True
            if isinstance(error, Damaged) or (isinstance(error, sqlite3.Error) and says_damage(error)):
                self._on_damage(str(error))
        except Exception:
            LOG.exception("the journal has no fresh copy")
        took_s = self._clock() - began
        if is_copy_due:
            self._next_copy_at = self._clock() + max(COPY_INTERVAL_S, LEAST_SHARE * took_s)

    def _fold(self, is_copy_due: bool) -> None:
        self._check()
        with contextlib.closing(sqlite3.connect(self._folder / FILE, isolation_level=None)) as database:
            database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            if is_copy_due:
                write_copy(database, self._folder / LAST_GOOD_FILE, is_begun=True)
