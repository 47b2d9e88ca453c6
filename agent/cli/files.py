"""Files that are named on the command line; - is standard input or output, of which only the first is read here."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from agent.cli.exits import BadArguments
from agent.core.words import plain
from agent.errors import HostReadError
from agent.render.words import size


def read(name: str, most: int, option: str) -> bytes:
    """A file, or standard input by the name -; most: bytes. Raises HostReadError that names the option."""
    if not name:
        raise HostReadError(f"{option}: the name of the file is empty")
    try:
        if name == "-":
            text = sys.stdin.buffer.read(most + 1)
        else:
            with Path(name).open("rb") as file:
                text = file.read(most + 1)
    except (OSError, ValueError) as error:
        raise HostReadError(f"{option} {plain(name)}: it cannot be read: {_why(error)}") from error
    if len(text) > most:
        raise HostReadError(f"{option} {plain(name)}: it is longer than {size(most // 1024)}")
    return text


def shown(name: str) -> str:
    """How a file that is read is named in a sentence."""
    return "standard input" if name == "-" else plain(name)


def write(name: str, content: bytes, option: str) -> None:
    """In one step where the name is a file's. Raises BadArguments when nothing can be written there."""
    try:
        path = Path(os.path.realpath(name))
        if path.exists() and not path.is_file():
            path.write_bytes(content)  # a pipe or a terminal: nothing to keep whole
        else:
            _replace(path, content)
    except (OSError, ValueError) as error:
        raise BadArguments(f"{option} {plain(name)}: it cannot be written: {_why(error)}") from error


def _replace(path: Path, content: bytes) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            unfinished.unlink()


def _why(error: OSError | ValueError) -> str:
    """A name with a NUL in it is a ValueError."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
