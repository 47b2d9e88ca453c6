"""Wall time as text."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(at_s: float) -> str:
    """Seconds since 1970 in UTC, to the second: "2026-11-30T12:00:00Z"."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
