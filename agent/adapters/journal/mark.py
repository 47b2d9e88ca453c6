"""How far the journal has come, in a file beside it: what a log that was cut short, or an older journal, does not tell.

sqlite reads a log up to the first frame that is not as it was written, and takes what comes before for all that there
was. The mark is written after each commit and not synced: after a power cut it may be behind, never ahead.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from pathlib import Path

MARK_FILE = "journal.mark"

_LONGEST = 64


class Mark:
    """Of one folder; whoever has it calls from one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / MARK_FILE
        self._handle: int | None = None
        self._newest = 0

    def read(self) -> int:
        """The number of the newest step that was stored here for sure; 0 where nothing tells."""
        try:
            number, checksum = self._path.read_bytes()[:_LONGEST].split()
            return int(number) if int(checksum) == zlib.crc32(number) else 0
        except (OSError, ValueError):
            return 0

    def put(self, sequence: int) -> None:
        """This step is on the disk. A disk that does not take the mark costs no more than what it would have shown."""
        self._newest = max(self._newest, sequence)
        with contextlib.suppress(OSError):
            if self._handle is None:
                self._handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
            number = f"{self._newest:020}".encode()
            os.pwrite(self._handle, b"%s %010d\n" % (number, zlib.crc32(number)), 0)

    def close(self) -> None:
        """Fine to repeat."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
