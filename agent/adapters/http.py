"""The local API: HTTP on two UNIX sockets, one that may change things and one that only reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agent.formats.envelope import ApiRequest, ApiResponse

FULL_SOCKET = "agent.sock"
READ_ONLY_SOCKET = "agent-ro.sock"

Handler = Callable[[ApiRequest], ApiResponse]


class LocalApi:
    """Serves `handler` on socket_dir/agent.sock (0660, all methods) and socket_dir/agent-ro.sock (0666, GET and HEAD).

    The handler runs in one of few worker threads. What it raises is logged and answered with 500.
    """

    def __init__(self, handler: Handler, socket_dir: Path, group: str | None = None) -> None:
        """group: owns agent.sock when it exists on this host; else, and when None, the group of the process."""
        raise NotImplementedError

    def start(self) -> None:
        """Listen; returns when both sockets answer. Replaces socket files that a dead agent left.

        Raises TwinRunning when an agent answers there, ConfigError when the folder or the path cannot be used.
        """
        raise NotImplementedError

    def stop(self, timeout_s: float = 5.0) -> None:
        """Finish what is being answered, at most `timeout_s`, then close and remove both sockets. Fine to repeat."""
        raise NotImplementedError
