"""A journal that lacks what was stored last, which sqlite takes for a whole one: told until it is accepted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.adapters.journal import FILE, MARK_FILE, Store
from agent.core.claim.values import Record
from agent.formats.journal_rows import to_row, to_step_row
from tests.builders_journal import claim_of, record_of, step_of

LOG = f"{FILE}-wal"
LOG_HEADER, FRAME = 32, 24 + 4096


def written(store: Store, *numbers: int) -> None:
    """A commit for each."""
    for number in numbers:
        store.write([to_row(record_of(claim_of(number)))], [to_step_row(step_of(number))])


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A folder as a kill leaves it, with five claims of which the file itself has none."""
    alive, folder = tmp_path / "alive", tmp_path / "killed"
    store = Store.open(alive)
    store.begin("b")
    written(store, 1, 2, 3, 4, 5)
    shutil.copytree(alive, folder)
    store.close()
    return folder


def found(folder: Path) -> tuple[tuple[Record, ...], str | None]:
    """What the next start finds."""
    store = Store.open(folder)
    records, _, damaged = store.load()
    store.begin("b")
    store.close()
    return records, damaged


def flip(file: Path, at: int) -> None:
    """Turn a byte."""
    data = bytearray(file.read_bytes())
    data[at] ^= 0x10
    file.write_bytes(data)


def last_commit(folder: Path) -> int:
    """Where the last frame of the log that has anything in it begins."""
    frames = -(-(len((folder / LOG).read_bytes().rstrip(b"\0")) - LOG_HEADER) // FRAME)
    return LOG_HEADER + (frames - 1) * FRAME


def cut(file: Path, at: int) -> None:
    """Leave so many bytes."""
    file.write_bytes(file.read_bytes()[:at])


def remove_all(folder: Path) -> None:
    """The journal and its copy."""
    for file in folder.glob("journal*.sqlite*"):
        file.unlink()


TEARS: dict[str, Callable[[Path], None]] = {
    "log gone": lambda folder: (folder / LOG).unlink(),
    "log empty": lambda folder: cut(folder / LOG, 0),
    "log cut in its last commit": lambda folder: cut(folder / LOG, last_commit(folder)),
    "first frame flipped": lambda folder: flip(folder / LOG, LOG_HEADER + 100),
    "last frame flipped": lambda folder: flip(folder / LOG, last_commit(folder) + 100),
    "journal gone altogether": remove_all,
}


def test_what_was_killed_and_not_torn_is_whole(killed: Path) -> None:
    records, damaged = found(killed)
    assert (len(records), damaged) == (5, None)


@pytest.mark.parametrize("tear", TEARS)
def test_what_was_stored_last_and_is_gone_is_told_over_starts_until_it_is_accepted(killed: Path, tear: str) -> None:
    TEARS[tear](killed)
    records, damaged = found(killed)
    assert len(records) < 5
    assert damaged is not None
    assert "step 5 had been stored" in damaged
    assert found(killed) == (records, damaged)
    store = Store.open(killed)
    store.begin("b")
    store.accept_damage()
    store.close()
    assert found(killed) == (records, None)


def test_no_number_of_a_step_that_was_lost_comes_again(killed: Path) -> None:
    (killed / LOG).unlink()
    store = Store.open(killed)
    assert store.load().sequence == 5
    store.close()


@pytest.mark.parametrize("content", [b"", b"no mark", b"9 9", b"00000000000000000099 0000000001\n"])
def test_a_mark_that_is_none_says_nothing(killed: Path, content: bytes) -> None:
    (killed / MARK_FILE).write_bytes(content)
    assert found(killed)[1] is None


def test_an_older_mark_as_a_power_cut_leaves_it_says_nothing(killed: Path, tmp_path: Path) -> None:
    store = Store.open(tmp_path / "other")
    store.begin("b")
    written(store, 1)
    shutil.copyfile(tmp_path / "other" / MARK_FILE, killed / MARK_FILE)
    store.close()
    records, damaged = found(killed)
    assert (len(records), damaged) == (5, None)


def test_a_disk_that_does_not_take_the_mark_takes_the_claims_all_the_same(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.begin("b")
    (tmp_path / MARK_FILE).mkdir()
    written(store, 1, 2)
    assert len(store.load().records) == 2
    store.close()
    assert found(tmp_path)[1] is None
