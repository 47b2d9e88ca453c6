"""Whatever may happen to the claims of one host, in any order; and what must be true of the books all the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import get_args

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent.core.claim import life, moves
from agent.core.claim.book import Book, Draft, IllegalStep
from agent.core.claim.evidence import observe
from agent.core.claim.life import MoveHasEnded
from agent.core.claim.table import events
from agent.core.claim.values import BRINGS_A_GUEST, Claim, ClaimKind, Outcome, Role, Step, Tombstone
from agent.core.guest import DomainState, Sighting
from agent.core.ledger import see_all
from tests.builders import uuid_of
from tests.claim_world import Fault, World

NAMES = ("a", "b")
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
CALLS = ("confirm", "abort", "release", "renew", "accept")
FINDINGS = ("stays", "left", "torn")
PICKS = st.integers(0, 50)
SHORT_S = (0.5, 1.0, 5.0, 12.0, 25.0)
LONG_S = (70.0, 400.0, 1000.0)
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
        others = world.book.claims_of(uuid_of(name))
        # a guest may come again though what was left of its last stay has not ended
        comes_again = kind == "live_migration" and [one.role for one in others] == ["owner"]
        if (not others or comes_again) and not self._is_active(name):
            role: Role = "owner" if kind in BRINGS_A_GUEST else "incoming"
            world.pend(name, kind, role=role, claim_id=self._new_id(), ttl_s=ttl_s)

    @rule(name=names, kind=st.sampled_from(COMING_KINDS), how=st.sampled_from(ACTIVE))
    def bring(self, name: str, kind: ClaimKind, how: tuple[DomainState, str]) -> None:
        """All that goes well, in one."""
        self.claim(name, kind, 900.0)
        self.commit(name)
        self.start(name, how)
        self.look(set(), 1.0)

    @rule(name=names, reason=st.sampled_from(OFF))
    def depart(self, name: str, reason: str | None) -> None:
        """A guest that leaves for another host, and is off for whatever reason."""
        self.hold(name, reason != "migrated")
        self.shut(name, reason)
        self.look(set(), 1.0)

    @rule(name=names, kind=st.sampled_from(IN_PLACE_KINDS))
    def change_in_place(self, name: str, kind: ClaimKind) -> None:
        """One that is promised and made."""
        self.claim_in_place(name, kind)
        self.commit(name)
        for claim in self.world.book.claims_of(uuid_of(name)):
            if claim.role == "in_place":
                self._try(lambda claim=claim: self.world.confirm(claim))  # type: ignore[misc]

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

    @precondition(lambda self: self.world.book.claims)
    @rule(pick=PICKS, call=st.sampled_from(CALLS))
    def call(self, pick: int, call: str) -> None:
        claim = self.world.book.claims[_picked(self.world.book.claims, pick)]
        self._try(lambda: getattr(self.world, call)(claim))

    @precondition(lambda self: any(one.state in {"leaving", "doubtful"} for one in self.world.book.claims.values()))
    @rule(pick=PICKS, what=st.sampled_from(FINDINGS))
    def drive(self, pick: int, what: str) -> None:
        """What the driver of a live migration says; that a guest stays only of one that runs."""
        world = self.world
        claims = {one.claim_id: one for one in world.book.claims.values() if one.state in {"leaving", "doubtful"}}
        claim = claims[_picked(claims, pick)]
        if what == "left":
            self._ending_rightly(
                lambda: world.do(lambda draft: moves.has_left(draft, world.ledger, claim, "it is there")), ()
            )
        elif what == "torn":
            self._try(lambda: world.do(lambda draft: moves.torn(draft, claim, "nobody answers")))
        elif self._is_active(claim.instance.name):
            world.do(lambda draft: moves.stays_here(draft, claim, "it runs here"))

    @rule(name=names, is_cold=st.booleans())
    def hold(self, name: str, is_cold: bool) -> None:
        if self.world.seen(name) is not None or self.world.book.claims_of(uuid_of(name)):
            self._try(lambda: self.world.hold(name, is_cold=is_cold, move_id=self._new_id()))

    @precondition(lambda self: any(one.outcome is None for one in self.world.book.moves.values()))
    @rule(pick=PICKS, outcome=st.sampled_from(OUTCOMES))
    def finish(self, pick: int, outcome: Outcome) -> None:
        moves_here = self.world.book.moves
        unfinished = [move_id for move_id, move in moves_here.items() if move.outcome is None]
        self._try(lambda: self.world.finish(_picked(moves_here if pick % 5 == 0 else unfinished, pick), outcome))

    @precondition(lambda self: len(self.world.book.claims) > 1)
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

    @rule(faults=st.sets(st.sampled_from(FAULTS), max_size=2), after_s=st.sampled_from(SHORT_S))
    def look(self, faults: set[Fault], after_s: float) -> None:
        self._watched(lambda: self.world.look(*sorted(faults), after_s=after_s), faults)

    @rule(wait_s=st.sampled_from(LONG_S))
    def wait(self, wait_s: float) -> None:
        end_s = self.world.now_s + wait_s
        while self.world.now_s < end_s:
            self._watched(lambda: self.world.look(after_s=28.0), ())

    @rule(shuffled=st.randoms(use_true_random=False))
    def look_in_any_order(self, shuffled: random.Random) -> None:
        """Readings of now and of before, in any order and again, make the same books as those of now alone."""
        world = self.world
        self.late = [*self.late, *world.readings()][-6:]
        world.now_s += 3.0
        clean = world.readings()
        mixed = [*clean, *self.late, *clean[:1]]
        shuffled.shuffle(mixed)
        tidy, messy = see_all(world.ledger, (*self.late, *clean)), world.ledger
        for reading in mixed:
            messy = see_all(messy, (reading,))
        books = []
        for ledger in (tidy, messy):
            draft = Draft(world.book, world.moment(), world.rules)
            assert observe(draft, ledger, lambda claim: True) == ()
            books.append(draft.done().book)
        assert books[0] == books[1]

    @rule(name=names, how=st.sampled_from(ACTIVE))
    def go_and_come(self, name: str, how: tuple[DomainState, str]) -> None:
        """A hard reboot, or a guest that comes too late."""
        self.vanish(name)
        self.look(set(), 12.0)
        self.start(name, how)
        self.look(set(), 12.0)

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
    def no_claim_is_in_two_moves(self) -> None:
        for claim_id in self.world.book.claims:
            moves_of = [one for one in self.world.book.moves.values() if claim_id in {one.source, one.destination}]
            assert sum(one.outcome is None for one in moves_of) <= 1

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

    def check(self) -> None:
        """All that is always true."""
        self.the_journal_has_the_books()
        self.an_instance_has_one_owner_and_one_that_comes_or_changes()
        self.no_claim_is_in_two_moves()
        self.only_what_waits_has_a_deadline()
        self.halves_of_a_change_in_place_are_parked_together()

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
            others = {one.role for one in self.world.book.claims_of(claim.instance.uuid)} - {claim.role}
            assert name in self.world.domains or is_in_move or "in_place" in others, claim
            assert claim.state != "away" or "incoming" in others, claim

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

    def _watched(self, look: Callable[[], object], faults: Iterable[Fault]) -> None:
        """As `_ending_rightly`; and the same look again brings nothing."""
        self._ending_rightly(look, faults)
        again = Draft(self.world.book, self.world.moment(), self.world.rules)
        observe(again, self.world.ledger, lambda claim: claim.instance.name not in self.world.busy)
        assert again.done().records == ()

    def _ending_rightly(self, make: Callable[[], object], faults: Iterable[Fault]) -> None:
        """What is seen ends no claim whose domain lives, and a look that lacks proof ends none for absence."""
        before = self.world.book
        make()
        for claim_id in set(before.claims) - self._ids():
            self._check_end(before.claims[claim_id], self.world.book.tombstones[claim_id], set(faults))

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


def _picked(ids: Iterable[str], pick: int) -> str:
    known = sorted(ids)
    return known[pick % len(known)]


def _as_stored(book: Book) -> Book:
    """On the disk a pending claim is reserved already."""
    claims = {
        claim.claim_id: msgspec.structs.replace(claim, state="reserved") if claim.state == "pending" else claim
        for claim in book.claims.values()
    }
    return book._replace(sequence=0, claims=type(book.claims)(claims))
