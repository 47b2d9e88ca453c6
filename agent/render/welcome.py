"""What a daemon in the foreground prints at its start: the host, its guests, what conflicts, where to go from here."""

from __future__ import annotations

from agent.core.report import Report
from agent.render.conflict_text import conflicts_text
from agent.render.guest_text import guests_text
from agent.render.host_state import status_text

MOST_CONFLICTS = 5
NEXT = "What to type next, in another shell"


def cpu_in_conflict(report: Report) -> str:
    """A CPU that is worth asking about: the first that is in a conflict, else the first of the host."""
    contended = (row.resource.id for row in report.conflicts if row.resource.kind == "cpu")
    return next(contended, str(report.topology.cpus[0].id) if report.topology.cpus else "0")


def welcome(report: Report, *, sockets: str, commands: tuple[str, ...], width: int = 80) -> str:
    """sockets: the folder that agent.sock and agent-ro.sock are in. commands: what to type next, one a line."""
    shown = report.conflicts[:MOST_CONFLICTS]
    more = len(report.conflicts) - len(shown)
    parts = [status_text(report, width=width)]
    if report.guests:
        parts.append(guests_text(report.guests, report.conflicts, width=width))
    if shown:
        parts.append(conflicts_text(shown, width=width) + (f"and {more} more\n" if more else ""))
    parts.append(_sockets(sockets) + _next(commands))
    return "\n".join(parts)


def _sockets(folder: str) -> str:
    return f"sockets   {folder}/agent-ro.sock (for anyone), {folder}/agent.sock (for its group)\n"


def _next(commands: tuple[str, ...]) -> str:
    return f"{NEXT} (Ctrl-C here ends the daemon):\n" + "".join(f"  {line}\n" for line in commands)
