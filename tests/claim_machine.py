"""Whatever may happen to the claims of one host, in any order; and what must be true of the books all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import get_args

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent.core.claim import life
from agent.core.claim.book import Book, Draft, IllegalStep
from agent.core.claim.evidence import observe
from agent.core.claim.life import MoveHasEnded
from agent.core.claim.table import events
from agent.core.claim.values import BRINGS_A_GUEST, Claim, ClaimKind, Outcome, Role, Step, Tombstone
from agent.core.guest import DomainState, Sighting
from agent.core.ledger import see_all
from tests.builders import uuid_of
from tests.claim_world import Fault, World

NAMES = ("a", "b", "c")
COMING_KINDS: tuple[ClaimKind, ...] = ("build", "evacuate", "live_migration", "resize", "cold_migration")
IN_PLACE_KINDS: tuple[ClaimKind, ...] = ("rebuild", "resize")
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
FAULTS: tuple[Fault, ...] = get_args(Fault)
ACTIVE: tuple[tuple[DomainState, str], ...] = (
    ("running", "booted"),
    ("running", "booted"),
    ("running", "migrated"),
    ("running", "postcopy"),
    ("paused", "migration"),
    ("paused", "starting-up"),
    ("paused", "user"),
    ("paused", "postcopy-failed"),
    ("crashed", "panicked"),
)
OFF = ("shutdown", "destroyed", "migrated", "failed", None)
WITHOUT_DEADLINE = frozenset({"arriving", "resident", "leaving", "parked", "doubtful"})


class ClaimMachine(RuleBasedStateMachine):
    """Callers that call what they like, domains that do what they like, looks that lack what they like."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.late: list[Sighting] = []
        self.ids = 0

    names = st.sampled_from(NAMES)

    @initialize(with_guest=st.booleans())
    def begin(self, with_guest: bool) -> None:
        if with_guest:
            self.world.start("a")
            self.world.look()

    # --- callers -----------------------------------------------------------------------------------

    @rule(name=names, kind=st.sampled_from(COMING_KINDS), ttl_s=st.sampled_from((10.0, 60.0, 900.0)))
    def claim(self, name: str, kind: ClaimKind, ttl_s: float) -> None:
        world = self.world
        if not world.book.claims_of(uuid_of(name)) and not self._is_active(name):
            role: Role = "owner" if kind in BRINGS_A_GUEST else "incoming"
            world.pend(name, kind, role=role, claim_id=self._new_id(), ttl_s=ttl_s)

    @rule(name=names, kind=st.sampled_from(IN_PLACE_KINDS))
    def claim_in_place(self, name: str, kind: ClaimKind) -> None:
        world, claims = self.world, self.world.book.claims_of(uuid_of(name))
        stays = all(
            one.role == "owner" and one.state in {"resident", "away"} and not self._moves(one) for one in claims
        )
        if stays and (claims or world.seen(name) is not None):
            world.pend(name, kind, role="in_place", claim_id=self._new_id())

    @rule(name=names, kind=st.sampled_from(COMING_KINDS))
    def claim_instead(self, name: str, kind: ClaimKind) -> None:
        claims = self.world.book.claims_of(uuid_of(name))
        if len(claims) == 1 and life.may(claims[0], "replace"):
            old, new_id = claims[0], self._new_id()
            new = msgspec.structs.replace(
                old, claim_id=new_id, kind=kind, role="owner", state="pending", move_id=None, ending=None
            )
            step = Step(sequence=0, at="", event="admitted", claim_id=new_id)

            def swap(draft: Draft) -> Claim:
                life.replace(draft, old, new_id)
                return draft.admit(
                    msgspec.structs.replace(
                        new,
                        changed_at_s=draft.now.monotonic_s,
                        deadline=life.first_deadline(draft.now, draft.rules, new.ttl_s),
                    ),
                    step,
                )

            self.world.do(swap)

    @rule(name=names)
    def commit(self, name: str) -> None:
        for claim in self.world.book.claims_of(uuid_of(name)):
            if claim.state == "pending":
                self.world.do(lambda draft, claim=claim: draft.settle(claim))  # type: ignore[misc]

    @rule(name=names)
    def fail_to_commit(self, name: str) -> None:
        if not self.world.book.claims_of(uuid_of(name)) and not self._is_active(name):
            claim = self.world.pend(name, claim_id=self._new_id(), stored=False)
            self.world.do(lambda draft: draft.take_back(claim), stored=False)

    @rule(name=names, number=st.integers(0, 1), call=st.sampled_from(("confirm", "abort", "release", "renew")))
    def call(self, name: str, number: int, call: str) -> None:
        claims = self.world.book.claims_of(uuid_of(name))
        if number < len(claims):
            self._try(lambda: getattr(self.world, call)(claims[number]))

    @rule(name=names, is_cold=st.booleans())
    def hold(self, name: str, is_cold: bool) -> None:
        if self.world.seen(name) is not None or self.world.book.claims_of(uuid_of(name)):
            self._try(lambda: self.world.hold(name, is_cold=is_cold, move_id=self._new_id()))

    @precondition(lambda self: self.world.book.moves)
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES))
    def finish(self, data: st.DataObject, outcome: Outcome) -> None:
        move_id = data.draw(st.sampled_from(sorted(self.world.book.moves)))
        self._try(lambda: self.world.finish(move_id, outcome))

    @rule(name=names)
    def forget(self, name: str) -> None:
        self._try(lambda: self.world.forget(name, "h2"))

    # --- domains -------------------------------------------------------------------------------------

    @rule(name=names, how=st.sampled_from(ACTIVE))
    def start(self, name: str, how: tuple[DomainState, str]) -> None:
        if not self._is_active(name):
            self.world.start(name, *how)

    @rule(name=names, how=st.sampled_from(ACTIVE))
    def turn(self, name: str, how: tuple[DomainState, str]) -> None:
        if self._is_active(name):
            self.world.turn(name, *how)

    @rule(name=names, reason=st.sampled_from(OFF))
    def shut(self, name: str, reason: str | None) -> None:
        if name in self.world.domains:
            self.world.shut(name, reason)

    @rule(name=names)
    def vanish(self, name: str) -> None:
        self.world.domains.pop(name, None)

    @rule(name=names)
    def lose(self, name: str) -> None:
        if self._is_active(name):
            self.world.domains[name].is_lost = True

    # --- looks ----------------------------------------------------------------------------------------

    @rule(faults=st.sets(st.sampled_from(FAULTS), max_size=2), after_s=st.sampled_from((0.5, 5.0, 12.0, 25.0)))
    def look(self, faults: set[Fault], after_s: float) -> None:
        self._watched(lambda: self.world.look(*sorted(faults), after_s=after_s), faults)

    @rule(wait_s=st.sampled_from((70.0, 400.0, 1000.0)))
    def wait(self, wait_s: float) -> None:
        end_s = self.world.now_s + wait_s
        while self.world.now_s < end_s:
            self._watched(lambda: self.world.look(after_s=28.0), ())

    @rule(data=st.data())
    def look_in_any_order(self, data: st.DataObject) -> None:
        """Readings of now and of before, in any order and again, make the same books as those of now alone."""
        world = self.world
        self.late = [*self.late, *world.readings()][-6:]
        world.now_s += 3.0
        clean = world.readings()
        mixed = data.draw(st.permutations([*clean, *self.late, *clean[:1]]))
        tidy, messy = see_all(world.ledger, (*self.late, *clean)), world.ledger
        for reading in mixed:
            messy = see_all(messy, (reading,))
        books = []
        for ledger in (tidy, messy):
            draft = Draft(world.book, world.moment(), world.rules)
            observe(draft, ledger, lambda claim: True)
            books.append(draft.done().book)
        assert books[0] == books[1]

    @rule()
    def stall(self) -> None:
        self.world.now_s += 500.0

    @rule(off_s=st.sampled_from((-1e6, 0.0, 1e6)))
    def jump(self, off_s: float) -> None:
        self.world.off_s = off_s

    @rule()
    def reconnect(self) -> None:
        self.world.reconnect()

    @rule(reboots=st.booleans())
    def restart(self, reboots: bool) -> None:
        before = self._ids()
        self.late = []
        self.world.restart(reboots=reboots)
        assert self._ids() == before

    @rule(is_busy=st.booleans(), name=names)
    def occupy(self, is_busy: bool, name: str) -> None:
        (self.world.busy.add if is_busy else self.world.busy.discard)(name)

    # --- what is always true ----------------------------------------------------------------------------

    @invariant()
    def the_journal_has_the_books(self) -> None:
        assert self.world.replayed()._replace(sequence=0) == _as_stored(self.world.book)

    @invariant()
    def an_instance_has_one_owner_and_one_that_comes_or_changes(self) -> None:
        for name in NAMES:
            roles = [claim.role for claim in self.world.book.claims_of(uuid_of(name))]
            assert (roles.count("owner") <= 1, len(roles) <= 2) == (True, True)

    @invariant()
    def an_instance_has_one_open_move(self) -> None:
        for name in NAMES:
            moves = [one for one in self.world.book.moves.values() if one.instance == uuid_of(name)]
            held = {one.claim_id for one in self.world.book.claims_of(uuid_of(name))}
            open_moves = [one for one in moves if one.outcome is None and held & {one.source, one.destination}]
            assert len(open_moves) <= 1

    @invariant()
    def only_what_waits_has_a_deadline(self) -> None:
        for claim in self.world.book.claims.values():
            assert (claim.deadline is None) == (claim.state in WITHOUT_DEADLINE), claim
            assert events(claim.state, claim.role), claim

    @invariant()
    def halves_of_a_change_in_place_are_parked_together(self) -> None:
        for claim in self.world.book.claims.values():
            if claim.role == "in_place":
                owner = self.world.book.owner_of(claim.instance.uuid)
                assert owner is not None
                assert (owner.state == "parked") == (claim.state == "parked")

    def teardown(self) -> None:
        """When nothing happens any more and all graces are over, only what is here, or in a move, holds."""
        for name in NAMES:
            self.commit(name)
        self.world.off_s = 0.0
        for _ in range(4):
            self.wait(600.0)
            self.the_journal_has_the_books()
        for claim in self.world.book.claims.values():
            name = claim.instance.name
            is_in_move = claim.state in {"leaving", "parked", "doubtful"}
            is_paired = any(one.role == "in_place" for one in self.world.book.claims_of(claim.instance.uuid))
            assert name in self.world.domains or is_in_move or is_paired, claim
            assert claim.state != "away", claim

    # --- helpers -------------------------------------------------------------------------------------------

    def _new_id(self) -> str:
        self.ids += 1
        return f"id-{self.ids}"

    def _ids(self) -> set[str]:
        return set(self.world.book.claims)

    def _moves(self, claim: Claim) -> bool:
        move = None if claim.move_id is None else self.world.book.moves.get(claim.move_id)
        return move is not None and move.outcome is None

    def _is_active(self, name: str) -> bool:
        return name in self.world.domains and self.world.domains[name].run is not None

    def _try(self, call: Callable[[], object]) -> None:
        before = self.world.book
        try:
            call()
        except (IllegalStep, MoveHasEnded):
            assert self.world.book is before

    def _watched(self, look: Callable[[], None], faults: Iterable[Fault]) -> None:
        """No look ends a claim whose domain lives, and one that lacks proof ends none for absence."""
        before = self.world.book
        look()
        for claim_id in set(before.claims) - self._ids():
            self._check_end(before.claims[claim_id], self.world.book.tombstones[claim_id], set(faults))
        seen_again = Draft(self.world.book, self.world.moment(), self.world.rules)
        observe(seen_again, self.world.ledger, lambda claim: claim.instance.name not in self.world.busy)
        assert seen_again.done().records == ()

    def _check_end(self, was: Claim, tombstone: Tombstone, faults: set[Fault]) -> None:
        name = was.instance.name
        if tombstone.ending == "replaced":
            assert self.world.book.owner_of(was.instance.uuid) is not None
        elif was.role == "in_place":
            assert (was.state, tombstone.ending) == ("overdue", "expired")
        else:
            assert not self._is_active(name), (was, tombstone)
        if tombstone.ending in {"expired", "gone"} and was.role != "in_place":
            assert name not in self.world.domains
            assert not faults & {"down", "incomplete", "old-connection", "blind"}
            assert was.deadline is not None
            assert self.world.now_s >= was.deadline.at_s


def _as_stored(book: Book) -> Book:
    """On the disk a pending claim is reserved already."""
    claims = {
        claim.claim_id: msgspec.structs.replace(claim, state="reserved") if claim.state == "pending" else claim
        for claim in book.claims.values()
    }
    return book._replace(sequence=0, claims=type(book.claims)(claims))
