"""How long promises may be relied on that a damaged journal has lost."""

from __future__ import annotations

from agent.core.claim.book import Book, Draft
from agent.core.claim.steps import deadline_in, is_past
from agent.core.claim.values import Deadline, Horizon, Moment


def begin(draft: Draft, lost: str | None) -> None:
    """The agent starts, or what was lost is of no account any more. lost: of the journal, one sentence; None: nothing.

    A claim that is lost was made before the start, so it has run out once the longest time that a claim ever got has
    passed since. Where nobody knows that time either, it is the longest that may be asked for.
    """
    rules, was = draft.rules, draft.book.horizon
    given = [min(claim.ttl_s, rules.most_ttl_s) for claim in draft.book.claims.values() if claim.deadline is not None]
    if was is not None:
        given.append(was.longest_ttl_s)
    longest_s = max(rules.restart_grace_s, *rules.ttl_s.values(), *given)
    wait_s = max(longest_s, rules.most_ttl_s) if was is None else longest_s
    sure_at = None if lost is None else _known(draft, lost) or deadline_in(draft.now, wait_s)
    draft.set(Horizon, Horizon(longest_ttl_s=longest_s, sure_at=sure_at, lost=lost))


def left_s(book: Book, now: Moment) -> float:
    """Seconds until all that was lost has run out; 0: it has, or nothing was lost."""
    sure_at = None if book.horizon is None else book.horizon.sure_at
    return 0.0 if sure_at is None or is_past(now, sure_at) else max(0.0, sure_at.at_s - now.monotonic_s)


def _known(draft: Draft, lost: str) -> Deadline | None:
    """What was found out at an earlier start in the same boot, about the same damage."""
    was = draft.book.horizon
    if was is None or was.lost != lost or was.sure_at is None or was.sure_at.boot_id != draft.now.boot_id:
        return None
    return was.sure_at
