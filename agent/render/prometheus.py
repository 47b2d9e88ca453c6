"""A report in Prometheus's text format 0.0.4, for node_exporter's textfile folder; prometheus_client writes it.

The library takes 50 ms to import, so import this module only where the format is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily

from agent.core.claim.values import State
from agent.core.report import Report
from agent.core.usage import CellUsage, DeviceUsage, HostUsage
from agent.core.words import plain_lines
from agent.render.blind_spots import is_blind
from agent.render.conflict_text import SEVERITIES
from agent.render.usage_text import is_promised

Sample = tuple[tuple[str, ...], float]
"""Values of the labels, then the value."""

Books = Iterable[tuple[str, CellUsage | HostUsage]]
KIB = 1024
STATES: tuple[State, ...] = tuple(state for state in get_args(State) if state != "ended")


def prometheus_text(report: Report) -> str:
    """All families. Ends with a newline."""
    return _text([_success(0 if is_blind(report) else 1), *_families(report)])


def prometheus_failure() -> str:
    """What an alert needs when the host could not be looked at: that alone."""
    return _text([_success(0)])


class _Collector:
    """What a registry asks for. Families without samples are left out: a HELP line alone says nothing."""

    def __init__(self, families: Iterable[GaugeMetricFamily]) -> None:
        self._families = [family for family in families if family.samples]

    def collect(self) -> list[GaugeMetricFamily]:
        return self._families


def _text(families: Iterable[GaugeMetricFamily]) -> str:
    registry = CollectorRegistry()
    registry.register(_Collector(families))
    return generate_latest(registry).decode()


def _gauge(name: str, text: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"compute_agent_{name}", text, labels=labels)
    for values, number in samples:
        family.add_metric([plain_lines(value) for value in values], number)
    return family


def _success(value: int) -> GaugeMetricFamily:
    return _gauge("look_success", "Whether the host could be looked at.", (), [((), value)])


def _families(report: Report) -> Iterator[GaugeMetricFamily]:
    yield from _conflict_families(report)
    yield from _host_families(report)
    yield from _book_families(report)
    yield from _claim_families(report)


def _conflict_families(report: Report) -> Iterator[GaugeMetricFamily]:
    found = Counter((row.severity, _word(row.accepted)) for row in report.conflicts)
    yield _gauge("conflicts", "Conflicts now, by severity.", ("severity", "accepted"), (
        ((severity, accepted), found[severity, accepted]) for severity in SEVERITIES for accepted in ("false", "true")
    ))  # fmt: skip
    labels = ("id", "kind", "severity", "resource", "owners", "accepted")
    yield _gauge("conflict_info", "One series for each conflict now.", labels, (
        (
            (
                row.id,
                row.kind,
                row.severity,
                f"{row.resource.kind} {row.resource.id}",
                ",".join(owner.label for owner in row.owners),
                _word(row.accepted),
            ),
            1,
        )
        for row in report.conflicts
    ))  # fmt: skip


def _word(value: bool) -> str:
    return "true" if value else "false"


def _host_families(report: Report) -> Iterator[GaugeMetricFamily]:
    health, topology = report.health, report.topology
    yield _gauge("guests", "Guests, by whether they run.", ("state",), [
        (("active",), health.guests_active), (("inactive",), health.guests_inactive),
    ])  # fmt: skip
    unread = sum(guest.sighting.validity != "valid" for guest in report.guests)
    yield _gauge("guests_unreadable", "Guests whose last known state is shown.", (), [((), unread)])
    problems = len(topology.problems)
    yield _gauge("problems", "Contradictions in what the host says of itself.", (), [((), problems)])
    yield _gauge("cpus", "Host CPUs, by whether they are online.", ("state",), [
        (("online",), len(topology.online)), (("offline",), len(topology.offline)),
    ])  # fmt: skip
    sources = [((source.name,), float(source.ok)) for source in health.sources]
    yield _gauge("source_ok", "Whether the source could be read.", ("source",), sources)


def _book_families(report: Report) -> Iterator[GaugeMetricFamily]:
    """Cells only: sums over them, and not the host row, are what a query should add up; guests of no cell are apart."""
    books: list[tuple[str, CellUsage | HostUsage]] = [(str(cell.id), cell) for cell in report.usage.cells]
    everything = [("host", report.usage.host), *books]
    labels = ("cell", "state")
    yield _gauge("dedicated_cpus", "Dedicated CPUs; cell=host is the whole host.", labels, _cpus(everything))
    yield _gauge("memory_bytes", "Small-page memory; cell=host is the whole host.", labels, _memory(everything))
    yield _gauge("shared_vcpus", "Floating vCPUs; cell=host is the whole host.", labels, _shared(everything))
    yield _gauge("hugepages", "Huge pages of one size (bytes), in pages.", ("cell", "size", "state"), _pages(books))
    offered = [device for device in report.usage.pci if device.offered or device.owners]
    free = Counter((device.type, _state_of(device)) for device in offered)
    yield _gauge("devices", "PCI functions that guests may have or have.", ("type", "state"), sorted(free.items()))


def _state_of(device: DeviceUsage) -> str:
    return "free" if device.free else "promised" if is_promised(device) else "used"


def _claim_families(report: Report) -> Iterator[GaugeMetricFamily]:
    """Every state, so that a query need not tell none from not told."""
    found = Counter(claim.state for claim in report.claims)
    samples = [((state,), float(found[state])) for state in STATES]
    yield _gauge("claims", "Claims that hold, by state.", ("state",), samples)
    failed = [((), float(report.health.build_failures))]
    yield _gauge("build_failures", "Guests that were admitted and did not come to be, lately.", (), failed)
    is_closed = [((), float(report.maintenance is not None))]
    yield _gauge("maintenance", "Whether new guests are refused for maintenance.", (), is_closed)


def _cpus(books: Books) -> Iterator[Sample]:
    for cell, part in books:
        sets = part.dedicated
        for state, cpus in (
            ("total", sets.total),
            ("used", sets.used),
            ("promised", sets.promised),
            ("free", sets.free),
        ):
            yield (cell, state), len(cpus)


def _memory(books: Books) -> Iterator[Sample]:
    for cell, part in books:
        kib = part.memory_kib
        for state, number in (("total", kib.total), ("used", kib.used), ("promised", kib.promised), ("free", kib.free)):
            yield (cell, state), number * KIB


def _shared(books: Books) -> Iterator[Sample]:
    for cell, part in books:
        row = part.shared
        for state, number in (("limit", row.limit), ("used", row.used), ("promised", row.promised), ("free", row.free)):
            yield (cell, state), number


def _pages(books: Books) -> Iterator[Sample]:
    for cell, part in books:
        for pool in part.pages:
            states = (("total", pool.total), ("used", pool.used), ("promised", pool.promised), ("free", pool.free))
            for state, number in states:
                yield (cell, str(pool.size_kib * KIB), state), number
