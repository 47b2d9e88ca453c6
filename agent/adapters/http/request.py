"""Reads one HTTP/1.1 request, strictly and within limits."""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus
from types import MappingProxyType
from urllib.parse import parse_qsl, unquote, urlsplit

from agent.formats.envelope import ApiRequest, Peer

MAX_HEAD_BYTES = 16 * 1024
MAX_BODY_BYTES = 1024 * 1024
READING = frozenset({"GET", "HEAD"})

_REQUEST_LINE = re.compile(r"(?P<method>[A-Z]{1,16}) (?P<target>/[!-~]{0,4096}) HTTP/1\.[01]")
_HEADER = re.compile(r"(?P<name>[!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(?P<value>[\t -~]*?)[ \t]*")


class BadRequest(Exception):
    """A request that no handler is asked about; the text is for the client."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


async def read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: Peer, *, writable: bool
) -> tuple[ApiRequest, bool]:
    """The request, HEAD made GET, and whether it was HEAD. `reader` must have the limit MAX_HEAD_BYTES.

    Raises BadRequest, and ConnectionError when the client left without a word.
    """
    lines = await _head_lines(reader)
    line = _REQUEST_LINE.fullmatch(lines[0])
    if line is None:
        raise BadRequest(HTTPStatus.BAD_REQUEST, "This is no HTTP/1.1 request.")
    headers = _headers(lines[1:])
    method = line["method"]
    if not writable and method not in READING:
        raise BadRequest(
            HTTPStatus.METHOD_NOT_ALLOWED, f"This socket only reads; {method} is for agent.sock in the same folder."
        )
    length = _body_length(headers)
    if length and headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    target = urlsplit(line["target"])
    return ApiRequest(
        method="GET" if method == "HEAD" else method,
        path=unquote(target.path),
        query=MappingProxyType(dict(parse_qsl(target.query, keep_blank_values=True))),
        body=await _body(reader, length),
        peer=peer,
        writable=writable,
    ), method == "HEAD"


async def _head_lines(reader: asyncio.StreamReader) -> list[str]:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise BadRequest(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"Line and headers are longer than {MAX_HEAD_BYTES} bytes."
        ) from error
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            raise ConnectionResetError("left without a request") from error
        raise BadRequest(HTTPStatus.BAD_REQUEST, "The request ends in the middle.") from error
    return head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for text in lines:
        header = _HEADER.fullmatch(text)
        if header is None:
            raise BadRequest(HTTPStatus.BAD_REQUEST, "A line among the headers is no header.")
        name = header["name"].lower()
        if name in headers and name in {"content-length", "transfer-encoding"}:
            raise BadRequest(HTTPStatus.BAD_REQUEST, f"The header {name} is given twice.")
        headers[name] = header["value"]
    return headers


def _body_length(headers: dict[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise BadRequest(HTTPStatus.NOT_IMPLEMENTED, "Send a body with Content-Length; Transfer-Encoding is not known.")
    text = headers.get("content-length", "0")
    if not re.fullmatch(r"[0-9]{1,19}", text):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "Content-Length is no number.")
    if int(text) > MAX_BODY_BYTES:
        raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The body is longer than {MAX_BODY_BYTES} bytes.")
    return int(text)


async def _body(reader: asyncio.StreamReader, length: int) -> bytes:
    try:
        return await reader.readexactly(length)
    except asyncio.IncompleteReadError as error:
        raise BadRequest(HTTPStatus.BAD_REQUEST, "The body is shorter than its Content-Length.") from error
