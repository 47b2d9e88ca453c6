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

    def is_over(self, timeout_s: float) -> bool:
        """Wait for it as a bystander, who does not give it up."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_done, timeout_s)

    def outcome(self, timeout_s: float) -> ClaimRefusal | None:
        """None once it is on the disk."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_settling, timeout_s):
                self._is_given_up = True
                return stalled(timeout_s)
            self._changed.wait_for(lambda: self._is_done)
            return None if self._problem is None else unavailable(self._problem)


class UnderWay(Exception):
    """What is asked for is about an instance of which the disk has not taken a claim yet."""

    def __init__(self, commit: Commit) -> None:
        super().__init__("a claim of the instance is on its way to the disk")
        self.commit = commit


def stalled(timeout_s: float) -> ClaimRefusal:
    """A write has not come to an end for so long."""
    return unavailable(
        f"The disk of the state folder has not answered for {timeout_s:.0f} s, so nothing can be promised:"
        " see the kernel's log; what is stored later all the same ends by itself"
    )


def unavailable(message: str) -> ClaimRefusal:
    """Nothing can be promised now, since nothing can be stored."""
    return ClaimRefusal(code="JournalUnavailable", message=message, retry="elsewhere")
