"""How far a device is from a guest by the policy of its request; or that the policy rules it out."""

from __future__ import annotations

import functools

from agent.core.cpuset import CpuSet
from agent.core.fit.devices.needs import sockets
from agent.core.fit.host import HostFacts
from agent.core.pci_request import PciNumaPolicy

RULED_OUT = -1
_LOCAL, _REMOTE = 10, 20
"""What ACPI calls the distance of a cell to itself, and what Linux takes to another where the firmware says nothing."""


class PciDistance:
    """Distances for a guest on a set of host cells. cells None: it has no cells, and no policy has an effect.

    0: on a cell of the guest. 1: the kernel names no cell for it. From 2 on: on another cell, the more the further.
    near_only: the policies that have a choice take what required would.
    """

    def __init__(self, facts: HostFacts, cells: CpuSet | None, *, near_only: bool = False) -> None:
        self._cells = frozenset(cells or ())
        self._is_everywhere = cells is None or facts.is_one_cell
        self._facts = facts
        self._near_only = near_only
        self._known: dict[tuple[PciNumaPolicy, int | None], int] = {}

    def of(self, policy: PciNumaPolicy, cell: int | None) -> int:
        """Of a device whose cell this is, or RULED_OUT."""
        if self._is_everywhere or cell in self._cells:
            return 0
        known = self._known.get((policy, cell))
        if known is None:
            known = self._known[policy, cell] = self._off_cells(policy, cell)
        return known

    def _off_cells(self, policy: PciNumaPolicy, cell: int | None) -> int:
        match policy:
            case "required":
                return RULED_OUT
            case "socket":
                is_near = cell is not None and self._sockets.get(cell) in self._own_sockets
                return self._far(cell) if cell is not None and is_near else RULED_OUT
            case _ if self._near_only:
                return RULED_OUT
            case "legacy":
                return 1 if cell is None else RULED_OUT
            case "preferred":
                return 1 if cell is None else self._far(cell)

    def _far(self, cell: int) -> int:
        return max(2, min([one.get(cell, _REMOTE) for one in self._distances], default=_REMOTE) - _LOCAL + 1)

    @functools.cached_property
    def _distances(self) -> list[dict[int, int]]:
        return [dict(one.distances) for one in self._facts.cells if one.id in self._cells]

    @functools.cached_property
    def _sockets(self) -> dict[int, int]:
        return sockets(self._facts)

    @functools.cached_property
    def _own_sockets(self) -> set[int]:
        return {self._sockets[cell] for cell in self._cells if cell in self._sockets}
