"""Reports as a lying server would tell them: each text that a value leaves free steers the terminal it is shown on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agent.core.report import Report
from agent.errors import WireError
from agent.formats import wire

POISON = "\x1b]0;owned\x07\x9b31m\u202e\u2028\nagentctl: forged"
"""A window title, a colour in one byte, a turned reading direction, a separator of lines, a line of its own."""

Path = tuple[str | int, ...]


def poisoned(report: Report) -> Report:
    """The report with POISON behind each text, and each key, that a client of this release takes."""
    data = json.loads(wire.to_json(report))
    refused: set[Path] = set()
    for path, text in list(_texts(data)):
        kind = tuple("*" if isinstance(step, int) else step for step in path)
        if kind in refused:
            continue
        _put(data, path, text + POISON)
        if not _is_taken(data):
            _put(data, path, text)
            refused.add(kind)
    for guest in data["guests"]:
        domain = guest["sighting"]["domain"]
        if domain:
            domain["facts"] = {name + POISON: value for name, value in domain["facts"].items()}
    return wire.from_builtins(data, Report)


def unsafe(text: str) -> str:
    """The characters of an output that may not reach a terminal; lines are the program's own."""
    return "".join(sorted({c for c in text if not c.isprintable() and c != "\n"}))


def _is_taken(data: object) -> bool:
    try:
        wire.from_builtins(data, Report)
    except WireError:
        return False
    return True


def _texts(data: object, path: Path = ()) -> Iterator[tuple[Path, str]]:
    if isinstance(data, str):
        yield path, data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from _texts(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _texts(value, (*path, index))


def _put(data: Any, path: Path, text: str) -> None:
    for step in path[:-1]:
        data = data[step]
    data[path[-1]] = text
