"""Asks the daemon over its local socket. Lives in other people's processes too: standard library and msgspec only."""

from __future__ import annotations

import errno
import http.client
import math
import os
import socket
import time
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from agent.core.words import brief
from agent.errors import DaemonUnavailable, RequestRefused, WireError
from agent.formats import wire
from agent.formats.envelope import INVALID, VERSION, Envelope, Refusal

T = TypeVar("T")

LONGEST_ANSWER = 64 * 1024 * 1024
"""Bytes; a report of a thousand guests has not a tenth of that."""

_PIECE = 256 * 1024


class LocalClient:
    """One daemon, named by its socket file; a connection of its own for each call."""

    def __init__(self, socket_path: Path, timeout_s: float = 5.0) -> None:
        """timeout_s: for all of a call, from connecting to the last byte of the answer."""
        self._path = socket_path
        self._timeout_s = timeout_s

    def get(self, path: str) -> Envelope:
        """The answer to GET `path` ("/v1/health", query included), refusals too.

        Raises DaemonUnavailable, with a sentence of its own for each of: no socket, refused, no permission, no answer
        in time, not an agent (an answer over LONGEST_ANSWER too); WireError when the agent is of another release.
        What the server sent is quoted in sentences safe to show: short, printable, on one line.
        """
        return self._envelope(self._body("GET", path))

    def post(self, path: str, document: object) -> Envelope:
        """The answer to POST `path` with the value as JSON. Raises as `get`."""
        return self._envelope(self._body("POST", path, wire.to_json(document)))

    def value(self, path: str, kind: type[T]) -> T:
        """The result of GET `path` as a value. Raises DaemonUnavailable, RequestRefused, WireError."""
        return self._result(self.get(path), kind)

    def ask(self, path: str, document: object, kind: type[T]) -> T | Refusal:
        """The result of POST `path` as a value, or the refusal of a request that has to change. Raises as `value`."""
        envelope = self.post(path, document)
        if envelope.refusal is not None and envelope.refusal.code == INVALID:
            return _safe(envelope.refusal)
        return self._result(envelope, kind)

    def _result(self, envelope: Envelope, kind: type[T]) -> T:
        if envelope.refusal is not None:
            told = _safe(envelope.refusal)
            raise RequestRefused(told.message, code=told.code, retry=told.retry, reasons=told.reasons)
        try:
            return wire.from_builtins(envelope.result, kind)
        except WireError as error:
            raise WireError(self._other_release(error)) from error

    def _body(self, method: str, path: str, document: bytes | None = None) -> bytes:
        connection = _UnixConnection(self._path, self._timeout_s)
        try:
            connection.request(method, path, document)
            with connection.getresponse() as response:  # a flood goes on until this is closed too
                return self._read(response)
        except (OSError, http.client.HTTPException) as error:
            raise DaemonUnavailable(self._why(error)) from error
        finally:
            connection.close()

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        body = bytearray()
        while len(body) + (response.length or 0) <= LONGEST_ANSWER and (piece := response.read(_PIECE)):
            body += piece
        if len(body) + (response.length or 0) > LONGEST_ANSWER:
            longest = f"{LONGEST_ANSWER // 1024**2} MiB"
            raise DaemonUnavailable(self._foreign(f"the answer is longer than {longest}"))
        if response.length:  # http.client tells only of a whole read that the other side hung up early
            raise http.client.IncompleteRead(bytes(body), response.length)
        return bytes(body)

    def _why(self, error: Exception) -> str:
        path = self._path
        match error:
            case FileNotFoundError() | NotADirectoryError():
                return (
                    f"compute-agent does not run here: there is no socket {path}. "
                    "Start it with `systemctl start compute-agent`, or with `make run` in a checkout."
                )
            case ConnectionRefusedError():
                return (
                    f"compute-agent has stopped: nobody listens at {path}. "
                    "See `systemctl status compute-agent`, then start it again."
                )
            case PermissionError():
                return (
                    f"You may not use {path}. Ask over agent-ro.sock in the same folder, or have yourself added to the "
                    "socket's group (usually compute-agent)."
                )
            case TimeoutError() | BlockingIOError():
                return (
                    f"compute-agent did not answer at {path} within {self._timeout_s:g} s. "
                    "See `systemctl status compute-agent`; `systemctl restart compute-agent` is safe."
                )
            case ConnectionError():
                return (
                    f"What listens at {path} hung up without an answer: a compute-agent that stops, or none at all. "
                    "See `systemctl status compute-agent`."
                )
            case OSError():
                return f"{path} cannot be asked: {error.strerror or error}. Name the daemon's socket."
        return self._foreign(repr(error))

    def _foreign(self, found: str) -> str:
        return f"What answers at {self._path} is no compute-agent ({brief(found)}). Name the daemon's socket."

    def _envelope(self, body: bytes) -> Envelope:
        try:
            start = wire.from_json(body, dict[str, Any])
        except WireError as error:
            raise DaemonUnavailable(self._foreign("the answer is no JSON object")) from error
        if not {"v", "agent_id", "ok"} <= start.keys():
            raise DaemonUnavailable(self._foreign(f"the answer has {', '.join(sorted(start)) or 'nothing'} in it"))
        if start["v"] != VERSION:
            raise WireError(self._other_release(f"version {_number(start['v'])}, known is {VERSION}"))
        try:
            return wire.from_builtins(start, Envelope)
        except WireError as error:
            raise WireError(self._other_release(error)) from error

    def _other_release(self, found: object) -> str:
        return (
            f"The compute-agent at {self._path} is of another release than this command ({brief(str(found))}). "
            "After an upgrade restart the daemon; guests do not notice."
        )


def _safe(refusal: Refusal) -> Refusal:
    """With sentences that are safe to show."""
    reasons = tuple(brief(reason, 1000) for reason in refusal.reasons)
    return msgspec.structs.replace(refusal, message=brief(refusal.message, 1000), reasons=reasons)


def _number(version: object) -> str:
    return str(version) if isinstance(version, int | str) else f"that is no number but a {type(version).__name__}"


class _DeadlineSocket(socket.socket):
    """Waits for no part of an answer beyond one point in time; a timeout of Python's is for each part anew."""

    deadline_s = math.inf
    """By time.monotonic()."""

    def recv_into(self, *arguments: Any) -> int:
        """As the socket's own. Raises TimeoutError."""
        left_s = self.deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self.settimeout(left_s)
        return super().recv_into(*arguments)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path
        self._timeout_s = timeout_s

    def connect(self) -> None:
        self.sock = peer = _DeadlineSocket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        peer.settimeout(self._timeout_s)
        peer.deadline_s = time.monotonic() + self._timeout_s
        # a full queue of the daemon makes the kernel say EAGAIN at once, whatever the timeout
        while (error := peer.connect_ex(str(self._path))) == errno.EAGAIN and time.monotonic() < peer.deadline_s:
            time.sleep(0.02)
        if error:
            raise OSError(error, os.strerror(error))
