"""What travels over the local API: one request in, one envelope out. The same body serves RPC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from agent.core.reasons import Reason
from agent.core.request_faults import RequestFault, fault_text
from agent.core.snapshot import Identity
from agent.core.values import ReadOnlyMap, Value
from agent.core.words import some
from agent.formats import wire

VERSION = 1
"""Of the envelope. A receiver refuses another one by name."""

INVALID = "InvalidRequest"
"""Code of a refusal: it is the request that has to change."""

Retry = Literal["elsewhere", "later", "never"]


class Peer(Value, frozen=True, kw_only=True):
    """The process at the other end of a UNIX socket, as the kernel saw it when it connected."""

    pid: int
    uid: int
    gid: int


class ApiRequest(Value, frozen=True, kw_only=True):
    """One request to the local API. path: decoded, without the query; parts: of it, each decoded for itself (None: as
    the path has them). query: decoded; of a repeated name the last. content_type: as it was sent, None: not.
    writable: it came over the socket that may change things."""

    method: str
    path: str
    peer: Peer
    query: ReadOnlyMap[str, str] = MappingProxyType({})
    parts: tuple[str, ...] | None = None
    body: bytes = b""
    content_type: str | None = None
    writable: bool = False


class ApiResponse(Value, frozen=True, kw_only=True):
    """One answer: an HTTP status and the body as it goes out. headers: further ones, each value one line of ASCII."""

    body: bytes
    status: int = HTTPStatus.OK
    content_type: str = "application/json"
    headers: ReadOnlyMap[str, str] = MappingProxyType({})


class Refusal(Value, frozen=True, kw_only=True):
    """Why not. code: one of DESIGN's words ("InvalidRequest", "AgentNotReady", ...). message: one sentence for people.
    retry: whether asking again can help, and where. reasons: the parts, when there are several. faults: of a request
    whose flavor, image and ports contradict themselves; each is also a sentence in reasons."""

    code: str
    message: str
    retry: Retry = "never"
    reasons: tuple[str, ...] = ()
    faults: tuple[RequestFault, ...] = ()
    details: tuple[Reason, ...] = ()
    claim_id: str | None = None


class Envelope(Value, frozen=True, kw_only=True):
    """Every answer. Exactly one of result and refusal counts, by `ok`.

    now: the agent's wall clock, RFC 3339. agent_id to generation: which agent, start and picture this answer is of.
    result: a value on the way out, plain dicts and lists on the way in.
    """

    v: int = VERSION
    agent_id: str = ""
    boot_id: str = ""
    epoch: int = 0
    generation: int = 0
    now: str = ""
    ok: bool
    result: Any = None
    refusal: Refusal | None = None


def success(identity: Identity, generation: int, now: str, result: object) -> Envelope:
    """The envelope of an answer; `result` is any value that the codec can write."""
    return Envelope(
        agent_id=identity.agent_id,
        boot_id=identity.boot_id,
        epoch=identity.epoch,
        generation=generation,
        now=now,
        ok=True,
        result=result,
    )


def refused(identity: Identity, generation: int, now: str, refusal: Refusal) -> Envelope:
    """The envelope of a refusal."""
    return msgspec.structs.replace(success(identity, generation, now, None), ok=False, refusal=refusal)


def invalid(reasons: Sequence[str], faults: tuple[RequestFault, ...] = ()) -> Refusal:
    """The refusal of a request that cannot be meant as it stands; reasons: a sentence each."""
    message = some(reasons, 1, between="; ")
    return Refusal(code=INVALID, message=message, reasons=tuple(reasons), faults=faults)


def contradictory(faults: tuple[RequestFault, ...]) -> Refusal:
    """The same where each reason is a fault."""
    return invalid([fault_text(fault) for fault in faults], faults)


def respond(
    envelope: Envelope, status: int = HTTPStatus.OK, headers: Mapping[str, str] = MappingProxyType({})
) -> ApiResponse:
    """The envelope as an HTTP answer."""
    return ApiResponse(body=wire.to_json(envelope), status=status, headers=MappingProxyType(dict(headers)))
