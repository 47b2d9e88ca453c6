"""What may be opened: a pipe would hang the daemon, a device would never end."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def kind(path: str) -> str | None:
    """What stands there: "a folder", "a FIFO", "a socket", "a device"; None: a regular file. Raises OSError."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116  # Path drops a "/" at the end, which only a folder may have
    except ValueError as error:  # a NUL, which Python itself refuses
        raise OSError(None, str(error)) from error
    return next((name for is_it, name in _KINDS if is_it(mode)), None)


def unreadable(path: str) -> str | None:
    """Why this cannot be read as a file, and what to do; None: it can be opened. It is not opened here."""
    try:
        found = kind(path)
    except FileNotFoundError as error:
        return f"{path} cannot be read: {error.strerror}. Name a file that is there."
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}. Name a file that the daemon's user may read."
    return None if found is None else f"{path} is {found}, not a regular file. Name a regular file."


def is_folder(path: str | Path) -> bool:
    """Whether a folder can be seen there; False too where the path cannot be one or may not be looked at."""
    try:
        return kind(str(path)) == "a folder"
    except OSError:
        return False
