"""One agent per state folder, whatever became of the one before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.adapters.journal import LOCK_FILE, StateLock
from agent.errors import JournalError, TwinRunning

CHECKOUT = Path(__file__).parents[2]
HOLDER = """
import sys
from pathlib import Path
from agent.adapters.journal import StateLock
lock = StateLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the lock of `tmp_path`."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=CHECKOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_twin_is_refused_by_the_number_of_the_first(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    with pytest.raises(TwinRunning) as caught:
        StateLock(tmp_path)
    assert str(caught.value) == (
        f"Another compute-agent (process {holder.pid}) uses the state folder {tmp_path}. "
        "Stop it, or give this one another folder with --state-path."
    )
    assert (tmp_path / LOCK_FILE).read_text() == f"{holder.pid}\n"


def test_the_lock_of_a_killed_agent_is_free(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    StateLock(tmp_path).release()
    assert (tmp_path / LOCK_FILE).read_text() == f"{os.getpid()}\n"


def test_a_released_lock_is_free_and_releasing_twice_is_fine(tmp_path: Path) -> None:
    lock = StateLock(tmp_path)
    with pytest.raises(TwinRunning):
        StateLock(tmp_path)
    lock.release()
    lock.release()
    StateLock(tmp_path).release()


def test_two_folders_are_two_locks(tmp_path: Path) -> None:
    locks = [StateLock(tmp_path / name) for name in ("a", "b")]
    for lock in locks:
        lock.release()


def test_a_child_of_the_agent_does_not_hold_its_lock(tmp_path: Path) -> None:
    lock = StateLock(tmp_path)
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        lock.release()
        StateLock(tmp_path).release()
        child.kill()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match=r"cannot be used: Not a directory\. Make it writable"):
        StateLock(tmp_path / "file" / "state")
