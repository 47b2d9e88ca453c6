"""What became of each claim, step by step, as a journal has it."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from agent.adapters.journal.files import FILE
from agent.adapters.journal.schema import row_crc
from agent.core.claim.values import Step
from agent.errors import JournalError, WireError
from agent.formats.journal_rows import from_step


def read_steps(state_path: Path, after: int = 0) -> tuple[Step, ...]:
    """Steps with a higher number than `after`, in their order; also while an agent writes there.

    Raises JournalError when the journal cannot be read, or a step is not as it was written.
    """
    file = state_path / FILE
    try:
        with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            rows = database.execute(
                "SELECT sequence, value, crc FROM step WHERE sequence > ? ORDER BY sequence", (after,)
            ).fetchall()
        return tuple(_step(*row) for row in rows)
    except (sqlite3.Error, WireError) as error:
        raise JournalError(f"The steps in {file} cannot be read: {error}.") from error


def _step(sequence: int, text: str, crc: int) -> Step:
    if row_crc(text) != crc:
        raise WireError(f"step {sequence} is not as it was written")
    return from_step(text)
