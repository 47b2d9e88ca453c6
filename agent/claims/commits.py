"""Waiting for the disk."""

from __future__ import annotations

import threading

from agent.core.claim.refusal import ClaimRefusal

STALE_S = 30.0
"""So long a caller waits for the disk; then it is told that nobody knows, and if the claim is stored later it ends."""


class Commit:
    """One write that somebody waits for. is_wanted: there is one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_settling = self._is_done = self._is_given_up = False
        self._problem: str | None = None
        self.is_wanted = False

    def begin_settling(self) -> bool:
        """The journal is done with it: from now on whoever waits does so to the end. False: nobody waits any more."""
        with self._changed:
            self._is_settling = True
            return not self._is_given_up

    def settle(self, problem: str | None) -> None:
        """It is on the disk, or why not."""
        with self._changed:
            self._problem = problem
            self._is_settling = self._is_done = True
            self._changed.notify_all()

    def outcome(self, timeout_s: float) -> ClaimRefusal | None:
        """None once it is on the disk."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_settling, timeout_s):
                self._is_given_up = True
                return unavailable(
                    f"The disk of the state folder has not answered for {timeout_s:.0f} s, so nothing can be promised:"
                    " see the kernel's log; what is stored later all the same ends by itself"
                )
            self._changed.wait_for(lambda: self._is_done)
            return None if self._problem is None else unavailable(self._problem)


def unavailable(message: str) -> ClaimRefusal:
    """Nothing can be promised now, since nothing can be stored."""
    return ClaimRefusal(code="JournalUnavailable", message=message, retry="elsewhere")
