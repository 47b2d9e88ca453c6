"""What the service leaves behind when it cannot be made, and when it is asked how it is."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from agent import conf
from agent.adapters.journal import FILE, SCHEMA_VERSION, StateLock, Store
from agent.errors import ConfigError, JournalTooNew
from agent.service import Service

CHECKOUT = Path(__file__).parents[2]


def arguments(folder: Path) -> list[str]:
    """Of a service on a recorded host, with all that it makes in this folder."""
    (folder / "root/sys").mkdir(parents=True)
    (folder / "agent.conf").write_text("")
    words = ["--config-file", str(folder / "agent.conf"), "--state-path", str(folder / "state")]
    return [*words, "--socket-dir", str(folder / "sock"), "--sysfs-root", str(folder / "root")]


def test_a_journal_that_is_too_new_leaves_the_state_folder_free(tmp_path: Path) -> None:
    words = arguments(tmp_path)
    Store.open(tmp_path / "state").close()
    database = sqlite3.connect(tmp_path / "state" / FILE)
    database.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    database.close()
    with pytest.raises(JournalTooNew):
        Service(conf.load(words), words)
    StateLock(tmp_path / "state").release()


def test_sockets_that_cannot_be_made_leave_nothing_behind(tmp_path: Path) -> None:
    words = arguments(tmp_path)
    (tmp_path / "sock").write_text("in the way")
    service = Service(conf.load(words), words)
    with pytest.raises(ConfigError, match="cannot be made"):
        service.run()
    StateLock(tmp_path / "state").release()
    assert not list((tmp_path / "state").glob("*-wal")), "the journal was closed"


def test_without_a_serving_local_api_it_counts_as_stuck(tmp_path: Path) -> None:
    code = (
        "import sys; from agent import conf; from agent.service import Service\n"
        "print(Service(conf.load(sys.argv[1:]), sys.argv[1:]).why_stuck())\n"
    )
    command = [sys.executable, "-c", code, *arguments(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=CHECKOUT)
    assert done.stdout == "the local API has ended: see the log, restart compute-agent\n"
