"""Whether a file that is held open is still the one at its path."""

from __future__ import annotations

import os
from pathlib import Path

from agent.errors import JournalError

_REMEDY = (
    "nothing is kept and a second agent may use the same folder: put back what was there, or restart compute-agent"
)


class Place:
    """A path and the file that was there once; as long as somebody holds that open, no other has its inode."""

    def __init__(self, path: Path, handle: int | None = None) -> None:
        """handle: of the open file; None: take the one that is at the path now. Raises OSError."""
        self._path = path
        self._inode = _inode(path if handle is None else handle)

    def check(self) -> None:
        """Raises JournalError when another file, or none, is at the path. Costs one stat."""
        try:
            is_ours = _inode(self._path) == self._inode
        except FileNotFoundError as error:
            raise JournalError(f"{self._path} is gone from under the agent; {_REMEDY}.") from error
        except OSError as error:
            raise JournalError(f"{self._path} cannot be looked at ({error.strerror}); {_REMEDY}.") from error
        if not is_ours:
            raise JournalError(f"{self._path} is another file than the agent opened; {_REMEDY}.")


def _inode(file: Path | int) -> tuple[int, int]:
    status = os.stat(file)  # noqa: PTH116  # of a handle too
    return status.st_dev, status.st_ino
