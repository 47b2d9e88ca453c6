"""Caches and the CPUs that share them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent.adapters.sysfs.cpus import FOLDER, Masks
from agent.adapters.sysfs.files import Files
from agent.core.cpuset import CpuSet
from agent.core.topology import Cache, CacheType

_INDEX = re.compile(r"index\d+")
_SIZE = re.compile(r"(\d{1,12})([KMG]?)", re.ASCII)
_UNIT_KIB = {"": 1 / 1024, "K": 1, "M": 1024, "G": 1024 * 1024}
_TYPES: dict[str, CacheType] = {"Data": "data", "Instruction": "instruction", "Unified": "unified"}


def read_caches(files: Files, masks: Masks) -> tuple[Cache, ...]:
    """Every cache once, by level, type and lowest CPU; only online CPUs have caches. Source: cpuN/cache/index*.

    A CPU that shares every cache of one already read, and has as many, is not read again.
    """
    caches: dict[tuple[int, CacheType, int], Cache] = {}
    read: dict[int, tuple[int, CpuSet]] = {}
    for cpu in masks.online:
        if "cache" not in masks.entries.get(cpu, ()):
            continue
        indexes = sorted(n for n in files.names(f"{FOLDER}/cpu{cpu}/cache") if _INDEX.fullmatch(n))
        if cpu in read and read[cpu][0] == len(indexes):
            continue
        everywhere = masks.online
        for cache in _caches_of(files, masks, cpu, indexes):
            everywhere &= cache.cpus
            _keep(files, caches, cache, cpu)
        for other in everywhere:
            read.setdefault(other, (len(indexes), everywhere))
    once = {id(cache): cache for cache in caches.values()}
    return tuple(sorted(once.values(), key=lambda c: (c.level, c.type, c.cpus.lowest)))


def _keep(files: Files, caches: dict[tuple[int, CacheType, int], Cache], cache: Cache, cpu: int) -> None:
    """A CPU has one cache of a level and type; the lowest CPU's word stands where another contradicts it."""
    known = {kept.cpus: kept for c in cache.cpus if (kept := caches.get((cache.level, cache.type, c)))}
    if not known:
        caches.update(dict.fromkeys(((cache.level, cache.type, c) for c in cache.cpus), cache))
    elif cache.cpus not in known:
        first = next(iter(known))
        said = ((f"cpu{first.lowest}/cache", first), (f"cpu{cpu}/cache", cache.cpus))
        what = f"CPUs disagree on who shares the L{cache.level} {cache.type} cache; the lowest one's word is taken"
        files.contradiction(f"{FOLDER}/cpu{cpu}/cache", what, said)


def _caches_of(files: Files, masks: Masks, cpu: int, indexes: list[str]) -> Iterator[Cache]:
    for index in indexes:
        folder = f"{FOLDER}/cpu{cpu}/cache/{index}"
        level = files.number(f"{folder}/level")
        kind = _TYPES.get(files.text(f"{folder}/type") or "Unified")
        if level is None or kind is None:
            files.problem(folder, "this cache is left out: its level or type is not known")
            continue
        shared = files.twins(folder, "shared_cpu_map", "shared_cpu_list")
        cpus = (shared or CpuSet()) & masks.online | CpuSet((cpu,))
        yield Cache(level=level, type=kind, size_kib=_size_kib(files, folder), cpus=cpus)


def _size_kib(files: Files, folder: str) -> int:
    match = _SIZE.match(files.text(f"{folder}/size") or "")
    return int(int(match[1]) * _UNIT_KIB[match[2]]) if match else 0
