"""Guest cells on host cells where several of a guest's cells may go to one ([compute] option, off as in nova)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agent.core.cpuset import CpuSet
from agent.core.fit.host import CellOffer, Offer
from agent.core.fit.needs import Need
from agent.core.fit.place import place_cell
from agent.core.fit.search import Stopped
from agent.core.fit.serve import serve
from agent.core.fit.table import cell_reasons
from agent.core.fit.take import take_cell
from agent.core.instance import CellRequest, InstanceRequest
from agent.core.placement import CellPlacement, GivenDevices


class Shared(NamedTuple):
    """Each guest cell placed, in the order of the request; devices; the emulator's own CPU."""

    cells: tuple[CellPlacement, ...]
    devices: tuple[GivenDevices, ...]
    own: int | None


def share(
    request: InstanceRequest, needs: Sequence[Need], offer: Offer, hosts: Sequence[CellOffer], most_steps: int
) -> Shared | Stopped | None:
    """Try host cells for each guest cell in turn, the largest first, going back where nothing is left.

    Exact as long as `most_steps` last: filling cells with several guest cells is bin packing.
    """
    search = _Sharing(request, needs, offer, most_steps)
    first, *others = request.cells
    others.sort(key=lambda cell: (-len(cell.pinned), -cell.memory_kib, -len(cell.vcpus), cell.id))
    found = search.place([first, *others], list(hosts), {})
    return Stopped(search.steps) if found is None and search.steps > most_steps else found


class _Sharing:
    def __init__(self, request: InstanceRequest, needs: Sequence[Need], offer: Offer, most_steps: int) -> None:
        self._request, self._needs, self._offer = request, needs, offer
        self._most_steps = most_steps
        self._own: int | None = None
        self.steps = 0

    def place(self, todo: list[CellRequest], rooms: list[CellOffer], done: dict[int, CellPlacement]) -> Shared | None:
        if not todo:
            return self._served(done)
        cell, *others = todo
        for n, room in enumerate(rooms):
            self.steps += 1
            if self.steps > self._most_steps:
                return None
            if next(cell_reasons(cell, self._request, room), None) is not None:
                continue
            placed = place_cell(cell, self._request, room)
            if placed is None:
                continue
            made, own = placed
            self._own = own if own is not None else self._own
            after = [*rooms[:n], take_cell(room, made, own), *rooms[n + 1 :]]
            found = self.place(others, after, {**done, cell.id: made})
            if found is not None:
                return found
        return None

    def _served(self, done: dict[int, CellPlacement]) -> Shared | None:
        cells = tuple(done[cell.id] for cell in self._request.cells)
        devices = serve(self._needs, self._offer, CpuSet(cell.host_cell for cell in cells))
        return None if devices is None else Shared(cells, devices, self._own)
