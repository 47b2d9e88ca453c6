"""The one owner of the snapshot, under changes from many threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import msgspec

from agent.core.conflicts import Since
from agent.core.cpuset import CpuSet
from agent.core.guest import Sighting
from agent.core.host_config import HostConfig
from agent.core.snapshot import Findings, Identity, Snapshot, SourceState
from agent.tracker import OUTSIDE_TRIES, Tracker
from tests import moments
from tests.builders import guest, h8, listing, processes

IDENTITY = Identity(agent_id="a", boot_id="b", epoch=3)
TWICE = "cpu-pinned-twice:cpu:3"
PATIENCE_S = 120.0
LAST_RUN = Since(at="of the last run")


class WallClock:
    """RFC 3339 text that moves by hand."""

    def __init__(self) -> None:
        self.now = "t0"

    def __call__(self) -> str:
        return self.now


def tracker(since: dict[str, Since] | None = None, now: Callable[[], str] = lambda: "now") -> Tracker:
    return Tracker(identity=IDENTITY, config=h8().config, since=since or {}, moment=lambda: moments.at(wall=now()))


def seen(*guests: Sighting, at: float, complete: bool = True) -> Findings:
    """A pass that found exactly these guests on H8."""
    return Findings(
        topology=h8().topology,
        listing=listing(*(one.name for one in guests), at=at),
        processes=processes(at=at + 0.2),
        sightings=tuple(msgspec.structs.replace(one, begun_at=at + 0.1) for one in guests),
        sources=(SourceState(name="sysfs", read_at=at),),
    )


def conflicting() -> tuple[Sighting, Sighting]:
    return guest("a", {0: 2, 1: 3}), guest("b", {0: 3, 1: 4})


def dates(snapshot: Snapshot) -> dict[str, str | None]:
    return {row.id: row.since for row in snapshot.conflicts}


def run_at_once(works: Sequence[Callable[[], None]]) -> None:
    barrier = threading.Barrier(len(works))

    def run(work: Callable[[], None]) -> None:
        barrier.wait(PATIENCE_S)
        work()

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_before_anything_was_looked_at_there_is_a_picture_that_says_so() -> None:
    snapshot = tracker().snapshot
    assert (snapshot.generation, snapshot.complete, snapshot.identity) == (0, False, IDENTITY)
    assert snapshot.usage.cells == ()


def test_each_replacement_raises_the_generation_by_one() -> None:
    owner = tracker()
    steps: list[Callable[[], Snapshot]] = [
        lambda: owner.take_in(seen(at=1.0)),
        lambda: owner.take_in(Findings()),
        lambda: owner.configure(h8().config),
        lambda: owner.report_source(SourceState(name="udev")),
    ]
    assert [step().generation for step in steps] == [1, 2, 3, 4]
    assert owner.snapshot.generation == 4


def test_a_reader_keeps_the_picture_that_it_took() -> None:
    owner = tracker()
    before = owner.take_in(seen(*conflicting(), at=1.0))
    owner.take_in(seen(at=2.0))
    assert [row.id for row in before.conflicts] == [TWICE]
    assert owner.snapshot.conflicts == ()


def test_no_change_is_lost_when_many_threads_change_at_once() -> None:
    owner = tracker()
    names = [f"source-{number}" for number in range(8)]
    rounds = 200

    def report_of(name: str) -> Callable[[], None]:
        def work() -> None:
            for number in range(rounds):
                owner.report_source(SourceState(name=name, read_at=float(number)))

        return work

    run_at_once([report_of(name) for name in names])
    assert {state.name: state.read_at for state in owner.snapshot.sources} == dict.fromkeys(names, rounds - 1.0)
    assert owner.snapshot.generation == len(names) * rounds


def test_a_slow_change_is_made_though_quick_ones_overtake_it_all_the_time() -> None:
    owner = tracker()
    crowd = [guest(f"g{number}", {0: number % 8}) for number in range(200)]
    ended = threading.Event()
    quick: list[int] = []

    def overtake() -> None:
        while not ended.is_set():
            owner.report_source(SourceState(name="quick", read_at=float(len(quick))))
            quick.append(1)

    def fold() -> None:
        try:
            for number in range(20):
                owner.configure(HostConfig(dedicated=CpuSet((number % 8,))))
                owner.take_in(seen(*crowd, at=float(number + 1)))
        finally:
            ended.set()

    run_at_once([fold, overtake])
    assert len(owner.snapshot.ledger.sightings) == len(crowd)
    assert str(owner.snapshot.config.dedicated) == "3"
    assert owner.snapshot.source("quick").read_at == len(quick) - 1
    assert owner.snapshot.generation == len(quick) + 40


def test_a_change_that_is_overtaken_each_time_is_computed_under_the_lock_in_the_end() -> None:
    """The wall clock is read once in each try, after the change was computed: so it can overtake the change."""
    tries: list[int] = []

    def overtaking() -> str:
        if len(tries) < OUTSIDE_TRIES:
            tries.append(len(tries))
            owner.report_source(SourceState(name=f"overtaker-{len(tries)}"))
        return "now"

    owner = tracker(now=overtaking)
    after = owner.take_in(seen(*conflicting(), at=1.0))
    assert after is owner.snapshot
    assert len(tries) == OUTSIDE_TRIES
    assert dates(after) == {TWICE: "now"}
    assert [state.name for state in after.sources] == ["overtaker-1", "overtaker-2", "overtaker-3", "sysfs"]
    assert after.generation == OUTSIDE_TRIES + 1


def test_a_conflict_keeps_its_date_as_long_as_it_stands() -> None:
    wall = WallClock()
    owner = tracker(now=wall)
    owner.take_in(seen(*conflicting(), at=1.0))
    wall.now = "t1"
    more = (*conflicting(), guest("c", {0: 2}))
    assert dates(owner.take_in(seen(*more, at=2.0))) == {"cpu-pinned-twice:cpu:2": "t1", TWICE: "t0"}
    wall.now = "t2"
    offline = HostConfig(dedicated=CpuSet.parse("3-7"), shared=CpuSet.parse("0-1"))
    assert dates(owner.configure(offline))[TWICE] == "t0"


def test_a_conflict_that_went_and_came_again_is_dated_anew() -> None:
    wall = WallClock()
    owner = tracker({TWICE: LAST_RUN}, now=wall)
    assert dates(owner.take_in(seen(*conflicting(), at=1.0))) == {TWICE: "of the last run"}
    owner.take_in(seen(at=2.0))
    wall.now = "t2"
    assert dates(owner.take_in(seen(*conflicting(), at=3.0))) == {TWICE: "t2"}


def test_the_date_of_the_last_run_counts_until_all_has_been_seen_once() -> None:
    owner = tracker({TWICE: LAST_RUN}, now=lambda: "now")
    owner.take_in(Findings(topology=h8().topology, sources=(SourceState(name="libvirt", problem="away"),)))
    owner.take_in(Findings(sources=(SourceState(name="libvirt", problem="away"),)))
    assert dates(owner.take_in(seen(*conflicting(), at=3.0))) == {TWICE: "of the last run"}


def test_a_stored_date_of_a_conflict_that_the_first_complete_look_did_not_show_is_forgotten() -> None:
    owner = tracker({TWICE: LAST_RUN}, now=lambda: "now")
    owner.take_in(seen(at=1.0))
    assert dates(owner.take_in(seen(*conflicting(), at=2.0))) == {TWICE: "now"}


def at_cpu_3(*names: str) -> list[Sighting]:
    return [guest(name, {0: 3}) for name in names]


def test_a_conflict_that_other_guests_have_now_is_dated_anew() -> None:
    wall = WallClock()
    owner = tracker(now=wall)
    owner.take_in(seen(*at_cpu_3("a", "b"), at=1.0))
    wall.now = "t1"
    assert dates(owner.take_in(seen(*at_cpu_3("c", "d"), at=2.0))) == {TWICE: "t1"}


def test_a_conflict_keeps_its_date_while_one_is_left_of_those_that_were_in_it_just_before() -> None:
    wall = WallClock()
    owner = tracker(now=wall)
    told = []
    for number, names in enumerate(("ab", "bc", "cd")):
        wall.now = f"t{number}"
        told.append(dates(owner.take_in(seen(*at_cpu_3(*names), at=number + 1.0))))
    assert told == [{TWICE: "t0"}] * 3


def test_the_date_of_the_last_run_is_not_that_of_other_guests_conflict() -> None:
    others = Since(at="of the last run", owners=tuple(one.uuid for one in at_cpu_3("c", "d")))
    owner = tracker({TWICE: others}, now=lambda: "now")
    assert dates(owner.take_in(seen(*at_cpu_3("a", "b"), at=1.0))) == {TWICE: "now"}


def test_the_date_of_the_last_run_stays_while_one_is_left_of_those_that_were_in_it() -> None:
    others = Since(at="of the last run", owners=tuple(one.uuid for one in at_cpu_3("b", "c")))
    owner = tracker({TWICE: others}, now=lambda: "now")
    assert dates(owner.take_in(seen(*at_cpu_3("a", "b"), at=1.0))) == {TWICE: "of the last run"}
