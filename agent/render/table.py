"""Columns of text that fit a width: long cells go on below themselves; whatever is laid out is made safe to show."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent.core.words import plain

GAP = "  "
NARROWEST = 8

_PIECE = re.compile(r"(?:`[^`]*`|[^\s,])*(?:,\s*|\s+|$)")
_NUMBER = re.compile(r"-|-?\d+(?:\.\d+)?")


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int, *, indent: str = "") -> str:
    """Left-aligned columns without borders, numbers to the right; at most `width` wide if the words allow it.

    A column that holds only numbers or "-" is aligned to the right. Ends with a newline.
    """
    grid = [list(header), *[[plain(text) for text in row] for row in rows]]
    widths = _fit([max(len(row[i]) for row in grid) for i in range(len(header))], width - len(indent))
    right = [all(_is_number(row[i]) for row in rows) and bool(rows) for i in range(len(header))]
    return "".join(_line(row, widths, right, indent) for row in grid)


def wrap(text: str, width: int, *, first: str = "", rest: str | None = None, keeps_words: bool = False) -> str:
    """One paragraph in lines of `width`; lists of CPUs break after a comma. Ends with a newline.

    keeps_words: a word that no line has room for, as a path may be, is not broken.
    """
    after = " " * len(first) if rest is None else rest
    widths = max(NARROWEST, width - len(after)), max(NARROWEST, width - len(first))
    lines = _wrapped(plain(text), *widths, keeps_words=keeps_words)
    return "".join(f"{plain(first) if n == 0 else after}{line}".rstrip() + "\n" for n, line in enumerate(lines or [""]))


def _fit(natural: list[int], width: int) -> list[int]:
    """Take from the widest column until the line fits."""
    widths = list(natural)
    surplus = sum(widths) + len(GAP) * (len(widths) - 1) - width
    while surplus > 0:
        widest = max(range(len(widths)), key=lambda i: widths[i])
        others = sorted(widths)[-2] if len(widths) > 1 else NARROWEST
        floor = max(NARROWEST, min(others, widths[widest] - 1))
        if widths[widest] <= NARROWEST:
            break
        cut = min(surplus, widths[widest] - floor)
        widths[widest] -= cut
        surplus -= cut
    return widths


def _line(row: Sequence[str], widths: Sequence[int], right: Sequence[bool], indent: str) -> str:
    cells = [_wrapped(text, width) or [""] for text, width in zip(row, widths, strict=True)]
    lines = []
    for level in range(max(len(cell) for cell in cells)):
        parts = []
        for cell, width, to_right in zip(cells, widths, right, strict=True):
            text = cell[level] if level < len(cell) else ""
            parts.append(text.rjust(width) if to_right else text.ljust(width))
        lines.append((indent + GAP.join(parts)).rstrip() + "\n")
    return "".join(lines)


def _wrapped(text: str, width: int, first_width: int | None = None, *, keeps_words: bool = False) -> list[str]:
    """Lines no longer than `width`, broken after a blank or a comma; inside a word only if it fills a line, and not
    where keeps_words.

    A command in backticks stays on one line if it can, so that it can be copied. first_width: of the first line.
    """
    lines, line, room = [], "", first_width or width
    for piece in _PIECE.findall(text):
        if line and len(line) + len(piece.rstrip()) > room:
            lines.append(line.rstrip())
            line, room = "", width
        line += piece
        while not keeps_words and len(line.rstrip()) > room:
            lines.append(line[:room])
            line, room = line[room:], width
    return [*lines, line.rstrip()]


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None
