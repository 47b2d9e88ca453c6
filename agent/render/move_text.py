"""Moves for people: what this host knows of one, and how to say how it ended."""

from __future__ import annotations

from typing import NamedTuple

from agent.core.claim.values import ClaimKind, Outcome
from agent.core.claim.way_out import finish_command
from agent.core.words import plain
from agent.render.paint import Paint, no_paint
from agent.render.table import wrap


class MovePage(NamedTuple):
    """What is shown of one move. instance: uuid. source, destination: ids of its claims here; None: that half is on the
    other host. outcome None: it is open. opened_at, finished_at: RFC 3339."""

    move_id: str
    kind: ClaimKind
    instance: str
    source: str | None
    destination: str | None
    peer: str | None
    outcome: Outcome | None
    opened_at: str
    finished_at: str | None


def move_text(page: MovePage, *, width: int = 80, paint: Paint = no_paint) -> str:
    """All of it, and while it is open the command that finishes it. Ends with a newline."""
    ended = None if page.outcome is None else f"{page.outcome} at {page.finished_at}"
    facts = (
        ("kind", page.kind.replace("_", " ")),
        ("guest", page.instance),
        ("with host", page.peer),
        ("source", page.source and f"claim {page.source}"),
        ("goal", page.destination and f"claim {page.destination}"),
        ("opened", page.opened_at),
        ("ended", ended or "not yet"),
    )
    lines = [paint("strong", f"move {plain(page.move_id)}") + "\n"]
    lines += [wrap(text, width, first=f"  {name:<10} ") for name, text in facts if text]
    if page.outcome is None:
        lines.append(wrap("say how it ended; HOW: confirmed, reverted or failed", width, first=f"  {'next':<10} "))
        lines.append(f"{'':15}{plain(finish_command(page.move_id))}\n")
    return "".join(lines)
