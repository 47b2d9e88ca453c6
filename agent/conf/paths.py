"""What may be opened: a FIFO would hang the daemon, a device would never end."""

from __future__ import annotations

import os
import stat
from pathlib import Path

MOST_BYTES = 2**24
"""Of a file of options; all of it is held in memory."""

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
        found, size = kind(path), Path(path).stat().st_size
    except FileNotFoundError as error:
        return f"{path} cannot be read: {error.strerror}. Name a file that is there."
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}. Name a file that the daemon's user may read."
    if found is not None:
        return f"{path} is {found}, not a regular file. Name a regular file."
    if size > MOST_BYTES:
        return f"{path} has {size} bytes, more than a configuration needs. Name a configuration file."
    return None


def is_folder(path: str | Path) -> bool:
    """Whether a folder can be seen there; False too where the path cannot be one or may not be looked at."""
    try:
        return kind(str(path)) == "a folder"
    except OSError:
        return False
