"""Whatever is, or is not, behind the socket has its own sentence that says what to do."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.adapters.http import FULL_SOCKET, LocalApi
from agent.client import LocalClient
from agent.core.cpuset import CpuSet
from agent.core.topology import HostCell
from agent.errors import DaemonUnavailable, RequestRefused, WireError
from agent.formats.envelope import ApiRequest, ApiResponse, Envelope, Refusal, refused, respond, success
from tests.builders_http import IDENTITY, NOW, refuse

CHECKOUT = Path(__file__).parents[2]
CELL = HostCell(id=1, cpus=CpuSet([4, 5, 6]), memory_kib=1024)
NO = Refusal(code="AgentNotReady", message="No pass yet.", retry="later")


def handler(request: ApiRequest) -> ApiResponse:
    """A daemon with one cell."""
    if request.path == "/v1/cell":
        return respond(success(IDENTITY, 17, NOW, CELL))
    return respond(refused(IDENTITY, 17, NOW, NO), status=503)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[LocalClient]:
    api = LocalApi(handler, refuse, tmp_path)
    api.start()
    yield LocalClient(tmp_path / FULL_SOCKET, timeout_s=60)
    api.stop()


def sentence(path: Path, timeout_s: float = 60) -> str:
    """Why the daemon at `path` cannot be asked."""
    with pytest.raises(DaemonUnavailable) as caught:
        LocalClient(path, timeout_s).get("/v1/health")
    return str(caught.value).replace(str(path), "SOCKET")


def test_an_answer_comes_with_its_envelope(daemon: LocalClient) -> None:
    envelope = daemon.get("/v1/cell")
    assert (envelope.agent_id, envelope.epoch, envelope.generation, envelope.now) == ("a1", 3, 17, NOW)


def test_a_report_is_the_value_that_the_daemon_has(daemon: LocalClient) -> None:
    assert daemon.value("/v1/cell", HostCell) == CELL


def test_a_refusal_is_an_envelope_for_get_and_an_error_for_report(daemon: LocalClient) -> None:
    assert daemon.get("/v1/other").refusal == NO
    with pytest.raises(RequestRefused, match="No pass yet") as caught:
        daemon.value("/v1/other", HostCell)
    assert (caught.value.code, caught.value.retry) == ("AgentNotReady", "later")


def test_no_socket_says_how_to_start_the_daemon(tmp_path: Path) -> None:
    assert sentence(tmp_path / "none" / "agent.sock") == (
        "compute-agent does not run here: there is no socket SOCKET. "
        "Start it with `systemctl start compute-agent`, or with `make run` in a checkout."
    )


def test_a_socket_that_nobody_listens_at_says_that_the_daemon_stopped(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "s"))
    assert sentence(tmp_path / "s") == (
        "compute-agent has stopped: nobody listens at SOCKET. "
        "See `systemctl status compute-agent`, then start it again."
    )


def test_a_socket_of_others_says_which_one_to_use(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    tmp_path.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        (tmp_path / "s").chmod(0o600)
        listening.listen()
        code = (
            "import os, sys; from pathlib import Path; from agent.client import LocalClient\n"
            "os.chdir(sys.argv[1]); os.setuid(65534)\n"
            "try: LocalClient(Path('s')).get('/')\n"
            "except Exception as error: print(error)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], cwd=CHECKOUT, capture_output=True, text=True, check=True
        )
    assert done.stdout == (
        "You may not use s. Ask over agent-ro.sock in the same folder, or have yourself added to the socket's group "
        "(usually compute-agent).\n"
    )


def test_a_daemon_that_does_not_answer_is_told_with_the_time_it_was_given(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        assert sentence(tmp_path / "s", timeout_s=0.2) == (
            "compute-agent did not answer at SOCKET within 0.2 s. See `systemctl status compute-agent`; "
            "`systemctl restart compute-agent` is safe."
        )


def test_a_path_that_is_no_socket_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert sentence(tmp_path / "file").startswith("compute-agent has stopped: nobody listens at SOCKET.")
    assert sentence(tmp_path / ("x" * 200)) == (
        "SOCKET cannot be asked: AF_UNIX path too long. Name the daemon's socket."
    )


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[tuple[Path, list[bytes]]]:
    """A socket whose owner gives one prepared answer and hangs up."""
    answers: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()

        def answer() -> None:
            client, _ = listening.accept()
            with client:
                client.recv(65536)
                client.sendall(answers[0])

        thread = threading.Thread(target=answer)
        thread.start()
        yield tmp_path / "s", answers
        thread.join()


def http(body: bytes) -> bytes:
    """As any web server would say it."""
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "BadStatusLine"),
        (http(b"<html>"), "the answer is no JSON object"),
        (http(b"[1]"), "the answer is no JSON object"),
        (http(b'{"message":"page not found"}'), "the answer has message in it"),
        (http(b"{}"), "the answer has nothing in it"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "IncompleteRead"),
    ],
)
def test_what_is_no_compute_agent_is_told_as_such(answer: bytes, found: str, foreign: tuple[Path, list[bytes]]) -> None:
    path, answers = foreign
    answers.append(answer)
    told = sentence(path)
    assert told.startswith("What answers at SOCKET is no compute-agent (")
    assert found in told
    assert told.endswith(". Name the daemon's socket.")


def test_a_socket_that_hangs_up_is_told(foreign: tuple[Path, list[bytes]]) -> None:
    path, answers = foreign
    answers.append(b"")
    assert sentence(path) == (
        "What listens at SOCKET hung up without an answer: a compute-agent that stops, or none at all. "
        "See `systemctl status compute-agent`."
    )


@pytest.mark.parametrize("change", [{"v": 2}, {"new_field": 1}])
def test_a_daemon_of_another_release_is_told_to_be_restarted(
    change: dict[str, int], foreign: tuple[Path, list[bytes]]
) -> None:
    path, answers = foreign
    answers.append(http(json.dumps({"v": 1, "agent_id": "a", "ok": True} | change).encode()))
    with pytest.raises(WireError, match=r"is of another release than this command .* restart the daemon"):
        LocalClient(path).get("/v1/health")


def test_a_value_with_fields_of_another_release_is_told_too(foreign: tuple[Path, list[bytes]]) -> None:
    path, answers = foreign
    answers.append(http(b'{"v":1,"agent_id":"a","ok":true,"result":{"id":1,"cpus":"1","memory_kib":1,"colour":2}}'))
    with pytest.raises(WireError, match=r"another release .*colour"):
        LocalClient(path).value("/v1/cell", HostCell)


def test_the_client_brings_no_library_of_the_daemon_with_it() -> None:
    code = (
        "import sys, agent.client; print(sorted({'oslo_config', 'oslo_log', 'asyncio', 'sqlite3'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_an_envelope_of_the_server_itself_has_no_picture() -> None:
    assert Envelope(ok=False).generation == 0


def test_a_queue_that_is_full_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as first:
        listening.bind(str(tmp_path / "s"))
        listening.listen(0)
        first.connect(str(tmp_path / "s"))

        def serve() -> None:
            listening.accept()[0].close()
            client, _ = listening.accept()
            with client:
                client.recv(65536)  # one that closes without reading resets the connection
                client.sendall(http(respond(success(IDENTITY, 1, NOW, "late")).body))

        late = threading.Timer(0.3, serve)
        late.start()
        assert LocalClient(tmp_path / "s", timeout_s=60).get("/").result == "late"
        late.join()


def test_a_queue_that_stays_full_is_no_answer_in_time(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as first:
        listening.bind(str(tmp_path / "s"))
        listening.listen(0)
        first.connect(str(tmp_path / "s"))
        assert sentence(tmp_path / "s", timeout_s=0.2).startswith(
            "compute-agent did not answer at SOCKET within 0.2 s."
        )
