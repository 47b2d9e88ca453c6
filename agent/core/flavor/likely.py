"""Which property may be meant by one that nobody gives a meaning to."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_LIKE = 0.8
"""From here on a name is rather a mistyped one than somebody's own."""

_PREFIX = re.compile(r"hw[:_.-]?", re.IGNORECASE)
_NUMBERED = re.compile(r"(?P<stem>.*)\.(?P<cell>\d{1,3})", re.ASCII)
_STEMS = ("numa_cpus", "numa_mem")


def likely(key: str, names: Iterable[str], prefix: str) -> str | None:
    """The property that `key` may be meant for, as it is written; None: none is like it. names: those that count there,
    without the prefix, which may be another one in the key, or none."""
    body = _PREFIX.sub("", key.strip(), count=1)[:80].lower().replace("-", "_")
    match = _NUMBERED.fullmatch(body)
    stem, known, end = (body, sorted(names), "") if match is None else (match["stem"], _STEMS, f".{int(match['cell'])}")
    near = difflib.get_close_matches(stem, known, 1, _LIKE)
    found = f"{prefix}{near[0]}{end}" if near else None
    return found if found != key else None
