"""What the journal's thread is asked to write, and what of it is still to be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from agent.adapters.journal.store import STEPS_KEPT
from agent.core.claim.values import Record, Step
from agent.formats.journal_rows import Row, StepRow, to_row, to_step_row

OnDone = Callable[[str | None], None]
"""Is told None once all of it is on the disk, else in one sentence why it is not."""


class Write(NamedTuple):
    """One change of the books. is_taker: it counts only once it is stored. is_lazy: it may wait for another write."""

    records: tuple[Record, ...]
    steps: tuple[Step, ...]
    is_taker: bool
    is_lazy: bool
    on_done: OnDone


class Rows(NamedTuple):
    """A change as it is written."""

    rows: tuple[Row, ...]
    steps: tuple[StepRow, ...]


def rows_of(write: Write) -> Rows:
    """Raises WireError for what cannot be written."""
    return Rows(tuple(map(to_row, write.records)), tuple(map(to_step_row, write.steps)))


class Backlog:
    """Several changes in their order, for one transaction: the newest row of a kind and key counts."""

    def __init__(self, *changes: Rows) -> None:
        self._rows: dict[tuple[str, str], Row] = {}
        self._steps: dict[int, StepRow] = {}
        for change in changes:
            self.add(change)

    def __bool__(self) -> bool:
        return bool(self._rows or self._steps)

    def add(self, change: Rows) -> None:
        """A change that came after all that is in it."""
        self._rows.update({(row.kind, row.key): row for row in change.rows})
        self._steps.update({step.sequence: step for step in change.steps})

    def all(self) -> Rows:
        """One row of each kind and key, in the order in which these came first; no more steps than history keeps."""
        return Rows(tuple(self._rows.values()), tuple(self._steps.values())[-STEPS_KEPT:])

    def clear(self) -> None:
        """It is written."""
        self._rows.clear()
        self._steps.clear()
