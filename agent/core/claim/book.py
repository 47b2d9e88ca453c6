"""All claims with what goes with them, immutable; and the one way to make the next book, which notes what to write."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple, cast

import msgspec
from immutables import Map

from agent.core.claim.shelves import ONLY, SHELF_OF, SHELVES, SINGLES, MemberKey, Shelf, Shelved, Single
from agent.core.claim.table import Event, after
from agent.core.claim.values import (
    Boot,
    BuildFailure,
    Claim,
    ClaimRules,
    Deadline,
    Departure,
    Ending,
    GroupRule,
    Horizon,
    Maintenance,
    Membership,
    Moment,
    Move,
    Record,
    RecordValue,
    SpentDevice,
    State,
    Step,
    Tombstone,
)
from agent.core.pci import PciAddress

_NONE: Map[str, object] = Map()


class Book(NamedTuple):
    """sequence: of the last step. claims: those that have not ended, by id. of: their ids by instance. tombstones: by
    claim id; ends: their ids by instance, the earliest first; graves: their ids by the step that ended them, of which
    oldest is the first. members: by group and instance; groups: by id. moves: by id. departures: by instance. failures:
    the oldest first. horizon: None: nobody knows how far promises reach.

    Maps of `immutables`: the next book shares all but what changed, whatever the number of claims.
    """

    sequence: int = 0
    claims: Map[str, Claim] = cast("Map[str, Claim]", _NONE)
    of: Map[str, tuple[str, ...]] = cast("Map[str, tuple[str, ...]]", _NONE)
    tombstones: Map[str, Tombstone] = cast("Map[str, Tombstone]", _NONE)
    ends: Map[str, tuple[str, ...]] = cast("Map[str, tuple[str, ...]]", _NONE)
    graves: Map[int, str] = cast("Map[int, str]", _NONE)
    oldest: int = 0
    members: Map[MemberKey, Membership] = cast("Map[MemberKey, Membership]", _NONE)
    groups: Map[str, GroupRule] = cast("Map[str, GroupRule]", _NONE)
    moves: Map[str, Move] = cast("Map[str, Move]", _NONE)
    departures: Map[str, Departure] = cast("Map[str, Departure]", _NONE)
    failures: tuple[BuildFailure, ...] = ()
    maintenance: Maintenance | None = None
    boot: Boot | None = None
    horizon: Horizon | None = None
    spent: Map[PciAddress, SpentDevice] = cast("Map[PciAddress, SpentDevice]", _NONE)

    def claims_of(self, instance: str) -> tuple[Claim, ...]:
        """Those of one instance that have not ended, the earliest first."""
        return tuple(self.claims[claim_id] for claim_id in self.of.get(instance, ()))

    def owner_of(self, instance: str) -> Claim | None:
        """The claim that says why it is here."""
        return next((claim for claim in self.claims_of(instance) if claim.role == "owner"), None)

    def row(self, kind: str, key: str) -> RecordValue | None:
        """What the journal should have under this kind and key."""
        if kind == "build_failure":
            return next((one for one in self.failures if one.claim_id == key), None)
        if kind in SINGLES.values():
            return cast("RecordValue | None", getattr(self, kind))
        if kind in SHELF_OF:
            shelf = SHELF_OF[kind]
            return cast("RecordValue | None", getattr(self, shelf.field).get(shelf.key_of(key)))
        return self.claims.get(key) if kind == "claim" else self.tombstones.get(key)


def _without(ids: tuple[str, ...], claim_id: str) -> tuple[str, ...]:
    return tuple(one for one in ids if one != claim_id)


def _first_from(at: int, graves: Map[int, str]) -> int:
    """The first grave from there on; 0: there is none. A handful of steps lie between two."""
    if not graves:
        return 0
    return next(number for number in itertools.count(at) if number in graves)


class IllegalStep(Exception):
    """The table has no such transition."""

    def __init__(self, claim: Claim, event: Event) -> None:
        super().__init__(f"claim {claim.claim_id} is {claim.state}; {event} is not possible then")
        self.claim, self.event = claim, event


class Change(NamedTuple):
    """A book and what the journal must have of the way to it. touched: instances whose holdings may differ now. takes:
    something was promised, which counts only once it is on the disk. is_lazy: all of it may be lost in a crash: no more
    than that deadlines were put off."""

    book: Book
    records: tuple[Record, ...] = ()
    steps: tuple[Step, ...] = ()
    touched: frozenset[str] = frozenset()
    takes: bool = False
    is_lazy: bool = False


class Draft:
    """The next book in the making: each method changes it and notes the rows that the journal needs for that.

    The one place where a claim changes its state: what `core/claim/table` does not allow raises IllegalStep.
    """

    def __init__(self, book: Book, now: Moment, rules: ClaimRules) -> None:
        self.book = book
        self.now, self.rules = now, rules
        self._records: dict[tuple[str, str], Record] = {}
        self._steps: list[Step] = []
        self._touched: set[str] = set()
        self._takes = self._is_urgent = False

    def done(self) -> Change:
        """What has come of it."""
        records, steps = tuple(self._records.values()), tuple(self._steps)
        is_lazy = bool(records) and not (steps or self._is_urgent)
        return Change(self.book, records, steps, frozenset(self._touched), self._takes, is_lazy)

    # --- claims --------------------------------------------------------------------------------

    def admit(self, claim: Claim, step: Step) -> Claim:
        """Put in a new claim, which holds from now on; its sequence becomes that of the step.

        A pending one is for the journal a reserved one: on the disk it has been committed.
        """
        noted = self.note(step)
        made = msgspec.structs.replace(claim, sequence=noted.sequence)
        self._put(made)
        if made.state == "pending":
            self._takes = True
            self._record("claim", made.claim_id, msgspec.structs.replace(made, state="reserved"))
        return made

    def settle(self, claim: Claim) -> Claim:
        """The journal has a pending claim, which the disk therefore knows as reserved already. Raises IllegalStep."""
        settled = msgspec.structs.replace(claim, state=self._next(claim, "committed"))
        self.book = self.book._replace(claims=self.book.claims.set(claim.claim_id, settled))
        self._touched.add(claim.instance.uuid)
        return settled

    def take_back(self, claim: Claim) -> None:
        """The journal has not taken a pending claim: it was never there. Raises IllegalStep."""
        self._next(claim, "commit-failed")
        self.note_event(claim, "commit-failed", "ended")
        self._drop(claim)

    def note_row(self, kind: str, key: str, value: RecordValue | None) -> None:
        """Have the journal store a row that has not changed, since nobody knows what it has."""
        self._record(kind, key, value)

    def put_back(self, kind: str, key: str, was: RecordValue | None) -> None:
        """A row of any kind as it was before a change that is undone; None: there was none."""
        is_now = self.book.row(kind, key)
        match was if was is not None else is_now:
            case Claim() as claim:
                self._drop(claim) if was is None else self._put(claim)
            case Tombstone() as tombstone:
                self.unbury(key) if was is None else self.bury(tombstone)
            case BuildFailure() as failure:
                self.drop_failure(failure) if was is None else self.put_failure(failure)
            case Maintenance() | Boot() | Horizon() as single:
                self.set(type(single), None if was is None else single)
            case None:
                pass
            case shelved:
                self.drop(shelved) if was is None else self.put(shelved)

    def foretell(self, change: Change) -> None:
        """Have the journal store a change of this book together with this one, which for the time being leaves the
        book itself as it is: until the disk has both, neither has happened."""
        self.book = self.book._replace(sequence=change.book.sequence)
        self._records |= {(record.kind, record.key): record for record in change.records}
        self._steps += change.steps

    def adopt(self, change: Change) -> None:
        """Take over a change of this very book, which then counts as made here."""
        self.book = change.book
        self._records |= {(record.kind, record.key): record for record in change.records}
        self._steps += change.steps
        self._touched |= change.touched
        self._takes = self._takes or change.takes
        self._is_urgent = self._is_urgent or (bool(change.records) and not change.is_lazy)

    def fulfil(self, change: Change) -> None:
        """Take over a change of this book that was foretold. Its steps, which the journal has, are noted once more as
        "committed": only now has it happened, and what was refused in the meantime was refused rightly."""
        self.book = change.book._replace(sequence=self.book.sequence)
        self._records |= {(record.kind, record.key): record for record in change.records}
        self._touched |= change.touched
        for step in change.steps:
            self.note(msgspec.structs.replace(step, event="committed"))

    def move_on(self, claim: Claim, event: Event, **changes: object) -> Claim:
        """The claim after an event that leaves it in the book. changes: further fields of it.

        Raises IllegalStep.
        """
        state = self._next(claim, event)
        if state == "ended":
            raise IllegalStep(claim, event)
        is_new = state != claim.state
        moved = msgspec.structs.replace(
            claim,
            state=state,
            changed_at_s=self.now.monotonic_s if is_new else claim.changed_at_s,
            state_since=self.now.wall if is_new else claim.state_since,
            **changes,
        )
        if is_new or changes:
            self.note_event(claim, event, state)
            self._put(moved)
        return moved

    def end(self, claim: Claim, event: Event, ending: Ending, note: str | None = None) -> Tombstone:
        """The claim ends: it holds nothing from now on, and is remembered. Raises IllegalStep."""
        if self._next(claim, event) != "ended":
            raise IllegalStep(claim, event)
        noted = self.note_event(claim, event, "ended", ending=ending, note=note)
        self._drop(claim)
        return self.bury(
            Tombstone(
                claim_id=claim.claim_id,
                ending=ending,
                ended_at=self.now.wall,
                at_s=self.now.wall_s,
                sequence=noted.sequence,
                digest=claim.digest,
                instance=claim.instance.uuid,
                claim=msgspec.structs.replace(claim, state="ended", reason=note or claim.reason),
            )
        )

    def bury(self, tombstone: Tombstone) -> Tombstone:
        """Remember it; where that is one too many, forget the oldest."""
        claim_id, uuid, at = tombstone.claim_id, tombstone.instance, tombstone.sequence
        if claim_id in self.book.tombstones:
            self.unbury(claim_id)
        book = self.book
        ends = book.ends.set(uuid, (*book.ends.get(uuid, ()), claim_id)) if uuid else book.ends
        self.book = book._replace(
            tombstones=book.tombstones.set(claim_id, tombstone),
            ends=ends,
            graves=book.graves.set(at, claim_id),
            oldest=min(book.oldest, at) if book.graves else at,
        )
        self._record("tombstone", claim_id, tombstone)
        while len(self.book.tombstones) > max(1, self.rules.most_tombstones) and self.book.graves:
            self.unbury(self.book.graves[self.book.oldest])
        return tombstone

    def unbury(self, claim_id: str) -> None:
        """Forget it."""
        book, tombstone = self.book, self.book.tombstones[claim_id]
        uuid, at = tombstone.instance, tombstone.sequence
        left = _without(book.ends.get(uuid, ()), claim_id)
        ends = book.ends.set(uuid, left) if left else book.ends.delete(uuid) if uuid else book.ends
        graves = book.graves.delete(at) if book.graves.get(at) == claim_id else book.graves
        self.book = book._replace(
            tombstones=book.tombstones.delete(claim_id),
            ends=ends,
            graves=graves,
            oldest=_first_from(book.oldest, graves),
        )
        self._record("tombstone", claim_id, None)

    def change(self, claim: Claim, **changes: object) -> Claim:
        """The claim with other fields and in the same state; no step is noted."""
        changed = msgspec.structs.replace(claim, **changes)
        if changed != claim:
            self._put(changed)
        return changed

    def put_off(self, claim: Claim, ttl_s: float, deadline: Deadline | None) -> Claim:
        """The claim with more time, which counts before the disk has it: after a crash it has its grace instead."""
        later = msgspec.structs.replace(claim, ttl_s=ttl_s, deadline=deadline)
        if later != claim:
            self.book = self.book._replace(claims=self.book.claims.set(claim.claim_id, later))
            self._touched.add(claim.instance.uuid)
            self._record("claim", claim.claim_id, later, is_urgent=False)
            self._reach(later)
        return later

    # --- what goes with them -------------------------------------------------------------------

    def put(self, value: Shelved) -> None:
        """Add it, or what is newer of it."""
        shelf = SHELVES[type(value)]
        key = shelf.key(value)
        if getattr(self.book, shelf.field).get(key) != value:
            self._shelve(shelf, key, value)
            self._touch(value)

    def drop(self, value: Shelved) -> None:
        """Forget it, whatever is known of it now."""
        shelf = SHELVES[type(value)]
        key = shelf.key(value)
        if key in getattr(self.book, shelf.field):
            self._shelve(shelf, key, None)
            self._touch(value)

    def set(self, kind: type[Single], value: Single | None) -> None:
        """What there is one of, or (None) no more."""
        name = SINGLES[kind]
        if getattr(self.book, name) != value:
            self._replace(name, value)
            self._record(name, ONLY, value)

    def begin_boot(self) -> None:
        """The host has been booted since, or this is the first start."""
        if self.book.boot is None or self.book.boot.boot_id != self.now.boot_id:
            self.set(Boot, Boot(boot_id=self.now.boot_id, since=self.now.wall))

    def put_failure(self, failure: BuildFailure) -> None:
        """A build has failed; of one claim the last time counts."""
        others = (one for one in self.book.failures if one.claim_id != failure.claim_id)
        failures = sorted((*others, failure), key=lambda one: (one.at_s, one.claim_id))
        self.book = self.book._replace(failures=tuple(failures))
        self._record("build_failure", failure.claim_id, failure)

    def drop_failure(self, failure: BuildFailure) -> None:
        """It counts no more."""
        self.book = self.book._replace(failures=tuple(one for one in self.book.failures if one != failure))
        self._record("build_failure", failure.claim_id, None)

    # --- steps ---------------------------------------------------------------------------------

    def note_event(
        self, claim: Claim, event: str, state: State, *, ending: str | None = None, note: str | None = None
    ) -> Step:
        """A step of a claim."""
        return self.note(
            Step(
                sequence=0,
                at=self.now.wall,
                event=event,
                claim_id=claim.claim_id,
                instance=claim.instance.uuid,
                kind=claim.kind,
                before=claim.state,
                after=state,
                ending=ending,
                move_id=claim.move_id,
                groups=() if claim.group is None else (claim.group.id,),
                note=note,
            )
        )

    def note(self, step: Step) -> Step:
        """The step with the next sequence number."""
        numbered = msgspec.structs.replace(step, sequence=self.book.sequence + 1, at=self.now.wall)
        self.book = self.book._replace(sequence=numbered.sequence)
        self._steps.append(numbered)
        return numbered

    def _next(self, claim: Claim, event: Event) -> State:
        state = after(claim.state, event, claim.role)
        if state is None:
            raise IllegalStep(claim, event)
        return state

    def _put(self, claim: Claim) -> None:
        book, uuid = self.book, claim.instance.uuid
        ids = book.of.get(uuid, ())
        if claim.claim_id not in ids:
            ids = (*ids, claim.claim_id)
        self.book = book._replace(claims=book.claims.set(claim.claim_id, claim), of=book.of.set(uuid, ids))
        self._touched.add(uuid)
        self._record("claim", claim.claim_id, claim)
        self._reach(claim)

    def _reach(self, claim: Claim) -> None:
        """Whoever finds this journal damaged has to know how long it may have been relied on."""
        horizon, ttl_s = self.book.horizon, min(claim.ttl_s, self.rules.most_ttl_s)
        if horizon is not None and claim.deadline is not None and ttl_s > horizon.longest_ttl_s:
            self.set(Horizon, msgspec.structs.replace(horizon, longest_ttl_s=ttl_s))

    def _replace(self, field: str, content: Any) -> None:
        self.book = self.book._replace(**{field: content})

    def _touch(self, value: Shelved) -> None:
        if isinstance(value, Membership | Departure | SpentDevice):
            self._touched.add(value.instance)

    def _shelve(self, shelf: Shelf, key: object, value: Shelved | None) -> None:
        held = getattr(self.book, shelf.field)
        self._replace(shelf.field, held.delete(key) if value is None else held.set(key, value))
        self._record(shelf.kind, shelf.row(key), value)

    def _drop(self, claim: Claim) -> None:
        book, uuid = self.book, claim.instance.uuid
        ids = _without(book.of.get(uuid, ()), claim.claim_id)
        of = book.of.set(uuid, ids) if ids else book.of.delete(uuid)
        self.book = book._replace(claims=book.claims.delete(claim.claim_id), of=of)
        self._touched.add(uuid)
        self._record("claim", claim.claim_id, None)

    def _record(self, kind: str, key: str, value: RecordValue | None, *, is_urgent: bool = True) -> None:
        self._is_urgent = self._is_urgent or is_urgent
        self._records[kind, key] = Record(kind=kind, key=key, value=value)
