"""A report in Prometheus's text format 0.0.4, for node_exporter's textfile folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from agent.core.report import Report
from agent.core.usage import CellUsage, HostUsage
from agent.render.conflict_text import SEVERITIES

Sample = tuple[Mapping[str, str], float]
KIB = 1024


class Family(NamedTuple):
    """One gauge: its name, what it is, and a value per set of labels."""

    name: str
    help: str
    samples: tuple[Sample, ...]


def prometheus_text(report: Report) -> str:
    """All families. Ends with a newline."""
    return "".join(_family(family) for family in [_success(1), *_families(report)])


def prometheus_failure() -> str:
    """What an alert needs when the host could not be looked at: that alone."""
    return _family(_success(0))


def _success(value: int) -> Family:
    return Family("compute_agent_look_success", "Whether the host could be looked at.", (({}, value),))


def _families(report: Report) -> Iterator[Family]:
    yield from _conflict_families(report)
    yield from _host_families(report)
    yield from _book_families(report)


def _conflict_families(report: Report) -> Iterator[Family]:
    found = Counter(f"{row.severity} {row.accepted}" for row in report.conflicts)
    counts = [
        ({"severity": severity, "accepted": word}, float(found[f"{severity} {accepted}"]))
        for severity in SEVERITIES
        for accepted, word in ((False, "false"), (True, "true"))
    ]
    yield Family("compute_agent_conflicts", "Conflicts now, by severity.", tuple(counts))
    rows = [
        (
            {
                "id": row.id,
                "kind": row.kind,
                "severity": row.severity,
                "resource": f"{row.resource.kind} {row.resource.id}",
                "owners": ",".join(sorted(owner.name or owner.uuid or owner.type for owner in row.owners)),
                "accepted": "true" if row.accepted else "false",
            },
            1.0,
        )
        for row in report.conflicts
    ]
    yield Family("compute_agent_conflict_info", "One series for each conflict now.", tuple(rows))


def _host_families(report: Report) -> Iterator[Family]:
    health, topology = report.health, report.topology
    yield Family("compute_agent_guests", "Guests, by whether they run.", (
        ({"state": "active"}, health.guests_active),
        ({"state": "inactive"}, health.guests_defined),
    ))  # fmt: skip
    unread = sum(guest.sighting.validity != "valid" for guest in report.guests)
    yield Family("compute_agent_guests_unreadable", "Guests whose last known state is shown.", (({}, unread),))
    yield Family(
        "compute_agent_problems", "Contradictions in what the host says of itself.", (({}, len(topology.problems)),)
    )
    yield Family("compute_agent_cpus", "Host CPUs, by whether they are online.", (
        ({"state": "online"}, len(topology.online)), ({"state": "offline"}, len(topology.offline)),
    ))  # fmt: skip
    sources = tuple(({"source": source.name}, float(source.ok)) for source in health.sources)
    yield Family("compute_agent_source_ok", "Whether the source could be read.", sources)


def _book_families(report: Report) -> Iterator[Family]:
    """Cells only: sums over them, and not the host row, are what a query should add up; guests of no cell are apart."""
    books: list[tuple[str, CellUsage | HostUsage]] = [(str(cell.id), cell) for cell in report.usage.cells]
    everything = [("host", report.usage.host), *books]
    yield _gauge("dedicated_cpus", "Dedicated CPUs; cell=host is the whole host.", _cpus(everything))
    yield _gauge("memory_bytes", "Small-page memory; cell=host is the whole host.", _memory(everything))
    yield _gauge("shared_vcpus", "Floating vCPUs; cell=host is the whole host.", _shared(everything))
    yield _gauge("hugepages", "Huge pages of one size (bytes), in pages.", _pages(books))
    offered = [device for device in report.usage.pci if device.offered or device.owners]
    free = Counter((device.type, "free" if device.free else "used") for device in offered)
    yield _gauge("devices", "PCI functions that guests may have or have.", (
        ({"type": kind, "state": state}, float(number)) for (kind, state), number in sorted(free.items())
    ))  # fmt: skip


def _gauge(name: str, text: str, samples: Iterable[Sample]) -> Family:
    return Family(f"compute_agent_{name}", text, tuple(samples))


def _cpus(books: Iterable[tuple[str, CellUsage | HostUsage]]) -> Iterator[Sample]:
    for cell, part in books:
        sets = part.dedicated
        for state, cpus in (
            ("total", sets.total),
            ("used", sets.used),
            ("promised", sets.promised),
            ("free", sets.free),
        ):
            yield {"cell": cell, "state": state}, float(len(cpus))


def _memory(books: Iterable[tuple[str, CellUsage | HostUsage]]) -> Iterator[Sample]:
    for cell, part in books:
        kib = part.memory_kib
        for state, number in (("total", kib.total), ("used", kib.used), ("promised", kib.promised), ("free", kib.free)):
            yield {"cell": cell, "state": state}, float(number) * KIB


def _shared(books: Iterable[tuple[str, CellUsage | HostUsage]]) -> Iterator[Sample]:
    for cell, part in books:
        for state, number in (("limit", part.shared.limit), ("used", part.shared.used), ("free", part.shared.free)):
            yield {"cell": cell, "state": state}, float(number)


def _pages(books: Iterable[tuple[str, CellUsage | HostUsage]]) -> Iterator[Sample]:
    for cell, part in books:
        for pool in part.pages:
            labels = {"cell": cell, "size": str(pool.size_kib * KIB)}
            for state, number in (("total", pool.total), ("used", pool.used), ("free", pool.free)):
                yield {**labels, "state": state}, float(number)


def _family(family: Family) -> str:
    """Families without samples are left out: a HELP line alone says nothing."""
    if not family.samples:
        return ""
    lines = [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} gauge"]
    lines += [f"{family.name}{_labels(labels)} {_number(value)}" for labels, value in family.samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)
