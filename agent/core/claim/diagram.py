"""The life of a claim for people: a picture and tables of `core/claim/table`, as docs/ledger.md has them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from agent.core.claim.table import (
    FROM_CALLERS,
    FROM_CLOCK,
    FROM_JOURNAL,
    MEANING,
    STATES,
    TRANSITIONS,
    Event,
    Transition,
)
from agent.core.claim.values import Role, State

NOT_DRAWN: frozenset[Event] = frozenset({"commit-failed", "forget", "replace", "superseded"})
"""Events that end a claim in many states and would only hide the others; the tables have them."""

_ROLE_NAMES: dict[Role, str] = {"owner": "owner", "incoming": "incoming", "in_place": "in place"}

_PART = re.compile(r"(?P<begin><!-- made: (?P<name>[a-z]+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)


def picture() -> str:
    """All states and what leads from one to another, in mermaid's words, which a forge draws and a terminal can read.

    What leaves a claim as it is, and what NOT_DRAWN names, is left out.
    """
    drawn = [row for row in TRANSITIONS if row.before != row.after and row.event not in NOT_DRAWN]
    lines = ["stateDiagram-v2", "    [*] --> pending"]
    for (before, after), rows in _grouped(drawn, lambda row: (_place(row.before), _place(row.after))):
        names = dict.fromkeys(row.event for row in rows)
        lines.append(f"    {_state_at(before)} --> {_state_at(after)}: {', '.join(names)}")
    lines.append("    ended --> [*]")
    return "\n".join(("```mermaid", *lines, "```"))


def states() -> str:
    """Each state with its meaning."""
    return _table(("state", "a claim that is so"), ((f"`{state}`", meaning) for state, meaning in STATES.items()))


def events() -> str:
    """Each event with its meaning and who brings it."""
    rows = ((f"`{event}`", _brought_by(event), meaning) for event, meaning in MEANING.items())
    return _table(("event", "brought by", "when"), rows)


def transitions() -> str:
    """Every transition that there is."""
    return _table(("state", "event", "then", "of claims"), (_row(row) for row in _merged()))


PARTS: dict[str, Callable[[], str]] = {
    "picture": picture,
    "states": states,
    "events": events,
    "transitions": transitions,
}
"""What can stand between `<!-- made: NAME -->` and `<!-- end -->` of a document."""


def filled(document: str) -> str:
    """The document with each part that it names made anew. Raises KeyError for a name that there is not."""
    return _PART.sub(lambda found: f"{found['begin']}{PARTS[found['name']]()}\n{found['end']}", document)


def _place(state: State) -> int:
    return tuple(STATES).index(state)


def _state_at(place: int) -> State:
    return tuple(STATES)[place]


def _grouped(
    rows: Iterable[Transition], key: Callable[[Transition], tuple[int, int]]
) -> Iterator[tuple[tuple[int, int], list[Transition]]]:
    for group, members in groupby(sorted(rows, key=key), key=key):
        yield group, list(members)


def _merged() -> Iterator[Transition]:
    """One row for all roles that an event does the same to."""
    roles: dict[tuple[State, Event, State], frozenset[Role]] = {}
    for row in TRANSITIONS:
        key = (row.before, row.event, row.after)
        roles[key] = roles.get(key, frozenset()) | row.roles
    for (before, event, after), of in sorted(roles.items(), key=lambda item: _place(item[0][0])):
        yield Transition(before, event, after, of)


def _row(row: Transition) -> tuple[str, ...]:
    roles = [name for role, name in _ROLE_NAMES.items() if role in row.roles]
    of = "any" if len(roles) == len(_ROLE_NAMES) else ", ".join(roles)
    return f"`{row.before}`", f"`{row.event}`", f"`{row.after}`", of


def _brought_by(event: Event) -> str:
    if event in FROM_CALLERS:
        return "a caller"
    if event in FROM_JOURNAL:
        return "the journal"
    return "the clock" if event in FROM_CLOCK else "what is seen"


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
