"""What a claim costs: beside an echo and an fsync, from many at once, under the lock, and replayed."""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from agent.adapters.journal import Store
from agent.core.claim.restore import book_of
from agent.core.claim.values import Claim, ClaimRequest, Record, Tombstone
from agent.core.cpuset import CpuSet
from agent.core.guest import Sighting
from agent.core.instance import Group
from agent.core.snapshot import first
from agent.formats.journal_rows import to_row, to_step_row
from tests.bench.claims_agent import ECHO, MeasuredAgent, body_of, build
from tests.bench.rows import Beside, Row, at_most, median_row, times_cheaper
from tests.builders import Host, Node, guest, host
from tests.builders_journal import claim_of, record_of, step_of

ROUNDS, WARM_UP = 300, 20
BLOCK = b"\0" * 4096

CLIENTS, GROUP_ROUNDS, EACH = 16, 7, 10
CROWD, CALLS_OF_ONE, GUESTS, LOOK_EVERY_S = 32, 12, 500, 0.2
CLAIMS, STILL_HERE, LOADS = 10_000, 500, 7


def measure() -> Iterator[Row]:
    """Wall time, but where it says CPU time."""
    yield from _one_by_one()
    yield from _many_at_once()
    yield from _under_the_lock()
    yield from _replayed()


# --- one claim -------------------------------------------------------------------------------------------


def _one_by_one() -> Iterator[Row]:
    """By turns in one run: a claim, an echo, an fsync."""
    spent: dict[str, list[float]] = {"claim": [], "echo": [], "fsync": []}
    with _agent(_small_host(), _few_guests()) as agent, _file_beside(agent) as file:
        for number in range(WARM_UP + ROUNDS):
            request = build(f"one-{number}")
            body = body_of(request)
            turn = {
                "claim": _ms(lambda body=body: agent.post("/v1/claims", body)),  # type: ignore[misc]
                "echo": _ms(lambda: agent.post(ECHO, b"")),
                "fsync": _ms(lambda: _store(file)),
            }
            _end(agent, [request])
            if number >= WARM_UP:
                for what, ms in turn.items():
                    spent[what].append(ms)
    beside = [echo + fsync for echo, fsync in zip(spent["echo"], spent["fsync"], strict=True)]
    name = "an empty POST and an fsync"
    what = f"a claim over the local API, {len(_few_guests())} guests on 64 CPUs"
    yield median_row(what, spent["claim"], "ms", beside=(name, beside), budget=times_cheaper(1 / 1.5))
    late = Beside(what=name, value=_p99(beside))
    yield Row(what="the same, p99", value=_p99(spent["claim"]), unit="ms", samples=ROUNDS, beside=late)
    yield median_row("of it an empty POST", spent["echo"], "ms")
    yield median_row("of it an fsync of 4 KiB", spent["fsync"], "ms")


# --- many ------------------------------------------------------------------------------------------------


class _Rate(NamedTuple):
    claims_a_s: float
    commits_a_claim: float


def _many_at_once() -> Iterator[Row]:
    """By turns: the same number of claims from one client and from 16."""
    alone: list[_Rate] = []
    together: list[_Rate] = []
    with _agent(_large_host(), ()) as agent:
        for number in range(GROUP_ROUNDS):
            for clients, rates in ((1, alone), (CLIENTS, together)):
                requests = [build(f"many-{number}-{clients}-{one}") for one in range(CLIENTS * EACH)]
                rates.append(_rate(agent, requests, clients))
                _end(agent, requests)
    what = f"claims a second from {CLIENTS} clients at once"
    rate = Beside(what="one client", value=statistics.median(one.claims_a_s for one in alone))
    yield Row(
        what=what,
        value=statistics.median(one.claims_a_s for one in together),
        unit="/s",
        samples=GROUP_ROUNDS,
        beside=rate,
    )
    commits = Beside(what="one client", value=statistics.median(one.commits_a_claim for one in alone))
    value = statistics.median(one.commits_a_claim for one in together)
    yield Row(
        what="of them, fsyncs for a claim",
        value=value,
        unit="fsyncs",
        samples=GROUP_ROUNDS,
        beside=commits,
        budget=times_cheaper(1),
    )


def _rate(agent: MeasuredAgent, requests: Sequence[ClaimRequest], clients: int) -> _Rate:
    bodies = [body_of(request) for request in requests]
    before, begun = agent.store.commits, time.perf_counter()
    _run([lambda own=bodies[start::clients]: _claim_all(agent, own) for start in range(clients)])  # type: ignore[misc]
    spent_s = time.perf_counter() - begun
    return _Rate(len(requests) / spent_s, (agent.store.commits - before) / len(requests))


def _claim_all(agent: MeasuredAgent, bodies: Sequence[bytes]) -> None:
    for body in bodies:
        if b'"ok":true' not in agent.post("/v1/claims", body):
            raise RuntimeError("a claim was refused that has room")


# --- the lock ----------------------------------------------------------------------------------------------


def _under_the_lock() -> Iterator[Row]:
    """Claims and their ends by 32 clients, a third of them in groups, while passes go on."""
    guests = _many_guests()
    with _agent(_large_host(), guests) as agent:
        agent.lock.held.clear()
        is_over = threading.Event()
        watch = threading.Thread(target=_look_on, args=(agent, guests, is_over))
        watch.start()
        _run([lambda number=number: _claim_and_end(agent, number) for number in range(CROWD)])  # type: ignore[misc]
        is_over.set()
        watch.join()
        held = list(agent.lock.held)
    what = f"tracker's lock, {len(guests)} guests on 512 CPUs, {CROWD} clients: held, p99"
    cpu, wall = (
        [part * 1e3 for part in parts] for parts in zip(*((one.cpu_s, one.wall_s) for one in held), strict=True)
    )
    yield Row(what=what, value=_p99(cpu), unit="ms CPU", samples=len(held), budget=at_most(2))
    yield Row(what="the same by the clock on the wall", value=_p99(wall), unit="ms", samples=len(held))
    yield median_row("the same, median", cpu, "ms CPU")


def _claim_and_end(agent: MeasuredAgent, number: int) -> None:
    for call in range(CALLS_OF_ONE):
        name = f"crowd-{number}-{call}"
        kind = (number + call) % 9
        group = Group(id=f"group-{kind}", policy="anti-affinity", max_server_per_host=8) if kind < 3 else None
        request = build(name, 1 + call % 3, group)
        agent.claims.claim(request)
        if call % 4:
            agent.claims.abort(request.claim_id)


def _look_on(agent: MeasuredAgent, guests: Sequence[Sighting], is_over: threading.Event) -> None:
    while not is_over.wait(LOOK_EVERY_S):
        agent.look(guests)


# --- replay --------------------------------------------------------------------------------------------------


def _replayed() -> Iterator[Row]:
    """Of a busy host, where most claims have ended."""
    with tempfile.TemporaryDirectory(prefix="ca-") as folder:
        state = Path(folder)
        _written(state)
        spent = [_replay_ms(state) / 1e3 for _ in range(LOADS)]
    what = f"a journal with {CLAIMS} claims, {STILL_HERE} of which hold, read into the first picture"
    yield median_row(what, spent, "s CPU", budget=at_most(1))


def _written(state: Path) -> None:
    store = Store.open(state)
    store.begin("boot")
    records = [record_of(_claim(one)) if one < STILL_HERE else _buried(_claim(one)) for one in range(CLAIMS)]
    store.write(list(map(to_row, records)), [to_step_row(step_of(number + 1)) for number in range(CLAIMS)])
    store.close()


def _claim(number: int) -> Claim:
    """A guest on the shared CPUs: of those a host can have that many."""
    claim = claim_of(number, cells=1, vcpus=2)
    assert claim.placement is not None
    on_shared = {"pins": MappingProxyType({}), "shared_cpus": CpuSet(range(4))}
    cells = tuple(msgspec.structs.replace(cell, **on_shared) for cell in claim.placement.cells)
    return msgspec.structs.replace(claim, placement=msgspec.structs.replace(claim.placement, cells=cells, devices=()))


def _buried(claim: Claim) -> Record:
    tombstone = Tombstone(
        claim_id=claim.claim_id,
        ending="released",
        ended_at=claim.made_at,
        at_s=0.0,
        sequence=claim.sequence,
        digest=claim.digest,
        instance=claim.instance.uuid,
        claim=msgspec.structs.replace(claim, state="ended"),
    )
    return Record(kind="tombstone", key=claim.claim_id, value=tombstone)


def _replay_ms(state: Path) -> float:
    """What comes between opening the file and the first picture."""
    store = Store.open(state)
    identity = store.begin("boot")
    begun = time.process_time()
    stored = store.load()
    made = first(identity, _small_host().config, book=book_of(stored.records, stored.sequence))
    spent_ms = (time.process_time() - begun) * 1e3
    store.close()
    if (len(made.promises), len(made.book.tombstones)) != (STILL_HERE, CLAIMS - STILL_HERE):
        raise RuntimeError(f"{len(made.promises)} claims hold, {len(made.book.tombstones)} have ended")
    return spent_ms


# --- hosts, clocks ---------------------------------------------------------------------------------------------


def _small_host() -> Host:
    nodes = {cell: Node(f"{cell * 32}-{cell * 32 + 31}", 131072) for cell in range(2)}
    return host(nodes, dedicated="4-63", shared="0-3", smt=[f"{cpu},{cpu + 1}" for cpu in range(0, 64, 2)])


def _few_guests() -> list[Sighting]:
    return [guest(f"here-{number}", {0: 4 + number}, node=0, mem=2048) for number in range(20)]


def _large_host() -> Host:
    nodes = {cell: Node(f"{cell * 64}-{cell * 64 + 63}", 262144) for cell in range(8)}
    return host(nodes, dedicated="0-447", shared="448-511", smt=[f"{cpu},{cpu + 1}" for cpu in range(0, 512, 2)])


def _many_guests() -> list[Sighting]:
    """Half of them on CPUs of their own, half on the shared ones."""
    pinned = [guest(f"here-{one}", {0: one}, node=one // 64, mem=1024) for one in range(250)]
    return pinned + [guest(f"here-{one}", {0: "448-511"}, mem=1024) for one in range(250, GUESTS)]


@contextlib.contextmanager
def _agent(on: Host, guests: Sequence[Sighting]) -> Iterator[MeasuredAgent]:
    agent = MeasuredAgent(on)
    try:
        agent.look(guests)
        yield agent
    finally:
        agent.stop()


@contextlib.contextmanager
def _file_beside(agent: MeasuredAgent) -> Iterator[int]:
    descriptor = os.open(agent.folder / "beside", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _store(descriptor: int) -> None:
    os.write(descriptor, BLOCK)
    os.fsync(descriptor)


def _end(agent: MeasuredAgent, requests: Sequence[ClaimRequest]) -> None:
    for request in requests:
        agent.claims.abort(request.claim_id)


def _run(calls: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _ms(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1e3


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]
