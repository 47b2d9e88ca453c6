"""Colours, for a terminal that wants them; elsewhere the text stays as it is."""

from __future__ import annotations

from collections.abc import Callable

Paint = Callable[[str, str], str]
"""paint(style, text) -> text. Styles: severities, a status ("ok", "degraded", "down"), "strong", "faint"."""

_CODES = {
    "info": "36",
    "warning": "33",
    "error": "31",
    "critical": "1;31",
    "ok": "32",
    "degraded": "33",
    "down": "1;31",
    "strong": "1",
    "faint": "2",
}


def no_paint(_style: str, text: str) -> str:
    """The text as it is."""
    return text


def ansi_paint(style: str, text: str) -> str:
    """The text in the style's ANSI colour; as it is when the style has none."""
    code = _CODES.get(style)
    return f"\x1b[{code}m{text}\x1b[0m" if code else text
