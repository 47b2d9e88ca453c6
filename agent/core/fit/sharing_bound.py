"""When what is left of a guest is more than the host cells that are left could have, at a glance."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence

from agent.core.fit.beside import Asked, Beside, Group


class SharingBound:
    """Necessary conditions that cost no search: all CPUs and memory together, and by kind how many guest cells that ask
    for at least as much there is room for."""

    def __init__(self, hosts: Sequence[Beside], kinds: Sequence[Asked], todo: Group) -> None:
        sizes = {pool.size_kib for host in hosts for pool in host.room.pools}
        self._asked = [(one.pinned, one.floating, one.memory_kib) for one in kinds]
        self._no_less = [[n for n, one in enumerate(kinds) if _is_no_less(one, least, sizes)] for least in kinds]
        limits = [sum(todo[n] for n in no_less) for no_less in self._no_less]
        self._sums = _from_end([_sums(host) for host in hosts])
        self._counts = _from_end([host.most_alone(limits) for host in hosts])

    def is_too_much(self, at: int, todo: Group) -> bool:
        """Host cells from number `at` on cannot have so many guest cells of each kind."""
        counts = self._counts[at]
        if any(sum(todo[n] for n in no_less) > most for no_less, most in zip(self._no_less, counts, strict=True)):
            return True
        asked = [sum(map(operator.mul, todo, numbers)) for numbers in zip(*self._asked, strict=True)]
        return any(map(operator.gt, asked, self._sums[at]))


def _is_no_less(one: Asked, least: Asked, sizes: set[int]) -> bool:
    """Where it finds room the lesser one would, which may not have more pages to choose from for it."""
    return all(map(operator.ge, one, least)) and not any(
        least.memory_kib % size and not one.memory_kib % size for size in sizes
    )


def _sums(host: Beside) -> tuple[int, ...]:
    return host.usable_cpus, max(host.room.floating, 0), sum(max(pool.free_kib, 0) for pool in host.room.pools)


def _from_end(numbers: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """[n]: the sum of all from number n on."""
    nothing = (0,) * len(numbers[0])
    sums = itertools.accumulate(
        reversed(numbers), lambda one, other: tuple(map(operator.add, one, other)), initial=nothing
    )
    return [*sums][::-1]
