"""Now, for tests that say what time it is."""

from __future__ import annotations

from agent.core.claim.values import Moment


def at(monotonic_s: float = 1000.0, *, wall: str = "2026-01-01T00:00:00Z", boot_id: str = "boot") -> Moment:
    """A moment; of the wall clock's seconds only the difference counts."""
    return Moment(boot_id=boot_id, monotonic_s=monotonic_s, wall_s=1_767_225_600.0 + monotonic_s, wall=wall)
