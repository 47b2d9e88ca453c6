"""Clients that dawdle, lie or talk nonsense cost nobody else anything."""

from __future__ import annotations

import contextlib
import logging
import queue
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.adapters.http import FULL_SOCKET, READ_ONLY_SOCKET, Limits, LocalApi
from agent.client import LocalClient
from agent.formats.envelope import ApiRequest, ApiResponse, respond, success
from tests.builders_http import IDENTITY, refuse

LIMITS = Limits(receive_s=300.0, send_s=300.0, clients=40, threads=2)
"""Nobody is cut off for being slow, so that what the others get is not owed to a time limit."""


def handler(request: ApiRequest) -> ApiResponse:
    """A small answer, or one that no socket buffer takes whole."""
    return respond(success(IDENTITY, 1, "now", "x" * (8_000_000 if request.path == "/large" else 10)))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    api = LocalApi(handler, refuse, tmp_path, limits=LIMITS)
    api.start()
    yield tmp_path
    assert api.is_serving
    api.stop(timeout_s=0)


def connect(path: Path) -> socket.socket:
    """A raw client."""
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(path))  # without a timeout, it waits while the queue is full
    client.settimeout(60)
    return client


def talk(path: Path, data: bytes) -> bytes:
    """All that comes back when `data` is all that is sent."""
    with connect(path) as client, contextlib.suppress(ConnectionError):
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        received = b""
        while chunk := client.recv(65536):
            received += chunk
        return received
    return b""


def serves(path: Path) -> bool:
    """A good client gets its answer."""
    return bool(LocalClient(path, timeout_s=60).get("/small").result == "x" * 10)


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged that is more than a notice, asyncio's tracebacks included."""
    return [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", b""),
        (b"GET /small HTTP/1.1\r\nHost: x", b"400"),
        (b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n", b"200"),
        (b"GET /small HTTP/1.0\r\n\r\n", b"200"),
        (b"GET //[ HTTP/1.1\r\nHost: x\r\n\r\n", b"200"),
        (b"GET /small HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /small HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", b"400"),
        (b"GET /small\r\n\r\n", b"400"),
        (b"get /small HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
        (b"GET small HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
        (b"GET http://elsewhere/ HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
        (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
        (b"CONNECT /small HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
        (b"GET / HTTP/2\r\nHost: x\r\n\r\n", b"400"),
        (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", b"400"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nno header\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n folded\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: \x00\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA:" + b" " * 63 + b"b\r\n\r\n", b"200"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA:" + b" \t" * 32 + b"b\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA:" + b" " * 16000 + b"\x00\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabc", b"400"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: five\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", b"400"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", b"413"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"501"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", b"501"),
        (b"GET /" + b"x" * 5000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 20000 + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 4000 + b"\r\n", b"431"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300), b"400"),
    ],
)
def test_nonsense_gets_a_status_and_nothing_else(
    data: bytes, status: bytes, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answer = talk(folder / FULL_SOCKET, data)
    assert answer[9:12] == status
    assert serves(folder / FULL_SOCKET)
    assert complaints(caplog) == []


def test_a_refusal_of_head_has_no_body_either(folder: Path) -> None:
    head, _, body = talk(
        folder / FULL_SOCKET, b"HEAD / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n"
    ).partition(b"\r\n\r\n")
    assert (head[9:12], body) == (b"413", b"")


@pytest.mark.parametrize(
    ("path", "told"),
    [(b"/%ff%fe", b"no UTF-8"), (b"/a/%zz", b"two hexadecimal digits"), (b"/%4", b"two hexadecimal digits")],
)
def test_a_path_that_does_not_decode_is_refused_and_not_made_another(path: bytes, told: bytes, folder: Path) -> None:
    answer = talk(folder / FULL_SOCKET, b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer[9:12] == b"400"
    assert told in answer


def test_a_refusal_names_what_is_wrong_and_quotes_nothing_as_python_writes_it(folder: Path) -> None:
    answer = talk(folder / FULL_SOCKET, b"GET / HTTP/1.1\r\nHost: x\r\n" + b"b" * 10000 + b"\r\n\r\n")
    assert b"illegal header line." in answer
    assert b"bytearray" not in answer
    assert len(answer) < 1000


def test_noise_of_any_kind_ends_no_server(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = random.Random(20261130)
    parts = [
        b"GET ",
        b"POST ",
        b"/small",
        b" HTTP/1.1",
        b" HTTP/1.1\r\nHost: x\r\n",
        b"\r\n",
        b"\r\n\r\n",
        b"Content-Length: ",
        b"7",
        b": ",
        b"\x00",
    ]
    for _ in range(300):
        pieces = source.choices([*parts, source.randbytes(source.randrange(1, 40))], k=source.randrange(1, 12))
        talk(folder / READ_ONLY_SOCKET, b"".join(pieces))
    assert serves(folder / READ_ONLY_SOCKET)
    assert complaints(caplog) == []


def test_clients_that_send_half_a_request_and_stay_keep_nobody_waiting(folder: Path) -> None:
    beginnings = [
        b"",
        b"G",
        b"GET /small HTTP/1.1\r\nA: b\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc",
    ]
    with contextlib.ExitStack() as held:
        for number in range(LIMITS.clients - 1):
            client = held.enter_context(connect(folder / FULL_SOCKET))
            client.sendall(beginnings[number % len(beginnings)])
        assert all(serves(folder / FULL_SOCKET) for _ in range(5))


def test_clients_that_never_read_their_answer_keep_nobody_waiting(folder: Path) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(4 * LIMITS.threads):
            client = held.enter_context(connect(folder / FULL_SOCKET))
            client.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(1) == b"H"
        assert all(serves(folder / FULL_SOCKET) for _ in range(5))


def test_a_crowd_on_one_socket_ends_its_oldest_and_leaves_the_other_socket_alone(folder: Path) -> None:
    with contextlib.ExitStack() as held:
        crowd = [held.enter_context(connect(folder / READ_ONLY_SOCKET)) for _ in range(3 * LIMITS.clients)]
        assert serves(folder / FULL_SOCKET)
        assert serves(folder / READ_ONLY_SOCKET)
        assert crowd[0].recv(1) == b""
        crowd[-1].sendall(b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n")
        assert crowd[-1].recv(12) == b"HTTP/1.1 200"


class Counter:
    """Answers nobody before `release` is set; asked: how many requests have reached it."""

    def __init__(self) -> None:
        self.begun: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.release = threading.Event()
        self.asked = 0

    def __call__(self, request: ApiRequest) -> ApiResponse:
        self.asked += 1
        self.begun.put(request.path)
        if request.path != "/quick":
            self.release.wait(300)
        return handler(request)


@pytest.fixture
def counter() -> Iterator[Counter]:
    counter = Counter()
    yield counter
    counter.release.set()


@pytest.fixture
def held_up(counter: Counter, tmp_path: Path) -> Iterator[Path]:
    """Where an API is whose one thread on the read-only socket is held up, and which takes three clients there."""
    api = LocalApi(counter, refuse, tmp_path, limits=Limits(receive_s=300.0, clients=3, threads=1))
    api.start()
    with connect(tmp_path / READ_ONLY_SOCKET) as first:
        first.sendall(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n")
        assert counter.begun.get(timeout=60) == "/held"
        yield tmp_path
    counter.release.set()
    api.stop()


def has_ended(client: socket.socket, timeout_s: float = 60) -> bool:
    """Whether the server ends this connection, without an answer, within this time."""
    client.settimeout(timeout_s)
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True
    except (BlockingIOError, TimeoutError):
        return False
    finally:
        client.settimeout(60)


def test_no_more_clients_than_allowed_wait_for_a_handler_that_is_held_up(held_up: Path, counter: Counter) -> None:
    with contextlib.ExitStack() as held:
        crowd = []
        for _ in range(12):
            client = held.enter_context(connect(held_up / READ_ONLY_SOCKET))
            client.sendall(b"GET /waits HTTP/1.1\r\nHost: x\r\n\r\n")
            crowd.append(client)
        assert [has_ended(client) for client in crowd[:9]] == [True] * 9
        assert [has_ended(client, timeout_s=0) for client in crowd[9:]] == [False] * 3
        counter.release.set()
        assert [client.recv(12) for client in crowd[9:]] == [b"HTTP/1.1 200"] * 3
    assert counter.asked == 4  # the one that held it up, and the three that were still there


def test_a_held_up_handler_on_one_socket_keeps_nobody_waiting_on_the_other(held_up: Path, counter: Counter) -> None:
    assert LocalClient(held_up / FULL_SOCKET, timeout_s=60).get("/quick").result == "x" * 10
    assert not counter.release.is_set()


FEW_DESCRIPTORS = """
import resource, sys, threading
from pathlib import Path
from agent.adapters.http import Limits, LocalApi
from agent.formats.envelope import ApiResponse
from tests.builders_http import refuse

def held_up(code: str, message: str, status: int) -> ApiResponse:
    print("held", flush=True)
    sys.stdin.readline()
    return refuse(code, message, status)

resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
LocalApi(lambda request: ApiResponse(body=b"well"), held_up, Path(sys.argv[1]), limits=Limits(clients=10)).start()
print("serves", flush=True)
threading.Event().wait()
"""


def test_a_flood_of_connections_takes_no_descriptors_beyond_those_of_the_clients_allowed(tmp_path: Path) -> None:
    server = subprocess.Popen(
        [sys.executable, "-c", FEW_DESCRIPTORS, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    with server, contextlib.ExitStack() as held:
        held.callback(server.kill)
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stdout.readline() == "serves\n"
        held.enter_context(connect(tmp_path / READ_ONLY_SOCKET)).sendall(b"nonsense\r\n\r\n")
        assert server.stdout.readline() == "held\n"
        flood = [held.enter_context(connect(tmp_path / READ_ONLY_SOCKET)) for _ in range(300)]
        server.stdin.write("go on\n")
        server.stdin.flush()
        assert all(has_ended(client) for client in flood[:200])
        assert b"well" in talk(tmp_path / READ_ONLY_SOCKET, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        server.kill()
        assert server.stderr is not None
        assert server.stderr.read() == ""


def test_stopping_waits_for_no_client_that_never_reads_its_answer(tmp_path: Path) -> None:
    api = LocalApi(handler, refuse, tmp_path, limits=LIMITS)
    api.start()
    with connect(tmp_path / FULL_SOCKET) as client:
        client.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(1) == b"H"
        stopped = threading.Thread(target=api.stop, args=(0,))
        stopped.start()
        stopped.join(60)
        assert not stopped.is_alive()
    stopped.join()


def test_a_client_that_leaves_before_its_answer_is_not_worth_a_word(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        with connect(folder / FULL_SOCKET) as client:
            client.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
    assert serves(folder / FULL_SOCKET)
    assert complaints(caplog) == []


def test_a_client_that_dawdles_is_told_so_in_the_end(tmp_path: Path) -> None:
    api = LocalApi(handler, refuse, tmp_path, limits=Limits(receive_s=0.2))
    api.start()
    with connect(tmp_path / FULL_SOCKET) as client:
        client.sendall(b"GET /small")
        assert client.recv(12) == b"HTTP/1.1 408"
    api.stop()


def test_a_client_that_does_not_read_is_dropped_in_the_end(tmp_path: Path) -> None:
    api = LocalApi(handler, refuse, tmp_path, limits=Limits(send_s=0.2))
    api.start()
    with connect(tmp_path / FULL_SOCKET) as client:
        client.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        stopped = threading.Thread(target=api.stop, args=(300.0,))  # ends only when no client is left
        assert client.recv(1) == b"H"
        stopped.start()
        stopped.join()
    assert not api.is_serving


def test_an_api_that_served_many_clients_holds_no_descriptor_of_them(folder: Path) -> None:
    serves(folder / FULL_SOCKET)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(50):
        talk(folder / FULL_SOCKET, b"GET")
        serves(folder / FULL_SOCKET)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1  # the last one may still be closing
