"""The methods about claims, moves and groups: the form of a request into a call of `Claims`, its answer into a view."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from agent.claims import Granted, GroupView
from agent.core.claim.holding import claimed
from agent.core.claim.refusal import ClaimRefusal
from agent.core.claim.values import (
    Claim,
    ClaimKind,
    ClaimRequest,
    ClaimRules,
    Departure,
    Maintenance,
    Moment,
    Move,
    Outcome,
    SpentDevice,
    Tombstone,
)
from agent.core.flavor import Faults, request_of
from agent.core.instance import Group, Instance
from agent.core.pci import PciAddress
from agent.core.snapshot import Snapshot
from agent.formats import claim_forms as forms
from agent.formats import claim_view as view
from agent.formats.claim_request import Asked, claim_request, read_claim
from agent.formats.envelope import Refusal, contradictory
from agent.handlers.statuses import NOT_READY

T = TypeVar("T")
Answered = TypeVar("Answered")

Answer = Granted | Tombstone | ClaimRefusal


class ClaimsAtWork(Protocol):
    """What is done with claims: `agent.claims.Claims`. Each call returns once the disk has what it changed."""

    def why_not_ready(self, snapshot: Snapshot, /) -> str | None:
        """Why nothing can be admitted now."""

    @property
    def damaged(self) -> str | None:
        """What was lost of the journal, and what to do about it; None: nothing, or it was accepted."""

    def claim(self, request: ClaimRequest, /) -> Granted | ClaimRefusal:
        """May it come: and hold its place."""

    def recheck(self, claim_id: str, group: Group | None, /) -> Granted | ClaimRefusal:
        """Whether it still agrees with its group, right before the move."""

    def confirm(self, claim_id: str, /) -> Answer:
        """The guest is here, or runs as changed."""

    def renew(self, claim_id: str, ttl_s: float | None, /) -> Answer:
        """More time."""

    def abort(self, claim_id: str, reason: str | None, /) -> Answer:
        """The guest does not come."""

    def release(self, claim_id: str, reason: str | None, /) -> Answer:
        """The guest is not to be here any more."""

    def accept_observed(self, claim_id: str, /) -> Answer:
        """What is seen counts."""

    def hold_for_move(
        self, move_id: str, kind: ClaimKind, instance: Instance, peer: str | None, is_cold: bool, /
    ) -> Granted | ClaimRefusal:
        """The source half of a move."""

    def finish_move(self, move_id: str, outcome: Outcome, /) -> Move | ClaimRefusal:
        """How it ended."""

    def set_group(self, group: Group, /) -> GroupView | ClaimRefusal:
        """Who is in it."""

    def group(self, group_id: str, /) -> GroupView | ClaimRefusal:
        """What is known of it."""

    def set_maintenance(self, reason: str | None, /) -> Maintenance | ClaimRefusal | None:
        """Refuse new guests, or (None) take them again."""

    def forget(self, uuid: str, moved_to: str | None, /) -> Departure | ClaimRefusal:
        """It lives elsewhere now."""

    def offer_again(self, address: PciAddress, /) -> SpentDevice | ClaimRefusal:
        """A device for one use is clean."""

    def accept_journal(self) -> ClaimRefusal | None:
        """Go on with what is left of a damaged journal."""

    def get_claim(self, claim_id: str, /) -> Claim | Tombstone | ClaimRefusal:
        """What became of it."""

    def list_claims(self) -> tuple[Claim, ...]:
        """All that hold."""

    def get_move(self, move_id: str, /) -> Move | ClaimRefusal:
        """What became of it."""


class ClaimCalls:
    """snapshot: the current picture. moment: now, by every clock."""

    def __init__(
        self, claims: ClaimsAtWork, *, snapshot: Callable[[], Snapshot], moment: Callable[[Snapshot], Moment]
    ) -> None:
        self._claims, self._snapshot, self._moment = claims, snapshot, moment
        self.methods: Mapping[str, Callable[[dict[str, object]], object]] = {
            "claim": self.claim,
            "recheck_claim": self.recheck,
            "confirm_claim": lambda data: self._of_claim(data, claims.confirm),
            "renew_claim": self.renew,
            "abort_claim": self.abort,
            "release_claim": self.release,
            "accept_observed": lambda data: self._of_claim(data, claims.accept_observed),
            "get_claim": self.get_claim,
            "list_claims": self.list_claims,
            "hold_for_move": self.hold_for_move,
            "finish_move": self.finish_move,
            "get_move": self.get_move,
            "set_group": self.set_group,
            "get_group": self.get_group,
            "set_maintenance": self.set_maintenance,
            "get_maintenance": self.get_maintenance,
            "forget_instance": self.forget_instance,
            "offer_again": self.offer_again,
            "accept_journal": self.accept_journal,
        }
        """Each gives its result, or a `Refusal`; raises FaultyInput for a request that cannot be meant."""

    def not_ready(self, snapshot: Snapshot) -> Refusal | None:
        """What any claim would be answered now, whatever it asks for."""
        why = self._claims.why_not_ready(snapshot)
        return None if why is None else Refusal(code=NOT_READY, message=why, retry="later")

    def claim(self, data: object) -> view.ClaimAnswer | Refusal:
        """POST /v1/claims."""
        snapshot = self._snapshot()
        asked = read_claim(data, snapshot.rules)
        request = self._request(asked, snapshot)
        return request if isinstance(request, Refusal) else self._told(self._claims.claim(request), asked.ignored)

    def recheck(self, data: object) -> view.ClaimAnswer | Refusal:
        """POST /v1/claims/ID/recheck."""
        form = forms.read(data, forms.Recheck, self._rules)
        group = None if form.group is None else forms.group_of(form.group)
        return self._told(self._claims.recheck(form.claim_id, group))

    def renew(self, data: object) -> view.ClaimAnswer | Refusal:
        """POST /v1/claims/ID/renew."""
        form = forms.read(data, forms.Renewal, self._rules)
        return self._told(self._claims.renew(form.claim_id, form.ttl_s))

    def abort(self, data: object) -> view.ClaimAnswer | Refusal:
        """POST /v1/claims/ID/abort."""
        form = forms.read(data, forms.End, self._rules)
        return self._told(self._claims.abort(form.claim_id, form.reason))

    def release(self, data: object) -> view.ClaimAnswer | Refusal:
        """POST /v1/claims/ID/release."""
        form = forms.read(data, forms.End, self._rules)
        return self._told(self._claims.release(form.claim_id, form.reason))

    def get_claim(self, data: object) -> view.ClaimAnswer | Refusal:
        """GET /v1/claims/ID."""
        found = self._claims.get_claim(forms.read(data, forms.OfClaim, self._rules).claim_id)
        return self._told(Granted(found) if isinstance(found, Claim) else found)

    def list_claims(self, data: object) -> view.ClaimList:
        """GET /v1/claims."""
        forms.read(data, forms.Nothing, self._rules)
        snapshot = self._snapshot()
        return view.ClaimList(claims=tuple(self._view(claim, snapshot) for claim in self._claims.list_claims()))

    def hold_for_move(self, data: object) -> view.ClaimAnswer | Refusal:
        """POST /v1/moves/ID/hold."""
        form = forms.read(data, forms.Hold, self._rules)
        is_cold = form.kind != "live_migration" if form.is_cold is None else form.is_cold
        return self._told(self._claims.hold_for_move(form.move_id, form.kind, form.instance, form.peer, is_cold))

    def finish_move(self, data: object) -> view.MoveView | Refusal:
        """POST /v1/moves/ID/finish."""
        form = forms.read(data, forms.Finish, self._rules)
        return _or_refusal(self._claims.finish_move(form.move_id, form.outcome), view.move_view)

    def get_move(self, data: object) -> view.MoveView | Refusal:
        """GET /v1/moves/ID."""
        form = forms.read(data, forms.OfMove, self._rules)
        return _or_refusal(self._claims.get_move(form.move_id), view.move_view)

    def set_group(self, data: object) -> view.GroupInfo | Refusal:
        """PUT /v1/groups/ID."""
        form = forms.read(data, forms.GroupForm, self._rules)
        return _or_refusal(self._claims.set_group(forms.group_of(form)), lambda found: view.group_info(*found))

    def get_group(self, data: object) -> view.GroupInfo | Refusal:
        """GET /v1/groups/ID."""
        form = forms.read(data, forms.OfGroup, self._rules)
        return _or_refusal(self._claims.group(form.id), lambda found: view.group_info(*found))

    def set_maintenance(self, data: object) -> view.MaintenanceView | Refusal:
        """PUT /v1/maintenance."""
        form = forms.read(data, forms.MaintenanceForm, self._rules)
        found = self._claims.set_maintenance(form.reason)
        return _or_refusal(found, lambda kept: view.MaintenanceView(maintenance=kept))

    def get_maintenance(self, data: object) -> view.MaintenanceView:
        """GET /v1/maintenance."""
        forms.read(data, forms.Nothing, self._rules)
        return view.MaintenanceView(maintenance=self._snapshot().book.maintenance)

    def forget_instance(self, data: object) -> view.DepartureView | Refusal:
        """POST /v1/instances/UUID/forget."""
        form = forms.read(data, forms.Forget, self._rules)
        return _or_refusal(self._claims.forget(form.uuid, form.moved_to), view.departure_view)

    def offer_again(self, data: object) -> view.OfferedView | Refusal:
        """POST /v1/devices/ADDRESS/offer-again."""
        form = forms.read(data, forms.OfDevice, self._rules)
        return _or_refusal(self._claims.offer_again(form.address), view.offered_view)

    def accept_journal(self, data: object) -> view.Accepted | Refusal:
        """POST /v1/journal/accept."""
        forms.read(data, forms.Nothing, self._rules)
        was_damaged = self._claims.damaged is not None
        return _or_refusal(self._claims.accept_journal(), lambda _: view.Accepted(was_damaged=was_damaged))

    def _of_claim(self, data: object, act: Callable[[str], Answer]) -> view.ClaimAnswer | Refusal:
        return self._told(act(forms.read(data, forms.OfClaim, self._rules).claim_id))

    def _request(self, asked: Asked, snapshot: Snapshot) -> ClaimRequest | Refusal:
        """What is asked with its binding; flavor, image and ports become one as the host is configured now."""
        if asked.spec is None:
            assert asked.binding is not None
            return claim_request(asked, asked.binding)
        found = request_of(asked.spec, snapshot.config)
        return contradictory(found.faults) if isinstance(found, Faults) else claim_request(asked, found.request)

    def _told(self, answer: Answer, ignored: tuple[str, ...] = ()) -> view.ClaimAnswer | Refusal:
        if isinstance(answer, ClaimRefusal):
            return view.refusal_of(answer)
        snapshot = self._snapshot()
        if isinstance(answer, Tombstone):
            told = view.tombstone_view(answer, now=self._moment(snapshot))
            return view.ClaimAnswer(claim=told, ignored=ignored)
        return view.ClaimAnswer(
            claim=self._view(answer.claim, snapshot),
            is_new=answer.is_new,
            remarks=answer.remarks,
            guarantee=answer.guarantee,
            ignored=ignored,
        )

    def _view(self, claim: Claim, snapshot: Snapshot) -> view.ClaimView:
        holds = claimed(claim, snapshot.sets)
        return view.claim_view(claim, now=self._moment(snapshot), holds=holds)

    @property
    def _rules(self) -> ClaimRules:
        """The limits of what callers may ask for."""
        return self._snapshot().rules


def _or_refusal(found: T | ClaimRefusal, told: Callable[[T], Answered]) -> Answered | Refusal:
    return view.refusal_of(found) if isinstance(found, ClaimRefusal) else told(found)
