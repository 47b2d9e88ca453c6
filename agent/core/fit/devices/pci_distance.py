"""How far a device is from a guest."""

from __future__ import annotations

import functools

from agent.core.cpuset import CpuSet
from agent.core.fit.host import HostFacts

RULED_OUT = -1
"""In place of a distance: a request may not have the device."""

_LOCAL, _REMOTE = 10, 20
"""What ACPI calls the distance of a cell to itself, and what Linux takes to another where the firmware says nothing."""


class PciDistance:
    """From a guest on a set of host cells. cells None: it has no cells, and nothing is far from it.

    0: on a cell of the guest. 1: the kernel names no cell for it. From 2 on: on another cell, the more the further.
    """

    def __init__(self, facts: HostFacts, cells: CpuSet | None) -> None:
        self._cells = frozenset(cells or ())
        self._is_everywhere = cells is None or facts.is_one_cell
        self._facts = facts
        self._known: dict[int, int] = {}

    def of(self, cell: int | None) -> int:
        """Of a device whose cell this is."""
        if self._is_everywhere or cell in self._cells:
            return 0
        if cell is None:
            return 1
        if cell not in self._known:
            self._known[cell] = self._far(cell)
        return self._known[cell]

    def _far(self, cell: int) -> int:
        return max(2, min([one.get(cell, _REMOTE) for one in self._distances], default=_REMOTE) - _LOCAL + 1)

    @functools.cached_property
    def _distances(self) -> list[dict[int, int]]:
        return [dict(one.distances) for one in self._facts.cells if one.id in self._cells]
