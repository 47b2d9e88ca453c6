"""How far a device is from a guest by the policy of its request, as a price; or that the policy rules it out."""

from __future__ import annotations

from agent.core.cpuset import CpuSet
from agent.core.fit.host import HostFacts
from agent.core.fit.needs import sockets
from agent.core.pci_request import PciNumaPolicy

NOT_ALLOWED = -1
_LOCAL, _REMOTE = 10, 20
"""What ACPI calls the distance of a cell to itself, and what Linux takes to another where the firmware says nothing."""


class Nearness:
    """Prices for a guest on a set of host cells. cells None: it has no cells, and no policy has an effect.

    0: on a cell of the guest. 1: the kernel names no cell for it. From 2 on: on another cell, the more the further.
    near_only: the policies that have a choice take what required would.
    """

    def __init__(self, facts: HostFacts, cells: CpuSet | None, *, near_only: bool = False) -> None:
        self._cells = None if facts.is_one_cell else cells
        self._facts = facts
        self._near_only = near_only
        self._sockets = sockets(facts)
        self._mine = {self._sockets[cell] for cell in cells or () if cell in self._sockets}

    def price(self, policy: PciNumaPolicy, cell: int | None) -> int:
        """Of a device whose cell this is, or NOT_ALLOWED."""
        if self._cells is None or (cell is not None and cell in self._cells):
            return 0
        match policy:
            case "required":
                return NOT_ALLOWED
            case "socket":
                is_near = cell is not None and self._sockets.get(cell) in self._mine
                return self._far(cell) if cell is not None and is_near else NOT_ALLOWED
            case _ if self._near_only:
                return NOT_ALLOWED
            case "legacy":
                return 1 if cell is None else NOT_ALLOWED
            case "preferred":
                return 1 if cell is None else self._far(cell)

    def _far(self, cell: int) -> int:
        mine = self._cells or ()
        distances = [one.distances.get(cell, _REMOTE) for one in self._facts.cells if one.id in mine]
        return max(2, min(distances, default=_REMOTE) - _LOCAL + 1)
