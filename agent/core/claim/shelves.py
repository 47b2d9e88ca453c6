"""Where a book keeps each kind of row, beside the claims themselves and how they ended."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, NamedTuple

from agent.core.claim.values import (
    Boot,
    Departure,
    GroupRule,
    Horizon,
    Maintenance,
    Membership,
    Move,
    SpentDevice,
)
from agent.core.pci import PciAddress
from agent.core.values import ReadOnlyMap, Value

MemberKey = tuple[str, str]
"""Group and instance."""

Shelved = Membership | GroupRule | Move | Departure | SpentDevice
"""What a book has many of, each in a map of its own."""

Single = Maintenance | Boot | Horizon
"""What a book has one of, or none."""

ONLY = "host"
"""The key of a row of which there is one."""


class Shelf(NamedTuple):
    """One map of a book. kind: of its rows. field: the map's. key: of a value in the map. row: a key as the journal has
    it; key_of: the inverse."""

    kind: str
    field: str
    key: Callable[[Any], Any]
    row: Callable[[Any], str] = str
    key_of: Callable[[str], Any] = str


def member_key(key: MemberKey) -> str:
    """Of a membership's row; a uuid has no space."""
    group, instance = key
    return f"{instance} {group}"


def member_of_key(row: str) -> MemberKey:
    """The inverse of `member_key`."""
    instance, _, group = row.partition(" ")
    return (group, instance)


SHELVES: ReadOnlyMap[type[Value], Shelf] = MappingProxyType(
    {
        Membership: Shelf("membership", "members", lambda one: (one.group, one.instance), member_key, member_of_key),
        GroupRule: Shelf("group", "groups", lambda one: one.id),
        Move: Shelf("move", "moves", lambda one: one.move_id),
        Departure: Shelf("departure", "departures", lambda one: one.instance),
        SpentDevice: Shelf("spent_device", "spent", lambda one: one.address, key_of=PciAddress.parse),
    }
)

SHELF_OF: ReadOnlyMap[str, Shelf] = MappingProxyType({shelf.kind: shelf for shelf in SHELVES.values()})
"""By the kind of row."""

SINGLES: ReadOnlyMap[type[Value], str] = MappingProxyType(
    {Maintenance: "maintenance", Boot: "boot", Horizon: "horizon"}
)
"""The kind of row, which is the field's name too."""
