"""A server that lies, drips or floods costs its caller a bounded time and memory, and steers nothing."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.client import LocalClient
from agent.core.topology import HostCell
from agent.errors import AgentError, DaemonUnavailable, RequestRefused, WireError
from tests.hostile import POISON, unsafe

BEGIN = {"v": 1, "agent_id": "a", "ok": True}
Speak = Callable[[socket.socket, threading.Event], None]


@contextlib.contextmanager
def speaking(path: Path, speak: Speak) -> Iterator[Path]:
    """A server that reads one request and then says what `speak` says, until the caller has gone."""
    gone = threading.Event()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            client, _ = listening.accept()
            with client, contextlib.suppress(BrokenPipeError, ConnectionResetError):
                client.recv(65536)
                speak(client, gone)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield path
        finally:
            gone.set()
            thread.join()


def http(body: bytes, head: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return b"%s\r\nContent-Length: %d\r\n\r\n%s" % (head, len(body), body)


def told(tmp_path: Path, speak: Speak, timeout_s: float = 60) -> AgentError:
    """What the caller of a value hears."""
    with speaking(tmp_path / "s", speak) as path, pytest.raises(AgentError) as caught:
        LocalClient(path, timeout_s).value("/v1/cell", HostCell)
    return caught.value


def answering(answer: bytes) -> Speak:
    return lambda client, _: client.sendall(answer)


def drip(begin: bytes) -> Speak:
    """`begin`, then a byte each 20 ms: no single wait is long."""

    def speak(client: socket.socket, gone: threading.Event) -> None:
        client.sendall(begin)
        while not gone.wait(0.02):
            client.sendall(b"x")

    return speak


def flood(begin: bytes, piece: bytes) -> Speak:
    def speak(client: socket.socket, _gone: threading.Event) -> None:
        client.sendall(begin)
        while True:
            client.sendall(piece)

    return speak


@pytest.mark.parametrize(
    "begin", [b"", b"HTTP/1.1 200 OK\r\nX-", b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n"],
    ids=["status line", "headers", "body"],
)  # fmt: skip
def test_the_time_given_covers_the_whole_answer_however_it_drips(begin: bytes, tmp_path: Path) -> None:
    error = told(tmp_path, drip(begin), timeout_s=0.5)
    assert isinstance(error, DaemonUnavailable)
    assert f"did not answer at {tmp_path}/s within 0.5 s" in str(error)


@pytest.mark.parametrize(
    "speak",
    [
        answering(b"HTTP/1.1 200 OK\r\nContent-Length: 67108865\r\n\r\n"),
        flood(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536),
        flood(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"x" * 65536 + b"\r\n"),
    ],
    ids=["announced", "without end", "in chunks"],
)
def test_an_answer_larger_than_any_report_is_not_read_to_its_end(speak: Speak, tmp_path: Path) -> None:
    error = told(tmp_path, speak)
    assert isinstance(error, DaemonUnavailable)
    assert str(error) == (
        f"What answers at {tmp_path}/s is no compute-agent (the answer is longer than 64 MiB). "
        "Name the daemon's socket."
    )


def test_an_answer_nested_without_end_is_told_as_such(tmp_path: Path) -> None:
    error = told(tmp_path, answering(http(b'{"v":' + b"[" * 50000)))
    assert "the answer is no JSON object" in str(error)


def test_a_value_nested_without_end_is_no_fault_of_ours(tmp_path: Path) -> None:
    body = json.dumps(BEGIN)[:-1].encode() + b',"result":' + b"[" * 900 + b"]" * 900 + b"}"
    assert isinstance(told(tmp_path, answering(http(body))), AgentError)


LIES = {
    "a refusal": BEGIN
    | {"ok": False, "refusal": {"code": "InvalidRequest", "message": f"no{POISON}", "retry": "never"}},
    "names of fields": {f"x{POISON}": 1},
    "a version": BEGIN | {"v": f"2{POISON}"},
    "a field of the envelope": BEGIN | {f"y{POISON}": 1},
    "a field of the value": BEGIN | {"result": {"id": 1, "cpus": "1", "memory_kib": 1, f"z{POISON}": 2}},
    "a set of CPUs": BEGIN | {"result": {"id": 1, "cpus": f"1{POISON}", "memory_kib": 1}},
    "many long names": {f"{number}{'x' * 1000}": 1 for number in range(1000)},
    "a long field": BEGIN | {"y" * 100000: 1},
    "a nested version": BEGIN | {"v": [[[[1]]]]},
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_what_a_server_says_is_told_on_one_short_line(lie: object, tmp_path: Path) -> None:
    text = str(told(tmp_path, answering(http(json.dumps(lie).encode()))))
    assert (unsafe(text), text.count("\n")) == ("", 0)
    assert len(text) < 700


def test_a_refusal_keeps_its_words(tmp_path: Path) -> None:
    error = told(tmp_path, answering(http(json.dumps(LIES["a refusal"]).encode())))
    assert isinstance(error, RequestRefused)
    assert str(error).startswith("no\\x1b]0;owned")


def test_a_status_line_of_somebody_else_is_told_on_one_short_line(tmp_path: Path) -> None:
    text = str(told(tmp_path, answering(f"220 ftp {POISON}".encode() + b"y" * 60000 + b"\r\n")))
    assert (unsafe(text), "BadStatusLine" in text, len(text) < 700) == ("", True, True)


def test_a_value_of_another_release_is_told_with_the_field(tmp_path: Path) -> None:
    error = told(tmp_path, answering(http(json.dumps(LIES["a field of the value"]).encode())))
    assert isinstance(error, WireError)
    assert "unknown field `z\\x1b]0;owned" in str(error)
