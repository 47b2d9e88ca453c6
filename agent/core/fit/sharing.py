"""Guest cells on host cells where several of a guest's cells may go to one ([compute] option, off as in nova)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from agent.core.cpuset import CpuSet
from agent.core.fit.devices.needs import Need
from agent.core.fit.devices.serve import serve
from agent.core.fit.host import CellOffer, Offer
from agent.core.fit.place import place_cell
from agent.core.fit.search import Stopped
from agent.core.fit.table import cell_reasons
from agent.core.fit.take import take_cell
from agent.core.instance import CellRequest, InstanceRequest
from agent.core.placement import CellPlacement, GivenDevices

STEPS_OF_SERVING = 50
"""What a look for devices counts beside trying one host cell."""


class Shared(NamedTuple):
    """Each guest cell placed, in the order of the request; devices; the emulator's own CPU."""

    cells: tuple[CellPlacement, ...]
    devices: tuple[GivenDevices, ...]
    own: int | None


def share(
    request: InstanceRequest, needs: Sequence[Need], offer: Offer, hosts: Sequence[CellOffer], most_steps: int
) -> Shared | Stopped | None:
    """Try host cells for each guest cell in turn, the largest first, going back where nothing is left.

    Filling cells with several guest cells is bin packing, so `most_steps` bounds it; CPUs and pages of one guest cell
    are not chosen anew for the sake of another on the same host cell.
    """
    search = _Sharing(request, needs, offer, most_steps)
    first, *others = request.cells
    others.sort(key=lambda cell: (-len(cell.pinned), -cell.memory_kib, -len(cell.vcpus), cell.id))
    found = search.place([first, *others], list(hosts), {}, None)
    return Stopped(search.steps) if found is None and search.steps > most_steps else found


class _Sharing:
    def __init__(self, request: InstanceRequest, needs: Sequence[Need], offer: Offer, most_steps: int) -> None:
        self._request, self._needs, self._offer = request, needs, offer
        self._most_steps = most_steps
        self._served: dict[CpuSet, tuple[GivenDevices, ...] | None] = {}
        self.steps = 0

    def place(
        self, todo: list[CellRequest], rooms: list[CellOffer], done: dict[int, CellPlacement], own: int | None
    ) -> Shared | None:
        """What is still to do, beside what is done, on what the host cells have left. own: the emulator's CPU."""
        if not todo:
            return self._with_devices(done, own)
        cell, *others = todo
        for n, room in enumerate(rooms):
            self.steps += 1
            if self.steps > self._most_steps:
                return None
            if next(cell_reasons(cell, self._request, room), None) is not None:
                continue
            for threads in self._ways(cell, room):
                placed = place_cell(cell, self._request, room, threads)
                if placed is None:
                    continue
                made, emulator = placed
                after = [*rooms[:n], _less(room, made, emulator), *rooms[n + 1 :]]
                found = self.place(others, after, {**done, cell.id: made}, own if emulator is None else emulator)
                if found is not None:
                    return found
        return None

    def _ways(self, cell: CellRequest, room: CellOffer) -> Sequence[int | None]:
        """How many threads of each core: where halves of cores are of no use, it matters to the next guest cell."""
        if self._request.thread_policy != "require" or not cell.pinned:
            return (None,)
        return range(room.facts.threads, 1, -1)

    def _with_devices(self, done: dict[int, CellPlacement], own: int | None) -> Shared | None:
        cells = tuple(done[cell.id] for cell in self._request.cells)
        where = CpuSet(cell.host_cell for cell in cells)
        if where not in self._served:
            self.steps += STEPS_OF_SERVING
            self._served[where] = serve(self._needs, self._offer, where)
        devices = self._served[where]
        return None if devices is None else Shared(cells, devices, own)


def _less(room: CellOffer, made: CellPlacement, own: int | None) -> CellOffer:
    """What is left for other cells of the same guest, which may not over-commit the host cell with each other."""
    is_small = made.page_size_kib == room.facts.small_kib
    total_kib = room.total_kib - (made.memory_kib if is_small else 0)
    return msgspec.structs.replace(take_cell(room, made, own), total_kib=total_kib)
