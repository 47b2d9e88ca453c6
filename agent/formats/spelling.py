"""How people write JSON, into how it is checked: what every form has in common.

Plain data in, plain data out. What is not understood stays as it was written, so that the checks that follow refuse it
by its name; a thing that is said twice is refused here, where both names are still known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agent.core.words import brief
from agent.errors import FaultyInput
from agent.formats.validate import MOST_FAULTS, field_path

DEEPEST = 8
"""Objects in objects; no form has more, and what is nested deeper is left as it is."""


def tidied(data: Any, untouched: frozenset[str] = frozenset(), depth: int = DEEPEST) -> Any:
    """Without fields that are null, which are not given, and with 4096.0 as 4096. untouched: fields, at any depth,
    whose content has a meaning of its own."""
    if isinstance(data, float) and data.is_integer():
        return int(data)
    if depth and isinstance(data, list):
        return [tidied(item, untouched, depth - 1) for item in data]
    if depth and isinstance(data, dict):
        return {
            name: value if name in untouched else tidied(value, untouched, depth - 1)
            for name, value in data.items()
            if value is not None
        }
    return data


def renamed(data: Mapping[str, Any], names: Mapping[str, str], path: str, faults: list[str]) -> dict[str, Any]:
    """With the fields under their own names. names: the others they may have. faults: takes what is given twice."""
    found: dict[str, Any] = {}
    written: dict[str, str] = {}
    for name, value in data.items():
        target = names.get(name, name)
        if target in found:
            faults.append(twice(field_path(path, brief(written[target], 80)), name))
        else:
            found[target], written[target] = value, name
    return found


def twice(one: str, other: str) -> str:
    """The fault of two names for one thing."""
    return f"{one}: {brief(other, 80)} says the same thing; give one of them"


def unknown(path: str, name: str, known: Iterable[str]) -> str:
    """The fault of a name that means nothing."""
    return f"{field_path(path, brief(name, 80))}: unknown. Known are {', '.join(known)}"


def refuse(faults: list[str]) -> None:
    """Raises FaultyInput when there are any."""
    if faults:
        raise FaultyInput(*faults[:MOST_FAULTS], *["and more"] * (len(faults) > MOST_FAULTS))


def is_whole(*values: object) -> bool:
    """True when all are whole numbers."""
    return all(isinstance(value, int) and not isinstance(value, bool) for value in values)


def number(value: Any) -> Any:
    """A whole number that is written as text, as a number; anything else as it is."""
    is_number = isinstance(value, str) and value.strip().isdecimal() and value.isascii() and len(value) < 20
    return int(value) if is_number else value
