"""Asks the daemon over its local socket. Lives in other people's processes too: standard library and msgspec only."""

from __future__ import annotations

import errno
import http.client
import math
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from agent.core.claim.values import ClaimKind, ClaimRequest, Outcome
from agent.core.instance import Instance
from agent.core.pci import PciAddress
from agent.core.places import FULL_SOCKET, READ_ONLY_SOCKET
from agent.core.words import brief
from agent.errors import DaemonUnavailable, RequestRefused, WireError
from agent.formats import wire
from agent.formats.claim_forms import GroupForm
from agent.formats.claim_request import claim_document
from agent.formats.claim_view import (
    Accepted,
    ClaimAnswer,
    ClaimList,
    DepartureView,
    GroupInfo,
    MaintenanceView,
    MoveView,
    OfferedView,
)
from agent.formats.envelope import INVALID, VERSION, Envelope, Refusal

T = TypeVar("T")

LONGEST_ANSWER = 64 * 1024 * 1024
"""Bytes; a report of a thousand guests has not a tenth of that."""

_PIECE = 256 * 1024

JSON = {"Content-Type": "application/json"}


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

    def put(self, path: str, document: object) -> Envelope:
        """The answer to PUT `path` with the value as JSON. Raises as `get`."""
        return self._envelope(self._body("PUT", path, wire.to_json(document)))

    def value(self, path: str, kind: type[T]) -> T:
        """The result of GET `path` as a value. Raises DaemonUnavailable, RequestRefused, WireError."""
        return self.result(self.get(path), kind)

    def ask(self, path: str, document: object, kind: type[T]) -> T | Refusal:
        """The result of POST `path` as a value, or the refusal of a request that has to change. Raises as `value`."""
        envelope = self.post(path, document)
        if envelope.refusal is not None and envelope.refusal.code == INVALID:
            return _safe(envelope.refusal)
        return self.result(envelope, kind)

    def result(self, envelope: Envelope, kind: type[T]) -> T:
        """What an answer has in it, as a value. Raises RequestRefused, WireError."""
        if envelope.refusal is not None:
            told = _safe(envelope.refusal)
            raise RequestRefused(
                told.message,
                code=told.code,
                retry=told.retry,
                reasons=told.reasons,
                claim_id=told.claim_id,
                document=wire.to_builtins(told),
            )
        try:
            return wire.from_builtins(envelope.result, kind)
        except WireError as error:
            raise WireError(self._other_release(error)) from error

    # --- claims: each raises DaemonUnavailable, RequestRefused, WireError ----------------------

    def claim(self, request: ClaimRequest | Mapping[str, Any]) -> ClaimAnswer:
        """May this guest come, or change there: and hold its place. request: a value, or plain data (docs/api.md).

        When it raises DaemonUnavailable nobody knows whether it was made: `get_claim` tells, and so does the same call
        once more, whose answer is that of the first.
        """
        document = claim_document(request) if isinstance(request, ClaimRequest) else dict(request)
        return self._told("POST", "/v1/claims", document, ClaimAnswer)

    def list_claims(self) -> ClaimList:
        """All claims that hold."""
        return self.value("/v1/claims", ClaimList)

    def get_claim(self, claim_id: str) -> ClaimAnswer:
        """What became of a claim."""
        return self.value(_path("claims", claim_id), ClaimAnswer)

    def recheck_claim(self, claim_id: str, group: GroupForm | None = None) -> ClaimAnswer:
        """Right before the move: whether it still agrees with its group, as that is now (None: as the claim has it)."""
        document = {} if group is None else {"group": group}
        return self._told("POST", _path("claims", claim_id, "recheck"), document, ClaimAnswer)

    def confirm_claim(self, claim_id: str) -> ClaimAnswer:
        """The guest is there, or runs as changed."""
        return self._told("POST", _path("claims", claim_id, "confirm"), {}, ClaimAnswer)

    def renew_claim(self, claim_id: str, ttl_s: float | None = None) -> ClaimAnswer:
        """More time until the guest has to be there; None: as much as its kind has."""
        return self._told("POST", _path("claims", claim_id, "renew"), {"ttl_s": ttl_s}, ClaimAnswer)

    def abort_claim(self, claim_id: str, reason: str | None = None) -> ClaimAnswer:
        """The guest does not come. Of an id that was never seen too: a claim that comes late is refused then."""
        return self._told("POST", _path("claims", claim_id, "abort"), {"reason": reason}, ClaimAnswer)

    def release_claim(self, claim_id: str, reason: str | None = None) -> ClaimAnswer:
        """The guest is not to be there any more."""
        return self._told("POST", _path("claims", claim_id, "release"), {"reason": reason}, ClaimAnswer)

    def accept_observed(self, claim_id: str) -> ClaimAnswer:
        """What is seen of the guest counts from now on, not what was promised."""
        return self._told("POST", _path("claims", claim_id, "accept-observed"), {}, ClaimAnswer)

    def hold_for_move(
        self,
        move_id: str,
        kind: ClaimKind,
        instance: Instance,
        peer: str | None = None,
        is_cold: bool | None = None,
    ) -> ClaimAnswer:
        """The guest is about to leave for `peer`. is_cold: switched off; None: as its kind says."""
        document = {"kind": kind, "instance": instance, "peer": peer, "is_cold": is_cold}
        return self._told("POST", _path("moves", move_id, "hold"), document, ClaimAnswer)

    def finish_move(self, move_id: str, outcome: Outcome) -> MoveView:
        """How the move ended."""
        return self._told("POST", _path("moves", move_id, "finish"), {"outcome": outcome}, MoveView)

    def get_move(self, move_id: str) -> MoveView:
        """What became of a move."""
        return self.value(_path("moves", move_id), MoveView)

    def set_group(self, group: GroupForm) -> GroupInfo:
        """Who is in a server group, and its policy."""
        return self._told("PUT", _path("groups", group.id), group, GroupInfo)

    def get_group(self, group_id: str) -> GroupInfo:
        """What is known of a server group there."""
        return self.value(_path("groups", group_id), GroupInfo)

    def set_maintenance(self, reason: str | None) -> MaintenanceView:
        """Refuse new guests for this reason, or (None) take them again."""
        return self._told("PUT", "/v1/maintenance", {"reason": reason}, MaintenanceView)

    def get_maintenance(self) -> MaintenanceView:
        """Whether new guests are refused."""
        return self.value("/v1/maintenance", MaintenanceView)

    def forget_instance(self, uuid: str, moved_to: str | None = None) -> DepartureView:
        """The instance lives elsewhere now: on the host `moved_to`, where that is known."""
        return self._told("POST", _path("instances", uuid, "forget"), {"moved_to": moved_to}, DepartureView)

    def offer_again(self, address: PciAddress) -> OfferedView:
        """A device for one use, which a guest has had, is clean and may be given to another."""
        return self._told("POST", _path("devices", str(address), "offer-again"), {}, OfferedView)

    def accept_journal(self) -> Accepted:
        """Go on with what is left of a damaged journal."""
        return self._told("POST", "/v1/journal/accept", {}, Accepted)

    def _told(self, method: str, path: str, document: object, kind: type[T]) -> T:
        return self.result(self._envelope(self._body(method, path, wire.to_json(document))), kind)

    # --- the wire ------------------------------------------------------------------------------

    def _body(self, method: str, path: str, document: bytes | None = None) -> bytes:
        connection = _UnixConnection(self._path, self._timeout_s)
        try:
            connection.request(method, path, document, {} if document is None else JSON)
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
            case PermissionError() if path.name == FULL_SOCKET:
                return (
                    f"You may not use {path}, over which things are changed. Run this as root, or have yourself added "
                    f"to the socket's group (usually compute-agent). Reading works over {READ_ONLY_SOCKET} beside it."
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


def _path(*parts: str) -> str:
    """Below /v1: an id may hold what parts a path."""
    return "/".join(("/v1", *(quote(part, safe="") for part in parts)))


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
