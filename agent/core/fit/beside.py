"""Which cells of one guest find CPUs and memory beside each other on one host cell, and from which pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from agent.core.fit.host import CellOffer
from agent.core.fit.pages import cell_free_kib, huge_pools, may_take_small
from agent.core.fit.pins import Countable, are_placeable, countable
from agent.core.fit.table import wants_emulator_cpu
from agent.core.instance import CellRequest, InstanceRequest, ThreadPolicy

Group = tuple[int, ...]
"""How many guest cells of each kind."""

Spend = Callable[[], None]
"""Called for everything that is tried; raises when it was enough."""


class Asked(NamedTuple):
    """All that decides where a guest cell can go: cells that ask for the same are of one kind."""

    pinned: int
    floating: int
    memory_kib: int
    with_emulator: bool


class Pool(NamedTuple):
    """Memory of one page size. Small pages are the last pool of a host cell."""

    size_kib: int
    free_kib: int
    is_small: bool = False


class HostRoom(NamedTuple):
    """All of a host cell that decides which guest cells find room there. pools: those that the guest may have its
    memory from, the first it prefers."""

    cpus: Countable
    shared: int
    floating: int
    pools: tuple[Pool, ...]


class Sizes(NamedTuple):
    """Page sizes of guest cells, kind by kind, that take the least of small pages."""

    small_kib: int
    each: tuple[int, ...]


def asked_by(cell: CellRequest, request: InstanceRequest) -> Asked:
    """The kind of a guest cell."""
    pinned = len(cell.pinned)
    return Asked(pinned, len(cell.vcpus) - pinned, cell.memory_kib, wants_emulator_cpu(request, cell))


def room_of(host: CellOffer, request: InstanceRequest) -> HostRoom:
    """A host cell in numbers."""
    pools = [Pool(some.size_kib, some.free * some.size_kib) for some in huge_pools(request, host)]
    if may_take_small(request, host):
        pools.append(Pool(host.facts.small_kib, cell_free_kib(request, host), is_small=True))
    return HostRoom(
        cpus=countable(host.facts, host.free_cpus, request.thread_policy),
        shared=host.facts.shared.bit_count(),
        floating=host.floating,
        pools=tuple(pools) if host.facts.allowed else (),
    )


class Beside:
    """Groups of guest cells on one host cell, each looked at once. Whoever is in a group that fits fits without the
    others, too."""

    def __init__(self, room: HostRoom, kinds: Sequence[Asked], policy: ThreadPolicy | None, spend: Spend) -> None:
        self.room = room
        self._kinds, self._policy, self._spend = kinds, policy, spend
        self._known: dict[Group, Sizes | None] = {}

    def sizes(self, group: Group) -> Sizes | None:
        """The page sizes that these guest cells get here; None when they do not fit."""
        if group not in self._known:
            self._spend()
            members = [kind for kind, count in zip(self._kinds, group, strict=True) for _ in range(count)]
            self._known[group] = self._page_sizes(members) if self._has_cpus(members) else None
        return self._known[group]

    @property
    def usable_cpus(self) -> int:
        """The most vCPUs that could be pinned here."""
        cpus = self.room.cpus
        match self._policy:
            case "isolate":
                return len(cpus.cores)
            case "require":
                return sum(cpus.cores)
            case _:
                return cpus.free

    def most_alone(self, limits: Sequence[int]) -> Group:
        """Of each kind, how many find room here without the others, and no more than these."""
        nobody = (0,) * len(limits)
        return tuple(self._with_more(nobody, limit, kind)[-1][kind] for kind, limit in enumerate(limits))

    def groups(self, most: Group) -> Iterator[Group]:
        """Every group that fits here with no more of each kind than that, those with the most of the first kinds
        first."""
        return self._grown((0,) * len(most), most, 0)

    def _grown(self, group: Group, most: Group, kind: int) -> Iterator[Group]:
        if kind == len(most):
            yield group
            return
        for grown in reversed(self._with_more(group, most[kind], kind)):
            yield from self._grown(grown, most, kind + 1)

    def _with_more(self, group: Group, most: int, kind: int) -> list[Group]:
        """The group, and with one more and two more of a kind, and so on, as long as it fits."""
        found = [group]
        while found[-1][kind] < most and self.sizes(more := _one_more(found[-1], kind)) is not None:
            found.append(more)
        return found

    def is_full(self, group: Group, most: Group) -> bool:
        """None of the others finds room beside these."""
        return not any(
            count < limit and self.sizes(_one_more(group, kind)) is not None
            for kind, (count, limit) in enumerate(zip(group, most, strict=True))
        )

    def _has_cpus(self, members: Sequence[Asked]) -> bool:
        floating = [asked.floating for asked in members if asked.floating]
        if floating and (max(floating) > self.room.shared or sum(floating) > self.room.floating):
            return False
        counts = sorted((asked.pinned for asked in members if asked.pinned), reverse=True)
        with_emulator = any(asked.with_emulator for asked in members)
        return are_placeable(self.room.cpus, self._policy, counts, self._spend, with_emulator=with_emulator)

    def _page_sizes(self, members: Sequence[Asked]) -> Sizes | None:
        """By what is left in each pool, the first choice that takes the least of small pages."""
        pools = self.room.pools
        found = {tuple(pool.free_kib for pool in pools): Sizes(0, ())}
        for asked in members:
            after: dict[tuple[int, ...], Sizes] = {}
            for left, sizes in found.items():
                self._spend()
                for n, pool in enumerate(pools):
                    if asked.memory_kib % pool.size_kib or asked.memory_kib > left[n]:
                        continue
                    key = (*left[:n], left[n] - asked.memory_kib, *left[n + 1 :])
                    small_kib = sizes.small_kib + (asked.memory_kib if pool.is_small else 0)
                    after.setdefault(key, Sizes(small_kib, (*sizes.each, pool.size_kib)))
            found = after
        return min(found.values(), key=lambda sizes: sizes.small_kib, default=None)


def _one_more(group: Group, kind: int) -> Group:
    return (*group[:kind], group[kind] + 1, *group[kind + 1 :])
