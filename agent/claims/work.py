"""All that can be done with claims, moves and groups."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from agent.claims.admissions import Admissions
from agent.claims.answers import Granted, GroupView, claim_in, unknown
from agent.claims.commits import STALE_S, Commit, UnderWay, stalled, unavailable
from agent.core.claim import horizon, judge, life, moves, seats, steps
from agent.core.claim.book import Book, Draft, IllegalStep
from agent.core.claim.refusal import ClaimRefusal
from agent.core.claim.spent import offer_again
from agent.core.claim.values import (
    Claim,
    ClaimKind,
    ClaimRequest,
    Departure,
    GroupRule,
    Maintenance,
    Move,
    Outcome,
    SpentDevice,
    Step,
    Tombstone,
)
from agent.core.fit.host import HostFacts
from agent.core.instance import Group, Instance
from agent.core.pci import PciAddress
from agent.core.snapshot import Snapshot
from agent.core.words import count
from agent.errors import JournalError
from agent.tracker import Tracker, Writes

Answer = TypeVar("Answer")


class Repaired(Writes, Protocol):
    """Can have been restored from an older copy; `agent.adapters.journal.Journal` is one."""

    def accept_damage(self, on_done: Callable[[str | None], None]) -> None:
        """The operator says that the books are right as they are. on_done: as of `agent.tracker.Writes`."""
        ...


class Claims:
    """host: this one's name, as conductors know it. facts: of a snapshot's topology and configuration. why_blind: why
    the host is not known well enough to admit anybody; None: it is. reread: has a guest's domain read again, soon.
    damaged: what was lost of the journal, one sentence; None: nothing, or it was accepted."""

    def __init__(
        self,
        tracker: Tracker,
        journal: Repaired,
        *,
        host: str,
        facts: Callable[[Snapshot], HostFacts],
        why_blind: Callable[[Snapshot], str | None],
        reread: Callable[[str], None],
        damaged: str | None = None,
    ) -> None:
        self._tracker, self._journal, self._host = tracker, journal, host
        self._why_blind, self._reread = why_blind, reread
        self._damaged, self._is_settling = damaged, False
        tracker.transact(lambda _current, draft: horizon.begin(draft, damaged))
        self._admissions = Admissions(tracker, host=host, facts=facts, why_not_ready=self.why_not_ready)

    def claim(self, request: ClaimRequest) -> Granted | ClaimRefusal:
        """Admit the guest, or say why not. Once: the same request under the same claim id gets the same answer."""
        answer = self._admissions.claim(request)
        if isinstance(answer, ClaimRefusal):
            return answer
        claim, is_new = answer
        return self._granted(claim, request.group, is_new=is_new)

    @property
    def damaged(self) -> str | None:
        """What was lost of the journal, and what to do about it; None: nothing, or it was accepted."""
        if self._damaged is None:
            return None
        return f"{self._damaged} `agentctl journal accept` says that the books are right as they are."

    def why_not_ready(self, snapshot: Snapshot) -> str | None:
        """Why nothing can be admitted now; None: it can."""
        damaged, left_s = self.damaged, horizon.left_s(snapshot.book, self._tracker.moment())
        if damaged is not None and left_s > 0:
            minutes = count(math.ceil(left_s / 60), "minute")
            return f"journal-damaged: {damaged} Else all that may be lost has run out in {minutes}."
        return self._why_blind(snapshot)

    def settle_damage(self) -> None:
        """Forget that the journal was damaged once all that it may have lost has run out. With each pass; never waits.

        What is lost and does not run out by itself, such as the place of a guest that is off while it moves, nobody
        here can know of.
        """
        if self._damaged is None or self._is_settling:
            return
        if horizon.left_s(self._tracker.snapshot.book, self._tracker.moment()) == 0:
            self._is_settling = True
            with contextlib.suppress(JournalError):  # closed: the next start will
                self._journal.accept_damage(self._settled)

    def _settled(self, problem: str | None) -> None:
        """On the journal's thread."""
        self._is_settling = False
        if problem is None:
            self._damaged = None
            self._tracker.transact(lambda _current, draft: horizon.begin(draft, None))

    # --- what becomes of it --------------------------------------------------------------------------

    def recheck(self, claim_id: str, group: Group | None = None) -> Granted | ClaimRefusal:
        """Before the guest comes: whether its seat still is one, against domains and seats taken earlier, and its place
        is still this host's to give; renews."""

        def check(current: Snapshot, draft: Draft) -> Claim | ClaimRefusal:
            claim = claim_in(current.book, claim_id)
            if isinstance(claim, ClaimRefusal):
                return claim
            asked = group or _group_of(current.book, claim)
            violated = seats.group_refusal(
                asked,
                claim.instance.uuid,
                current.book,
                current.ledger.sightings,
                host=self._host,
                in_place=claim.role == "in_place",
                before=claim.sequence,
            )
            if violated is not None:
                return seats.refused(seats.way_of(claim.kind, is_recheck=True), violated)
            return _place_lost(claim, current) or life.renew(draft, claim, None)

        return self._changed(check, group, is_renewal=True)

    def confirm(self, claim_id: str) -> Granted | ClaimRefusal:
        """The guest has come, as its domain shows; a change in place has been made."""

        def confirm(current: Snapshot, draft: Draft) -> Claim | ClaimRefusal:
            claim = claim_in(current.book, claim_id)
            if isinstance(claim, ClaimRefusal):
                return claim
            return steps.confirm(draft, claim, current.ledger.sightings.get(claim.instance.uuid))

        answer = self._changed(confirm)
        if isinstance(answer, ClaimRefusal) and answer.code == "IllegalTransition":
            claim = self._tracker.snapshot.book.claims.get(claim_id)
            if claim is not None:
                self._reread(claim.instance.uuid)
        return answer

    def renew(self, claim_id: str, ttl_s: float | None = None) -> Granted | ClaimRefusal:
        """A new deadline. ttl_s: None: as long as last time."""

        def renew(current: Snapshot, draft: Draft) -> Claim | ClaimRefusal:
            claim = claim_in(current.book, claim_id)
            return claim if isinstance(claim, ClaimRefusal) else life.renew(draft, claim, ttl_s)

        return self._changed(renew, is_renewal=True)

    def abort(self, claim_id: str, reason: str | None = None) -> Granted | Tombstone | ClaimRefusal:
        """It is not needed any more; of an id that was never seen it is remembered, for a late call that bears it."""

        def abort(current: Snapshot, draft: Draft) -> Claim | Tombstone | ClaimRefusal:
            claim = current.book.claims.get(claim_id)
            if claim is None:
                return current.book.tombstones.get(claim_id) or life.abort_unknown(draft, claim_id)
            return life.abort(draft, claim, current.ledger.sightings.get(claim.instance.uuid), reason)

        return self._ended(abort)

    def release(self, claim_id: str, reason: str | None = None) -> Granted | Tombstone | ClaimRefusal:
        """The guest shall not be here any more; a domain that still runs holds on by itself."""

        def release(current: Snapshot, draft: Draft) -> Claim | Tombstone | ClaimRefusal:
            claim = current.book.claims.get(claim_id)
            if claim is not None:
                return life.release(draft, claim, reason)
            return current.book.tombstones.get(claim_id) or unknown(claim_id)

        return self._ended(release)

    def accept_observed(self, claim_id: str) -> Granted | ClaimRefusal:
        """What the guest's domain holds is what its claim holds from now on."""

        def accept(current: Snapshot, draft: Draft) -> Claim | ClaimRefusal:
            claim = claim_in(current.book, claim_id)
            if isinstance(claim, ClaimRefusal):
                return claim
            seen = current.ledger.sightings.get(claim.instance.uuid)
            if seen is None or not seen.is_active:
                message = f"Nothing is observed of claim {claim_id}: no domain of instance {claim.label} is active"
                return ClaimRefusal(code="IllegalTransition", message=message, retry="later", claim_id=claim_id)
            return life.accept_observed(draft, claim, current.holds[claim.instance.uuid])

        return self._changed(accept)

    # --- moves -------------------------------------------------------------------------------------

    def hold_for_move(
        self, move_id: str, kind: ClaimKind, instance: Instance, peer: str | None, is_cold: bool
    ) -> Granted | ClaimRefusal:
        """The source half: the guest is about to leave for the peer, and keeps what it has until it has left."""

        def hold(current: Snapshot, draft: Draft) -> Claim | ClaimRefusal:
            uuid = instance.uuid
            seen = current.ledger.sightings.get(uuid)
            if current.book.owner_of(uuid) is None and seen is None:
                message = (
                    f"Instance {uuid} cannot leave this host, which knows neither a claim nor a domain of it: ask the"
                    " host that it is on (`agentctl domains` has all that are here)"
                )
                return ClaimRefusal(code="ClaimNotFound", message=message, retry="never")
            return moves.hold_for_move(
                draft,
                move_id=move_id,
                kind=kind,
                instance=instance,
                peer=peer,
                is_cold=is_cold,
                seen=seen,
                holds=current.holds.get(uuid),
            )

        return self._changed(hold)

    def finish_move(self, move_id: str, outcome: Outcome) -> Move | ClaimRefusal:
        """This host's part of a move ends. Fine to repeat; the other host's part is its own."""

        def finish(current: Snapshot, draft: Draft) -> Move | ClaimRefusal:
            move = current.book.moves.get(move_id)
            if move is None:
                return _no_move(move_id)
            return moves.finish_move(draft, move, outcome, current.ledger.sightings.get(move.instance))

        return self._stored(finish)

    def get_move(self, move_id: str) -> Move | ClaimRefusal:
        """One half of a move, as known here."""
        move = self._tracker.snapshot.book.moves.get(move_id)
        return _no_move(move_id) if move is None else move

    # --- groups, instances, the host ---------------------------------------------------------------

    def set_group(self, group: Group) -> GroupView | ClaimRefusal:
        """Who is in a server group and what its rule is, as of the group's generation."""

        def set_group(current: Snapshot, draft: Draft) -> GroupRule:
            seats.set_group(draft, group, current.ledger.sightings)
            return draft.book.groups[group.id]

        answer = self._stored(set_group)
        return answer if isinstance(answer, ClaimRefusal) else self.group(group.id)

    def group(self, group_id: str) -> GroupView | ClaimRefusal:
        """What is known here of a server group."""
        snapshot = self._tracker.snapshot
        rule = snapshot.book.groups.get(group_id)
        if rule is None:
            message = (
                f"Nothing is known here of server group {group_id}: no claim named it, and nobody set it"
                " (`agentctl group set` does)"
            )
            return ClaimRefusal(code="ClaimNotFound", message=message, retry="never")
        seated = seats.seats(snapshot.book, snapshot.ledger.sightings, group_id)
        members = seats.members_of(snapshot.book, group_id)
        return GroupView(rule, members, tuple(sorted(seat.instance for seat in seated)))

    def set_maintenance(self, reason: str | None) -> Maintenance | ClaimRefusal | None:
        """Refuse new guests from now on, with the reason; None: take them again."""

        def set_maintenance(_current: Snapshot, draft: Draft) -> Maintenance | None:
            wanted = None if reason is None else Maintenance(reason=reason, since=draft.now.wall)
            draft.set(Maintenance, wanted)
            draft.note(Step(sequence=0, at="", event="maintenance", note=reason))
            return wanted

        return self._stored(set_maintenance)

    def forget(self, instance: str, moved_to: str | None) -> Departure | ClaimRefusal:
        """The instance lives elsewhere now: its claims here end, and what is still defined of it has no seat."""

        def forget(current: Snapshot, draft: Draft) -> Departure | ClaimRefusal:
            life.forget(draft, instance, moved_to, current.ledger.sightings.get(instance))
            return draft.book.departures[instance]

        return self._stored(forget)

    def offer_again(self, address: PciAddress) -> SpentDevice | ClaimRefusal:
        """A device for one use is as good as new; what it was before."""

        def offer(current: Snapshot, draft: Draft) -> SpentDevice | ClaimRefusal:
            if address not in current.book.spent:
                message = f"Device {address} is not kept back: `agentctl usage` has every device and its state"
                return ClaimRefusal(code="InvalidRequest", message=message, retry="never")
            held = [uuid for uuid, holds in current.holds.items() if address in holds.devices]
            if held:
                name = current.ledger.sightings[held[0]].label
                message = f"Device {address} is held by {name}: take it from that guest first, and have it cleaned"
                return ClaimRefusal(code="IllegalTransition", message=message, retry="later")
            return offer_again(draft, address)

        return self._stored(offer)

    def accept_journal(self) -> ClaimRefusal | None:
        """The operator says that a damaged journal's books are right as they are."""
        commit = Commit()

        def settle(problem: str | None) -> None:
            try:
                self._settled(problem)
            finally:
                commit.settle(problem)

        self._journal.accept_damage(settle)
        return commit.outcome(STALE_S)

    # --- reading -----------------------------------------------------------------------------------

    def get_claim(self, claim_id: str) -> Claim | Tombstone | ClaimRefusal:
        """A claim, or how it ended."""
        book = self._tracker.snapshot.book
        return book.claims.get(claim_id) or book.tombstones.get(claim_id) or unknown(claim_id)

    def list_claims(self) -> tuple[Claim, ...]:
        """All that have not ended, the earliest first."""
        return tuple(sorted(self._tracker.snapshot.book.claims.values(), key=lambda one: (one.sequence, one.claim_id)))

    # --- telling it once the disk has it -----------------------------------------------------------

    def _changed(
        self,
        make: Callable[[Snapshot, Draft], Claim | ClaimRefusal],
        group: Group | None = None,
        *,
        is_renewal: bool = False,
    ) -> Granted | ClaimRefusal:
        answer = self._stored(make, is_renewal=is_renewal)
        return answer if isinstance(answer, ClaimRefusal) else self._granted(answer, group)

    def _ended(
        self, make: Callable[[Snapshot, Draft], Claim | Tombstone | ClaimRefusal]
    ) -> Granted | Tombstone | ClaimRefusal:
        answer = self._stored(make, is_freeing=True)
        return Granted(answer) if isinstance(answer, Claim) else answer

    def _stored(
        self, make: Callable[[Snapshot, Draft], Answer], *, is_freeing: bool = False, is_renewal: bool = False
    ) -> Answer | ClaimRefusal:
        """is_freeing: it counts at once, and is told though the disk takes it only later. is_renewal: where it does no
        more than put deadlines off, nobody waits for the disk."""
        try:
            answer, commit = self._entered_soon(make)
        except UnderWay:
            return stalled(STALE_S)
        except IllegalStep as error:
            return ClaimRefusal(
                code="IllegalTransition",
                message=life.explain(error),
                retry="later" if isinstance(error, life.Refused) else "never",
                claim_id=error.claim.claim_id,
            )
        except JournalError as error:
            return unavailable(str(error))
        except moves.MoveHasEnded as error:
            return ClaimRefusal(code="IllegalTransition", message=str(error), retry="never")
        except moves.MoveTaken as error:
            return ClaimRefusal(code="ClaimConflict", message=str(error), retry="never")
        if not commit.is_wanted:
            if is_renewal or isinstance(answer, ClaimRefusal):
                return answer
            # whoever asked first may still wait for the disk, or was told that it has failed
            try:
                self._journal.write((), (), is_taker=False, on_done=commit.settle)
            except JournalError as error:
                return unavailable(str(error))
        problem = commit.in_force(STALE_S)
        return answer if problem is None or is_freeing else problem

    def _entered_soon(self, make: Callable[[Snapshot, Draft], Answer]) -> tuple[Answer, Commit]:
        """Raises UnderWay when the disk does not answer."""
        while True:
            commit = Commit()
            try:
                return self._tracker.transact(partial(self._entered, make, commit), on_done=commit.settle), commit
            except UnderWay as other:
                if not other.commit.is_over(STALE_S):
                    raise

    def _entered(
        self, make: Callable[[Snapshot, Draft], Answer], commit: Commit, current: Snapshot, draft: Draft
    ) -> Answer:
        """Under the lock. What is on its way to the disk nobody may change: until it is there, it may never have been.

        Raises UnderWay.
        """
        try:
            answer = make(current, draft)
        except IllegalStep as error:
            self._await(error.claim.instance.uuid)
            raise
        change = draft.done()
        commit.is_wanted = change.book is not current.book and not change.is_lazy
        self._await(*change.touched)
        return answer

    def _await(self, *instances: str) -> None:
        other = self._admissions.commit_of(*instances)
        if other is not None:
            raise UnderWay(other)

    def _granted(self, claim: Claim, group: Group | None, *, is_new: bool = False) -> Granted:
        snapshot = self._tracker.snapshot
        asked = group or _group_of(snapshot.book, claim)
        remarks = seats.soft_remarks(
            asked, claim.instance.uuid, snapshot.book, snapshot.ledger.sightings, host=self._host
        )
        return Granted(claim, is_new, remarks, seats.guarantee_of(asked))


def _no_move(move_id: str) -> ClaimRefusal:
    message = (
        f"There is no move {move_id} on this host: nothing was held and no claim was made for it here, or it was over"
        " long ago. See `agentctl claim list` for the moves of claims, and ask the other host of the move"
    )
    return ClaimRefusal(code="ClaimNotFound", message=message, retry="never")


def _place_lost(claim: Claim, current: Snapshot) -> ClaimRefusal | None:
    """The place of a guest that is still to come can be gone: taken from the host, or by a guest that never asked."""
    if claim.state not in {"reserved", "overdue"} or claim.placement is None or judge.is_free_for(claim, current):
        return None
    message = (
        f"The place of claim {claim.claim_id} is not there any more, or somebody has taken a part of it without asking:"
        " see `agentctl conflicts`, abort the claim and make another"
    )
    return ClaimRefusal(code="ComputeResourcesUnavailable", message=message, retry="elsewhere", claim_id=claim.claim_id)


def _group_of(book: Book, claim: Claim) -> Group | None:
    """The claim's group with the newest rule that is known of it."""
    if claim.group is None:
        return None
    rule = book.groups.get(claim.group.id)
    if rule is None:
        return claim.group
    return Group(id=rule.id, policy=rule.policy, max_server_per_host=rule.max_server_per_host)
