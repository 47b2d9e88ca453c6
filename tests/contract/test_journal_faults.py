"""The journal on disks that really run full, become read-only, end writes in errors, hang, or lose their power."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from agent.adapters.journal import FILE, HANGS, HANGS_AFTER_S, Journal, Store
from agent.core.claim.values import Record
from tests.builders_journal import claim_of, gone, record_of, step_of
from tests.contract.journal_mounts import Loop, Tmpfs, fill, need_mounts
from tests.functional.lab import wait_until

PATIENCE_S = 60.0


class Agent:
    """A journal in a folder, and what was answered to each change, by its name and in the order of the answers."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.folder = folder
        self.store = Store.open(folder)
        self.store.begin("b")
        self.journal = Journal(self.store, clock=lambda: self.now)
        self.answers: dict[str, str | None] = {}
        self._steps = itertools.count(1)

    def ask(self, name: str, *records: Record, is_taker: bool = True) -> threading.Event:
        """Have it stored; the event is set once that is answered."""
        answered = threading.Event()

        def note(outcome: str | None) -> None:
            self.answers[name] = outcome
            answered.set()

        self.journal.write(records, (step_of(next(self._steps)),), is_taker=is_taker, on_done=note)
        return answered

    def write(self, name: str, *records: Record, is_taker: bool = True) -> str | None:
        """The answer."""
        assert self.ask(name, *records, is_taker=is_taker).wait(PATIENCE_S)
        return self.answers[name]

    def wait_well(self) -> None:
        """The journal's own retry is by the clock that moves by hand."""

        def is_well() -> bool:
            self.now += 1.0
            self.journal.check()
            return self.journal.problem is None

        wait_until(is_well, "the journal to be well again", PATIENCE_S)

    def leave(self) -> None:
        self.journal.close(PATIENCE_S)


def claim(number: int, state: str = "reserved") -> Record:
    return record_of(claim_of(number, state=state))


def large(number: int) -> Record:
    """A claim of more than a MiB."""
    return record_of(msgspec.structs.replace(claim_of(number), reason="x" * (1 << 20)))


def found(folder: Path) -> set[str]:
    """Keys of the rows that the next start finds, which is not damaged."""
    store = Store.open(folder)
    records, _, damaged = store.load()
    store.close()
    assert damaged is None
    return {record.key for record in records}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Tmpfs]:
    """Two MiB."""
    need_mounts()
    made = Tmpfs(tmp_path / "small", size_kib=2048)
    yield made
    made.remove()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Loop]:
    """An ext4 file system that can hang and become read-only."""
    need_mounts("mkfs.ext4", "fsfreeze")
    made = Loop(tmp_path / "image", tmp_path / "disk", 16 << 20)
    yield made
    made.remove()


class Thin(Loop):
    """A disk that has promised more than the one below it has left."""

    def __init__(self, below: Tmpfs, folder: Path) -> None:
        super().__init__(below.folder / "image", folder, 16 << 20, journaled=False)
        self.below = below
        self.image = below.folder / "image"

    def fail(self) -> Path:
        """From now on writes to blocks that it never had end in I/O errors; remove the file to end that.

        What describes the files is written before: without a journal this file system would not survive its loss.
        """
        subprocess.run(["sync", "--file-system", self.folder], check=True)
        return fill(self.below.folder)


@pytest.fixture
def thin(tmp_path: Path) -> Iterator[Thin]:
    need_mounts("mkfs.ext4")
    below = Tmpfs(tmp_path / "below", size_kib=8192)
    made = Thin(below, tmp_path / "thin")
    yield made
    made.remove()
    below.remove()


# --- full ----------------------------------------------------------------------------------------


def test_a_full_disk_takes_no_claim_and_still_stores_what_is_freed(small: Tmpfs) -> None:
    agent = Agent(small.folder)
    for number in range(12):
        assert agent.write(f"take {number}", claim(number)) is None
    filler = fill(small.folder)
    freed = [agent.write(f"free {number}", gone(claim_of(number)), is_taker=False) for number in range(12)]
    assert freed == [None] * 12
    told = str(agent.write("one more", claim(20)))
    assert told.startswith(f"The disk of {small.folder} is full, what room there is is for what frees")
    assert agent.journal.problem == told
    assert agent.write("free", gone(claim_of(20)), is_taker=False) is None
    assert agent.journal.problem == told, "what frees has room, takers have none"
    filler.unlink()
    agent.wait_well()
    assert agent.write("again", claim(21)) is None
    agent.leave()
    assert found(small.folder) == {"claim-21"}


def test_what_is_freed_in_one_transaction_with_a_claim_that_has_no_room_is_stored(small: Tmpfs) -> None:
    agent = Agent(small.folder)
    assert agent.write("take", claim(1), claim(2)) is None
    filler = fill(small.folder, leave_bytes=600 << 10)
    took, freed = agent.ask("large", large(3)), agent.ask("free", gone(claim_of(1)), is_taker=False)
    assert took.wait(PATIENCE_S)
    assert freed.wait(PATIENCE_S)
    assert "cannot store what was promised: database or disk is full" in str(agent.answers["large"])
    assert agent.answers["free"] is None
    filler.unlink()
    assert agent.write("again", large(3)) is None
    agent.leave()
    assert found(small.folder) == {"claim-2", "claim-3"}


def test_a_start_on_a_disk_that_has_run_full_knows_its_claims_and_stores_what_is_freed(small: Tmpfs) -> None:
    agent = Agent(small.folder)
    assert agent.write("take", claim(1), claim(2)) is None
    agent.leave()
    filler = fill(small.folder)
    again = Agent(small.folder)
    assert again.store.problem is None
    assert again.write("free", gone(claim_of(1)), is_taker=False) is None
    assert "nothing new is promised" in str(again.write("take", claim(3)))
    filler.unlink()
    again.leave()
    assert found(small.folder) == {"claim-2"}


# --- read-only -----------------------------------------------------------------------------------


def test_a_disk_that_the_kernel_has_made_read_only_takes_nothing_and_all_told_before_is_there(disk: Loop) -> None:
    agent = Agent(disk.folder)
    assert agent.write("take", claim(1), claim(2)) is None
    disk.abort()
    told = [agent.write("take more", claim(3)), agent.write("free", gone(claim_of(1)), is_taker=False)]
    assert all("cannot store what was promised: " in str(one) for one in told), told
    assert agent.journal.problem in told
    agent.leave()
    unstored = Store.unstored(disk.folder, "The disk is read-only.")
    records, sequence, damaged = unstored.load()
    assert ({record.key for record in records}, sequence, damaged) == ({"claim-1", "claim-2"}, 1, None)


# --- I/O errors and power cuts -------------------------------------------------------------------


@contextlib.contextmanager
def after_power_cut(thin: Thin, folder: Path) -> Iterator[Path]:
    """The state folder as it is on what the disk really has, without all that the kernel still has to write."""
    image = folder / "as-it-was-cut"
    shutil.copyfile(thin.image, image)
    (folder / "cut").mkdir()
    subprocess.run(["mount", "-o", "loop", image, folder / "cut"], check=True)
    try:
        yield folder / "cut"
    finally:
        subprocess.run(["umount", "--lazy", folder / "cut"], check=True)


def test_every_claim_that_was_answered_is_on_the_disk_when_the_power_is_cut(thin: Thin, tmp_path: Path) -> None:
    agent = Agent(thin.folder)
    events = [agent.ask(f"take {number}", claim(number)) for number in range(40)]
    assert events[20].wait(PATIENCE_S)
    told = {name for name, outcome in list(agent.answers.items()) if outcome is None}
    with after_power_cut(thin, tmp_path) as cut:
        assert {f"take {key.partition('-')[2]}" for key in found(cut)} >= told
    agent.leave()


def test_an_io_error_drops_the_claim_and_the_next_commit_is_whole_also_after_a_power_cut(
    thin: Thin, tmp_path: Path
) -> None:
    agent = Agent(thin.folder)
    assert agent.write("take 1", claim(1)) is None
    filler = thin.fail()
    number, told = 1, None
    while told is None:
        number += 1
        told = agent.write(f"take {number}", claim(number))
    assert "disk I/O error" in told
    assert agent.journal.problem is not None
    agent.write("free", gone(claim_of(1)), is_taker=False)  # may find blocks that the disk has
    stored = {f"claim-{n}" for n in range(2, number)} | {"claim-99"}
    filler.unlink()
    assert agent.write("undo", gone(claim_of(number)), is_taker=False) is None
    assert agent.write("take", claim(99)) is None
    with after_power_cut(thin, tmp_path) as cut:
        assert found(cut) == stored
    agent.leave()
    assert found(thin.folder) == stored


# --- a disk that hangs ---------------------------------------------------------------------------


def test_while_the_disk_hangs_nobody_who_asks_waits_and_all_is_stored_in_order_once_it_goes_on(disk: Loop) -> None:
    agent = Agent(disk.folder)
    assert agent.write("first", claim(0)) is None
    disk.hang()
    events = [agent.ask(f"n{number}", claim(number), is_taker=number % 2 == 0) for number in range(1, 31)]
    agent.journal.check()
    assert agent.journal.problem is None

    def is_hung() -> bool:
        agent.now += HANGS_AFTER_S / 2  # the write begins at some moment of this clock
        return agent.journal.problem == HANGS

    wait_until(is_hung, "the disk to be named", PATIENCE_S)
    assert agent.answers == {"first": None}
    disk.go_on()
    for event in events:
        assert event.wait(PATIENCE_S)
    assert list(agent.answers.items()) == [("first", None), *((f"n{number}", None) for number in range(1, 31))]
    agent.leave()
    assert found(disk.folder) == {f"claim-{number}" for number in range(31)}


def test_a_close_leaves_a_disk_that_hangs_alone(disk: Loop, caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent(disk.folder)
    disk.hang()
    event = agent.ask("take", claim(1))
    agent.journal.close(0.5)
    assert [record.getMessage() for record in caplog.records] == [
        "the journal is left as it is, its disk does not answer"
    ]
    assert not event.is_set()
    disk.go_on()
    assert event.wait(PATIENCE_S)
    agent.leave()
    assert found(disk.folder) == {"claim-1"}
    assert (disk.folder / FILE).exists()
