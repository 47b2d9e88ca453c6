"""Which host CPUs the pinned vCPUs of one guest cell get in one host cell.

The thread policies are nova's (nova-rules B2): as many threads of a core as possible, whole cores first. Where nova
leaves the order to chance, CPUs ascend, siblings stay together, and one L3 is used where one is enough.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import NamedTuple

from agent.core.cpuset import NO_CPUS, CpuMask, CpuSet, lowest, union
from agent.core.fit.host import CellFacts, Core
from agent.core.fit.siblings import Take, siblings_for
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
) -> Pins | None:
    """CPUs for that many vCPUs, or None when they do not fit."""
    chosen = _isolated(cell, free, vcpus) if policy == "isolate" else _packed(cell, free, policy, vcpus)
    if chosen is None or not with_emulator:
        return chosen
    left = free & ~CpuSet(chosen.cpus).mask & ~chosen.idle
    return chosen._replace(emulator_cpu=lowest(left)) if left else None


class Countable(NamedTuple):
    """All of a host cell's CPUs that decides whether several cells of one guest find theirs there. free: how many;
    cores: of these, how many each core has that the thread policy can use as one, ascending."""

    free: int
    cores: tuple[int, ...] = ()


def countable(cell: CellFacts, free: CpuMask, policy: ThreadPolicy | None) -> Countable:
    """The free CPUs of a host cell in numbers."""
    cores: Sequence[int] = ()
    if policy == "isolate":
        cores = _whole_cores(cell, free)
    elif policy == "require":
        cores = [part for part in _free_parts(cell, free) if part.bit_count() > 1]
    return Countable(free.bit_count(), tuple(sorted(map(int.bit_count, cores))))


def are_placeable(
    cpus: Countable,
    policy: ThreadPolicy | None,
    counts: Sequence[int],
    spend: Callable[[], None],
    *,
    with_emulator: bool,
) -> bool:
    """Guest cells with so many pinned vCPUs, and the emulator's own CPU, find CPUs beside each other; exact."""
    vcpus = sum(counts)
    if policy == "isolate":
        return vcpus <= len(cpus.cores) and cpus.free - sum(cpus.cores[:vcpus]) >= with_emulator
    if cpus.free - vcpus < with_emulator:
        return False
    return policy != "require" or siblings_for(counts, cpus.cores, spend) is not None


def pin_together(
    cell: CellFacts, free: CpuMask, policy: ThreadPolicy | None, counts: Sequence[int], *, with_emulator: bool
) -> tuple[Pins, ...] | None:
    """CPUs for several cells of one guest; None when they do not fit. The emulator's own CPU, which the first of them
    names, is one that all of them leave."""
    left = free
    chosen: list[Pins] = []
    for vcpus in counts:
        one = pin(cell, left, policy, vcpus)
        if one is None:
            break
        chosen.append(one)
        left = CpuMask(left & ~CpuSet(one.cpus).mask & ~one.idle)
    if len(chosen) < len(counts):
        chosen = _with_siblings(cell, free, counts) if policy == "require" else []
        left = CpuMask(free & ~union(CpuSet(one.cpus).mask for one in chosen))
    if not chosen or (with_emulator and not left):
        return None
    first, *others = chosen
    return (first._replace(emulator_cpu=lowest(left) if with_emulator else None), *others)


def _with_siblings(cell: CellFacts, free: CpuMask, counts: Sequence[int]) -> list[Pins]:
    """Of cores that are alike in numbers the lowest first; none when they do not fit."""
    parts = [part for part in _free_parts(cell, free) if part.bit_count() > 1]
    left = dict(enumerate(parts))
    chosen: list[Pins] = []
    for takes in siblings_for(counts, [part.bit_count() for part in parts], lambda: None) or ():
        gone: dict[int, list[int]] = {}
        for take in takes:
            gone |= {n: _first(left[n], take.cpus) for n in _cores_for(take, parts, left, gone)}
        for n, cpus in gone.items():
            left[n] &= ~CpuSet(cpus).mask
        chosen.append(Pins(tuple(cpu for cpus in gone.values() for cpu in cpus)))
    return chosen


def _cores_for(take: Take, parts: Sequence[int], left: Mapping[int, int], gone: Container[int]) -> list[int]:
    alike = (
        n
        for n, part in enumerate(parts)
        if n not in gone and (part.bit_count(), left[n].bit_count()) == (take.free, take.left)
    )
    return list(itertools.islice(alike, take.cores))


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
