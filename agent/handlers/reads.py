"""What is read of one picture of the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agent.core.fit.host import HostFacts, host_facts
from agent.core.host_config import HostConfig
from agent.core.report import GuestReport, Health, Report, guests, health, inventory, report
from agent.core.snapshot import Snapshot
from agent.core.topology import HostTopology
from agent.core.usage import Usage
from agent.core.values import Value
from agent.formats.snapshot_file import saved


class Domains(Value, frozen=True, kw_only=True):
    """All domains, by name and uuid."""

    domains: tuple[GuestReport, ...]


class UsageAnswer(Usage, frozen=True, kw_only=True):
    """Usage, and of which picture it is."""

    epoch: int
    generation: int


class Reads:
    """clock: monotonic seconds. interval_s: of the passes, which says how old a source may be."""

    def __init__(self, *, clock: Callable[[], float], interval_s: Callable[[], float]) -> None:
        self._clock, self._interval_s = clock, interval_s
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
        return health(snapshot, now_s=self._clock(), interval_s=self._interval_s())

    def report(self, snapshot: Snapshot) -> Report:
        """Everything."""
        return report(snapshot, now_s=self._clock(), interval_s=self._interval_s())

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
