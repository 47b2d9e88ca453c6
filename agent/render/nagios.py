"""A report as one line for Nagios and those who speak its language.

Form: "NAME STATUS - text | label=value;warn;crit;min", as the Monitoring Plugins' guidelines have it.
"""

from __future__ import annotations

from typing import NamedTuple

from agent.core.report import Report
from agent.core.words import plain, some
from agent.render import words
from agent.render.blind_spots import blind_spots, is_blind
from agent.render.conflict_text import SEVERITIES, tally, worst_first

NAME = "COMPUTE-AGENT"
OK, WARNING, CRITICAL, UNKNOWN = range(4)
_WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
_CODES = {"critical": CRITICAL, "error": CRITICAL, "warning": WARNING, "info": OK}
MOST_NAMED = 3


class NagiosLine(NamedTuple):
    """text: the line, without a newline. code: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN."""

    text: str
    code: int


def nagios_line(report: Report) -> NagiosLine:
    """The worst unaccepted conflict decides: error and critical are CRITICAL, warning is WARNING, info is OK.

    Without a conflict that bad: UNKNOWN when guests or host cannot be seen now, WARNING when one guest cannot.
    """
    unseen = blind_spots(report)
    code = max((_CODES[row.severity] for row in report.conflicts if not row.accepted), default=OK)
    if code == OK and is_blind(report):
        code = UNKNOWN
    elif code == OK and unseen:
        code = WARNING
    parts = [_conflicts(report), *unseen]
    return NagiosLine(f"{NAME} {_WORDS[code]} - {_clean('; '.join(parts))} | {_performance(report)}", code)


def nagios_failure(reason: str) -> NagiosLine:
    """The line when there is no report at all."""
    return NagiosLine(f"{NAME} {_WORDS[UNKNOWN]} - {_clean(reason)}", UNKNOWN)


def _conflicts(report: Report) -> str:
    rows = [row for row in worst_first(report.conflicts) if not row.accepted]
    named = [f"{words.headline(row)} ({words.owners(row.owners)})" for row in rows]
    text = tally(report.conflicts)
    return f"{text}. {some(named, MOST_NAMED)}" if named else text


def _performance(report: Report) -> str:
    open_rows = [row for row in report.conflicts if not row.accepted]
    values: dict[str, int] = {
        "conflicts": len(open_rows),
        **{severity: sum(row.severity == severity for row in open_rows) for severity in SEVERITIES},
        "accepted": len(report.conflicts) - len(open_rows),
        "guests": report.health.guests_active,
        "problems": len(report.topology.problems),
        "dedicated_free": len(report.usage.host.dedicated.free),
    }
    return " ".join(f"{name}={value};;;0" for name, value in values.items())


def _clean(text: str) -> str:
    """On one line and without the character that begins the performance data."""
    return plain(" ".join(text.split())).replace("|", "/")
