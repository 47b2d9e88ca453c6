"""Which host CPUs the pinned vCPUs of one guest cell get in one host cell.

The thread policies are nova's (nova-rules B2): as many threads of a core as possible, whole cores first. Where nova
leaves the order to chance, CPUs ascend, siblings stay together, and one L3 is used where one is enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agent.core.cpuset import NO_CPUS, CpuMask, CpuSet, lowest, union
from agent.core.fit.host import CellFacts, Core
from agent.core.instance import ThreadPolicy


class Pins(NamedTuple):
    """cpus: one for each vCPU, in their order. idle: siblings that stay unused (isolate). emulator_cpu: its own."""

    cpus: tuple[int, ...]
    idle: CpuMask = NO_CPUS
    emulator_cpu: int | None = None


def placeable(cell: CellFacts, free: CpuMask, policy: ThreadPolicy | None) -> int:
    """How many vCPUs can be pinned to the free CPUs of a cell under a thread policy."""
    if policy == "isolate":
        return len(_whole_cores(cell, free))
    if policy == "require":
        cores = _free_parts(cell, free)
        return max((n * _having(cores, n) for n in range(2, cell.threads + 1)), default=0)
    return free.bit_count()


def has_emulator_cpu(cell: CellFacts, free: CpuMask, policy: ThreadPolicy | None, vcpus: int) -> bool:
    """Beside that many placeable vCPUs there is a CPU left for the emulator."""
    if policy != "isolate":
        return free.bit_count() > vcpus
    whole = sorted(_whole_cores(cell, free), key=int.bit_count)
    return free.bit_count() > sum(core.bit_count() for core in whole[:vcpus])


def cpus_lacking(
    cell: CellFacts, free: CpuMask, policy: ThreadPolicy | None, vcpus: int, *, with_emulator: bool
) -> CpuMask | None:
    """The fewest taken CPUs that would have to be free for that many vCPUs, and the emulator's own CPU, to be
    placeable; None where even all of them are too few."""
    ways = []
    for taken in _ways_to_free(cell, free, policy, vcpus):
        lacking = taken
        if with_emulator and not has_emulator_cpu(cell, CpuMask(free | lacking), policy, vcpus):
            lacking |= _lowest_of(cell.dedicated & ~free & ~lacking, 1)
        after = CpuMask(free | lacking)
        if placeable(cell, after, policy) < vcpus:
            continue
        if not with_emulator or has_emulator_cpu(cell, after, policy, vcpus):
            ways.append(CpuMask(lacking))
    return min(ways, key=lambda cpus: (cpus.bit_count(), cpus), default=None)


def _ways_to_free(cell: CellFacts, free: CpuMask, policy: ThreadPolicy | None, vcpus: int) -> Iterator[int]:
    """Taken CPUs that would make room for the vCPUs.

    Isolate: cores of which the least is taken become whole, small ones first, which leaves the most to the emulator.
    Require: n free siblings in as many cores as that takes, for each n.
    """
    if policy == "isolate":
        whole = [core.members for core in cell.cores if _is_wholly_dedicated(core)]
        cheap = sorted(whole, key=lambda core: ((core & ~free).bit_count(), core.bit_count()))
        yield union(core & ~free for core in cheap[:vcpus])
    elif policy == "require":
        for n in range(2, cell.threads + 1):
            able = [core.dedicated for core in cell.cores if core.dedicated.bit_count() >= n]
            cheap = sorted(able, key=lambda core: max(0, n - (core & free).bit_count()))
            yield union(_lowest_of(core & ~free, n - (core & free).bit_count()) for core in cheap[: -(-vcpus // n)])
    else:
        yield _lowest_of(cell.dedicated & ~free, vcpus - free.bit_count())


def pin(
    cell: CellFacts,
    free: CpuMask,
    policy: ThreadPolicy | None,
    vcpus: int,
    *,
    with_emulator: bool = False,
    threads: int | None = None,
) -> Pins | None:
    """CPUs for that many vCPUs, or None when they do not fit. threads: exactly so many of each core, of those cores
    that have the fewest left; None: as many as there can be."""
    if policy == "isolate":
        chosen = _isolated(cell, free, vcpus)
    elif threads is None:
        chosen = _packed(cell, free, policy, vcpus)
    else:
        chosen = _by_threads(sorted(_free_parts(cell, free), key=int.bit_count), threads, vcpus)
    if chosen is None or not with_emulator:
        return chosen
    left = free & ~CpuSet(chosen.cpus).mask & ~chosen.idle
    return chosen._replace(emulator_cpu=lowest(left)) if left else None


def _packed(cell: CellFacts, free: CpuMask, policy: ThreadPolicy | None, vcpus: int) -> Pins | None:
    if not vcpus:
        return Pins(())
    parts = _free_parts(cell, free)
    fewest = 2 if policy == "require" else 1
    for n in range(cell.threads, fewest - 1, -1):
        cores = [part for part in parts if part.bit_count() >= n]
        if n * len(cores) >= vcpus:
            near = _near(cell, cores, -(-vcpus // n))
            return Pins(tuple(cpu for core in near for cpu in _first(core, n))[:vcpus])
    if policy == "require" or free.bit_count() < vcpus:
        return None
    # whole cores first even here: threads one by one, as they lie
    return Pins(tuple(cpu for part in parts for cpu in CpuSet.from_mask(part))[:vcpus])


def _by_threads(parts: Sequence[int], threads: int, vcpus: int) -> Pins | None:
    cores = [part for part in parts if part.bit_count() >= threads]
    if threads * len(cores) < vcpus:
        return None
    return Pins(tuple(cpu for core in cores for cpu in _first(core, threads))[:vcpus])


def _isolated(cell: CellFacts, free: CpuMask, vcpus: int) -> Pins | None:
    whole = _whole_cores(cell, free)
    if len(whole) < vcpus:
        return None
    # cores with few siblings first: they leave the most to others
    fewest = sorted(whole, key=int.bit_count)[:vcpus] if len({core.bit_count() for core in whole}) > 1 else whole
    cores = _near(cell, fewest, vcpus)
    cpus = tuple(lowest(core) for core in cores)
    taken = CpuSet(cpus).mask
    return Pins(cpus, idle=CpuMask(sum(cores) & ~taken))


def _whole_cores(cell: CellFacts, free: CpuMask) -> list[int]:
    """Cores that are all for pinned guests and all free."""
    return [core.members for core in cell.cores if _is_wholly_dedicated(core) and not core.members & ~free]


def _is_wholly_dedicated(core: Core) -> bool:
    return core.members == core.dedicated


def _free_parts(cell: CellFacts, free: CpuMask) -> list[int]:
    return [part for core in cell.cores if (part := core.dedicated & free)]


def _having(parts: Sequence[int], threads: int) -> int:
    return sum(1 for part in parts if part.bit_count() >= threads)


def _near(cell: CellFacts, cores: Sequence[int], wanted: int) -> Sequence[int]:
    """That many of the cores: of one L3 where one has enough (the one that this leaves fullest), else of few."""
    if len(cell.caches) < 2 or wanted >= len(cores):
        return cores[:wanted]
    groups = [group for cache in cell.caches if (group := [core for core in cores if core & cache])]
    groups.append([core for core in cores if not any(core & cache for cache in cell.caches)])
    enough = [group for group in groups if len(group) >= wanted]
    if enough:
        return min(enough, key=len)[:wanted]
    by_size = sorted(groups, key=len, reverse=True)
    return sorted([core for group in by_size for core in group][:wanted], key=lowest)


def _first(core: int, threads: int) -> list[int]:
    return list(CpuSet.from_mask(core))[:threads]


def _lowest_of(cpus: int, count: int) -> int:
    return CpuSet(_first(cpus, max(0, count))).mask
