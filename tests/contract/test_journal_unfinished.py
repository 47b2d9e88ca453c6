"""A journal in the making when the power failed: sqlite has begun, and only who may write can undo that."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

from agent.adapters.journal import FILE, Store


def left_unfinished(folder: Path) -> None:
    """A file that is being made, with what undoes it beside: as sqlite has them before the file has a log."""
    made = folder.with_name("made")
    made.mkdir()
    folder.mkdir()
    with contextlib.closing(sqlite3.connect(made / FILE, isolation_level=None)) as database:
        database.execute("PRAGMA cache_size = 1")
        database.execute("BEGIN IMMEDIATE")
        database.execute("CREATE TABLE filler (text TEXT)")
        database.executemany("INSERT INTO filler VALUES (?)", [("x" * 4000,)] * 100)
        for name in (FILE, f"{FILE}-journal"):
            shutil.copyfile(made / name, folder / name)


def test_a_journal_that_was_in_the_making_when_the_power_failed_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    left_unfinished(folder)
    store = Store.open(folder)
    identity = store.begin("boot")
    assert (store.problem, store.load().damaged, identity.epoch) == (None, None, 1)
    store.close()
    again = Store.open(folder)
    assert again.begin("boot").agent_id == identity.agent_id
    again.close()
