"""What was measured, as a table."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from agent.core.values import Value

Direction = Literal["at most", "at least"]


class Beside(Value, frozen=True, kw_only=True):
    """What the same work costs somebody else, or ourselves in another way. value: in the row's unit. is_at_least: it
    was stopped there, before it was done."""

    what: str
    value: float
    is_at_least: bool = False


class Budget(Value, frozen=True, kw_only=True):
    """of: the measured value in its unit, or how many times cheaper it is than what stands beside it."""

    of: Literal["value", "ratio"]
    direction: Direction
    limit: float


class Row(Value, frozen=True, kw_only=True):
    """One measurement. value: median of `samples`. budget None: for information."""

    what: str
    value: float
    unit: str
    samples: int
    beside: Beside | None = None
    budget: Budget | None = None

    @property
    def ratio(self) -> float | None:
        """How many times cheaper than what stands beside it."""
        return None if self.beside is None else self.beside.value / self.value

    @property
    def is_missed(self) -> bool:
        """The budget is not kept."""
        if self.budget is None:
            return False
        found = self.value if self.budget.of == "value" else self.ratio
        if found is None:
            return True
        return found > self.budget.limit if self.budget.direction == "at most" else found < self.budget.limit


def at_most(limit: float) -> Budget:
    """A budget in the unit of the row."""
    return Budget(of="value", direction="at most", limit=limit)


def times_cheaper(limit: float) -> Budget:
    """A budget as a ratio to what stands beside the row."""
    return Budget(of="ratio", direction="at least", limit=limit)


def median_row(
    what: str,
    samples: Sequence[float],
    unit: str,
    *,
    beside: tuple[str, Sequence[float]] | None = None,
    budget: Budget | None = None,
) -> Row:
    """A row of medians. beside: its name and samples in the same unit."""
    other = None if beside is None else Beside(what=beside[0], value=statistics.median(beside[1]))
    return Row(
        what=what,
        value=statistics.median(samples),
        unit=unit,
        samples=len(samples),
        beside=other,
        budget=budget,
    )


def milliseconds(clock: Callable[[], float], work: Callable[[], object], times: int) -> list[float]:
    """How long `work` takes by `clock`, each of so many times."""
    spent = []
    for _ in range(times):
        begun = clock()
        work()
        spent.append((clock() - begun) * 1e3)
    return spent


HEADINGS = ("what", "median of", "measured", "beside it", "ratio", "budget", "")


def table(rows: Iterable[Row]) -> str:
    """The rows as Markdown that reads well on a terminal too."""
    cells = [HEADINGS, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    lines = ["| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in cells]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0] + " |", rule, *(f"{line} |" for line in lines[1:])])


def _cells(row: Row) -> tuple[str, ...]:
    more = "> " if row.beside is not None and row.beside.is_at_least else ""
    beside = "" if row.beside is None else f"{row.beside.what}: {more}{_number(row.beside.value)} {row.unit}"
    ratio = "" if row.ratio is None else f"{more}{_number(row.ratio)} x"
    verdict = "" if row.budget is None else "MISS" if row.is_missed else "ok"
    return (row.what, str(row.samples), f"{_number(row.value)} {row.unit}", beside, ratio, _budget(row), verdict)


def _budget(row: Row) -> str:
    if row.budget is None:
        return ""
    unit = row.unit if row.budget.of == "value" else "x"
    return f"{row.budget.direction} {row.budget.limit:g} {unit}"


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
