"""A host in a few lines for the life of claims: its domains as they really are, clocks that jump, a libvirt that can be
down, and a journal that either has a change or has not. Only what a look shows reaches the claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, TypeVar

import msgspec

from agent.core.claim import life, restore
from agent.core.claim.book import Book, Change, Draft
from agent.core.claim.evidence import observe
from agent.core.claim.values import (
    BRINGS_A_GUEST,
    Claim,
    ClaimKind,
    ClaimRules,
    Ending,
    Moment,
    Move,
    Outcome,
    Record,
    RecordValue,
    Role,
    State,
    Step,
    Tombstone,
)
from agent.core.guest import DomainState, RunIdentity, Sighting
from agent.core.instance import Instance
from agent.core.ledger import Holds, Ledger, LivingProcess, account, connect, see_all
from tests.builders import guest, listing, processes, qemu, unread, uuid_of

T = TypeVar("T")

Fault = Literal["down", "incomplete", "old-connection", "blind", "unreadable"]
"""What a look lacks: libvirt does not answer; its list is not complete; the list came over the connection before;
processes of others cannot be seen; no definition and no state can be read."""

WALL_S = 1.8e9


class Domain(msgspec.Struct):
    """What there really is. run: None when it is off. is_lost: QEMU lives and libvirt says that it is off."""

    name: str
    state: DomainState = "running"
    reason: str | None = "booted"
    run: RunIdentity | None = None
    is_defined: bool = True
    is_lost: bool = False


class World:
    """now_s: monotonic; off_s: by how much the wall clock is off. rows, steps: what the journal has."""

    def __init__(self, rules: ClaimRules | None = None) -> None:
        self.rules = rules or ClaimRules()
        self.now_s, self.off_s, self.boots = 100.0, 0.0, 1
        self.book, self.ledger = Book(), connect(Ledger(), 1)
        self.domains: dict[str, Domain] = {}
        self.rows: dict[tuple[str, str], Record] = {}
        self.steps: list[Step] = []
        self.busy: set[str] = set()
        self.connection, self._runs, self._last_look_s = 1, 0, 0.0

    # --- clocks, journal -------------------------------------------------------------------------

    def moment(self) -> Moment:
        """Now."""
        wall_s = WALL_S + self.now_s + self.off_s
        return Moment(boot_id=f"boot-{self.boots}", monotonic_s=self.now_s, wall_s=wall_s, wall=f"at {wall_s:.0f}")

    def do(self, make: Callable[[Draft], T], *, stored: bool = True) -> T:
        """One change. stored: False: the journal has not got it yet (`store`)."""
        draft = Draft(self.book, self.moment(), self.rules)
        answer = make(draft)
        change = draft.done()
        self.book = change.book
        if stored:
            self.store(change)
        return answer

    def store(self, change: Change) -> None:
        """What the journal does with it."""
        self.steps.extend(change.steps)
        for record in change.records:
            if record.value is None:
                self.rows.pop((record.kind, record.key), None)
            else:
                self.rows[record.kind, record.key] = record

    def replayed(self) -> Book:
        """The book that the journal alone gives."""
        return restore.book_of(self.rows.values(), self.steps[-1].sequence if self.steps else 0)

    # --- claims ------------------------------------------------------------------------------------

    def pend(
        self,
        name: str,
        kind: ClaimKind = "build",
        *,
        role: Role | None = None,
        claim_id: str | None = None,
        ttl_s: float | None = None,
        move_id: str | None = None,
        peer: str | None = None,
        stored: bool = True,
    ) -> Claim:
        """A claim that is admitted and not committed."""
        seen = self.seen(name)
        now, ttl_s = self.moment(), ttl_s or self.rules.ttl_s[kind]
        role = role or ("owner" if kind in BRINGS_A_GUEST else "in_place" if kind == "rebuild" else "incoming")
        claim = Claim(
            claim_id=claim_id or f"{name}-{len(self.steps)}",
            kind=kind,
            role=role,
            state="pending",
            instance=instance(name),
            digest="digest",
            ttl_s=ttl_s,
            sequence=0,
            made_at=now.wall,
            state_since=now.wall,
            changed_at_s=now.monotonic_s,
            move_id=move_id or (None if role == "owner" else f"move-{name}-{len(self.steps)}"),
            peer=peer,
            deadline=life.first_deadline(now, self.rules, ttl_s),
            run=None if seen is None else seen.run,
        )

        def admit(draft: Draft) -> Claim:
            if role == "in_place":
                life.owner_for(draft, claim.instance, seen, Holds(uuid=claim.instance.uuid))
            made = draft.admit(claim, Step(sequence=0, at="", event="admitted", claim_id=claim.claim_id))
            life.open_move(draft, made)
            return made

        return self.do(admit, stored=stored)

    def claim(
        self,
        name: str,
        kind: ClaimKind = "build",
        *,
        role: Role | None = None,
        ttl_s: float | None = None,
        move_id: str | None = None,
        peer: str | None = None,
    ) -> Claim:
        """One that is reserved."""
        pending = self.pend(name, kind, role=role, ttl_s=ttl_s, move_id=move_id, peer=peer)
        return self.do(lambda draft: draft.settle(pending))

    def arriving(self, name: str, kind: ClaimKind = "build") -> Claim:
        """One whose domain has just come, on its way or starting up."""
        claim = self.claim(name, kind)
        self.start(name, "paused", "migration" if kind == "live_migration" else "starting-up")
        self.look()
        assert self.now(claim).state == "arriving"
        return self.now(claim)

    def resident(self, name: str, kind: ClaimKind = "build") -> Claim:
        """One that has arrived."""
        claim = self.claim(name, kind)
        self.start(name)
        self.settle()
        assert self.now(claim).state == "resident"
        return self.now(claim)

    def hold(
        self,
        name: str,
        kind: ClaimKind = "live_migration",
        *,
        is_cold: bool = False,
        move_id: str = "m",
        peer: str = "h2",
    ) -> Claim:
        """hold_for_move."""
        uuid = uuid_of(name)
        return self.do(
            lambda draft: life.hold_for_move(
                draft,
                move_id=move_id,
                kind=kind,
                instance=instance(name),
                peer=peer,
                is_cold=is_cold,
                seen=self.seen(name),
                holds=Holds(uuid=uuid, host_memory_kib=1),
            )
        )

    def finish(self, move_id: str, outcome: Outcome) -> Move:
        """finish_move."""
        move = self.book.moves[move_id]
        seen = self.ledger.sightings.get(move.instance)
        return self.do(lambda draft: life.finish_move(draft, move, outcome, seen))

    def confirm(self, claim: Claim) -> Claim:
        """confirm_claim."""
        return self.do(lambda draft: life.confirm(draft, self.now(claim), self.seen(claim.instance.name)))

    def abort(self, claim: Claim, note: str | None = None) -> Claim | Tombstone:
        """abort_claim."""
        return self.do(lambda draft: life.abort(draft, self.now(claim), self.seen(claim.instance.name), note))

    def release(self, claim: Claim) -> Tombstone:
        """release_claim."""
        return self.do(lambda draft: life.release(draft, self.now(claim), None))

    def accept(self, claim: Claim) -> Claim:
        """accept_observed."""
        holds = Holds(uuid=claim.instance.uuid, host_memory_kib=2)
        return self.do(lambda draft: life.accept_observed(draft, self.now(claim), holds))

    def renew(self, claim: Claim, ttl_s: float | None = None) -> Claim:
        """renew_claim."""
        return self.do(lambda draft: life.renew(draft, self.now(claim), ttl_s))

    def forget(self, name: str, moved_to: str | None = None) -> None:
        """forget_instance."""
        self.do(lambda draft: life.forget(draft, uuid_of(name), moved_to, self.seen(name)))

    # --- what there is -------------------------------------------------------------------------------

    def start(self, name: str, state: DomainState = "running", reason: str | None = "booted") -> None:
        """A new run of the domain, which is defined by that."""
        self._runs += 1
        run = RunIdentity(libvirt_id=self._runs, pid=1000 + self._runs, started_at_boot_s=self.now_s)
        self.domains[name] = Domain(name=name, state=state, reason=reason, run=run)

    def turn(self, name: str, state: DomainState, reason: str | None = None) -> None:
        """The same run in another state."""
        self.domains[name].state, self.domains[name].reason = state, reason

    def shut(self, name: str, reason: str | None = "shutdown") -> None:
        """Off, and still defined."""
        self.domains[name] = Domain(name=name, state="shut-off", reason=reason)

    def vanish(self, name: str) -> None:
        """Off and no more defined."""
        del self.domains[name]

    # --- what is seen ----------------------------------------------------------------------------------

    def seen(self, name: str) -> Sighting | None:
        """The last of it."""
        return self.ledger.sightings.get(uuid_of(name))

    def readings(self, *, unreadable: Iterable[str] = ()) -> tuple[Sighting, ...]:
        """What libvirt says now."""
        return tuple(
            msgspec.structs.replace(unread(one.name, state="unknown", at=self.now_s), connection=self.connection)
            if one.name in unreadable
            else msgspec.structs.replace(
                guest(
                    one.name,
                    state="shut-off" if one.is_lost else one.state,
                    at=self.now_s,
                    connection=self.connection,
                    run=RunIdentity() if one.is_lost or one.run is None else one.run,
                ),
                reason=one.reason,
            )
            for one in self.domains.values()
        )

    def living(self) -> list[LivingProcess]:
        """QEMU processes."""
        return [
            qemu(one.name, pid=one.run.pid or 0, started_at_s=one.run.started_at_boot_s)
            for one in self.domains.values()
            if one.run is not None
        ]

    def look(self, *faults: Fault, after_s: float = 1.0) -> None:
        """A pass, which begins after so long; and what it shows comes to the claims."""
        self.now_s += after_s
        begun_at = self.now_s
        unreadable = list(self.domains) if "unreadable" in faults else []
        seen = () if "down" in faults else self.readings(unreadable=unreadable)
        number = self.connection - 1 if "old-connection" in faults else self.connection
        listed = listing(*self.domains, at=begun_at, complete="incomplete" not in faults, connection=number)
        self.now_s += 0.25
        looked = processes(*self.living(), at=self.now_s, can_see="blind" not in faults)
        ledger = see_all(connect(self.ledger, self.connection), seen)
        self.ledger = account(ledger, None if "down" in faults else listed, looked)
        self.now_s += 0.25
        self.observe()

    def observe(self) -> None:
        """What is known comes to the claims."""
        since_s = self.now_s - self._last_look_s if self._last_look_s else None
        self._last_look_s = self.now_s
        faults = self.do(lambda draft: observe(draft, self.ledger, self._is_free, since_last_s=since_s))
        assert faults == ()

    def settle(self) -> None:
        """Looks until a domain that runs has arrived."""
        for _ in range(int(self.rules.settle_s / 5) + 2):
            self.look(after_s=5.0)

    def wait(self, wait_s: float, *faults: Fault) -> None:
        """Looks each ten seconds, as the daemon does."""
        end_s = self.now_s + wait_s
        while self.now_s < end_s:
            self.look(*faults, after_s=min(10.0, end_s - self.now_s))

    def reconnect(self) -> None:
        """The connection was lost and is there again, as the next look will show."""
        self.connection += 1

    def restart(self, *, reboots: bool = False, down_s: float = 1.0) -> None:
        """The agent ends and starts again; reboots: with the host, on which no domain survives."""
        self.now_s += down_s
        if reboots:
            was = f"boot-{self.boots}"
            self.boots, self.now_s, self._runs = self.boots + 1, 5.0, 0
            self.domains = {
                name: Domain(name=name, state="shut-off", reason=None)
                for name, one in self.domains.items()
                if one.is_defined
            }
        else:
            was = f"boot-{self.boots}"
        self.connection += 1
        self.ledger, self.book, self._last_look_s = connect(Ledger(), self.connection), self.replayed(), 0.0
        self.do(lambda draft: restore.restarted(draft, was))

    # --- what has come of it -----------------------------------------------------------------------------

    def now(self, claim: Claim) -> Claim:
        """The claim as it is."""
        return self.book.claims[claim.claim_id]

    def state(self, claim: Claim) -> State:
        """Of the claim; "ended" where that is so."""
        there = self.book.claims.get(claim.claim_id)
        return "ended" if there is None else there.state

    def ending(self, claim: Claim) -> Ending | Literal["refused"]:
        """How it ended."""
        return self.book.tombstones[claim.claim_id].ending

    def events(self, claim: Claim) -> list[str]:
        """Its steps since it was admitted."""
        return [step.event for step in self.steps if step.claim_id == claim.claim_id][1:]

    def _is_free(self, claim: Claim) -> bool:
        return claim.instance.name not in self.busy


def instance(name: str) -> Instance:
    """A guest."""
    return Instance(uuid=uuid_of(name), name=name)


def values_of(rows: Iterable[Record]) -> list[RecordValue]:
    """What is in them."""
    return [row.value for row in rows if row.value is not None]
