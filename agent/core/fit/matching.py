"""Bipartite matching of guest cells to host cells: rows are guest cells, bits are host cells in order of preference.

Augmenting paths (Kuhn), on masks: a row's bit n is set when host cell n will do for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agent.core.cpuset import lowest


class Shortage(NamedTuple):
    """Rows that together have too few columns to choose from (Hall): columns has fewer bits than rows has members."""

    rows: tuple[int, ...]
    columns: int


class Matching:
    """A matching that grows row by row; `column_of` gives each row's column, `row_of` the reverse."""

    def __init__(self, rows: Sequence[int]) -> None:
        self.rows = rows
        self.column_of: dict[int, int] = {}
        self.row_of: dict[int, int] = {}

    def add_row(self, row: int, columns: int) -> Shortage | None:
        """Match one more row, moving others where that helps, within these columns; None when done."""
        tried = 0
        path: list[int] = [row]
        came_from: dict[int, int] = {}
        while path:
            here = path.pop()
            open_columns = self.rows[here] & columns & ~tried
            while open_columns:
                column = lowest(open_columns)
                open_columns &= open_columns - 1
                tried |= 1 << column
                came_from[column] = here
                owner = self.row_of.get(column)
                if owner is None:
                    self._shift(column, came_from)
                    return None
                path.append(owner)
        reached = {row} | {self.row_of[column] for column in came_from}
        return Shortage(tuple(sorted(reached)), tried)

    def _shift(self, column: int, came_from: dict[int, int]) -> None:
        while True:
            row = came_from[column]
            before = self.column_of.get(row)
            self.column_of[row], self.row_of[column] = column, row
            if before is None:
                return
            column = before

    def copy(self) -> Matching:
        """One that can grow by itself."""
        copied = Matching(self.rows)
        copied.column_of, copied.row_of = dict(self.column_of), dict(self.row_of)
        return copied

    def forget(self, row: int) -> None:
        """Take a row out again."""
        del self.row_of[self.column_of.pop(row)]


def match(rows: Sequence[int], columns: int) -> Matching | Shortage:
    """Every row matched within these columns, or which rows have too few."""
    found = Matching(rows)
    for row in range(len(rows)):
        shortage = found.add_row(row, columns)
        if shortage is not None:
            return shortage
    return found


def first_match(rows: Sequence[int], columns: int) -> tuple[int, ...] | Shortage:
    """Of all ways to match every row the first: row 0 as low as it can be, then row 1, and so on.

    That is the one which trying all permutations in order would find first.
    """
    found = match(rows, columns)
    if isinstance(found, Shortage):
        return found
    left = columns
    for row in range(len(rows)):
        lower = rows[row] & left & ((1 << found.column_of[row]) - 1)
        while lower:
            column = lowest(lower)
            lower &= lower - 1
            if _moved(found, row, column, left):
                break
        left &= ~(1 << found.column_of[row])
    return tuple(found.column_of[row] for row in range(len(rows)))


def _moved(found: Matching, row: int, column: int, left: int) -> bool:
    """Give the row this column if its owner finds another one; nothing changes if it does not."""
    owner = found.row_of.get(column)
    before = found.column_of[row]
    found.forget(row)
    if owner is not None:
        found.forget(owner)
    found.column_of[row], found.row_of[column] = column, row
    if owner is None or found.add_row(owner, left & ~(1 << column)) is None:
        return True
    found.forget(row)
    found.column_of[row], found.row_of[before] = before, row
    found.column_of[owner], found.row_of[column] = column, owner
    return False


def transposed(rows: Sequence[int], width: int) -> list[int]:
    """By column, bit n for row n that has it."""
    return [sum(1 << row for row, mask in enumerate(rows) if mask >> n & 1) for n in range(width)]
