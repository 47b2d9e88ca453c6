"""Conflicts for somebody who has to act on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from agent.core.conflicts import Conflict, Severity
from agent.core.reason_text import owner_name
from agent.core.words import count, plain
from agent.render import words
from agent.render.paint import Paint, no_paint
from agent.render.table import wrap

SEVERITIES: tuple[Severity, ...] = ("critical", "error", "warning", "info")
"""Worst first."""

_PLURALS = {"critical": "critical", "info": "info"}


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
        ("why", plain(conflict.cause)),
        ("do", plain(conflict.action)),
        ("id", plain(conflict.id)),
    )
    lines = [wrap(text, width, first=f"  {name:<7}") for name, text in facts]
    return paint(conflict.severity, word) + wrap(title, width, rest="  ")[len(word) :] + "".join(lines)


def tally(conflicts: Sequence[Conflict]) -> str:
    """ "no conflicts", "3 conflicts: 1 critical, 2 warnings; 1 accepted by the configuration"."""
    unaccepted = [row for row in conflicts if not row.accepted]
    accepted = len(conflicts) - len(unaccepted)
    counted = Counter(row.severity for row in unaccepted)
    found = [count(counted[word], word, _PLURALS.get(word)) for word in SEVERITIES if counted[word]]
    text = count(len(unaccepted), "conflict") + (f": {', '.join(found)}" if found else "")
    return text + (f"; {accepted} accepted by the configuration" if accepted else "")


def _who(conflict: Conflict) -> list[str]:
    return [
        owner_name(owner) + (f" (made by {plain(owner.maker)})" if owner.maker not in (None, "libvirt") else "")
        for owner in conflict.owners
    ]
