"""Guest cells on host cells where several of a guest's cells may go to one ([compute] option, off as in nova).

Filling host cells with several guest cells is bin packing. It is exact all the same: guest cells that ask for the same
are of one kind, so host cell by host cell it is only tried how many of each kind go there (`beside` says which of them
find CPUs and pages together, in numbers), and what is left for the host cells after it is looked at once. What is tried
is counted; beyond `most_steps` the answer is Stopped, which is no no.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agent.core.cpuset import CpuSet
from agent.core.fit.beside import Asked, Beside, Group, asked_by, room_of
from agent.core.fit.devices.needs import Need
from agent.core.fit.devices.serve import serve
from agent.core.fit.host import CellOffer, Offer
from agent.core.fit.pages import host_free_kib
from agent.core.fit.pins import pin_together
from agent.core.fit.place import placed
from agent.core.fit.search import Stopped
from agent.core.fit.sharing_bound import SharingBound
from agent.core.fit.take import PlacementBroken
from agent.core.instance import CellRequest, InstanceRequest
from agent.core.placement import CellPlacement, GivenDevices

STEPS_OF_SERVING = 50
"""What a look for devices counts beside one look at a host cell."""


class Shared(NamedTuple):
    """Each guest cell placed, in the order of the request; devices; the emulator's own CPU."""

    cells: tuple[CellPlacement, ...]
    devices: tuple[GivenDevices, ...]
    own: int | None


def share(
    request: InstanceRequest, needs: Sequence[Need], offer: Offer, hosts: Sequence[CellOffer], most_steps: int
) -> Shared | Stopped | None:
    """The first way there is: as many guest cells as can be on the first host cell, the first and then the largest of
    them before others, and so on. None where there is none."""
    first, *others = request.cells
    others.sort(key=lambda cell: (-len(cell.pinned), -cell.memory_kib, -len(cell.vcpus), cell.id))
    kinds: dict[Asked, list[CellRequest]] = {}
    for cell in (first, *others):
        kinds.setdefault(asked_by(cell, request), []).append(cell)
    todo = tuple(map(len, kinds.values()))
    steps = _Steps(most_steps)
    try:
        beside = _beside(request, hosts, list(kinds), steps)
        devices = _Devices(needs, offer, [host.facts.id for host in hosts], steps)
        fills = not devices.matter and request.page_size != "any"
        search = _Sharing(beside, SharingBound(beside, list(kinds), todo), devices, steps, fills=fills)
        found = search.place(0, todo, 0, max(host_free_kib(request, offer), 0))
    except _Enough:
        return Stopped(steps.spent)
    return None if found is None else _shared(request, list(kinds.values()), hosts, found)


class _Enough(Exception):
    """As much was tried as may be."""


class _Steps:
    def __init__(self, most: int) -> None:
        self._most, self.spent = most, 0

    def spend(self, count: int = 1) -> None:
        self.spent += count
        if self.spent > self._most:
            raise _Enough


class _Found(NamedTuple):
    """By host cell, the guest cells of each kind and their page sizes; devices."""

    groups: tuple[tuple[Group, tuple[int, ...]], ...]
    devices: tuple[GivenDevices, ...]


def _beside(
    request: InstanceRequest, hosts: Sequence[CellOffer], kinds: Sequence[Asked], steps: _Steps
) -> list[Beside]:
    """One for all host cells that have the same."""
    rooms = [room_of(host, request) for host in hosts]
    known = {room: Beside(room, kinds, request.thread_policy, steps.spend) for room in rooms}
    return [known[room] for room in rooms]


class _Sharing:
    """fills: a guest cell for which there is room may as well be there, since later ones cannot lack what it takes."""

    def __init__(
        self, hosts: Sequence[Beside], bound: SharingBound, devices: _Devices, steps: _Steps, *, fills: bool
    ) -> None:
        self._hosts, self._bound, self._devices, self._steps, self._fills = hosts, bound, devices, steps, fills
        self._failed: dict[tuple[int, Group, int], int] = {}

    def place(self, at: int, todo: Group, used: int, small_kib: int) -> _Found | None:
        """So many guest cells of each kind on the host cells from number `at` on, with so much memory in small pages.
        used: host cells that are taken, as far as devices are near them."""
        if not any(todo):
            devices = self._devices.served(used)
            return None if devices is None else _Found((), devices)
        here = at, todo, used
        if small_kib <= self._failed.get(here, -1) or self._bound.is_too_much(at, todo):
            return None
        self._steps.spend()
        if self._devices.may_do(at, used, sum(todo)):
            for group in self._groups(at, todo):
                found = self._placed(at, todo, used, small_kib, group)
                if found is not None:
                    return found
        self._failed[here] = small_kib
        return None

    def _groups(self, at: int, todo: Group) -> Iterator[Group]:
        host = self._hosts[at]
        for group in host.groups(todo):
            self._steps.spend()
            if not self._fills or host.is_full(group, todo):
                yield group

    def _placed(self, at: int, todo: Group, used: int, small_kib: int, group: Group) -> _Found | None:
        sizes = self._hosts[at].sizes(group)
        if sizes is None or sizes.small_kib > small_kib:
            return None
        left = tuple(map(operator.sub, todo, group))
        now_used = used | self._devices.near(at) if any(group) else used
        found = self.place(at + 1, left, now_used, small_kib - sizes.small_kib)
        return None if found is None else found._replace(groups=((group, sizes.each), *found.groups))


class _Devices:
    """What devices have to say to a choice of host cells. matter: not every choice will do."""

    def __init__(self, needs: Sequence[Need], offer: Offer, ids: Sequence[int], steps: _Steps) -> None:
        self._needs, self._offer, self._ids, self._steps = needs, offer, ids, steps
        self._hard = [need for need in needs if need.is_hard]
        self.matter = bool(self._hard)
        self._known: dict[int, tuple[GivenDevices, ...] | None] = {}

    def near(self, at: int) -> int:
        """The bit of this host cell where devices that are not near everywhere are near it."""
        return 1 << at if any(need.reach.get(self._ids[at], 0) for need in self._hard) else 0

    def served(self, used: int) -> tuple[GivenDevices, ...] | None:
        """Devices for all requests of a guest on these host cells."""
        if used not in self._known:
            self._steps.spend(STEPS_OF_SERVING if self._needs else 0)
            self._known[used] = serve(self._needs, self._offer, CpuSet(self._ids[n] for n in CpuSet.from_mask(used)))
        return self._known[used]

    def may_do(self, at: int, used: int, guest_cells: int) -> bool:
        """With so many more guest cells on the host cells from number `at` on there may be enough near them."""
        if not self.matter:
            return True
        for need in self._hard:
            have = need.within(CpuSet(self._ids[n] for n in CpuSet.from_mask(used)))
            more = sorted(((need.reach.get(cell, 0) & ~have).bit_count() for cell in self._ids[at:]), reverse=True)
            if have.bit_count() + sum(more[:guest_cells]) < need.request.count:
                return False
        return self.served(used | sum(self.near(n) for n in range(at, len(self._ids)))) is not None


def _shared(
    request: InstanceRequest, kinds: Sequence[list[CellRequest]], hosts: Sequence[CellOffer], found: _Found
) -> Shared:
    done: dict[int, CellPlacement] = {}
    own: int | None = None
    given = [0] * len(kinds)
    for host, (group, sizes) in zip(hosts, found.groups, strict=False):
        cells = [cell for mine, n, count in zip(kinds, given, group, strict=True) for cell in mine[n : n + count]]
        given = [n + count for n, count in zip(given, group, strict=True)]
        if not cells:
            continue
        with_emulator = request.emulator_policy == "isolate" and request.cells[0] in cells
        counts = [len(cell.pinned) for cell in cells]
        pins = pin_together(host.facts, host.free_cpus, request.thread_policy, counts, with_emulator=with_emulator)
        if pins is None:
            raise PlacementBroken(f"guest cells {cells} were said to fit on cell {host.facts.id} and do not")
        done |= {cell.id: placed(cell, host, mine, size) for cell, mine, size in zip(cells, pins, sizes, strict=True)}
        own = pins[0].emulator_cpu if with_emulator else own
    return Shared(tuple(done[cell.id] for cell in request.cells), found.devices, own)
