"""What a daemon does on a disk that fails under it: who takes is refused, who frees works, and all else goes on."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from agent.adapters.journal import HANGS
from agent.formats.envelope import Envelope
from tests.crash.checks import check_sound
from tests.crash.play import Call, Scenario, Step, what_counts
from tests.crash.scenarios import boots, claim, end, goes, group, spec, uuid_of
from tests.crash.stage import START_S, Agent
from tests.functional.lab import wait_until

BOUND_S = 60.0
"""Far beyond the 5 s after which a journal that failed is tried again."""

SETTLED_S = 150.0
"""Far beyond the 30 s after which whoever waits for the disk is told that nobody knows."""

TAKERS: tuple[Call, ...] = (
    claim("taker", spec("t")),
    claim("in-group", spec("u"), group=group("u", 1)),
    claim("from-afar", spec("v"), "live_migration", move_id="m9", peer="other"),
)


class Hanging(Protocol):
    """A disk that can be made to hang."""

    def hang(self) -> None:
        """Whoever writes waits."""
        ...

    def go_on(self) -> None:
        """All writes that wait are made."""
        ...


def ask(agent: Agent, call: Call) -> Envelope:
    """Its answer, which must come."""
    answer = agent.ask(call.method, call.path, call.body, timeout_s=SETTLED_S)
    assert answer is not None, agent.log()
    return answer


def code(answer: Envelope) -> str | None:
    """Of its refusal; None: there is none."""
    return None if answer.refusal is None else answer.refusal.code


def state(agent: Agent, claim_id: str) -> tuple[object, ...]:
    """State and end of a claim, or why there is none."""
    told = agent.ask("GET", f"/v1/claims/{claim_id}")
    assert told is not None
    return what_counts(f"/v1/claims/{claim_id}", told)[1:3]


def journal_problem(agent: Agent) -> str | None:
    """What is told of the journal."""
    sources = agent.result("/v1/health")["sources"]
    found: str | None = next(one["problem"] for one in sources if one["name"] == "journal")
    return found


def begin(agent: Agent, *names: str) -> None:
    """A daemon with a claim of each name."""
    agent.start(is_watched=False)
    assert agent.wait_ready(), agent.log()
    for name in names:
        assert code(ask(agent, claim(name, spec(name)))) is None


def start_again(agent: Agent) -> None:
    """After a SIGKILL."""
    agent.kill()
    agent.start(is_watched=False)
    assert agent.wait_ready(), agent.log()


def check_only_frees(agent: Agent, *, frees: str) -> None:
    """Takers are refused for the disk and leave nothing; `frees` can be aborted, at once."""
    before = {one["claim_id"] for one in agent.result("/v1/claims")["claims"]}
    assert frees in before
    for call in TAKERS:
        assert code(ask(agent, call)) == "JournalUnavailable", call
    assert code(ask(agent, end(frees, "abort"))) is None
    assert state(agent, frees) == ("ended", "aborted")
    assert {one["claim_id"] for one in agent.result("/v1/claims")["claims"]} == before - {frees}
    wait_until(lambda: journal_problem(agent) is not None, "the journal's problem to be told", BOUND_S)


def wait_well(agent: Agent) -> None:
    """The journal has no problem any more, found out by itself."""
    wait_until(lambda: journal_problem(agent) is None, f"the journal to be well, log: {agent.dir / 'log'}", BOUND_S)


def check_takes_again(agent: Agent) -> None:
    """The calls that were refused are answered now, under the same ids."""
    for call in TAKERS:
        assert code(ask(agent, call)) is None, call
    check_sound(agent, NOTHING)


NOTHING = Scenario("nothing", (), ())


# --- a disk that hangs ---------------------------------------------------------------------------


class Watched:
    """Plays the service manager for one daemon: counts what feeds the watchdog."""

    def __init__(self, path: Path, period_s: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)
        self.environ = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": str(int(period_s * 1e6))}

    def fed(self) -> int:
        """How often since the last call."""
        number = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                number += b"WATCHDOG=1" in self._socket.recv(65536)
        return number

    def close(self) -> None:
        """End it."""
        self._socket.close()


@contextlib.contextmanager
def watched(agent: Agent, period_s: float) -> Iterator[Watched]:
    """The daemon that is started next is fed to it."""
    made = Watched(agent.dir / "notify", period_s)
    agent.environ = made.environ
    yield made
    made.close()


def hang_under_claims(agent: Agent, disk: Hanging, manager: Watched, hang_s: float) -> None:
    """The disk hangs for so long while claims come: nobody else notices, and then the books and the disk agree."""
    begin(agent, "a", "b")
    do(agent, boots("b", "b"))
    disk.hang()
    manager.fed()
    generation = agent.result("/v1/report")["generation"]
    with ThreadPoolExecutor(len(TAKERS) + 1) as pool:
        takers = [pool.submit(ask, agent, call) for call in TAKERS]
        freed = pool.submit(ask, agent, end("a", "abort"))
        until = time.monotonic() + hang_s
        do(agent, goes("b"))
        wait_until(lambda: uuid_of("b") not in _active(agent), "a pass to see that a guest has gone", BOUND_S)
        while time.monotonic() < until:
            assert agent.ask("GET", "/v1/health") is not None
            assert not any(future.done() and code(future.result()) is None for future in takers)
            time.sleep(0.2)
        assert agent.result("/v1/report")["generation"] > generation
        assert manager.fed() >= 2
        if hang_s > 15:
            assert journal_problem(agent) == HANGS
        disk.go_on()
        answers = [_settled(future) for future in takers]
        assert code(_settled(freed)) is None
    check_after_hang(agent, answers)


def check_after_hang(agent: Agent, answers: list[Envelope]) -> None:
    """Who was told yes has its place, who was not has none in the end; a restart changes nothing of it."""
    wait_well(agent)
    assert {code(answer) for answer in answers} <= {None, "JournalUnavailable"}
    yes = {call.body["claim_id"] for call, answer in zip(TAKERS, answers, strict=True) if code(answer) is None}
    held = {"b", *yes}
    wait_until(lambda: _held(agent) == held, f"only {held} to be held, log: {agent.dir / 'log'}", BOUND_S)
    check_sound(agent, NOTHING)
    start_again(agent)
    assert _held(agent) == held
    assert state(agent, "a") == ("ended", "aborted")
    check_sound(agent, NOTHING)


def _held(agent: Agent) -> set[str]:
    return {one["claim_id"] for one in agent.result("/v1/claims")["claims"]}


def _active(agent: Agent) -> set[str]:
    domains = agent.result("/v1/domains")["domains"]
    return {one["sighting"]["uuid"] for one in domains if one["sighting"]["state"] == "running"}


def _settled(future: Future[Envelope]) -> Envelope:
    return future.result(SETTLED_S)


def do(agent: Agent, step: Step) -> None:
    """What happens on the host, until the agent has seen it."""
    if step.act is not None:
        step.act(agent)
    if step.until is not None:
        path, wanted = step.until
        wait_until(lambda: wanted in state(agent, path.rpartition("/")[2]), f"{path} to be {wanted}", START_S)


def fill_up(folder: Path) -> Path:
    """Leave no room at all; the file that takes it."""
    path = folder / "guest.log"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for size in (4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    os.write(handle, b"x" * size)
    finally:
        os.close(handle)
    return path
