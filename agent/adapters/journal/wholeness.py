"""Whether an open database and its log are as sqlite left them: not cut short, nor written over by somebody else.

sqlite itself works on with what it has in memory, and with a log that nobody else will ever read.
"""

from __future__ import annotations

import os
from pathlib import Path

from agent.adapters.journal.files import MAGIC

_HEAD_BYTES, _PAGES_AT = 32, 28
"""Of sqlite's file format: in the last four bytes that are read of it is the number of its pages."""


class Wholeness:
    """Of one open database; whoever has it calls from one thread at a time."""

    def __init__(self, file: Path) -> None:
        """Raises OSError."""
        self._file, self._log = file, Path(f"{file}-wal")
        self._handle: int | None = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        self._size = self._pages = self._log_size = 0
        self._log_inode: int | None = None

    def fault(self) -> str | None:
        """What somebody has done to them; None: nothing that shows. Costs two looks and a read of some bytes.

        Raises OSError.
        """
        return self._fault_of_file() or self._fault_of_log()

    def log_grew(self) -> None:
        """The log is as a write has just left it. Raises OSError."""
        found = self._log.stat()
        self._log_size, self._log_inode = found.st_size, found.st_ino

    def log_begins_anew(self) -> None:
        """It may be cut short now, since all of it will be in the database."""
        self._log_size = 0

    def close(self) -> None:
        """Fine to repeat. Only after the database: the kernel gives up its locks with the first handle that goes."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _fault_of_file(self) -> str | None:
        if self._handle is None:
            return None
        size = os.fstat(self._handle).st_size
        if size < self._size:  # it is never vacuumed, so it only grows
            return f"{self._file} was cut short from {self._size} bytes to {size}"
        head = os.pread(self._handle, _HEAD_BYTES, 0)
        # a power cut may have torn the first page, which the log has whole until it is folded in
        pages = int.from_bytes(head[_PAGES_AT:], "big") if head.startswith(MAGIC) else 0
        if pages < self._pages:
            how = "was written over by an older one" if pages else "does not begin as a database any more"
            return f"{self._file} {how}"
        self._size, self._pages = size, pages
        return None

    def _fault_of_log(self) -> str | None:
        if self._log_inode is None:
            return None
        try:
            found = self._log.stat()
        except FileNotFoundError:
            return f"{self._log} is gone"
        if found.st_ino != self._log_inode:
            return f"{self._log} is another file"
        if found.st_size < self._log_size:
            return f"{self._log} was cut short from {self._log_size} bytes to {found.st_size}"
        return None
