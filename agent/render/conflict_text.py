"""Conflicts for somebody who has to act on them."""

from __future__ import annotations

from collections.abc import Sequence

from agent.core.conflicts import Conflict
from agent.render import words
from agent.render.paint import Paint, no_paint
from agent.render.table import wrap

SEVERITIES = ("critical", "error", "warning", "info")
"""Worst first."""


def worst_first(conflicts: Sequence[Conflict]) -> tuple[Conflict, ...]:
    """By severity, accepted ones last, otherwise in the order given."""
    return tuple(sorted(conflicts, key=lambda row: (row.accepted, SEVERITIES.index(row.severity))))


def conflicts_text(conflicts: Sequence[Conflict], *, width: int = 80, paint: Paint = no_paint) -> str:
    """A block for each, worst first, and a line that counts them. Ends with a newline."""
    blocks = [conflict_block(row, width=width, paint=paint) for row in worst_first(conflicts)]
    return "\n".join([*blocks, f"{tally(conflicts)}\n"])


def conflict_block(conflict: Conflict, *, width: int = 80, paint: Paint = no_paint) -> str:
    """What it is, who is in it, since when, why, and what to do. Ends with a newline."""
    word = conflict.severity.upper()
    title = f"{word}  {words.headline(conflict)}{'  (accepted by the configuration)' if conflict.accepted else ''}"
    facts = (
        ("who", ", ".join(_who(conflict)) or "nobody that can be named"),
        ("since", conflict.since or "not known (only the daemon keeps track)"),
        ("why", words.plain(conflict.cause)),
        ("do", words.plain(conflict.action)),
        ("id", words.plain(conflict.id)),
    )
    lines = [wrap(text, width, first=f"  {name:<7}") for name, text in facts]
    return paint(conflict.severity, word) + wrap(title, width, rest="  ")[len(word) :] + "".join(lines)


def tally(conflicts: Sequence[Conflict]) -> str:
    """ "no conflicts", "3 conflicts: 1 critical, 2 warning; 1 more is accepted"."""
    unaccepted = [row for row in conflicts if not row.accepted]
    accepted = len(conflicts) - len(unaccepted)
    found = [f"{n} {word}" for word in SEVERITIES if (n := sum(row.severity == word for row in unaccepted))]
    text = words.count(len(unaccepted), "conflict") + (f": {', '.join(found)}" if found else "")
    return text + (f"; {accepted} accepted by the configuration" if accepted else "")


def _who(conflict: Conflict) -> list[str]:
    return [
        words.owner_name(owner)
        + (f" (made by {words.plain(owner.maker)})" if owner.maker not in (None, "libvirt") else "")
        for owner in conflict.owners
    ]
