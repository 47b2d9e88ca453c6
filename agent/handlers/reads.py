"""What is read of one picture of the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from agent.core.fit.host import HostFacts, host_facts
from agent.core.host_config import HostConfig
from agent.core.report import GuestReport, Health, Report, guests, health, inventory, is_ready, report
from agent.core.snapshot import Snapshot
from agent.core.topology import HostTopology
from agent.core.usage import Usage
from agent.core.values import Value
from agent.formats.snapshot_file import saved

_OF_JOURNAL = "journal: "
"""How a reason begins that is of the source of this name."""


class Domains(Value, frozen=True, kw_only=True):
    """All domains, by name and uuid."""

    domains: tuple[GuestReport, ...]


class UsageAnswer(Usage, frozen=True, kw_only=True):
    """Usage, and of which picture it is."""

    epoch: int
    generation: int


class Reads:
    """clock: monotonic seconds. interval_s: of the passes, which says how old a source may be. why_closed: why nobody
    is admitted though the host is known; None: somebody can be."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        interval_s: Callable[[], float],
        why_closed: Callable[[Snapshot], str | None],
    ) -> None:
        self._clock, self._interval_s, self._why_closed = clock, interval_s, why_closed
        self.methods: Mapping[str, Callable[[Snapshot], object]] = {
            "get_inventory": inventory,
            "get_domains": self._domains,
            "get_usage": _usage,
            "get_conflicts": lambda snapshot: snapshot.conflicts,
            "get_health": self.health,
            "get_report": self.report,
            "get_snapshot": saved,
        }

    def health(self, snapshot: Snapshot) -> Health:
        """How far it can be relied on."""
        return self._closed(snapshot, health(snapshot, now_s=self._clock(), interval_s=self._interval_s()))

    def report(self, snapshot: Snapshot) -> Report:
        """Everything."""
        found = report(snapshot, now_s=self._clock(), interval_s=self._interval_s())
        return msgspec.structs.replace(found, health=self._closed(snapshot, found.health))

    def is_known(self, snapshot: Snapshot) -> bool:
        """Whether questions about the host can be answered."""
        return is_ready(snapshot, now_s=self._clock(), interval_s=self._interval_s())

    def _closed(self, snapshot: Snapshot, found: Health) -> Health:
        """Not ready where nobody is admitted, with the reason in the place of what the journal says as a source."""
        why = self._why_closed(snapshot) if found.ready else None
        if why is None:
            return found
        others = [reason for reason in found.reasons if not reason.startswith(_OF_JOURNAL)]
        status = "degraded" if found.status == "ok" else found.status
        reasons = (*others, f"No guest is admitted: {why}")
        return msgspec.structs.replace(found, ready=False, status=status, reasons=reasons)

    def _domains(self, snapshot: Snapshot) -> Domains:
        return Domains(domains=guests(snapshot, now_s=self._clock()))


class LatestHostFacts:
    """The facts of the latest host that was asked about: they hold as long as topology and configuration are the very
    same objects."""

    def __init__(self) -> None:
        self._known: tuple[HostTopology, HostConfig, HostFacts] | None = None

    def of(self, snapshot: Snapshot) -> HostFacts:
        """The facts of this snapshot; from any thread."""
        known = self._known
        if known is None or known[0] is not snapshot.topology or known[1] is not snapshot.config:
            facts = host_facts(snapshot.topology, snapshot.config)
            self._known = known = (snapshot.topology, snapshot.config, facts)
        return known[2]


def _usage(snapshot: Snapshot) -> UsageAnswer:
    usage = {name: getattr(snapshot.usage, name) for name in Usage.__struct_fields__}
    return UsageAnswer(epoch=snapshot.identity.epoch, generation=snapshot.generation, **usage)
