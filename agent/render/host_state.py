"""The state of agent and host on one screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.core.cpuset import CpuSet
from agent.core.report import Report, SourceReport
from agent.core.usage import PageAmount
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
    used, free = count(len(host.dedicated.used), "CPU"), len(host.dedicated.free)
    promised = _promised(len(host.dedicated.promised))
    yield "pinned", f"{used} used, {promised}{free} of {len(host.dedicated.total)} dedicated free{uncertain}"
    yield (
        "CPU sets",
        LEGACY
        if report.usage.is_legacy
        else f"dedicated {_cpus(host.dedicated.total)}, shared {_cpus(host.shared_cpus)}",
    )
    memory = host.memory_kib
    given = f"{words.size(memory.used)} used, {_promised(words.size(memory.promised)) if memory.promised else ''}"
    yield "memory", f"{given}{words.size(memory.free)} free in small pages"
    pools = [pool for pool in host.pages if pool.total or pool.used or pool.promised]
    if pools:
        yield "pages", "; ".join(map(_pool, pools))
    yield from _claims(report)
    yield "sources", _sources(health.sources)
    if health.problems:
        yield "problems", f"{health.problems} in what the host says of itself: agentctl topology"
    yield "conflicts", tally(report.conflicts).replace("no conflicts", "none")


def _pool(pool: PageAmount) -> str:
    return f"{words.size(pool.size_kib)}: {pool.used} used, {_promised(pool.promised)}{pool.free} free"


def _promised(amount: int | str) -> str:
    return f"{amount} promised, " if amount else ""


def _claims(report: Report) -> Iterator[tuple[str, str]]:
    health = report.health
    if health.claims:
        counted = ((health.claims_overdue, "overdue"), (health.claims_doubtful, "doubtful"))
        late = [f"{number} {word}" for number, word in counted if number]
        yield "claims", ", ".join([f"{health.claims} held", *late])
    if health.build_failures:
        yield "failures", f"{count(health.build_failures, 'guest')} admitted that did not come to be, lately"
    if report.maintenance is not None:
        yield "closed", f"for maintenance since {plain(report.maintenance.since)}: {plain(report.maintenance.reason)}"


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
