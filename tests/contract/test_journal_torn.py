"""Files that a power cut, a bad disk or a careless hand left torn: the rows of some commit, or damage that is told."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from agent.adapters.journal import FILE, LAST_GOOD_FILE, MARK_FILE, Store
from agent.core.claim.values import Record
from agent.core.conflicts import Since
from agent.errors import JournalTooNew
from agent.formats.journal_rows import to_row, to_step_row
from tests.builders_journal import claim_of, gone, record_of, step_of

Rows = tuple[Record, ...]
SECTOR = 512
FRAME = 24 + 4096
LOG_HEADER = 32
VERSION_AT = range(60, 64)
"""Where sqlite has the number of the schema."""


class Killed(NamedTuple):
    """What an agent had on its disk when it was killed. copied: rows of its last good copy. commits: the rows after
    each commit that may be in its log only, the first being what the file itself has. older: that file before."""

    folder: Path
    copied: Rows
    commits: tuple[Rows, ...]
    older: bytes

    @property
    def file(self) -> Path:
        return self.folder / FILE

    @property
    def log(self) -> Path:
        return self.folder / f"{FILE}-wal"


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """Ten claims in the file, five commits in the log."""
    alive, folder = (tmp_path_factory.mktemp("journal") / name for name in ("alive", "killed"))
    store = Store.open(alive)
    store.begin("b")
    store.write([to_row(record_of(claim_of(number))) for number in range(4)], [])
    store.close()
    older = (alive / FILE).read_bytes()
    store = Store.open(alive)
    store.begin("b")
    copied = store.load().records
    store.write([to_row(record_of(claim_of(number))) for number in range(10)], [to_step_row(step_of(1))])
    store.remember_conflicts({"cpu-pinned-twice:cpu:3": Since(at="2026-11-30T12:00:00Z")})
    store.make_room()  # which folds the log into the file
    commits = [store.load().records]
    for number in range(5):
        changed = record_of(claim_of(number, state="overdue"))
        rows = [to_row(changed), to_row(record_of(claim_of(20 + number))), to_row(gone(claim_of(9 - number)))]
        store.write(rows, [to_step_row(step_of(2 + number))])
        commits.append(store.load().records)
    shutil.copytree(alive, folder)  # while it is open, as a kill leaves it
    (folder / MARK_FILE).unlink()  # as after a power cut: nobody has synced it
    store.close()
    return Killed(folder, copied, tuple(commits), older)


@pytest.fixture
def torn(killed: Killed, tmp_path: Path) -> Iterator[Killed]:
    """A copy of it that a test may tear, in memory where that is possible: hundreds of starts need no real disk."""
    memory = Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        made = killed._replace(folder=Path(folder) / "torn")
        shutil.copytree(killed.folder, made.folder)
        yield made


def anew(torn: Killed, killed: Killed) -> None:
    """Put back what was torn, and forget what became of it."""
    shutil.rmtree(torn.folder)
    shutil.copytree(killed.folder, torn.folder)


def started(torn: Killed) -> tuple[Rows, str | None]:
    """What the next start finds, which also has to work with it."""
    store = Store.open(torn.folder)
    records, _, damaged = store.load()
    store.begin("b")
    store.conflict_since()
    store.write([to_row(record_of(claim_of(99)))], [to_step_row(step_of(99))])
    store.close()
    return records, damaged


def check(torn: Killed, allowed: tuple[Rows, ...], where: str) -> bool:
    """Whether damage was told; if not, the rows are those of an allowed commit."""
    records, damaged = started(torn)
    if damaged is None:
        assert records in allowed, where
        return False
    assert records == torn.copied, where
    assert len(list(torn.folder.glob(f"{FILE}.damaged-*Z"))) == 1, where
    return True


def cuts(size: int, step: int, seed: int, first: int = 0) -> list[int]:
    """Lengths around each boundary, and some of any kind."""
    near = {at + off for at in (0, *range(first, size + 1, step)) for off in (-1, 0, 1)}
    by_chance = random.Random(seed)
    return sorted({at for at in near if 0 <= at <= size} | {by_chance.randrange(size) for _ in range(25)})


def test_what_was_killed_and_not_torn_has_every_commit(torn: Killed) -> None:
    assert started(torn) == (torn.commits[-1], None)


def used(log: bytes) -> int:
    """Bytes of a log up to the room that it was given and has not used."""
    frames = -(-(len(log.rstrip(b"\0")) - LOG_HEADER) // FRAME)
    return LOG_HEADER + frames * FRAME


def test_a_log_cut_anywhere_has_all_commits_up_to_one(killed: Killed, torn: Killed) -> None:
    whole = killed.log.read_bytes()
    found = set()
    for length in cuts(used(whole), FRAME, seed=1, first=LOG_HEADER):
        anew(torn, killed)
        torn.log.write_bytes(whole[:length])
        records, damaged = started(torn)
        assert damaged is None, length
        found.add(torn.commits.index(records))
    assert found == set(range(len(torn.commits))), "each commit was the last one somewhere"


def test_a_log_with_a_sector_of_zeros_has_all_commits_up_to_one(killed: Killed, torn: Killed) -> None:
    whole = killed.log.read_bytes()
    for at in range(0, used(whole), SECTOR * 5):
        anew(torn, killed)
        torn.log.write_bytes(whole[:at] + bytes(SECTOR) + whole[at + SECTOR :])
        assert not check(torn, torn.commits, f"sector at {at}")


def test_a_file_cut_anywhere_is_whole_by_its_log_or_damaged(killed: Killed, torn: Killed) -> None:
    whole = killed.file.read_bytes()
    for length in cuts(len(whole), 4096, seed=2):
        anew(torn, killed)
        torn.file.write_bytes(whole[:length])
        check(torn, (torn.commits[-1],), f"cut to {length}")


@pytest.mark.parametrize("has_log", [True, False])
def test_a_file_with_a_sector_of_zeros_or_of_before_is_whole_or_damaged(
    has_log: bool, killed: Killed, torn: Killed
) -> None:
    whole = killed.file.read_bytes()
    allowed = torn.commits[-1:] if has_log else torn.commits[:1]
    told = 0
    for at in range(0, len(whole), SECTOR):
        for sector in (bytes(SECTOR), killed.older[at : at + SECTOR]):
            if sector in (b"", whole[at : at + SECTOR]):
                continue
            anew(torn, killed)
            torn.file.write_bytes(whole[:at] + sector + whole[at + SECTOR :])
            if not has_log:
                torn.log.unlink()
            told += check(torn, allowed, f"sector at {at}")
    assert told > 3


def test_a_whole_page_of_before_is_noticed_though_sqlite_finds_it_sound(killed: Killed, torn: Killed) -> None:
    """A write that the disk has dropped, which the log can no longer make good."""
    whole = killed.file.read_bytes()
    for at in range(0, len(killed.older), 4096):
        page = killed.older[at : at + 4096]
        if page != whole[at : at + 4096]:
            anew(torn, killed)
            torn.log.unlink()
            torn.file.write_bytes(whole[:at] + page + whole[at + 4096 :])
            check(torn, torn.commits[:1], f"page at {at}")


def test_no_bit_that_flips_makes_a_row_that_was_never_written(killed: Killed, torn: Killed) -> None:
    whole = killed.file.read_bytes()
    by_chance = random.Random(3)
    for at in [*range(100), *(by_chance.randrange(len(whole)) for _ in range(150))]:
        anew(torn, killed)
        torn.log.unlink()
        flipped = bytes([whole[at] ^ (1 << by_chance.randrange(8))])
        torn.file.write_bytes(whole[:at] + flipped + whole[at + 1 :])
        try:
            check(torn, torn.commits[:1], f"byte {at}")
        except JournalTooNew:
            assert at in VERSION_AT


def test_a_copy_that_is_torn_too_is_not_taken(killed: Killed, torn: Killed) -> None:
    whole = (killed.folder / LAST_GOOD_FILE).read_bytes()
    for length in cuts(len(whole) - 1, 4096, seed=4):
        anew(torn, killed)
        torn.file.write_bytes(b"no database" * 1000)
        (torn.folder / LAST_GOOD_FILE).write_bytes(whole[:length])
        records, damaged = started(torn)
        assert (records, damaged is not None) == ((), True), length
