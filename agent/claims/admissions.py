"""Making a claim: worked out outside of the lock, entered under it, told once the disk has it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from agent.claims.answers import claim_in
from agent.claims.commits import REFUSAL_S, STALE_S, Commit, Commits, unavailable
from agent.core.claim import admit, life
from agent.core.claim.book import Book, Draft
from agent.core.claim.refusal import ClaimRefusal
from agent.core.claim.undo import undo
from agent.core.claim.values import Claim, ClaimRequest, Record
from agent.core.fit.host import HostFacts
from agent.core.snapshot import Snapshot
from agent.core.words import some
from agent.errors import JournalError
from agent.tracker import OUTSIDE_TRIES, Tracker


class Made(NamedTuple):
    """The making of a claim: the book before and after, and the rows that the journal was given."""

    before: Book
    after: Book
    records: tuple[Record, ...]


class _Try:
    """One try to make a claim. verdict: found outside of the lock, None: to be found under it. made: once it is."""

    def __init__(self, request: ClaimRequest, verdict: admit.Verdict | None, commit: Commit) -> None:
        self.request, self.verdict, self.commit = request, verdict, commit
        self.made: Made | None = None


class Admissions:
    """host: this one's name, as conductors know it. facts: of a snapshot's topology and configuration. why_not_ready:
    why nobody can be admitted on a picture; None: somebody can. stale_s: so long a caller waits for the disk."""

    def __init__(
        self,
        tracker: Tracker,
        *,
        host: str,
        facts: Callable[[Snapshot], HostFacts],
        why_not_ready: Callable[[Snapshot], str | None],
        stale_s: float = STALE_S,
    ) -> None:
        self._tracker, self._host, self._facts = tracker, host, facts
        self._why_not_ready, self._stale_s = why_not_ready, stale_s
        self._commits, self._refusals = Commits(), Commits()
        """Claims on their way to the disk by instance, which has one at most, since its other claims are refused
        meanwhile; refusals by claim id."""
        self._began_at_s = tracker.moment().monotonic_s

    def claim(self, request: ClaimRequest) -> tuple[Claim, bool] | ClaimRefusal:
        """The claim as the disk has it, and whether this very call made it; or why not.

        Once: the same request under the same claim id gets the same answer.
        """
        commit = Commit()
        answer = self._entered(request, commit)
        if isinstance(answer, ClaimRefusal):
            told = commit if commit.is_wanted else self._refusals.of(request.claim_id)
            if told is not None:
                told.is_over(REFUSAL_S)
            return answer
        awaited = commit if commit.is_wanted else self.commit_of(answer.instance.uuid)
        problem = None if awaited is None else awaited.outcome(self._stale_s)
        claim = claim_in(self._tracker.snapshot.book, answer.claim_id)
        is_there = isinstance(claim, Claim) and claim.state != "pending"
        if problem is not None and not is_there:
            return problem
        return claim if isinstance(claim, ClaimRefusal) else (claim, commit.is_wanted)

    def commit_of(self, *instances: str) -> Commit | None:
        """The making of a claim of one of these instances that the disk has not taken yet."""
        return self._commits.of(*instances)

    def _entered(self, request: ClaimRequest, commit: Commit) -> Claim | ClaimRefusal:
        for attempt in range(OUTSIDE_TRIES + 1):
            verdict = None if attempt == OUTSIDE_TRIES else self._verdict(request)
            one = _Try(request, verdict, commit)
            with contextlib.ExitStack() as undo:
                undo.callback(self._give_up, one)
                try:
                    answer = self._tracker.transact(partial(self._make, one), on_done=partial(self._done, one))
                except JournalError as error:
                    return unavailable(str(error))
                undo.pop_all()
            if answer is not None:
                return answer
        raise AssertionError("the last try decides under the lock")

    def _verdict(self, request: ClaimRequest) -> admit.Verdict | None:
        """Outside the lock; None where that can tell nothing: the id is known, or nobody can be admitted."""
        snapshot = self._tracker.snapshot
        if admit.known(snapshot.book, request) is not None or self._why_not_ready(snapshot) is not None:
            return None
        return admit.decide(request, snapshot, self._facts(snapshot), self._tracker.moment(), self._host)

    # --- under the tracker's lock ----------------------------------------------------------------

    def _make(self, one: _Try, current: Snapshot, draft: Draft) -> Claim | ClaimRefusal | None:
        """None: what was found outside is of the past."""
        answer = self._enter(current, draft, one.request, one.verdict)
        if draft.book is not current.book:  # calls about the same wait for it from now on
            one.commit.is_wanted = True
            if isinstance(answer, Claim):
                one.made = Made(current.book, draft.book, draft.done().records)
                self._commits.begin(answer.instance.uuid, one.commit)
            else:
                self._refusals.begin(one.request.claim_id, one.commit)
        return answer

    def _give_up(self, one: _Try) -> None:
        """What was made does not count, and nothing of it is on its way to the disk."""
        one.commit.is_wanted = False
        self._commits.end(one.request.instance.uuid, one.commit)
        self._refusals.end(one.request.claim_id, one.commit)

    def _enter(
        self, current: Snapshot, draft: Draft, request: ClaimRequest, verdict: admit.Verdict | None
    ) -> Claim | ClaimRefusal | None:
        answer = admit.known(current.book, request)
        if answer is not None:
            return answer
        not_ready = self._why_not_ready(current)
        if not_ready is not None:
            return ClaimRefusal(code="AgentNotReady", message=not_ready, retry="later")
        facts = self._facts(current)
        if verdict is None:
            verdict = admit.decide(request, current, facts, draft.now, self._host)
        if verdict.refusal is not None:
            not_yet = self._devices_to_come(verdict.refusal, current, draft)
            if not_yet is not None:
                return ClaimRefusal(code="AgentNotReady", message=not_yet, retry="later")
            admit.refuse(draft, request, verdict)
            return verdict.refusal
        if not admit.holds_still(request, verdict, current, facts, self._host):
            return None
        return admit.enter(draft, request, verdict, current)

    def _devices_to_come(self, refusal: ClaimRefusal, current: Snapshot, draft: Draft) -> str | None:
        """Why devices may be missing only yet. After a boot drivers make virtual functions later than the first looks,
        and the devices of guests that are here tell that some are still to come."""
        if refusal.code != "PciRequestError":
            return None
        if draft.now.monotonic_s - self._began_at_s > current.rules.restart_grace_s:
            return None
        shown = {device.address for device in current.topology.pci}
        missing = {address for holds in current.holds.values() for address in holds.devices} - shown
        if not missing:
            return None
        named = some([str(address) for address in sorted(missing)])
        return f"The host does not show all of its devices yet: {named} of guests that are here are missing; ask again"

    # --- on the journal's thread -----------------------------------------------------------------

    def _done(self, one: _Try, problem: str | None) -> None:
        if one.made is None:
            self._refusals.end(one.request.claim_id, one.commit)
            one.commit.settle(problem)
        else:
            self._end_commit(one.request, one.commit, one.made, problem)

    def _end_commit(self, request: ClaimRequest, commit: Commit, made: Made, problem: str | None) -> None:
        """The claim is reserved, or was never there."""
        claim_id = request.claim_id
        is_awaited = commit.begin_settling()

        def settle(_current: Snapshot, draft: Draft) -> ClaimRefusal | None:
            too_late = admit.overtaken(draft.book, request)
            if problem is not None or too_late is not None or not is_awaited:
                undo(draft, made.before, made.after, made.records, claim_id)
                if problem is None and not is_awaited:  # whoever asked was told that it ends by itself
                    life.abort_unknown(draft, claim_id)
                return too_late
            replacing = admit.replacement(draft, request)
            if replacing is not None:
                draft.fulfil(replacing)
            claim = draft.book.claims.get(claim_id)
            if claim is not None and claim.state == "pending":
                draft.settle(claim)
            return None

        too_late: ClaimRefusal | None = None
        try:
            too_late = self._tracker.transact(settle)
        finally:
            self._commits.end(request.instance.uuid, commit)
            commit.settle(problem, too_late)
