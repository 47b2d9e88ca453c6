"""What is known of each domain, and when a reading may change it (LEDGER R1, R2)."""

from __future__ import annotations

from types import MappingProxyType

from agent.core.cpuset import CpuSet
from agent.core.guest import RunIdentity, Sighting
from agent.core.values import ReadOnlyMap, Value


class Listing(Value, frozen=True, kw_only=True):
    """libvirt's list of all domains, defined or active. complete: the call succeeded on a connection that has settled."""

    connection: int
    begun_at: float
    complete: bool
    uuids: frozenset[str]


class LivingProcess(Value, frozen=True, kw_only=True):
    """A QEMU process of a domain. cpus: union of what its threads are bound to; None: not read."""

    uuid: str
    name: str
    run: RunIdentity
    cpus: CpuSet | None = None


class Processes(Value, frozen=True, kw_only=True):
    """QEMU processes, by domain uuid. can_see: processes of other users are visible, so a missing one is really gone."""

    begun_at: float
    can_see: bool
    living: ReadOnlyMap[str, LivingProcess] = MappingProxyType({})


class Ledger(Value, frozen=True, kw_only=True):
    """connection: number of the current libvirt connection; sightings by uuid."""

    connection: int = 0
    sightings: ReadOnlyMap[str, Sighting] = MappingProxyType({})
