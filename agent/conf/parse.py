"""Option text to values, by nova's rules. Each function raises ValueError that says what of the text is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from agent.core.conflicts import ConflictKind
from agent.core.cpuset import CpuSet
from agent.core.host_config import AcceptRule, ReservedPages
from agent.core.nova_text import cpu_list

_HIGHEST_CELL, _MOST_PAGES_KIB = 2**20, 2**50
_CONTENDED = frozenset({"cpu", "memory", "pages", "pci", "mdev"})
"""First words of what can be contended, besides guests, in the id of a conflict."""
_PAGE_KEYS = frozenset({"node", "size", "count"})


def cpu_set(text: str) -> CpuSet:
    """A set that is not empty: "2-7,^4", blanks around any sign allowed."""
    cpus = cpu_list(text)
    if not cpus:
        raise ValueError("no CPU is left")
    return cpus


def reserved_pages(entry: Mapping[str, str]) -> ReservedPages:
    """{"node": "0", "size": "2048" (KiB) or "1GB", "count": "64"}."""
    if entry.keys() != _PAGE_KEYS:
        raise ValueError("it must name exactly node, size and count, as in node:0,size:2048,count:64")
    try:
        pages = ReservedPages(cell=int(entry["node"]), size_kib=_size_kib(entry["size"]), count=int(entry["count"]))
    except ValueError as error:
        raise ValueError(f"node and count are numbers, size is KiB or has a unit: {error}") from error
    if pages.cell < 0 or pages.size_kib <= 0 or pages.count < 0:
        raise ValueError("a node or count below 0, or a size of nothing")
    if pages.cell > _HIGHEST_CELL or pages.size_kib * max(pages.count, 1) > _MOST_PAGES_KIB:
        raise ValueError("more than any host has")
    return pages


def accept_rule(text: str) -> AcceptRule:
    """KIND:GUEST. A guest whose name has a colon or a comma is given by its uuid: these are signs of another meaning,
    and a rule that fits nobody would go unnoticed."""
    kind, colon, guest = (part.strip() for part in text.partition(":"))
    if not colon or not guest:
        raise ValueError('it must be KIND:GUEST, where GUEST is a name, a uuid or "*"')
    if kind not in get_args(ConflictKind):
        raise ValueError(f"{kind!r} is no kind of conflict; kinds are {', '.join(get_args(ConflictKind))}")
    if set(guest) & set(",\n"):
        raise ValueError(
            "one line takes one rule, and a guest whose name has a comma is given by its uuid. "
            "Write a line accept = KIND:GUEST for each guest"
        )
    if ":" in guest:
        raise ValueError(_why_no_guest(kind, guest))
    return AcceptRule(kind=kind, guest=guest)


def _why_no_guest(kind: str, text: str) -> str:
    """Of a text with a colon: most likely it was copied from the id of a conflict."""
    resource, _, name = text.partition(":")
    if resource == "guest":
        return f"the guest stands right behind the kind. Write accept = {kind}:{name}"
    if resource in _CONTENDED:
        return (
            f'"{text}" names what is contended, not a guest. Write KIND:GUEST, one such line for each guest that may '
            f"share, as in accept = {kind}:GUEST"
        )
    return f'"{text}" has a colon. Give a guest with such a name by its uuid'


def _size_kib(text: str) -> int:
    if text.strip().isdecimal():
        return int(text)
    # a fifth of the time that the daemon and agentctl need to start, for the few who write sizes with a unit
    from oslo_utils import strutils

    return int(strutils.string_to_bytes(text, return_int=True)) // 1024
