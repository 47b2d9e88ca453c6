"""The journal on a real disk: durable, never half written, readable after anything."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.adapters.journal import FILE, LAST_GOOD_FILE, STARTS_TO_SKIP, Store
from agent.core.conflicts import Since
from agent.errors import JournalError

CHECKOUT = Path(__file__).parents[2]
SINCE = {
    "cpu-pinned-twice:cpu:3": Since(at="2026-11-30T12:00:00Z", owners=("uuid-a", "uuid-b")),
    "device-twice:pci:0000:3b:00.1": Since(at="2026-11-29T08:00:00Z"),
}
LATER = Since(at="2026-11-30T13:00:00Z", owners=("uuid-c",))


def stored(folder: Path) -> dict[str, str]:
    """The dates on the disk, as another process sees them."""
    with contextlib.closing(sqlite3.connect(folder / FILE)) as database:
        return dict(database.execute("SELECT id, since FROM conflict").fetchall())


def repair_told(caplog: pytest.LogCaptureFixture) -> str:
    """The one line about what was found at opening."""
    (record,) = (one for one in caplog.records if one.levelname == "ERROR")
    return record.getMessage()


def test_an_agent_keeps_its_id_and_counts_its_starts(tmp_path: Path) -> None:
    seen = []
    for boot in ("boot-1", "boot-1", "boot-2"):
        journal = Store.open(tmp_path)
        seen.append(journal.begin(boot))
        journal.close()
    assert [one.epoch for one in seen] == [1, 2, 3]
    assert [one.boot_id for one in seen] == ["boot-1", "boot-1", "boot-2"]
    assert len({one.agent_id for one in seen}) == 1


def test_two_agents_have_two_ids(tmp_path: Path) -> None:
    assert Store.open(tmp_path / "a").begin("b").agent_id != Store.open(tmp_path / "b").begin("b").agent_id


def test_dates_of_conflicts_are_replaced_as_a_whole_and_outlive_the_daemon(tmp_path: Path) -> None:
    journal = Store.open(tmp_path)
    journal.remember_conflicts(SINCE)
    later = {"cpu-pinned-twice:cpu:3": SINCE["cpu-pinned-twice:cpu:3"], "device-twice:mdev:u": LATER}
    journal.remember_conflicts(later)
    journal.close()
    assert Store.open(tmp_path).conflict_since() == later


def test_the_same_dates_again_are_not_written_again(tmp_path: Path) -> None:
    journal = Store.open(tmp_path)
    journal.remember_conflicts(SINCE)
    size = (tmp_path / f"{FILE}-wal").stat().st_size
    for _ in range(50):
        journal.remember_conflicts(dict(SINCE))
    assert (tmp_path / f"{FILE}-wal").stat().st_size == size


def test_a_write_that_fails_in_the_middle_leaves_what_was_stored_and_the_next_one_works(tmp_path: Path) -> None:
    journal = Store.open(tmp_path)
    journal.remember_conflicts(SINCE)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as other:
        other.execute(
            "CREATE TRIGGER t BEFORE INSERT ON conflict WHEN NEW.id = 'z' BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    with pytest.raises(JournalError, match="cannot store since when conflicts stand: no"):
        journal.remember_conflicts({"a": LATER, "z": LATER})
    assert stored(tmp_path) == {row: its.at for row, its in SINCE.items()}
    journal.remember_conflicts({"a": LATER})
    assert stored(tmp_path) == {"a": LATER.at}
    journal.close()


def test_a_journal_that_somebody_else_has_locked_fails_the_write_and_works_again_later(tmp_path: Path) -> None:
    journal = Store.open(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalError, match="database is locked"):
            journal.remember_conflicts(SINCE)
    journal.remember_conflicts(SINCE)
    assert stored(tmp_path) == {row: its.at for row, its in SINCE.items()}
    journal.close()


# --- killed in the middle ------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
from agent.adapters.journal import Store
from agent.core.conflicts import Since
journal = Store.open(Path(sys.argv[1]))
print(journal.begin("b").epoch, flush=True)
n = 0
while True:
    n += 1
    journal.remember_conflicts({f"c{i}": Since(at=str(n), owners=(str(n),)) for i in range(40)})
    print(n, flush=True)
"""


def test_what_was_told_is_stored_and_nothing_is_half_stored_after_kill_9(tmp_path: Path) -> None:
    for run in range(1, 6):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, cwd=CHECKOUT, text=True
        )
        assert writer.stdout is not None
        assert int(writer.stdout.readline()) == run
        told = [int(writer.stdout.readline()) for _ in range(3 + run * 7)]
        writer.send_signal(signal.SIGKILL)
        told += [int(line) for line in writer.stdout.read().splitlines()]
        writer.wait()
        writer.stdout.close()
        journal = Store.open(tmp_path)
        assert journal.problem is None
        stored = journal.conflict_since()
        assert set(stored) == {f"c{i}" for i in range(40)}
        assert len(set(stored.values())) == 1
        assert stored["c0"].owners == (stored["c0"].at,)
        assert int(stored["c0"].at) in {told[-1], told[-1] + 1}  # stored, and killed before it was told
        journal.close()


# --- damaged files -------------------------------------------------------------------------------


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A folder with a journal of one start and two conflicts, closed well."""
    journal = Store.open(tmp_path)
    journal.begin("b")
    journal.remember_conflicts(SINCE)
    journal.close()
    return tmp_path


def noise(folder: Path) -> None:
    """No database at all."""
    (folder / FILE).write_bytes(b"no database" * 1000)


def cut(folder: Path) -> None:
    """The last 30 percent are gone."""
    whole = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(whole[: len(whole) * 7 // 10])


def zeros(folder: Path) -> None:
    """All but the first page is zeros, as some file systems leave it after a power loss."""
    whole = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(whole[:4096] + bytes(len(whole) - 4096))


def foreign(folder: Path) -> None:
    """A database of somebody else."""
    (folder / FILE).unlink()
    with sqlite3.connect(folder / FILE) as database:
        database.execute("CREATE TABLE identity (something)")
    database.close()


@pytest.mark.parametrize("damage", [noise, cut, zeros, foreign])
def test_a_damaged_journal_is_kept_aside_and_its_last_good_copy_takes_over(
    damage: Callable[[Path], None], closed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = Store.open(closed)
    identity = first.begin("b")
    first.close()
    damage(closed)
    harmed = (closed / FILE).read_bytes()
    journal = Store.open(closed, wall=lambda: 1796040000.0)
    aside = closed / f"{FILE}.damaged-20261130T120000Z"
    assert aside.read_bytes() == harmed
    assert repair_told(caplog).startswith(f"journal {closed / FILE} was damaged (")
    assert f"is kept as {aside}; its copy of " in repair_told(caplog)
    assert journal.conflict_since() == SINCE
    again = journal.begin("b")
    assert (again.agent_id, again.epoch) == (identity.agent_id, identity.epoch + STARTS_TO_SKIP + 1)
    assert journal.problem is None, "it keeps what comes from now on"
    journal.close()


@pytest.mark.parametrize("loss", ["emptied", "removed"])
def test_a_journal_that_is_empty_or_gone_comes_back_from_its_copy(
    loss: str, closed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if loss == "emptied":
        (closed / FILE).write_bytes(b"")
    else:
        (closed / FILE).unlink()
    journal = Store.open(closed)
    assert repair_told(caplog).startswith(f"journal {closed / FILE} was missing or empty; its copy of ")
    assert journal.conflict_since() == SINCE


def test_bytes_behind_the_end_of_the_journal_do_no_harm(closed: Path) -> None:
    with (closed / FILE).open("ab") as file:
        file.write(b"left from a longer version" * 300)
    journal = Store.open(closed)
    assert (journal.conflict_since(), journal.begin("b").epoch) == (SINCE, 2)


def test_without_a_sound_copy_a_new_journal_is_begun_and_says_so(
    closed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    noise(closed)
    shutil.copy(closed / FILE, closed / LAST_GOOD_FILE)
    journal = Store.open(closed)
    assert "cannot be read either" in repair_told(caplog)
    assert repair_told(caplog).endswith(
        "a new one was begun: the agent has a new id, conflicts count from now, and no claim is known."
    )
    assert (journal.begin("b").epoch, journal.conflict_since()) == (1, {})


def test_two_damages_in_one_second_keep_both_files(closed: Path) -> None:
    for _ in range(2):
        noise(closed)
        Store.open(closed, wall=lambda: 0.0).close()
    kept = sorted(path.name for path in closed.glob("*.damaged-*"))
    assert kept == [f"{FILE}.damaged-19700101T000000Z", f"{FILE}.damaged-19700101T000000Z-1"]


@pytest.mark.parametrize("loss", [noise, lambda folder: (folder / FILE).unlink()])
def test_the_log_beside_a_lost_journal_is_kept_and_never_read_into_another(
    loss: Callable[[Path], None], closed: Path
) -> None:
    loss(closed)
    (closed / f"{FILE}-wal").write_bytes(b"log")
    journal = Store.open(closed, wall=lambda: 0.0)
    assert (closed / f"{FILE}.damaged-19700101T000000Z-wal").read_bytes() == b"log"
    assert journal.conflict_since() == SINCE


def test_a_log_that_holds_everything_makes_a_damaged_file_good_again(
    closed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    crashed = closed.with_name("crashed")
    crashed.mkdir()
    journal = Store.open(crashed)
    journal.remember_conflicts(SINCE)
    for ending in ("", "-wal"):  # what a power cut would leave
        shutil.copy(crashed / f"{FILE}{ending}", closed / f"{FILE}{ending}")
    noise(closed)
    reopened = Store.open(closed)
    assert (caplog.records, reopened.conflict_since()) == ([], SINCE)


# --- full and read-only disks --------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KiB of its own."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> Path:
    """Leave no byte free; the file that does it."""
    path = folder / "guest.log"
    with path.open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return path


def test_a_full_disk_fails_the_write_with_its_cause_and_keeps_what_was_stored(small_disk: Path) -> None:
    journal = Store.open(small_disk)
    identity = journal.begin("b")
    journal.remember_conflicts(SINCE)
    filler = fill(small_disk)
    many = {f"conflict-{n}": LATER for n in range(5000)}
    with pytest.raises(JournalError, match=r"cannot store since when conflicts stand: .*(full|I/O)"):
        journal.remember_conflicts(many)
    assert journal.conflict_since() == SINCE
    filler.unlink()
    journal.remember_conflicts({"after": LATER})
    journal.close()
    reopened = Store.open(small_disk)
    assert reopened.problem is None
    assert reopened.conflict_since() == {"after": LATER}
    assert reopened.begin("b").epoch == identity.epoch + 1
    reopened.close()


def test_a_start_on_a_full_disk_is_told_and_works_once_there_is_room(small_disk: Path) -> None:
    filler = fill(small_disk)
    with pytest.raises(JournalError, match=f"The journal cannot .*{FILE}"):
        Store.open(small_disk)
    filler.unlink()
    journal = Store.open(small_disk)
    assert (journal.problem, journal.begin("b").epoch) == (None, 1)
    journal.close()


def test_a_disk_that_became_read_only_fails_the_write_and_still_tells_who_this_is(small_disk: Path) -> None:
    journal = Store.open(small_disk)
    identity = journal.begin("b")
    # a file open for writing keeps a file system from becoming read-only: mount the same one again, elsewhere
    seen_elsewhere = small_disk.with_name("read-only")
    seen_elsewhere.mkdir()
    journal.close()
    subprocess.run(["mount", "--bind", small_disk, seen_elsewhere], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", seen_elsewhere], check=True)
        with pytest.raises(JournalError, match="state folder"):
            Store.open(seen_elsewhere).begin("b")
    finally:
        subprocess.run(["umount", "--lazy", seen_elsewhere], check=True)
    reopened = Store.open(small_disk)
    assert reopened.begin("b").epoch == identity.epoch + 1
    reopened.close()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="Check space, permissions and mount options"):
        Store.open(tmp_path / "file" / "state")


def test_a_copy_is_complete_before_it_takes_its_name(closed: Path) -> None:
    copy = Store.open(closed)
    copy.begin("b")
    with sqlite3.connect(f"file:{closed / LAST_GOOD_FILE}?mode=ro&immutable=1", uri=True) as database:
        assert database.execute("SELECT epoch FROM identity").fetchall() == [(2,)]
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()
    assert not list(closed.glob("*.new"))
