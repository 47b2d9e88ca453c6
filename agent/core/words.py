"""Outside text made safe to show: the one function that all of it passes on its way to a terminal or a log; lists of
which only the first few are named; and nouns and verbs that agree with how many there are."""

from __future__ import annotations

from collections.abc import Sequence, Sized

from agent.core.cpuset import CpuSet

_MARKS = frozenset("[](){};,=\"'")


def plain(text: str) -> str:
    r"""The text on one line, whatever is not printable made visible: "\x1b", "\u202e".

    A guest's name or a server's answer must steer no terminal, turn no reading direction and begin no line of its own.
    Names in other scripts stay as they are. Escaping twice changes nothing.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def plain_lines(text: str) -> str:
    """As `plain` for each line: for what is written in lines of its own, and for formats that escape line ends."""
    return "\n".join(plain(line) for line in text.split("\n"))


def brief(text: str, most: int = 300) -> str:
    """As `plain`, cut to `most` characters: for sentences that name what somebody else sent."""
    cut = text[: most + 1]
    return plain(text) if len(cut) <= most else f"{plain(text[: most - 3])}..."


def field(text: str) -> str:
    """As `plain`, and without the marks that part the fields of a log line: a name must not forge another field."""
    return "".join(_escaped(c) if c in _MARKS else c for c in plain(text))


def some(items: Sequence[str], most: int = 5, *, between: str = ", ") -> str:
    """The first few of a list, then how many more: "a, b, c and 4 more"."""
    shown = between.join(items[:most])
    return f"{shown} and {len(items) - most} more" if len(items) > most else shown


def count(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun: "1 guest", "3 guests", "no guests"."""
    return f"{number or 'no'} {one if number == 1 else many or one + 's'}"


def plural(ids: CpuSet, noun: str = "CPU") -> str:
    """Numbers with their noun: "CPU 3", "CPUs 3-5,8"."""
    return f"{noun}{'' if len(ids) == 1 else 's'} {ids}"


def agrees(what: Sized, one: str, many: str) -> str:
    """The word that goes with so many: "is" or "are", "its" or "their"."""
    return one if len(what) == 1 else many


def sentence(text: str) -> str:
    """As `plain`, for a sentence with marks of its own in a log line: it cannot begin a field there ("name=[")."""
    return plain(text).replace("=[", f"{_escaped('=')}[")


def _escaped(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
