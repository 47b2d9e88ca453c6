"""Waiting for the disk."""

from __future__ import annotations

import threading

from agent.core.claim.refusal import ClaimRefusal

STALE_S = 30.0
"""So long a caller waits for the disk; then it is told that nobody knows, and if the claim is stored later it ends."""


REFUSAL_S = 1.0
"""So long a refusal waits for the disk, so that the same call gets it again after a crash. Then it is told all the
same: it takes nothing."""


class Commit:
    """One write that somebody waits for. is_wanted: there is one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_settling = self._is_done = self._is_given_up = False
        self._problem: str | None = None
        self._refusal: ClaimRefusal | None = None
        self.is_wanted = False

    def begin_settling(self) -> bool:
        """The journal is done with it: from now on whoever waits does so to the end. False: nobody waits any more."""
        with self._changed:
            self._is_settling = True
            return not self._is_given_up

    def settle(self, problem: str | None, refusal: ClaimRefusal | None = None) -> None:
        """It is on the disk, or why not. refusal: it is, and does not count all the same."""
        with self._changed:
            self._problem, self._refusal = problem, refusal
            self._is_settling = self._is_done = True
            self._changed.notify_all()

    def is_over(self, timeout_s: float) -> bool:
        """Wait for it as a bystander, who does not give it up."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_done, timeout_s)

    def outcome(self, timeout_s: float) -> ClaimRefusal | None:
        """None once it is on the disk, and counts."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_settling, timeout_s):
                self._is_given_up = True
                return stalled(timeout_s)
            self._changed.wait_for(lambda: self._is_done)
            return self._refusal if self._problem is None else unavailable(self._problem)

    def in_force(self, timeout_s: float) -> ClaimRefusal | None:
        """The same of what stays as it was decided, whatever the disk does."""
        with self._changed:
            is_done = self._changed.wait_for(lambda: self._is_done, timeout_s)
            problem = self._problem if is_done else f"{_silent(timeout_s)}: see the kernel's log."
            return None if problem is None else not_stored(problem)


class Commits:
    """Those that are under way, each by what it is about; for every thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_subject: dict[str, Commit] = {}

    def begin(self, subject: str, commit: Commit) -> None:
        """From now on who asks about it finds the commit."""
        with self._lock:
            self._by_subject[subject] = commit

    def end(self, subject: str, commit: Commit) -> None:
        """It is over, or was never asked for. Fine to repeat."""
        with self._lock:
            if self._by_subject.get(subject) is commit:
                del self._by_subject[subject]

    def of(self, *subjects: str) -> Commit | None:
        """That about one of these."""
        with self._lock:
            return next((self._by_subject[one] for one in subjects if one in self._by_subject), None)


class UnderWay(Exception):
    """What is asked for is about an instance of which the disk has not taken a claim yet."""

    def __init__(self, commit: Commit) -> None:
        super().__init__("a claim of the instance is on its way to the disk")
        self.commit = commit


def stalled(timeout_s: float) -> ClaimRefusal:
    """A write has not come to an end for so long."""
    return unavailable(
        f"{_silent(timeout_s)}, so nothing can be promised:"
        " see the kernel's log; what is stored later all the same ends by itself"
    )


def unavailable(message: str) -> ClaimRefusal:
    """Nothing can be promised now, since nothing can be stored."""
    return ClaimRefusal(code="JournalUnavailable", message=message, retry="elsewhere")


def not_stored(problem: str) -> ClaimRefusal:
    """It was decided and counts, and the disk does not have it. problem: one sentence why."""
    message = (
        "It is in force here, but not stored: a restart before the disk takes it would lose it, so ask again until that"
        f" has it. {problem}"
    )
    return ClaimRefusal(code="JournalUnavailable", message=message, retry="later")


def _silent(timeout_s: float) -> str:
    return f"The disk of the state folder has not answered for {timeout_s:.0f} s"
