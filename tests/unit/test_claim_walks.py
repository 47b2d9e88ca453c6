"""Long ways through everything that can happen to claims: no transition is left untried, and the books stay right."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from agent.core.claim.table import TRANSITIONS
from tests import claim_machine as machine
from tests.claim_machine import ClaimMachine

WALKS, STEPS = 80, 120

LEAVES_NO_STEP = {"committed", "commit-failed", "hold", "confirm", "renew"}
"""Where these change no state, they are no step of the history, and a commit never is."""

RARE = {
    ("away", "forget"),
    ("away", "finish-confirmed"),
    ("away", "finish-reverted"),
    ("away", "replace"),
    ("away", "rolled-back"),
    ("away", "superseded"),
    ("doubtful", "forget"),
    ("doubtful", "left"),
    ("doubtful", "superseded"),
    ("ended", "came-late"),
    ("leaving", "superseded"),
    ("overdue", "abort"),
    ("overdue", "confirm"),
    ("overdue", "forget"),
    ("overdue", "replace"),
    ("overdue", "superseded"),
    ("reserved", "superseded"),
}
"""A few hundred ways are needed to see all of these; other tests have them by name."""


def _name(of: random.Random) -> str:
    return of.choice(machine.NAMES)


def _called(walk: ClaimMachine, of: random.Random) -> None:
    if walk.world.book.claims:
        walk.call(of.randrange(50), of.choice(machine.CALLS))


def _finished(walk: ClaimMachine, of: random.Random) -> None:
    if any(move.outcome is None for move in walk.world.book.moves.values()):
        walk.finish(of.randrange(50), of.choice(machine.OUTCOMES))


def _driven(walk: ClaimMachine, of: random.Random) -> None:
    if any(claim.state in {"leaving", "doubtful"} for claim in walk.world.book.claims.values()):
        walk.drive(of.randrange(50), of.choice(machine.FINDINGS))


def _looked(walk: ClaimMachine, of: random.Random) -> None:
    walk.look(set(of.sample(machine.FAULTS, of.choice((0, 0, 0, 1, 2)))), of.choice(machine.SHORT_S))


Turn = Callable[[ClaimMachine, random.Random], None]

TURNS: tuple[tuple[float, Turn], ...] = (
    (9, lambda walk, of: walk.bring(_name(of), of.choice(machine.COMING_KINDS), of.choice(machine.ACTIVE))),
    (9, lambda walk, of: walk.claim(_name(of), of.choice(machine.COMING_KINDS), of.choice((10.0, 60.0, 900.0)))),
    (6, lambda walk, of: walk.claim_in_place(_name(of), of.choice(machine.IN_PLACE_KINDS))),
    (3, lambda walk, of: walk.change_in_place(_name(of), of.choice(machine.IN_PLACE_KINDS))),
    (3, lambda walk, of: walk.claim_instead(_name(of), of.choice(machine.COMING_KINDS))),
    (4, lambda walk, of: walk.commit(_name(of))),
    (2, lambda walk, of: walk.fail_to_commit(_name(of))),
    (18, _called),
    (9, lambda walk, of: walk.hold(_name(of), of.random() < 0.5)),
    (12, _finished),
    (3, _driven),
    (1, lambda walk, of: walk.forget(_name(of))),
    (3, lambda walk, of: walk.depart(_name(of), of.choice(machine.OFF))),
    (3, lambda walk, of: walk.go_and_come(_name(of), of.choice(machine.ACTIVE))),
    (3, lambda walk, of: walk.start(_name(of), of.choice(machine.ACTIVE))),
    (6, lambda walk, of: walk.turn(_name(of), of.choice(machine.ACTIVE))),
    (3, lambda walk, of: walk.shut(_name(of), of.choice(machine.OFF))),
    (3, lambda walk, of: walk.vanish(_name(of))),
    (0.5, lambda walk, of: walk.lose(_name(of))),
    (15, _looked),
    (0.5, lambda walk, of: walk.look_in_any_order(of)),
    (3, lambda walk, of: walk.wait(of.choice(machine.LONG_S))),
    (0.5, lambda walk, of: walk.restart(reboots=of.random() < 0.5)),
    (0.5, lambda walk, of: walk.stall()),
    (0.5, lambda walk, of: walk.jump(of.choice((-1e6, 0.0, 1e6)))),
    (0.5, lambda walk, of: walk.reconnect()),
    (0.5, lambda walk, of: walk.occupy(of.random() < 0.3, _name(of))),
)
"""How often each is useful, and what it is."""


def walked(seed: int) -> Iterator[tuple[str, str, str]]:
    """The transitions of one way, after each step of which all that must be true is checked."""
    of, walk = random.Random(seed), ClaimMachine()
    weights, turns = zip(*TURNS, strict=True)
    for turn in of.choices(turns, weights, k=STEPS):
        turn(walk, of)
        walk.check()
    walk.teardown()
    for step in walk.world.steps:
        if step.before is not None and step.after is not None:
            yield step.before, step.event, step.after


def test_many_ways_take_every_transition_and_leave_the_books_right() -> None:
    taken: set[tuple[str, str, str]] = set()
    for seed in range(WALKS):
        try:
            taken.update(walked(seed))
        except Exception as error:
            error.add_note(f"on way {seed}")
            raise
    wanted = {(row.before, row.event, row.after) for row in TRANSITIONS}
    silent = {row for row in wanted if row[1] in LEAVES_NO_STEP and (row[0] == row[2] or row[0] == "pending")}
    rare = {row for row in wanted if row[:2] in RARE}
    assert wanted - silent - rare - taken == set()
    assert taken - wanted == set()
