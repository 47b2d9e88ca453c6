"""Wall time as text."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(at_s: float) -> str:
    """Seconds since 1970 in UTC, to the second: "2026-11-30T12:00:00Z"."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def in_utc(text: str) -> str:
    """RFC 3339 of any zone as `rfc3339` writes it, so that times compare as texts. Raises ValueError."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text!r} has no zone")
    try:
        return at.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"
    except OverflowError as error:
        raise ValueError(f"{text!r} is out of range") from error
