"""Contradictions as rows: each says what is wrong, who is in it, and what to do."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

import msgspec

from agent.core.host_config import AcceptRule
from agent.core.values import Value

Severity = Literal["info", "warning", "error", "critical"]

ConflictKind = Literal[
    "cpu-pinned-twice",
    "sibling-of-isolated",
    "pinned-to-offline",
    "pinned-outside-dedicated",
    "shared-on-dedicated",
    "emulator-on-dedicated",
    "memory-over-commit",
    "pages-over-commit",
    "device-twice",
    "device-missing",
    "pf-and-vf",
    "memory-elsewhere",
    "domain-lost-by-libvirt",
    "group-violated",
    "claim-drift",
    "claim-overdue",
    "arrived-without-claim",
    "guest-elsewhere",
    "migration-stuck",
]

IN_EACH_OTHERS_WAY: frozenset[ConflictKind] = frozenset(
    {"cpu-pinned-twice", "sibling-of-isolated", "device-twice", "pf-and-vf", "group-violated"}
)
"""Kinds that take two: without the others, no owner of such a row would be in it."""

_IDS_BY_CELL = frozenset({"pages"})
"""Kinds of resource whose id names something different in each cell."""


class Resource(Value, frozen=True, kw_only=True):
    """What is contended. kind: "cpu", "memory", "pages", "pci", "mdev", "guest", "group". id: CPU number, cell id or
    "host" for memory, page size in KiB, address, uuid or the group's id, all as text. cell: host cell, None for the
    host as a whole or unknown."""

    kind: str
    id: str
    cell: int | None = None


class Owner(Value, frozen=True, kw_only=True):
    """Who holds it: a domain, a claim, the configuration or the kernel."""

    type: Literal["domain", "claim", "config", "kernel"]
    uuid: str | None = None
    name: str | None = None
    maker: str | None = None

    @property
    def label(self) -> str:
        """The name, or the uuid where the name is empty or shows nothing, else the type."""
        return self.name if self.name and self.name.strip() else self.uuid or self.type


def by_name(owner: Owner) -> tuple[str, str, str]:
    """The order in which owners are told: guests and claims each by what they are called, then by uuid."""
    return (owner.type, owner.label, owner.uuid or "")


class Conflict(Value, frozen=True, kw_only=True):
    """One contradiction. id: the same for the same kind and resource, over restarts. since: RFC 3339, None before the
    tracker dated it. cause, action: one sentence each. accepted: the configuration says that it is intended."""

    id: str
    kind: ConflictKind
    resource: Resource
    owners: tuple[Owner, ...]
    cause: str
    severity: Severity
    action: str
    since: str | None = None
    accepted: bool = False

    @property
    def owner_uuids(self) -> tuple[str, ...]:
        """Of all owners that have one, sorted."""
        return tuple(sorted({owner.uuid for owner in self.owners if owner.uuid is not None}))


class Since(Value, frozen=True, kw_only=True):
    """Since when a row stands, and of whom. at: RFC 3339. owners: uuids of those in it when it was last seen, sorted;
    empty: there were none, or a release that did not keep them wrote this."""

    at: str
    owners: tuple[str, ...] = ()


def dates(rows: Iterable[Conflict]) -> dict[str, Since]:
    """Since when each row that is dated stands, by its id."""
    return {row.id: Since(at=row.since, owners=row.owner_uuids) for row in rows if row.since is not None}


def goes_on(were: Collection[str], row: Conflict) -> bool:
    """Whether a row of the same id is what stood before, when these owners were in it: not if all have left it to
    others."""
    owners = row.owner_uuids
    return not were or not owners or not set(were).isdisjoint(owners)


def conflict(
    kind: ConflictKind,
    resource: Resource,
    owners: Iterable[Owner],
    *,
    cause: str,
    severity: Severity,
    action: str,
) -> Conflict:
    """A row with its stable id and its owners by name, each once."""
    return Conflict(
        id=id_of(kind, resource),
        kind=kind,
        resource=resource,
        owners=tuple(sorted(set(owners), key=by_name)),
        cause=cause,
        severity=severity,
        action=action,
    )


def id_of(kind: ConflictKind, resource: Resource) -> str:
    """The id of the row about this."""
    place = "" if resource.cell is None or resource.kind not in _IDS_BY_CELL else f":{resource.cell}"
    return f"{kind}:{resource.kind}:{resource.id}{place}"


def settled(rows: Iterable[Conflict], rules: Iterable[AcceptRule]) -> tuple[Conflict, ...]:
    """The rows in order (kind, then resource), each id once, those marked that the configuration accepts.

    What is accepted of one guest must not hide what others do. Of owners in each other's way at most one may be left
    that no rule names: it is alone with those that may share. In rows of other kinds every owner must be named.
    """
    named: dict[str, set[str]] = {}
    for rule in rules:
        named.setdefault(rule.kind, set()).add(rule.guest)
    by_id = {row.id: row for row in rows}
    marked = (
        msgspec.structs.replace(row, accepted=True) if _is_accepted(row, named.get(row.kind, set())) else row
        for row in by_id.values()
    )
    return tuple(sorted(marked, key=_row_order))


def _is_accepted(row: Conflict, named: set[str]) -> bool:
    if "*" in named:
        return True
    left = [owner for owner in row.owners if named.isdisjoint({owner.name, owner.uuid})]
    may_stay = 1 if row.kind in IN_EACH_OTHERS_WAY else 0
    return len(left) < len(row.owners) and len(left) <= may_stay


def _row_order(row: Conflict) -> tuple[str, str, int, str]:
    text = row.resource.id
    number = int(text) if len(text) < 10 and text.isascii() and text.isdigit() else -1
    return (row.kind, row.resource.kind, number, row.id)
