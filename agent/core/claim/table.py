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
    "hold",
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
    # the clock
    "deadline",
    "grace-over",
]

FROM_CALLERS: frozenset[Event] = frozenset(
    {
        "renew",
        "confirm",
        "abort",
        "release",
        "hold",
        "finish-confirmed",
        "finish-reverted",
        "replace",
        "forget",
    }
)

MEANING: dict[Event, str] = {
    "committed": "the journal has it on the disk",
    "commit-failed": "the journal could not store it",
    "renew": "renew_claim",
    "confirm": "confirm_claim, with the domain seen",
    "abort": "abort_claim",
    "release": "release_claim",
    "hold": "hold_for_move, or live_migration on the source",
    "finish-confirmed": "finish_move(confirmed)",
    "finish-reverted": "finish_move(reverted or failed)",
    "replace": "another claim of the instance replaces it",
    "forget": "forget_instance: it lives elsewhere now",
    "run-seen": "a new run of the domain is seen",
    "settled": "it runs for settle_s, or came by a migration that has ended",
    "run-gone": "the run that had come is gone",
    "rolled-back": "its domain is gone after an abort or a revert",
    "absent": "absence is proven (R2)",
    "seen-again": "the domain is here again",
    "switched-off": "the domain of a cold move is off or gone",
    "left": "libvirt says it left by our own migration, or it is absent and the peer has it",
    "stays": "it runs here and no job moves it",
    "torn": "the move broke in the middle: paused with no job, post-copy failed, or the host went down in it",
    "deadline": "its deadline passed",
    "grace-over": "the grace is over and absence is proven",
}


class Transition(NamedTuple):
    """roles: of the claims that it is for. after "ended" bears how, in `Claim.ending` or the event's own name."""

    before: State
    event: Event
    after: State
    roles: frozenset[Role]


_ANY: frozenset[Role] = frozenset({"owner", "incoming", "in_place"})
_OWNER: frozenset[Role] = frozenset({"owner"})
_COMING: frozenset[Role] = frozenset({"owner", "incoming"})
_IN_PLACE: frozenset[Role] = frozenset({"in_place"})


def _rows(before: State, roles: frozenset[Role], **events: State) -> tuple[Transition, ...]:
    names: dict[str, Event] = {event.replace("-", "_"): event for event in MEANING}
    return tuple(Transition(before, names[name], after, roles) for name, after in events.items())


TRANSITIONS: tuple[Transition, ...] = (
    *_rows("pending", _ANY, committed="reserved", commit_failed="ended"),
    *_rows("reserved", _ANY, renew="reserved", abort="ended", replace="ended", deadline="overdue"),
    *_rows("reserved", _COMING, run_seen="arriving", finish_reverted="ended", forget="ended"),
    *_rows("reserved", _IN_PLACE, confirm="parked", finish_reverted="ended"),
    *_rows("overdue", _ANY, renew="reserved", abort="ended", replace="ended", grace_over="ended"),
    *_rows("overdue", _COMING, run_seen="arriving", finish_reverted="ended", forget="ended"),
    *_rows("overdue", _IN_PLACE, confirm="parked", finish_reverted="ended"),
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
        torn="doubtful",
        forget="ended",
    ),
    *_rows(
        "resident",
        _OWNER,
        renew="resident",
        confirm="resident",
        hold="leaving",
        absent="away",
        release="ended",
        replace="ended",
        forget="ended",
        finish_confirmed="resident",
        finish_reverted="resident",
        rolled_back="ended",
    ),
    *_rows("away", _OWNER, seen_again="resident", release="ended", replace="ended", forget="ended", grace_over="ended"),
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
    ),
    *_rows(
        "parked",
        _OWNER,
        hold="parked",
        finish_confirmed="ended",
        finish_reverted="resident",
        forget="ended",
    ),
    *_rows("parked", _IN_PLACE, confirm="parked", finish_confirmed="resident", finish_reverted="ended"),
    *_rows(
        "doubtful",
        _COMING,
        left="ended",
        stays="resident",
        finish_confirmed="ended",
        finish_reverted="resident",
        forget="ended",
    ),
)
"""A claim that is no more in "ended": no row leads out of it."""

_AFTER: dict[tuple[State, Event, Role], State] = {
    (row.before, row.event, role): row.after for row in TRANSITIONS for role in row.roles
}


def after(state: State, event: Event, role: Role) -> State | None:
    """The state that follows; None: not in the table, so not allowed."""
    return _AFTER.get((state, event, role))


def events(state: State, role: Role) -> tuple[Event, ...]:
    """What may happen to such a claim, in the order of the table."""
    return tuple(row.event for row in TRANSITIONS if row.before == state and role in row.roles)
