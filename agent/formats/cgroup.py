"""What the kernel says of control groups: which one a guest is in, and how much memory that has in each cell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import MappingProxyType
from typing import NamedTuple

from agent.core.values import ReadOnlyMap

_OF_ONE_GUEST = re.compile(r"machine-qemu.*\.scope|.*\.libvirt-qemu")
"""Libvirt's names of a guest's group, with and without systemd. Any other may hold several guests, or libvirtd too."""

_CELL_AMOUNT = re.compile(r"N(\d{1,5})=(\d+)")
_PAGE_LISTS = frozenset({"hierarchical_anon", "hierarchical_unevictable"})
_BYTE_KINDS = frozenset({"anon", "shmem"})


class MemoryGroup(NamedTuple):
    """A group of the hierarchy that has the memory controller. is_v1: of cgroups version 1, which has one for each
    controller. path: below the root of the hierarchy."""

    is_v1: bool
    path: str


def memory_groups(text: str) -> Iterator[MemoryGroup]:
    """The groups of one guest that its process is in, the innermost first, from /proc/PID/cgroup; none when it shares
    its group with others, or when that lies outside of our own cgroup namespace."""
    paths: dict[bool, str] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" or "memory" in controllers.split(","):
            paths[number != "0"] = path.lstrip("/")
    is_v1 = True in paths
    parts = paths.get(is_v1, "").split("/")
    outermost = next((level for level, part in enumerate(parts) if _OF_ONE_GUEST.fullmatch(part)), len(parts))
    if ".." not in parts:
        for level in range(len(parts), outermost, -1):
            yield MemoryGroup(is_v1, "/".join(parts[:level]))


def memory_by_cell(text: str, *, is_v1: bool, page_kib: int) -> ReadOnlyMap[int, int] | None:
    """KiB of anonymous and shared memory by cell, from memory.numa_stat; None when the text is not understood.

    Page cache is left out: it is the host's to drop. Version 1 counts pages, by list: the anonymous one has shared
    memory too, and what is locked is on a list of its own. Version 2 counts bytes, by kind, locked ones as any other.
    """
    wanted = _PAGE_LISTS if is_v1 else _BYTE_KINDS
    amounts: dict[int, int] = {}
    for line in text.splitlines():
        name, *cells = line.split() or [""]
        if name.partition("=")[0] not in wanted:
            continue
        for found in map(_CELL_AMOUNT.fullmatch, cells):
            if found is None:
                return None
            cell = int(found[1])
            amounts[cell] = amounts.get(cell, 0) + int(found[2])
    kib = {cell: amount * page_kib if is_v1 else amount // 1024 for cell, amount in sorted(amounts.items())}
    return MappingProxyType(kib) if kib else None
