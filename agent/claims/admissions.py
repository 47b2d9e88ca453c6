"""Making a claim: worked out outside of the lock, entered under it, told once the disk has it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from agent.claims.answers import claim_in
from agent.claims.commits import STALE_S, Commit, unavailable
from agent.core.claim import admit, life
from agent.core.claim.book import Book, Draft
from agent.core.claim.refusal import ClaimRefusal
from agent.core.claim.undo import note_again, undo
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
        self._commits: dict[str, Commit] = {}
        """Those that are under way, by instance; each has one at most, since its other claims are refused meanwhile."""
        self._commits_lock = threading.Lock()
        self._began_at_s = tracker.moment().monotonic_s

    def claim(self, request: ClaimRequest) -> tuple[Claim, bool] | ClaimRefusal:
        """The claim as the disk has it, and whether this very call made it; or why not.

        Once: the same request under the same claim id gets the same answer.
        """
        commit = Commit()
        answer = self._entered(request, commit)
        if isinstance(answer, ClaimRefusal):
            return answer
        awaited = commit if commit.is_wanted else self.commit_of(answer.instance.uuid)
        problem = None if awaited is None else awaited.outcome(self._stale_s)
        claim = claim_in(self._tracker.snapshot.book, answer.claim_id)
        is_there = isinstance(claim, Claim) and claim.state != "pending"
        if problem is not None and not is_there:
            return problem
        return claim if isinstance(claim, ClaimRefusal) else (claim, commit.is_wanted)

    def _entered(self, request: ClaimRequest, commit: Commit) -> Claim | ClaimRefusal:
        for attempt in range(OUTSIDE_TRIES + 1):
            verdict = None if attempt == OUTSIDE_TRIES else self._verdict(request)
            entry = _Entry(self, request, verdict, commit)
            try:
                answer = self._tracker.transact(entry.make, on_done=entry.on_done)
            except JournalError as error:
                return unavailable(str(error))
            if answer is not None:
                return answer
        raise AssertionError("the last try decides under the lock")

    def _verdict(self, request: ClaimRequest) -> admit.Verdict | None:
        """Outside the lock; None where that can tell nothing: the id is known, or nobody can be admitted."""
        snapshot = self._tracker.snapshot
        if admit.known(snapshot.book, request) is not None or self._why_not_ready(snapshot) is not None:
            return None
        return admit.decide(request, snapshot, self._facts(snapshot), self._tracker.moment(), self._host)

    def enter(
        self, current: Snapshot, draft: Draft, request: ClaimRequest, verdict: admit.Verdict | None
    ) -> Claim | ClaimRefusal | None:
        """Under the lock. None: what was found outside is of the past."""
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

    def begin_commit(self, instance: str, commit: Commit) -> None:
        """Under the tracker's lock: calls about claims of the same instance wait for this commit."""
        commit.is_wanted = True
        with self._commits_lock:
            self._commits[instance] = commit

    def end_commit(self, request: ClaimRequest, commit: Commit, made: Made, problem: str | None) -> None:
        """On the journal's thread: the claim is reserved, or was never there."""
        claim_id = request.claim_id
        is_awaited = commit.begin_settling()

        def settle(_current: Snapshot, draft: Draft) -> None:
            if problem is not None or not is_awaited:
                undo(draft, made.before, made.after, made.records, claim_id)
                if problem is None:  # whoever asked was told that it ends by itself
                    life.abort_unknown(draft, claim_id)
                return
            replacing = admit.replacement(draft, request)
            if replacing is not None:
                draft.fulfil(replacing)
            elif request.context.replaces in draft.book.claims:  # it has come meanwhile, and the disk has its end
                note_again(draft, made.records)
            claim = draft.book.claims.get(claim_id)
            if claim is not None and claim.state == "pending":
                draft.settle(claim)

        try:
            self._tracker.transact(settle)
        finally:
            with self._commits_lock:
                self._commits.pop(request.instance.uuid, None)
            commit.settle(problem)

    def commit_of(self, *instances: str) -> Commit | None:
        """The making of a claim of one of these instances that the disk has not taken yet."""
        with self._commits_lock:
            return next((self._commits[one] for one in instances if one in self._commits), None)


class _Entry:
    """One try to make a claim: what happens under the lock, and what once the journal is done with it."""

    def __init__(
        self, admissions: Admissions, request: ClaimRequest, verdict: admit.Verdict | None, commit: Commit
    ) -> None:
        self._admissions, self._request, self._verdict, self._commit = admissions, request, verdict, commit
        self._made: Made | None = None

    def make(self, current: Snapshot, draft: Draft) -> Claim | ClaimRefusal | None:
        """Under the lock."""
        answer = self._admissions.enter(current, draft, self._request, self._verdict)
        if isinstance(answer, Claim) and draft.book is not current.book:
            self._admissions.begin_commit(answer.instance.uuid, self._commit)
            self._made = Made(current.book, draft.book, draft.done().records)
        return answer

    def on_done(self, problem: str | None) -> None:
        """On the journal's thread; of a refusal nobody waits to be told."""
        if self._made is not None:
            self._admissions.end_commit(self._request, self._commit, self._made, problem)
