"""Changes over the real sockets: many at a time, in threads of their own, whatever their clients do meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.adapters.http import FULL_SOCKET, READ_ONLY_SOCKET, Limits, LocalApi
from agent.client import LocalClient
from agent.core.instance import Instance
from agent.errors import RequestRefused
from agent.formats.claim_forms import GroupForm
from agent.formats.envelope import ApiRequest, ApiResponse
from agent.handlers import TABLE
from tests.at_work import build
from tests.builders import guest, uuid_of
from tests.builders_http import refuse
from tests.contract.test_http import ask
from tests.promising_agent import PromisingAgent

WAIT_S = 60.0
BODY = b'{"ttl_s": 20}'


class SlowDisk:
    """Answers reads at once, and changes when they are let go."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Semaphore(0), threading.Event()
        self.done: list[str] = []

    def __call__(self, request: ApiRequest) -> ApiResponse:
        found = TABLE.find(request.method, request.parts or ())
        if found is not None and found.route.work == "change":
            self.begun.release()
            assert self.go.wait(WAIT_S)
            self.done.append(request.path)
        return ApiResponse(body=b"well")


@pytest.fixture
def disk() -> Iterator[SlowDisk]:
    made = SlowDisk()
    yield made
    made.go.set()


@contextlib.contextmanager
def serving(handler: Callable[[ApiRequest], ApiResponse], folder: Path, limits: Limits) -> Iterator[LocalApi]:
    api = LocalApi(handler, refuse, folder, limits=limits, table=TABLE)
    api.start()
    try:
        yield api
    finally:
        api.stop(WAIT_S)


def renew(path: Path, number: int, answers: list[int]) -> threading.Thread:
    """A client that asks for more time, in a thread of its own."""

    def run() -> None:
        answers.append(ask(path, "POST", f"/v1/claims/c{number}/renew", BODY)[0])

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_reads_wait_for_no_change(tmp_path: Path, disk: SlowDisk) -> None:
    answers: list[int] = []
    with serving(disk, tmp_path, Limits(changing=4)):
        clients = [renew(tmp_path / FULL_SOCKET, number, answers) for number in range(8)]
        for _ in range(4):
            assert disk.begun.acquire(timeout=WAIT_S)
        for name in (FULL_SOCKET, READ_ONLY_SOCKET):
            assert [ask(tmp_path / name, "GET", "/v1/claims")[0] for _ in range(8)] == [200] * 8
        assert answers == []
        disk.go.set()
        for client in clients:
            client.join(WAIT_S)
    assert answers == [200] * 8


def test_as_many_changes_as_there_are_threads_wait_for_the_disk_together(tmp_path: Path, disk: SlowDisk) -> None:
    answers: list[int] = []
    with serving(disk, tmp_path, Limits()):
        clients = [renew(tmp_path / FULL_SOCKET, number, answers) for number in range(32)]
        for _ in range(32):
            assert disk.begun.acquire(timeout=WAIT_S)
        disk.go.set()
        for client in clients:
            client.join(WAIT_S)
    assert answers == [200] * 32


def test_a_change_too_many_is_refused_at_once_and_taken_when_there_is_room_again(
    tmp_path: Path, disk: SlowDisk, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[int] = []
    full = tmp_path / FULL_SOCKET
    with serving(disk, tmp_path, Limits(changing=1, waiting=2)):
        clients = [renew(full, number, answers) for number in range(6)]
        wait_until(lambda: len(answers) == 3)
        assert answers == [503] * 3
        status, _, body = ask(full, "POST", "/v1/claims/late/renew", BODY)
        assert (status, json.loads(body)["refusal"]["code"]) == (503, "AgentNotReady")
        disk.go.set()
        for client in clients:
            client.join(WAIT_S)
        wait_until(lambda: ask(full, "POST", "/v1/claims/later/renew", BODY)[0] == 200)
    assert sorted(answers) == [200] * 3 + [503] * 3
    told = [one.getMessage() for one in caplog.records if "changes are refused" in one.getMessage()]
    assert told == [f"changes are refused: 3 wait for the disk socket={full}"]


def test_a_client_that_leaves_takes_its_change_not_with_it(tmp_path: Path, disk: SlowDisk) -> None:
    with serving(disk, tmp_path, Limits(changing=1)):
        for number in range(3):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(tmp_path / FULL_SOCKET))
                head = f"POST /v1/claims/c{number}/renew HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BODY)}\r\n\r\n"
                client.sendall(head.encode() + BODY)
                if number == 0:
                    assert disk.begun.acquire(timeout=WAIT_S)
        disk.go.set()
        wait_until(lambda: len(disk.done) == 3)
    assert sorted(disk.done) == [f"/v1/claims/c{number}/renew" for number in range(3)]


def test_a_crowd_that_only_connects_shows_out_nobody_who_waits_for_a_change(tmp_path: Path, disk: SlowDisk) -> None:
    answers: list[int] = []
    with serving(disk, tmp_path, Limits(clients=4)), contextlib.ExitStack() as crowd:
        client = renew(tmp_path / FULL_SOCKET, 0, answers)
        assert disk.begun.acquire(timeout=WAIT_S)
        for _ in range(12):
            idle = crowd.enter_context(socket.socket(socket.AF_UNIX))
            idle.connect(str(tmp_path / FULL_SOCKET))
        assert ask(tmp_path / FULL_SOCKET, "GET", "/v1/claims")[0] == 200
        disk.go.set()
        client.join(WAIT_S)
    assert answers == [200]


@pytest.mark.parametrize(
    ("path", "most"), [("/v1/claims", 256 * 1024), ("/v1/claims/c/renew", 16 * 1024), ("/v1/fit", 256 * 1024)]
)
def test_each_path_has_a_size_of_its_own_from_which_on_nothing_is_read(tmp_path: Path, path: str, most: int) -> None:
    with serving(lambda _: ApiResponse(body=b"well"), tmp_path, Limits()):
        assert ask(tmp_path / FULL_SOCKET, "POST", path, bytes(most))[0] == 200
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(WAIT_S)
            client.connect(str(tmp_path / FULL_SOCKET))
            client.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {most + 1}\r\n\r\n".encode())
            assert client.recv(1000).startswith(b"HTTP/1.1 413 ")


# --- the agent's own books behind the sockets ------------------------------------------------------


@pytest.fixture
def agent() -> Iterator[PromisingAgent]:
    with PromisingAgent() as made:
        made.look()
        yield made


@pytest.fixture
def client(agent: PromisingAgent) -> LocalClient:
    return agent.client


def test_a_claim_whose_client_has_left_is_made_and_can_be_read(agent: PromisingAgent, client: LocalClient) -> None:
    body = json.dumps(build()).encode()
    head = (
        f"POST /v1/claims HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.socket(socket.AF_UNIX) as leaving:
        leaving.connect(str(agent.socket))
        leaving.sendall(head.encode() + body)
    wait_until(lambda: any(one.state == "reserved" for one in agent.claims.list_claims()))
    assert client.get_claim("c1").claim.state == "reserved"
    again = client.claim(build())
    assert (again.is_new, again.claim.claim_id) == (False, "c1")


def test_the_log_says_which_process_asked_for_a_change(client: LocalClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "agent.handlers")
    client.claim(build())
    client.get_claim("c1")
    who = f"pid={os.getpid()} uid={os.geteuid()} gid={os.getegid()}"
    told = [one.getMessage() for one in caplog.records if one.name == "agent.handlers.answer"]
    assert told == [f"change method=POST path=/v1/claims claim=c1 code=ok {who}"]


def test_ids_with_what_parts_a_path_go_over_the_socket(client: LocalClient) -> None:
    name = "a/../b?c=%2F#ä +"
    assert client.claim(build(name)).is_new
    assert client.renew_claim(name, 60).claim.claim_id == client.get_claim(name).claim.claim_id == name


def test_a_refusal_is_raised_with_all_that_it_says(client: LocalClient) -> None:
    client.claim(build())
    with pytest.raises(RequestRefused) as caught:
        client.claim(build("c2"))
    assert (caught.value.code, caught.value.retry, caught.value.claim_id) == ("InstanceBusy", "later", "c1")
    with pytest.raises(RequestRefused) as caught:
        client.claim(build("c3", "db", vcpus=20))
    assert caught.value.code == "ComputeResourcesUnavailable"
    assert caught.value.reasons


def test_every_call_of_the_client_reaches_its_method(agent: PromisingAgent, client: LocalClient) -> None:
    agent.look(guest("old", {0: 2}))
    old = Instance(uuid=uuid_of("old"), name="old")
    assert client.claim(build()).is_new
    assert [one.claim_id for one in client.list_claims().claims] == ["c1"]
    group = GroupForm(id="g/1", policy="anti-affinity", members=(uuid_of("web"),), generation=1)
    assert client.recheck_claim("c1", group).claim.claim_id == "c1"
    assert client.set_group(group) == client.get_group("g/1")
    assert client.set_maintenance("new memory") == client.get_maintenance()
    assert client.set_maintenance(None).maintenance is None
    held = client.hold_for_move("m/1", "cold_migration", old, "there", is_cold=True)
    assert (held.claim.state, client.get_move("m/1").peer) == ("leaving", "there")
    assert client.finish_move("m/1", "failed").outcome == "failed"
    for call in (client.confirm_claim, client.release_claim, client.accept_observed):
        with pytest.raises(RequestRefused) as caught:
            call("c1")
        assert caught.value.code == "IllegalTransition"
    aborted = client.abort_claim("c1", "no more").claim
    assert (aborted.ended and aborted.ended.how, aborted.reason) == ("aborted", "no more")
    assert client.forget_instance(uuid_of("old"), "there").moved_to == "there"
    client.accept_journal()
