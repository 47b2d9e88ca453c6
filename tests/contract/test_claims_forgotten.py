"""What is forgotten of claims and of guests that have left, and what is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.core.guest import RunIdentity
from agent.core.instance import Group
from agent.core.snapshot import Findings
from tests.at_work import AtWork, asked, pinned
from tests.builders import guest, processes, uuid_of

GROUP = Group(id="g", policy="anti-affinity")
RUN = RunIdentity(libvirt_id=1, pid=10, started_at_boot_s=5.0)
OTHER_RUN = RunIdentity(libvirt_id=2, pid=20, started_at_boot_s=6.0)
DAY_S = 86400.0


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AtWork]:
    with AtWork(tmp_path / "state") as made:
        made.look()
        yield made


def test_a_released_guest_that_runs_keeps_its_seat_over_a_restart_while_libvirt_is_down(agent: AtWork) -> None:
    agent.granted(asked("c1", "a", pinned(1), group=GROUP))
    running = guest("a", {0: 2}, run=RUN)
    for _ in range(3):
        agent.look(running)
    agent.claims.release("c1")
    agent.restart()
    agent.tracker.take_in(Findings(processes=processes(at=agent.now_s)))
    agent.look(running)
    assert agent.refused(asked("c2", "b", pinned(1), group=GROUP)).code == "GroupAffinityViolation"


def test_a_guest_that_came_late_is_asked_for_its_place_again_only_when_something_has_changed(agent: AtWork) -> None:
    agent.granted(asked("c1", "a", pinned(1)))
    for _ in range(40):
        agent.look(after_s=28.0)
    assert agent.book.tombstones["c1"].ending == "expired"
    agent.granted(asked("c2", "b", pinned(6)))
    late, other = guest("a", {0: 2}, run=RUN), guest("c", {0: 3}, run=OTHER_RUN)
    found = agent.look(late).crowded
    assert found is not None
    assert found.claim_ids == {"c1"}
    assert agent.look(late).crowded is found
    assert agent.look(late, other).crowded is not found
    agent.claims.abort("c2")
    assert agent.look(late).crowded is None
    assert agent.book.claims["c1"].state == "arriving"


def test_a_guest_that_has_left_is_forgotten_with_the_last_claim_that_is_remembered_of_it(agent: AtWork) -> None:
    agent.granted(asked("c1", "a", pinned(1)))
    agent.claims.forget(uuid_of("a"), "h2")
    agent.look(after_s=6 * DAY_S)
    assert uuid_of("a") in agent.book.departures
    agent.look(after_s=2 * DAY_S)
    assert not agent.book.departures


def test_a_guest_that_has_left_is_not_forgotten_while_it_is_defined_here(agent: AtWork) -> None:
    off = guest("a", state="shut-off")
    agent.look(off)
    agent.claims.forget(uuid_of("a"), "h2")
    agent.look(off, after_s=30 * DAY_S)
    assert uuid_of("a") in agent.book.departures
