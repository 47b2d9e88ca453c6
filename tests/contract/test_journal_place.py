"""A state folder that is taken away from under the agent, or replaced, is noticed and no longer written to."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.adapters.journal import FILE, LAST_GOOD_FILE, LOCK_FILE, Journal, StateLock, Store
from agent.core.conflicts import Since
from agent.errors import JournalError
from tests.functional.lab import wait_until

FIRST, SECOND = ({"c": Since(at=f"2026-11-30T1{hour}:00:00Z")} for hour in range(2))
PATIENCE_S = 60.0


class Agent:
    """What an agent holds of its state folder."""

    def __init__(self, folder: Path) -> None:
        self.lock = StateLock(folder)
        self.store = Store.open(folder, lock=self.lock)
        self.identity = self.store.begin("boot")

    def leave(self) -> None:
        self.store.close()
        self.lock.release()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def agent(state: Path) -> Iterator[Agent]:
    made = Agent(state)
    made.store.remember_conflicts(FIRST)
    yield made
    made.leave()


def folder_away(state: Path) -> None:
    shutil.rmtree(state)


def folder_moved(state: Path) -> None:
    state.rename(state.with_name("moved"))


def folder_replaced(state: Path) -> None:
    state.rename(state.with_name("moved"))
    shutil.copytree(state.with_name("moved"), state)


def lock_away(state: Path) -> None:
    (state / LOCK_FILE).unlink()


def lock_replaced(state: Path) -> None:
    (state / LOCK_FILE).unlink()
    (state / LOCK_FILE).write_text("1\n")


def database_away(state: Path) -> None:
    (state / FILE).unlink()


def database_replaced(state: Path) -> None:
    shutil.copy(state / FILE, state / "new")
    (state / "new").rename(state / FILE)


LOSSES: list[tuple[Callable[[Path], None], str]] = [
    (folder_away, f"/{LOCK_FILE} is gone"),
    (folder_moved, f"/{LOCK_FILE} is gone"),
    (folder_replaced, f"/{LOCK_FILE} is another file"),
    (lock_away, f"/{LOCK_FILE} is gone"),
    (lock_replaced, f"/{LOCK_FILE} is another file"),
    (database_away, f"/{FILE} is gone"),
    (database_replaced, f"/{FILE} is another file"),
]


@pytest.mark.parametrize(("lose", "told"), LOSSES)
def test_a_loss_is_told_at_the_next_look_and_at_the_next_write(
    lose: Callable[[Path], None], told: str, agent: Agent, state: Path
) -> None:
    agent.store.check()
    lose(state)
    before = content(state)
    for act in (agent.store.check, lambda: agent.store.remember_conflicts(SECOND)):
        with pytest.raises(JournalError) as caught:
            act()
        assert told in str(caught.value)
        assert "restart compute-agent" in str(caught.value)
    assert content(state) == before


@pytest.mark.parametrize(("lose", "told"), LOSSES)
def test_a_close_writes_nothing_where_the_folder_is_not_its_own_any_more(
    lose: Callable[[Path], None], told: str, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent(state)
    agent.store.remember_conflicts(FIRST)
    copy = state / LAST_GOOD_FILE
    lose(state)
    before = copy.stat().st_ino if copy.exists() else None
    agent.leave()
    assert (copy.stat().st_ino if copy.exists() else None) == before
    assert [told in record.getMessage() for record in caplog.records] == [True]


def test_a_second_agent_in_a_folder_of_the_same_name_loses_nothing_when_the_first_ends(
    agent: Agent, state: Path
) -> None:
    shutil.rmtree(state)
    second = Agent(state)
    second.store.remember_conflicts(SECOND)
    before = content(state)
    assert {f"{FILE}-wal", f"{FILE}-shm"} <= before.keys()
    agent.leave()
    assert content(state) == before
    second.leave()
    assert Store.open(state).conflict_since() == SECOND
    assert Agent(state).identity.agent_id == second.identity.agent_id


def test_a_folder_that_is_put_back_is_its_own_again(agent: Agent, state: Path) -> None:
    folder_moved(state)
    with pytest.raises(JournalError):
        agent.store.remember_conflicts(SECOND)
    state.with_name("moved").rename(state)
    agent.store.remember_conflicts(SECOND)
    assert Store.open(state).conflict_since() == SECOND


def test_a_journal_that_keeps_nothing_still_looks_after_its_lock(state: Path) -> None:
    lock = StateLock(state)
    store = Store.unstored(state, "The disk is full.", lock=lock)
    store.check()
    lock_away(state)
    with pytest.raises(JournalError, match="is gone"):
        store.check()
    store.close()
    lock.release()


def test_the_thread_of_the_journal_looks_when_it_is_asked_and_tells_until_the_folder_is_back(state: Path) -> None:
    lock = StateLock(state)
    journal = Journal(Store.open(state, lock=lock))
    journal.remember_conflicts(FIRST)
    folder_moved(state)
    journal.check()
    wait_until(lambda: "is gone" in (journal.problem or ""), "the loss", PATIENCE_S)
    state.with_name("moved").rename(state)
    journal.remember_conflicts(SECOND)
    wait_until(lambda: journal.problem is None, "the end of the loss", PATIENCE_S)
    journal.close(PATIENCE_S)
    journal.check()
    lock.release()
    assert sqlite3.connect(state / FILE).execute("SELECT since FROM conflict").fetchall() == [(SECOND["c"].at,)]


def content(folder: Path) -> dict[str, bytes]:
    """Of every file, whose name is its key."""
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}
