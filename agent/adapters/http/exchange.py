"""One request and its answer: h11 knows HTTP/1.1, asyncio carries the bytes; here are the limits."""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus
from types import MappingProxyType
from urllib.parse import parse_qsl, unquote

import h11

from agent.formats.envelope import ApiRequest, ApiResponse, Peer
from agent.formats.route import Route, Table

MAX_HEAD_BYTES = 16 * 1024
MAX_TARGET_BYTES = 4096
MAX_BODY_BYTES = 1024 * 1024
"""Where the table has no row that says less."""

READING = frozenset({"GET", "HEAD"})

_NO_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")

# h11 0.16 takes time quadratic to the blanks before a wrong byte: 16 KiB of them stop every thread for over a second
_FOLDED_OR_BLANK = re.compile(rb"\n[ \t]|[ \t]{64}")


class BadRequest(Exception):
    """A request that no handler is asked about; the text is for the client."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Exchange:
    """What is said on one connection: `receive` once, then `send` once, whatever `receive` ended with."""

    route: Route | None = None
    """The row of the table that the request is for, once it has been received."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, table: Table) -> None:
        """reader: must have the limit MAX_HEAD_BYTES. table: what is served."""
        self._reader = reader
        self._writer = writer
        self._table = table
        self._http = h11.Connection(h11.SERVER)
        self._is_head = False

    async def receive(self, peer: Peer, *, writable: bool) -> ApiRequest:
        """The whole request, HEAD made GET.

        Raises BadRequest, and ConnectionError when the client left without a word.
        """
        try:
            head = await self._head()
            method = head.method.decode("ascii")
            self._is_head = method == "HEAD"
            path, _, query = head.target.decode("ascii").partition("?")
            parts = tuple(_decoded(part) for part in path.split("/"))
            found = self._table.find(method, parts)
            self.route = None if found is None else found.route
            is_question = self.route is not None and self.route.work == "question"
            if not writable and method not in READING and not is_question:
                message = f"This socket only reads; {method} is for agent.sock in the same folder."
                raise BadRequest(HTTPStatus.METHOD_NOT_ALLOWED, message)
            _check_length(head, _longest(self.route))
            body = await self._body()
        except h11.RemoteProtocolError as error:
            # h11 quotes what it found, all of it and as Python writes bytes
            message = f"This is no valid HTTP/1.1 request: {str(error).partition(': bytearray(')[0][:200]}."
            raise BadRequest(HTTPStatus(error.error_status_hint), message) from error
        return ApiRequest(
            method="GET" if self._is_head else method,
            path=unquote(path),
            parts=parts,
            query=MappingProxyType(dict(parse_qsl(query, keep_blank_values=True))),
            body=body,
            content_type=dict(head.headers).get(b"content-type", b"").decode("latin-1") or None,
            peer=peer,
            writable=writable,
        )

    def send(self, answer: ApiResponse) -> None:
        """Leave the answer to the writer, without its body if the request was HEAD."""
        headers = [
            ("Server", "compute-agent"),
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            ("Cache-Control", "no-store"),
            ("Connection", "close"),
            *answer.headers.items(),
        ]
        reason = HTTPStatus(answer.status).phrase
        self._say(h11.Response(status_code=answer.status, reason=reason, headers=headers))
        if not self._is_head:
            self._say(h11.Data(data=answer.body))
        self._say(h11.EndOfMessage())

    def _say(self, event: h11.InformationalResponse | h11.Response | h11.Data | h11.EndOfMessage) -> None:
        self._writer.write(self._http.send(event))

    async def _head(self) -> h11.Request:
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError as error:
            message = f"Line and headers are longer than {MAX_HEAD_BYTES} bytes."
            raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, message) from error
        except asyncio.IncompleteReadError as error:
            if not error.partial:
                raise ConnectionResetError("left without a request") from error
            raise BadRequest(HTTPStatus.BAD_REQUEST, "The request ends in the middle.") from error
        if _FOLDED_OR_BLANK.search(head):
            raise BadRequest(HTTPStatus.BAD_REQUEST, "A header is folded or has 64 blanks in a row.")
        self._http.receive_data(head)
        request = self._http.next_event()
        if not isinstance(request, h11.Request) or not _is_for_us(request):
            message = f"Ask with a method in capitals, a path of at most {MAX_TARGET_BYTES} bytes, and HTTP/1.1 or 1.0."
            raise BadRequest(HTTPStatus.BAD_REQUEST, message)
        return request

    async def _body(self) -> bytes:
        body = bytearray()
        while not isinstance(event := self._http.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                body += event.data
                continue
            if self._http.they_are_waiting_for_100_continue:
                self._say(h11.InformationalResponse(status_code=100, reason="Continue", headers=[]))
            self._http.receive_data(await self._reader.read(MAX_HEAD_BYTES))
        return bytes(body)


def _decoded(part: str) -> str:
    """One part of a path. Raises BadRequest: what cannot be meant is not made something else."""
    if _NO_ESCAPE.search(part):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "The path has a % without two hexadecimal digits behind it.")
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError as error:
        raise BadRequest(HTTPStatus.BAD_REQUEST, "The path is no UTF-8 once its escapes are undone.") from error


def _is_for_us(request: h11.Request) -> bool:
    """h11 also takes what is for a proxy, and later versions of HTTP."""
    return (
        re.fullmatch(rb"[A-Z]{1,16}", request.method) is not None
        and request.method != b"CONNECT"
        and request.target.startswith(b"/")
        and len(request.target) <= MAX_TARGET_BYTES
        and request.http_version in {b"1.0", b"1.1"}
    )


def _longest(route: Route | None) -> int:
    return MAX_BODY_BYTES if route is None or route.asks is None else route.longest_body


def _check_length(request: h11.Request, most: int) -> None:
    headers = dict(request.headers)
    if b"transfer-encoding" in headers:
        # h11 can do it, but 1 MiB of one-byte chunks takes it more than a second, with Content-Length two milliseconds
        raise BadRequest(HTTPStatus.NOT_IMPLEMENTED, "Send a body with Content-Length; Transfer-Encoding is not known.")
    if int(headers.get(b"content-length", b"0")) > most:
        raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The body is longer than {most} bytes.")
