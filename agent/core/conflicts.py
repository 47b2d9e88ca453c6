"""Contradictions as rows: each says what is wrong, who is in it, and what to do."""

from __future__ import annotations

from typing import Literal

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
    "guest-split",
    "domain-lost-by-libvirt",
]


class Resource(Value, frozen=True, kw_only=True):
    """What is contended. kind: "cpu", "memory", "pages", "pci", "mdev", "guest". id: CPU number, page size in KiB,
    address or uuid as text. cell: host cell, None for the host as a whole or when unknown."""

    kind: str
    id: str
    cell: int | None = None


class Owner(Value, frozen=True, kw_only=True):
    """Who holds it: a domain, a claim, the configuration or the kernel."""

    type: Literal["domain", "claim", "config", "kernel"]
    uuid: str | None = None
    name: str | None = None
    maker: str | None = None


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
