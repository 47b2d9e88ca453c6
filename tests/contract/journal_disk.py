"""A real store whose disk does as it is told."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from agent.adapters.journal import Store
from agent.core.conflicts import Since
from agent.formats.journal_rows import Row, StepRow

PATIENCE_S = 60.0


class Disk:
    """A real store, each write of which waits for `go` and then fails with `fault` if there is one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.fault: Exception | None = None
        self.writes: list[Mapping[str, Since]] = []
        self.transactions: list[tuple[tuple[str, ...], tuple[int, ...]]] = []
        self.closed_in: str | None = None

    @property
    def problem(self) -> str | None:
        return self._store.problem

    def remember_conflicts(self, since: Mapping[str, Since]) -> None:
        self.begun.release()
        assert self.go.acquire(timeout=PATIENCE_S)
        self.writes.append(since)
        if self.fault is not None:
            raise self.fault
        self._store.remember_conflicts(since)

    def write(self, rows: Sequence[Row], steps: Sequence[StepRow]) -> None:
        self.begun.release()
        assert self.go.acquire(timeout=PATIENCE_S)
        self.transactions.append((tuple(row.key for row in rows), tuple(step.sequence for step in steps)))
        if self.fault is not None:
            raise self.fault
        self._store.write(rows, steps)

    def check_room(self) -> None:
        self._store.check_room()

    def make_room(self) -> None:
        self._store.make_room()

    def accept_damage(self) -> None:
        self._store.accept_damage()

    def check(self) -> None:
        self._store.check()

    def upkeep(self) -> float | None:
        return self._store.upkeep()

    def close(self) -> None:
        self._store.close()
        self.closed_in = threading.current_thread().name
