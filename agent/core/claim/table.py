"""The life of a claim as data: from which state, by which event, into which (LEDGER 2).

Code, the diagram in docs/ledger.md and the tests read this one table; what is not in it is an illegal transition.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from agent.core.claim.values import Role, State

Event = Literal[
    # the journal
    "committed",
    "commit-failed",
    # the caller
    "renew",
    "confirm",
    "abort",
    "release",
    "accept-observed",
    "hold",
    "set-aside",
    "finish-confirmed",
    "finish-reverted",
    "replace",
    "forget",
    # what is seen
    "run-seen",
    "settled",
    "run-gone",
    "rolled-back",
    "absent",
    "seen-again",
    "switched-off",
    "left",
    "stays",
    "torn",
    "superseded",
    "came-late",
    # the clock
    "deadline",
    "grace-over",
]

STATES: dict[State, str] = {
    "pending": "admitted, and on its way to the disk; nobody was told yes yet",
    "reserved": "promised; its domain has not come yet, or the guest does not run in the new place yet",
    "overdue": "its deadline is over; it still holds, until its domain is proven absent",
    "arriving": "its domain has come, and has not run here for long enough to be called arrived",
    "resident": "the guest is here, running or off",
    "away": "its domain is gone, and nothing says that it left: a hard reboot looks so",
    "leaving": "it is about to leave for the peer, or on its way",
    "parked": "two places are kept until the move, or the change in place, is confirmed or reverted",
    "doubtful": "a move broke in the middle, and nobody here knows on which side the guest lives",
    "ended": "it holds nothing, and is remembered",
}
"""What it means for a claim to be so, in the order of its life."""

FROM_CALLERS: frozenset[Event] = frozenset(
    {
        "renew",
        "confirm",
        "abort",
        "release",
        "accept-observed",
        "hold",
        "set-aside",
        "finish-confirmed",
        "finish-reverted",
        "replace",
        "forget",
    }
)

FROM_JOURNAL: frozenset[Event] = frozenset({"committed", "commit-failed"})

FROM_CLOCK: frozenset[Event] = frozenset({"deadline", "grace-over"})

MEANING: dict[Event, str] = {
    "committed": "the journal has it on the disk",
    "commit-failed": "the journal could not store it",
    "renew": "renew_claim",
    "confirm": "confirm_claim: the domain is seen here; in place: the guest runs as the new claim says",
    "abort": "abort_claim; a domain that is here has to go first",
    "release": "release_claim: the guest shall not be here any more",
    "accept-observed": "accept_observed: what the domain holds is what is promised from now on",
    "hold": "hold_for_move, or live_migration on the source",
    "set-aside": "the claim in place beside it is confirmed",
    "finish-confirmed": "finish_move(confirmed)",
    "finish-reverted": "finish_move(reverted or failed); a domain that came with the move has to go first",
    "replace": "another claim of the instance replaces it",
    "forget": "forget_instance: it lives elsewhere now",
    "run-seen": "a new run of the domain is seen",
    "settled": "the domain has run for settle_s, or came by a migration that has ended",
    "run-gone": "the run that had come is gone",
    "rolled-back": "the domain is gone, for which an abort or a revert has waited",
    "absent": "absence is proven (R2)",
    "seen-again": "the domain is here again",
    "switched-off": "the domain of a cold move is off or gone",
    "left": "libvirt says that it left by our own migration, or the peer has it and it is gone here",
    "stays": "it runs here, no job moves it, and the peer has none",
    "torn": "the move broke in the middle: paused with no job, post-copy failed, or the host went down in it",
    "superseded": "the guest has come here by another claim",
    "came-late": "its domain came after all, and the place is still free (only after expired and gone)",
    "deadline": "its deadline passed",
    "grace-over": "the grace is over too, and (not in place) absence is proven",
}


class Transition(NamedTuple):
    """roles: of the claims that it is for. How a claim ended is not in the table but in its tombstone."""

    before: State
    event: Event
    after: State
    roles: frozenset[Role]


_ANY: frozenset[Role] = frozenset({"owner", "incoming", "in_place"})
_OWNER: frozenset[Role] = frozenset({"owner"})
_INCOMING: frozenset[Role] = frozenset({"incoming"})
_COMING: frozenset[Role] = _OWNER | _INCOMING
_IN_PLACE: frozenset[Role] = frozenset({"in_place"})


def _rows(before: State, roles: frozenset[Role], **events: State) -> tuple[Transition, ...]:
    names: dict[str, Event] = {event.replace("-", "_"): event for event in MEANING}
    return tuple(Transition(before, names[name], after, roles) for name, after in events.items())


TRANSITIONS: tuple[Transition, ...] = (
    *_rows("pending", _ANY, committed="reserved", commit_failed="ended"),
    *_rows(
        "reserved",
        _ANY,
        renew="reserved",
        abort="ended",
        finish_reverted="ended",
        replace="ended",
        forget="ended",
        deadline="overdue",
    ),
    *_rows("reserved", _COMING, run_seen="arriving", confirm="resident"),
    *_rows("reserved", _OWNER, superseded="ended"),
    *_rows("reserved", _IN_PLACE, confirm="parked"),
    *_rows(
        "overdue",
        _ANY,
        renew="reserved",
        abort="ended",
        finish_reverted="ended",
        replace="ended",
        forget="ended",
        grace_over="ended",
    ),
    *_rows("overdue", _COMING, run_seen="arriving", confirm="resident"),
    *_rows("overdue", _OWNER, superseded="ended"),
    *_rows("overdue", _IN_PLACE, confirm="parked"),
    *_rows(
        "arriving",
        _COMING,
        renew="arriving",
        settled="resident",
        confirm="resident",
        run_gone="reserved",
        abort="arriving",
        finish_reverted="arriving",
        rolled_back="ended",
        forget="ended",
    ),
    *_rows("arriving", _INCOMING, torn="doubtful"),
    *_rows("arriving", _OWNER, superseded="ended"),
    *_rows(
        "resident",
        _OWNER,
        renew="resident",
        confirm="resident",
        accept_observed="resident",
        hold="leaving",
        set_aside="parked",
        absent="away",
        release="ended",
        replace="ended",
        forget="ended",
        finish_confirmed="resident",
        finish_reverted="resident",
        rolled_back="ended",
        superseded="ended",
    ),
    *_rows(
        "away",
        _OWNER,
        seen_again="resident",
        set_aside="parked",
        release="ended",
        replace="ended",
        forget="ended",
        finish_confirmed="away",
        finish_reverted="away",
        rolled_back="ended",
        superseded="ended",
        grace_over="ended",
    ),
    *_rows(
        "leaving",
        _OWNER,
        hold="leaving",
        left="ended",
        stays="resident",
        torn="doubtful",
        switched_off="parked",
        finish_confirmed="ended",
        finish_reverted="resident",
        forget="ended",
        superseded="ended",
    ),
    *_rows(
        "parked",
        _OWNER,
        hold="parked",
        finish_confirmed="ended",
        finish_reverted="resident",
        forget="ended",
        superseded="ended",
    ),
    *_rows(
        "parked",
        _IN_PLACE,
        confirm="parked",
        finish_confirmed="resident",
        finish_reverted="ended",
        forget="ended",
    ),
    *_rows("doubtful", _COMING, left="ended", stays="resident", forget="ended"),
    *_rows("doubtful", _OWNER, finish_confirmed="ended", finish_reverted="resident", superseded="ended"),
    *_rows("doubtful", _INCOMING, finish_confirmed="resident", finish_reverted="doubtful", rolled_back="ended"),
    *_rows("ended", _COMING, came_late="arriving"),
)
"""A claim that has ended is no more in the books but remembered; one row alone leads back."""

_AFTER: dict[tuple[State, Event, Role], State] = {
    (row.before, row.event, role): row.after for row in TRANSITIONS for role in row.roles
}


def after(state: State, event: Event, role: Role) -> State | None:
    """The state that follows; None: not in the table, so not allowed."""
    return _AFTER.get((state, event, role))


def events(state: State, role: Role) -> tuple[Event, ...]:
    """What may happen to such a claim, in the order of the table."""
    return tuple(row.event for row in TRANSITIONS if row.before == state and role in row.roles)
