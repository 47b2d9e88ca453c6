"""The local API over real UNIX sockets, spoken to by good clients."""

from __future__ import annotations

import grp
import http.client
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

import pytest

from agent.adapters.http import FULL_SOCKET, READ_ONLY_SOCKET, LocalApi
from agent.errors import ConfigError, TwinRunning
from agent.formats import wire
from agent.formats.envelope import ApiRequest, ApiResponse, Envelope, Peer
from agent.formats.route import Route, Table
from tests.builders_http import GENERATION, IDENTITY, refuse

ME = Peer(pid=os.getpid(), uid=os.geteuid(), gid=os.getegid())
TABLE = Table(
    (
        Route("POST", "/v1/fit", "fit", "question", "Does it fit", Envelope, Peer, longest_body=1000),
        Route("POST", "/v1/claims/{claim_id}/renew", "renew", "change", "Wait", Envelope, Peer, longest_body=1000),
    )
)


class Recorder:
    """Answers with what it was asked, and remembers it."""

    def __init__(self) -> None:
        self.requests: list[ApiRequest] = []

    def __call__(self, request: ApiRequest) -> ApiResponse:
        self.requests.append(request)
        if request.path == "/fault":
            raise RuntimeError("made for this test")
        body = f"{request.method} {request.path}".encode()
        headers = {"X-Made-For": "this test"} if request.path == "/headers" else {}
        return ApiResponse(body=body, content_type="text/plain", headers=MappingProxyType(headers))


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def folder(recorder: Recorder, tmp_path: Path) -> Iterator[Path]:
    """Where the sockets of a running API are."""
    api = LocalApi(recorder, refuse, tmp_path)
    api.start()
    yield tmp_path
    api.stop()


class Unix(http.client.HTTPConnection):
    """A client of the standard library."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(str(self.path))


def ask(path: Path, method: str, target: str, body: bytes | None = None) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one answer."""
    client = Unix(path)
    try:
        client.request(method, target, body)
        answer = client.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        client.close()


def test_a_request_reaches_the_handler_whole(folder: Path, recorder: Recorder) -> None:
    status, headers, body = ask(folder / FULL_SOCKET, "POST", "/v1/a%20b?x=1&y=%C3%A4&x=2&z", b"\x00body")
    assert (status, body) == (200, b"POST /v1/a b")
    assert headers == {
        "server": "compute-agent",
        "content-type": "text/plain",
        "content-length": "12",
        "cache-control": "no-store",
        "connection": "close",
    }
    assert recorder.requests == [
        ApiRequest(
            method="POST",
            path="/v1/a b",
            parts=("", "v1", "a b"),
            query=type(recorder.requests[0].query)({"x": "2", "y": "ä", "z": ""}),
            body=b"\x00body",
            peer=ME,
            writable=True,
        )
    ]


def test_headers_of_an_answer_go_out_with_it(folder: Path) -> None:
    for method in ("GET", "HEAD"):
        assert ask(folder / READ_ONLY_SOCKET, method, "/headers")[1]["x-made-for"] == "this test"


def test_the_handler_knows_over_which_socket_it_is_asked(folder: Path, recorder: Recorder) -> None:
    for name in (FULL_SOCKET, READ_ONLY_SOCKET):
        ask(folder / name, "GET", "/")
    assert [request.writable for request in recorder.requests] == [True, False]


def test_the_kernel_says_who_asks(folder: Path, recorder: Recorder) -> None:
    code = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({str(folder / FULL_SOCKET)!r}); \
s.sendall(b'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'); s.recv(100)"
    with subprocess.Popen([sys.executable, "-c", code]) as other:
        assert other.wait() == 0
    assert recorder.requests[0].peer == Peer(pid=other.pid, uid=os.geteuid(), gid=os.getegid())


def test_head_is_get_without_a_body(folder: Path, recorder: Recorder) -> None:
    status, headers, body = ask(folder / READ_ONLY_SOCKET, "HEAD", "/v1/health")
    assert (status, headers["content-length"], body) == (200, "14", b"")
    assert recorder.requests[0].method == "GET"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_the_read_only_socket_refuses_every_change_before_the_handler(
    method: str, folder: Path, recorder: Recorder
) -> None:
    status, _, body = ask(folder / READ_ONLY_SOCKET, method, "/v1/claims", b"{}")
    message = f"This socket only reads; {method} is for agent.sock in the same folder."
    assert (status, body) == (405, refuse("InvalidRequest", message, 405).body)
    assert recorder.requests == []


def test_a_question_may_be_posted_to_the_read_only_socket_and_nothing_else(tmp_path: Path) -> None:
    recorder = Recorder()
    api = LocalApi(recorder, refuse, tmp_path, table=TABLE)
    api.start()
    socket_path = tmp_path / READ_ONLY_SOCKET
    answers = [ask(socket_path, "POST", path, b"{}")[0] for path in ("/v1/fit", "/v1/fit/", "/v1/%66it", "/v1/claims")]
    answers += [ask(socket_path, method, "/v1/fit", b"{}")[0] for method in ("PUT", "DELETE")]
    api.stop()
    assert answers == [200, 405, 200, 405, 405, 405]
    assert [(one.method, one.path, one.body, one.writable) for one in recorder.requests] == [
        ("POST", "/v1/fit", b"{}", False)
    ] * 2


def test_a_question_that_takes_long_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    begun, finish = threading.Event(), threading.Event()

    def thoughtful(request: ApiRequest) -> ApiResponse:
        if request.path == "/v1/fit":
            begun.set()
            assert finish.wait(60)
        return ApiResponse(body=b"well")

    api = LocalApi(thoughtful, refuse, tmp_path, table=TABLE)
    api.start()
    answers: list[int] = []
    askers = [
        threading.Thread(target=lambda: answers.append(ask(tmp_path / READ_ONLY_SOCKET, "POST", "/v1/fit", b"{}")[0]))
        for _ in range(12)
    ]
    for asker in askers:
        asker.start()
    assert begun.wait(60)
    assert [ask(tmp_path / READ_ONLY_SOCKET, "GET", "/")[0] for _ in range(8)] == [200] * 8
    assert answers == []
    finish.set()
    for asker in askers:
        asker.join(60)
    api.stop()
    assert answers == [200] * 12


@pytest.mark.parametrize(
    ("request_line", "status"),
    [(b"get / HTTP/1.1", 400), (b"GET /" + b"x" * 5000 + b" HTTP/1.1", 400), (b"GET / HTTP/1.1\r\nA: b\r\n c", 400)],
)
def test_a_refusal_by_the_server_itself_says_of_which_picture_of_which_agent_it_is(
    request_line: bytes, status: int, folder: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(str(folder / READ_ONLY_SOCKET))
        client.sendall(request_line + b"\r\nHost: x\r\n\r\n")
        answer = http.client.HTTPResponse(client)
        answer.begin()
        told = wire.from_json(answer.read(), Envelope)
    assert (answer.status, told.ok) == (status, False)
    assert (told.agent_id, told.epoch, told.generation) == (IDENTITY.agent_id, IDENTITY.epoch, GENERATION)


def test_a_body_of_one_mebibyte_is_taken_and_a_larger_one_is_not(folder: Path, recorder: Recorder) -> None:
    status, _, _ = ask(folder / FULL_SOCKET, "POST", "/", bytes(1024 * 1024))
    assert (status, len(recorder.requests[0].body)) == (200, 1024 * 1024)
    client = Unix(folder / FULL_SOCKET)
    client.putrequest("POST", "/")
    client.putheader("Content-Length", str(1024 * 1024 + 1))
    client.endheaders()
    answer = client.getresponse()
    assert (answer.status, json.loads(answer.read())["ok"]) == (413, False)
    client.close()


def test_a_client_that_waits_for_leave_to_send_its_body_gets_it(folder: Path, recorder: Recorder) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(str(folder / FULL_SOCKET))
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"body")
        assert client.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")
    assert recorder.requests[0].body == b"body"


def test_a_fault_of_the_handler_is_answered_and_logged_with_its_traceback(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    status, _, body = ask(folder / FULL_SOCKET, "GET", "/fault")
    assert (status, json.loads(body)["refusal"]["code"]) == (500, "InternalError")
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.exc_text is not None
    assert "made for this test" in record.exc_text
    assert ask(folder / FULL_SOCKET, "GET", "/")[0] == 200


def test_who_may_use_which_socket_is_set_before_anybody_can_connect(folder: Path) -> None:
    modes = {name: stat.S_IMODE((folder / name).stat().st_mode) for name in (FULL_SOCKET, READ_ONLY_SOCKET)}
    assert modes == {FULL_SOCKET: 0o660, READ_ONLY_SOCKET: 0o666}
    assert sorted(path.name for path in folder.iterdir()) == sorted([FULL_SOCKET, READ_ONLY_SOCKET])


def test_the_group_owns_the_full_socket_where_it_exists(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving a socket to another group needs root")
    other = next(group for group in grp.getgrall() if group.gr_gid not in {0, os.getegid()})
    api = LocalApi(Recorder(), refuse, tmp_path, group=other.gr_name)
    api.start()
    assert (tmp_path / FULL_SOCKET).stat().st_gid == other.gr_gid
    assert (tmp_path / READ_ONLY_SOCKET).stat().st_gid == os.getegid()
    api.stop()


def test_a_group_that_does_not_exist_is_no_reason_not_to_serve(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    api = LocalApi(Recorder(), refuse, tmp_path, group="no-such-group")
    api.start()
    assert (tmp_path / FULL_SOCKET).stat().st_gid == os.getegid()
    api.stop()
    (told,) = [record for record in caplog.records if "no-such-group" in record.getMessage()]
    whom = "root" if os.geteuid() == 0 else f"user {os.geteuid()} and group {os.getegid()}"
    assert told.levelname == "INFO"
    assert told.getMessage() == (
        f"{tmp_path / FULL_SOCKET} is for {whom} alone, which is fine for a trial: there is no group no-such-group "
        "here. An installation makes it (install.sh), and [http] group names another"
    )


def test_stopping_removes_the_sockets_and_nothing_else_and_may_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("")
    api = LocalApi(Recorder(), refuse, tmp_path)
    served = [api.is_serving]
    for step in (api.start, api.stop, api.stop):
        step()
        served.append(api.is_serving)
    assert served == [False, True, False, False]
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_stopping_leaves_the_sockets_of_a_successor(tmp_path: Path) -> None:
    first, second = LocalApi(Recorder(), refuse, tmp_path), LocalApi(Recorder(), refuse, tmp_path)
    first.start()
    (tmp_path / FULL_SOCKET).unlink()
    (tmp_path / READ_ONLY_SOCKET).unlink()
    second.start()
    first.stop()
    assert ask(tmp_path / FULL_SOCKET, "GET", "/")[0] == 200
    second.stop()


def test_stopping_lets_the_answer_under_way_go_out(tmp_path: Path) -> None:
    begun, finish = threading.Event(), threading.Event()

    def slow(request: ApiRequest) -> ApiResponse:
        begun.set()
        finish.wait(60)
        return ApiResponse(body=b"late")

    api = LocalApi(slow, refuse, tmp_path)
    api.start()
    answers: list[int] = []
    client = threading.Thread(target=lambda: answers.append(ask(tmp_path / FULL_SOCKET, "GET", "/")[0]))
    client.start()
    assert begun.wait(60)
    threading.Timer(0.2, finish.set).start()
    api.stop(timeout_s=60)
    client.join()
    assert answers == [200]


def test_the_socket_of_a_dead_agent_is_replaced(tmp_path: Path) -> None:
    for name in (FULL_SOCKET, READ_ONLY_SOCKET):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(tmp_path / name))
            dead.listen()
    api = LocalApi(Recorder(), refuse, tmp_path)
    api.start()
    assert ask(tmp_path / READ_ONLY_SOCKET, "GET", "/")[0] == 200
    api.stop()


def test_a_live_twin_is_refused_by_its_process_and_goes_on(folder: Path) -> None:
    with pytest.raises(TwinRunning) as caught:
        LocalApi(Recorder(), refuse, folder).start()
    assert str(caught.value) == (
        f"Process {os.getpid()} answers at {folder / FULL_SOCKET}. "
        "Stop it, or give this agent another folder with --socket-dir."
    )
    assert ask(folder / FULL_SOCKET, "GET", "/")[0] == 200
    assert ask(folder / READ_ONLY_SOCKET, "GET", "/")[0] == 200


def test_a_file_that_is_no_socket_is_never_removed(tmp_path: Path) -> None:
    (tmp_path / READ_ONLY_SOCKET).write_text("somebody's")
    with pytest.raises(ConfigError, match=r"agent-ro\.sock is there and is no socket\. Remove it"):
        LocalApi(Recorder(), refuse, tmp_path).start()
    assert (tmp_path / READ_ONLY_SOCKET).read_text() == "somebody's"
    assert not (tmp_path / FULL_SOCKET).exists()


def test_a_folder_that_cannot_be_used_is_told_with_the_option_for_another(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot be made: File exists\. Make .* set \[agent\] socket_dir"):
        LocalApi(Recorder(), refuse, tmp_path / "file").start()
    with pytest.raises(ConfigError, match="AF_UNIX path too long"):
        LocalApi(Recorder(), refuse, tmp_path / ("x" * 120)).start()


NO_DESCRIPTOR_LEFT = """
import os, resource, sys
from pathlib import Path
from agent.adapters.http import LocalApi
from agent.errors import ApiUnavailable
from agent.formats.envelope import ApiResponse
from tests.builders_http import refuse

api = LocalApi(lambda request: ApiResponse(body=b"well"), refuse, Path(sys.argv[1]))
next_free = os.dup(0)
os.close(next_free)
before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (next_free + 2, most))  # both sockets, but nothing to wait with
try:
    api.start()
except ApiUnavailable as error:
    print(error)
resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))
print(api.is_serving, os.listdir(sys.argv[1]))
"""


def test_an_api_that_cannot_serve_says_so_and_leaves_no_sockets(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_DESCRIPTOR_LEFT, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout == (
        f"Nobody can be served at {tmp_path}/agent.sock and {tmp_path}/agent-ro.sock: [Errno 24] Too many open files. "
        "See the log; if descriptors or threads ran out, raise LimitNOFILE or TasksMax of the unit.\n"
        "False []\n"
    )
