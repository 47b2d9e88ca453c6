"""A change that the disk did not take is undone whatever kinds of rows it touched."""

from __future__ import annotations

from types import MappingProxyType

import pytest
from msgspec.structs import replace

from agent.core.claim.book import Book, Draft
from agent.core.claim.restore import book_of
from agent.core.claim.undo import undo
from agent.core.claim.values import (
    RECORDS,
    Boot,
    BuildFailure,
    Claim,
    ClaimRules,
    Departure,
    GroupRule,
    Horizon,
    Maintenance,
    Membership,
    Moment,
    Move,
    Record,
    RecordValue,
    SpentDevice,
    Tombstone,
)
from agent.core.instance import Instance
from agent.core.pci import PciAddress
from agent.core.values import ReadOnlyMap

NOW = Moment(boot_id="boot", monotonic_s=9.0, wall_s=9.0, wall="now")
CLAIM = Claim(
    claim_id="c1",
    kind="build",
    role="owner",
    state="resident",
    instance=Instance(uuid="a"),
    digest="",
    ttl_s=900.0,
    sequence=3,
    made_at="",
    state_since="",
    changed_at_s=0.0,
)


TOMB = Tombstone(claim_id="t", ending="expired", ended_at="", at_s=1.0, sequence=5, instance="a")
ADDRESS = PciAddress(0, 1, 2, 3)

ROWS: ReadOnlyMap[str, tuple[str, RecordValue, RecordValue]] = MappingProxyType(
    {
        "claim": ("c1", CLAIM, replace(CLAIM, state="away")),
        "tombstone": ("t", TOMB, replace(TOMB, sequence=7)),
        "membership": (
            "a g",
            Membership(group="g", instance="a", generation=1, last_here_at_s=1.0),
            Membership(group="g", instance="a", generation=2, last_here_at_s=1.0),
        ),
        "group": ("g", GroupRule(id="g", policy="affinity"), GroupRule(id="g", policy=None)),
        "move": (
            "m",
            Move(move_id="m", kind="resize", instance="a", opened_at="", at_s=1.0),
            Move(move_id="m", kind="resize", instance="a", opened_at="", at_s=2.0),
        ),
        "maintenance": ("host", Maintenance(reason="x", since=""), Maintenance(reason="y", since="")),
        "departure": ("a", Departure(instance="a", at="x"), Departure(instance="a", at="y")),
        "build_failure": (
            "c1",
            BuildFailure(claim_id="c1", instance="a", at="", at_s=1.0, reason=""),
            BuildFailure(claim_id="c1", instance="a", at="", at_s=2.0, reason=""),
        ),
        "boot": ("host", Boot(boot_id="x", since=""), Boot(boot_id="y", since="")),
        "spent_device": (
            str(ADDRESS),
            SpentDevice(address=ADDRESS, instance="a", name="x", at=""),
            SpentDevice(address=ADDRESS, instance="a", name="y", at=""),
        ),
        "horizon": ("host", Horizon(longest_ttl_s=1.0), Horizon(longest_ttl_s=2.0)),
    }
)
"""A key of each kind, and two values that may be under it."""


def _draft(book: Book) -> Draft:
    return Draft(book, NOW, ClaimRules())


def _with(kind: str, value: RecordValue | None) -> Book:
    key = ROWS[kind][0]
    return book_of(() if value is None else (Record(kind=kind, key=key, value=value),), 9)


def test_there_is_a_row_of_each_kind() -> None:
    assert ROWS.keys() == RECORDS.keys()


@pytest.mark.parametrize("kind", sorted(RECORDS))
@pytest.mark.parametrize("was_there", [True, False])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_row_of_any_kind_is_put_back_and_stored_again(kind: str, was_there: bool, is_there: bool) -> None:
    key, first, second = ROWS[kind]
    before = _with(kind, first if was_there else None)
    made = _with(kind, second if is_there else None)
    draft = _draft(made)
    undo(draft, before, made, (Record(kind=kind, key=key, value=second if is_there else None),), "none")
    assert draft.done().book == before
    stored = {(record.kind, record.key): record.value for record in draft.done().records}
    assert stored == {(kind, key): first if was_there else None}


@pytest.mark.parametrize("kind", sorted(RECORDS))
def test_what_somebody_has_changed_since_stays(kind: str) -> None:
    key, first, second = ROWS[kind]
    before, made, later = _with(kind, None), _with(kind, first), _with(kind, second)
    draft = _draft(later)
    undo(draft, before, made, (Record(kind=kind, key=key, value=first),), "none")
    assert draft.done().book == later
