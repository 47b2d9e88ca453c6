"""Asks the daemon over its local socket. Lives in other people's processes too: the standard library and msgspec only."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from agent.formats.envelope import Envelope

T = TypeVar("T")


class LocalClient:
    """One daemon, named by its socket file; a connection of its own for each call."""

    def __init__(self, socket_path: Path, timeout_s: float = 5.0) -> None:
        """timeout_s: for connecting, and for each wait for the answer."""
        raise NotImplementedError

    def get(self, path: str) -> Envelope:
        """The answer to GET `path` ("/v1/health", query included), refusals too.

        Raises DaemonUnavailable, with a sentence of its own for each of: no socket, refused, no permission, no answer in
        time, not an agent.
        """
        raise NotImplementedError

    def report(self, path: str, kind: type[T]) -> T:
        """The result of GET `path` as a value. Raises DaemonUnavailable, RequestRefused, WireError."""
        raise NotImplementedError
