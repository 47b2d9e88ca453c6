"""Domains: the list, and the XML with state of each, read in parallel."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from agent.adapters.libvirt.binding import load_libvirt
from agent.adapters.libvirt.connection import LibvirtConnection
from agent.adapters.libvirt.link import Link
from agent.core.guest import DomainState
from agent.core.ledger import ListedDomain, Listing
from agent.core.values import Value
from agent.errors import LibvirtError

STATE_PREFIXES: Mapping[str, DomainState] = {
    "NOSTATE": "no-state",
    "RUNNING": "running",
    "BLOCKED": "blocked",
    "PAUSED": "paused",
    "SHUTDOWN": "shutting-down",
    "SHUTOFF": "shut-off",
    "CRASHED": "crashed",
    "PMSUSPENDED": "pmsuspended",
}
"""libvirt's constants VIR_DOMAIN_<key>; their reasons are VIR_DOMAIN_<key>_<REASON>."""


class DomainText(Value, frozen=True, kw_only=True):
    """One domain as libvirt tells it, not parsed yet.

    xml: what XMLDesc(0) gives: the live definition of an active domain, else the stored one. reason: libvirt's word for
    the state in lower case ("booted", "migration", "starting-up"), None when it has none. libvirt_id: None when not
    active. begun_at: monotonic seconds before the first call; connection: number of the connection it came over.
    """

    uuid: str
    name: str
    xml: str
    state: DomainState
    reason: str | None
    persistent: bool
    libvirt_id: int | None
    begun_at: float
    connection: int


def list_domains(connection: LibvirtConnection) -> Listing:
    """All domains, defined or active, by one call. Raises LibvirtUnavailable, LibvirtTimeout, LibvirtError."""
    link = connection.current()
    begun_at = connection.clock()
    entries = connection.call_on(link, _entries, doing="list the domains")
    return Listing(
        connection=link.number,
        begun_at=begun_at,
        complete=connection.has_settled(link, begun_at),
        entries=MappingProxyType({entry.uuid: entry for entry in entries}),
    )


def read_domain_texts(
    connection: LibvirtConnection, uuids: Iterable[str]
) -> Iterator[tuple[str, DomainText | LibvirtError]]:
    """XML and state of many domains, each pair as it comes back.

    A domain that cannot be read gives its error in the place of its text (DomainGone, LibvirtTimeout, ...) and costs
    nobody else. Raises LibvirtUnavailable only before the first pair, when there is no connection at all.
    """
    link = connection.current()
    works = ((uuid, f"read domain {uuid}", functools.partial(_read, connection, link, uuid)) for uuid in uuids)
    return connection.each_call(link, works)


def _entries(raw: Any) -> tuple[ListedDomain, ...]:
    return tuple(
        ListedDomain(uuid=domain.UUIDString(), name=domain.name(), libvirt_id=_active_id(domain))
        for domain in raw.listAllDomains(0)
    )


def _active_id(domain: Any) -> int | None:
    libvirt_id: int = domain.ID()
    return None if libvirt_id < 0 else libvirt_id


def _read(connection: LibvirtConnection, link: Link, uuid: str, raw: Any) -> DomainText:
    begun_at = connection.clock()
    domain = raw.lookupByUUIDString(uuid)
    state, reason = domain.state()
    return DomainText(
        uuid=uuid,
        name=domain.name(),
        xml=domain.XMLDesc(0),
        state=state_words().get(state, "unknown"),
        reason=reason_words().get((state, reason)),
        persistent=bool(domain.isPersistent()),
        libvirt_id=_active_id(domain),
        begun_at=begun_at,
        connection=link.number,
    )


@functools.cache
def state_words() -> Mapping[int, DomainState]:
    """Our word for each of libvirt's state numbers."""
    libvirt = load_libvirt()
    return {getattr(libvirt, f"VIR_DOMAIN_{prefix}"): word for prefix, word in STATE_PREFIXES.items()}


@functools.cache
def reason_words() -> Mapping[tuple[int, int], str]:
    """(state, reason) numbers to the reason's word; "unknown" is left out."""
    libvirt = load_libvirt()
    words = {}
    for prefix in STATE_PREFIXES:
        state = getattr(libvirt, f"VIR_DOMAIN_{prefix}")
        start = f"VIR_DOMAIN_{prefix}_"
        for name in (name for name in vars(libvirt) if name.startswith(start) and not name.endswith("_LAST")):
            words[state, getattr(libvirt, name)] = name.removeprefix(start).lower().replace("_", "-")
    return {key: word for key, word in words.items() if word != "unknown"}
