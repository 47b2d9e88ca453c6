"""A host's book of claims, as far as seats in server groups go: each call is one change of it, as under the tracker's
lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, get_args

from agent.core.claim.book import Book, Change, Draft
from agent.core.claim.seats import (
    group_conflicts,
    group_refusal,
    join_group,
    leave_groups,
    prune_members,
    seats,
    set_group,
)
from agent.core.claim.table import Event
from agent.core.claim.values import (
    BRINGS_A_GUEST,
    Claim,
    ClaimKind,
    ClaimRules,
    Departure,
    Moment,
    Role,
    Step,
    Tombstone,
)
from agent.core.conflicts import Conflict
from agent.core.guest import DomainState, Sighting
from agent.core.instance import Group, Instance
from agent.core.reasons import GroupViolated

T = TypeVar("T")

KINDS: tuple[ClaimKind, ...] = get_args(ClaimKind)
WAYS_IN: tuple[ClaimKind, ...] = tuple(kind for kind in KINDS if kind != "rebuild")
"""Kinds that bring a guest to a host where it has not been."""

START_S = 1.8e9


def on(name: str, state: DomainState = "running") -> Sighting:
    """A guest that is seen; its uuid is its name."""
    return Sighting(uuid=name, name=name, state=state, begun_at=1.0)


def off(name: str) -> Sighting:
    """One that is defined and shut off."""
    return on(name, "shut-off")


class Desk:
    """Who comes, goes and is seen on one host."""

    def __init__(self, *here: Sighting, host: str = "h1") -> None:
        self.book = Book()
        self.sightings = {seen.uuid: seen for seen in here}
        self.host, self.now_s = host, START_S
        self.changes: list[Change] = []

    def come(self, uuid: str, group: Group | None, kind: ClaimKind = "build") -> Claim | GroupViolated:
        """Ask for a place and take it, in one step; a claim that is on the disk at once."""
        is_in_place = kind == "rebuild"
        violated = group_refusal(group, uuid, self.book, self.sightings, host=self.host, in_place=is_in_place)
        if violated is not None:
            return violated
        role: Role = "in_place" if is_in_place else "owner" if kind in BRINGS_A_GUEST else "incoming"

        def enter(draft: Draft) -> Claim:
            claim = draft.admit(self._claim(uuid, group, kind, role), Step(sequence=0, at="", event="admitted"))
            join_group(draft, group, uuid, self.sightings)
            return draft.settle(claim)

        return self._do(enter)

    def move_on(self, uuid: str, event: Event) -> Claim:
        """What happens to the only claim of an instance."""
        (claim,) = self.book.claims_of(uuid)
        return self._do(lambda draft: draft.move_on(claim, event))

    def release(self, uuid: str, event: Event = "release") -> Tombstone:
        """Its only claim ends, and so does what was said of it without a generation."""
        (claim,) = self.book.claims_of(uuid)

        def release(draft: Draft) -> Tombstone:
            leave_groups(draft, uuid)
            return draft.end(claim, event, "released")

        return self._do(release)

    def depart(self, uuid: str, event: Event = "forget") -> None:
        """It lives on another host now: its claims end with "left"."""

        def depart(draft: Draft) -> None:
            for claim in draft.book.claims_of(uuid):
                draft.end(claim, event, "left")
            draft.put(Departure(instance=uuid, at=""))

        self._do(depart)

    def set_group(self, group: Group) -> None:
        """These are all its members."""
        self._do(lambda draft: set_group(draft, group, self.sightings))

    def leave(self, uuid: str) -> None:
        """It is released without having had a claim."""
        self._do(lambda draft: leave_groups(draft, uuid))

    def prune(self, after_s: float = 0.0) -> None:
        """Some time later."""
        self.now_s += after_s
        self._do(lambda draft: prune_members(draft, self.sightings))

    def see(self, *guests: Sighting) -> None:
        """What is seen of some from now on."""
        self.sightings |= {seen.uuid: seen for seen in guests}

    def unsee(self, *names: str) -> None:
        """They are absent."""
        for name in names:
            del self.sightings[name]

    def recheck(self, uuid: str, group: Group) -> GroupViolated | None:
        """Whether its claim may go on, before a live migration begins."""
        (claim,) = self.book.claims_of(uuid)
        return group_refusal(
            group, uuid, self.book, self.sightings, host=self.host, in_place=False, before=claim.sequence
        )

    def seated(self, group_id: str = "g") -> list[str]:
        """Who has a seat, by uuid."""
        return [seat.instance for seat in seats(self.book, self.sightings, group_id)]

    def members(self, group_id: str = "g") -> dict[str, int | None]:
        """Generation of each member that the book has."""
        return {one.instance: one.generation for one in self.book.members.values() if one.group == group_id}

    def rows(self) -> list[Conflict]:
        """What stands against a policy."""
        return list(group_conflicts(self.book, self.sightings))

    def _do(self, make: Callable[[Draft], T]) -> T:
        wall = Moment(boot_id="boot", monotonic_s=self.now_s - START_S, wall_s=self.now_s, wall="now")
        draft = Draft(self.book, wall, ClaimRules())
        answer = make(draft)
        self.changes.append(draft.done())
        self.book = draft.book
        return answer

    def _claim(self, uuid: str, group: Group | None, kind: ClaimKind, role: Role) -> Claim:
        return Claim(
            claim_id=f"{uuid}-{self.book.sequence}",
            kind=kind,
            role=role,
            state="pending",
            instance=Instance(uuid=uuid, name=uuid),
            digest="",
            ttl_s=900.0,
            sequence=0,
            made_at="now",
            state_since="now",
            changed_at_s=0.0,
            group=group,
        )
