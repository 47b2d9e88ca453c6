"""The state of agent and host on one screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.core.cpuset import CpuSet
from agent.core.report import Report, SourceReport
from agent.core.words import count, plain, plural
from agent.render import words
from agent.render.conflict_text import tally, worst_first
from agent.render.paint import Paint, no_paint
from agent.render.table import wrap
from agent.render.topology_text import counts

MOST_CONFLICTS = 5
LEGACY = (
    "none configured, so each usable CPU counts as dedicated and as shared; set [compute] cpu_dedicated_set and "
    "cpu_shared_set to tell them apart"
)


def status_text(report: Report, *, width: int = 80, paint: Paint = no_paint) -> str:
    """How the agent is, what the host has and holds, what is wrong, what to type next. Ends with a newline."""
    health = report.health
    head = f"compute-agent {paint(health.status, health.status)}, {'ready' if health.ready else 'not ready'}\n"
    reasons = [wrap(plain(reason), width, first="  - ", rest="    ") for reason in health.reasons]
    lines = [wrap(text, width, first=f"{name:<10}") for name, text in _facts(report)]
    return head + "".join(reasons) + "".join(lines) + "".join(_worst(report, width, paint)) + _next(report)


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    host, health = report.usage.host, report.health
    yield "agent", f"{report.agent_id}, epoch {report.epoch}, generation {report.generation}"
    yield "host", counts(report.topology)
    yield "guests", f"{health.guests_active} active, {health.guests_inactive} not running"
    uncertain = " (uncertain)" if report.usage.free_is_uncertain else ""
    used, free = len(host.dedicated.used), len(host.dedicated.free)
    yield "pinned", f"{count(used, 'CPU')} used, {free} of {len(host.dedicated.total)} dedicated free{uncertain}"
    yield (
        "CPU sets",
        LEGACY
        if report.usage.is_legacy
        else f"dedicated {_cpus(host.dedicated.total)}, shared {_cpus(host.shared_cpus)}",
    )
    yield "memory", f"{words.size(host.memory_kib.used)} used, {words.size(host.memory_kib.free)} free in small pages"
    pools = [pool for pool in host.pages if pool.total or pool.used]
    if pools:
        yield "pages", "; ".join(f"{words.size(p.size_kib)}: {p.used} used, {p.free} free" for p in pools)
    yield "sources", _sources(health.sources)
    if health.problems:
        yield "problems", f"{health.problems} in what the host says of itself: agentctl topology"
    yield "conflicts", tally(report.conflicts).replace("no conflicts", "none")


def _cpus(cpus: CpuSet) -> str:
    return plural(cpus) if cpus else "none"


def _sources(sources: Sequence[SourceReport]) -> str:
    """ "sysfs, udev ok; libvirt NOT OK, read 5 s ago": why is among the reasons already."""
    well = [source.name for source in sources if source.ok]
    failed = [
        f"{source.name} NOT OK, {'never read' if source.age_s is None else f'read {words.age(source.age_s)} ago'}"
        for source in sources
        if not source.ok
    ]
    return "; ".join([*([f"{', '.join(well)} ok"] if well else []), *failed]) or "none"


def _worst(report: Report, width: int, paint: Paint) -> Iterator[str]:
    rows = [row for row in worst_first(report.conflicts) if not row.accepted]
    for row in rows[:MOST_CONFLICTS]:
        word = row.severity.upper()
        text = wrap(f"{word} {words.headline(row)} ({words.owners(row.owners)})", width - 2, rest="  ")
        yield "  " + paint(row.severity, word) + text[len(word) :].replace("\n", "\n  ").removesuffix("  ")


def _next(report: Report) -> str:
    return f"next      {'agentctl conflicts' if report.health.conflicts else 'agentctl topology'}\n"
