"""What becomes of a change that the disk did not take: all that it did, and nothing that came after, is undone."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from agent.core.claim.book import Book, Draft, member_of_key
from agent.core.claim.values import Claim, GroupRule, Membership, Move, Record, RecordValue
from agent.core.values import ReadOnlyMap

_HELD: ReadOnlyMap[str, Callable[[Book, str], RecordValue | None]] = MappingProxyType(
    {
        "claim": lambda book, key: book.claims.get(key),
        "tombstone": lambda book, key: book.tombstones.get(key),
        "membership": lambda book, key: book.members.get(member_of_key(key)),
        "group": lambda book, key: book.groups.get(key),
        "move": lambda book, key: book.moves.get(key),
    }
)
"""Kinds of rows that the making of a claim changes beside the claim itself, and where a book has them."""


def undo(draft: Draft, before: Book, made: Book, records: tuple[Record, ...], claim_id: str) -> None:
    """Put back what was there before a claim was made, where nobody has changed it since.

    before, made: the book then and right after. records: of that change. claim_id: of the claim, which is pending.
    The rows are noted again as they are now: whether the disk has those of the change nobody knows.
    """
    claim = draft.book.claims.get(claim_id)
    if claim is not None and claim.state == "pending":
        draft.take_back(claim)
    for record in records:
        held = _HELD[record.kind]
        was, is_now = held(before, record.key), held(draft.book, record.key)
        if is_now is held(made, record.key) and is_now is not was:
            _put_back(draft, record.kind, record.key, was)
    note_again(draft, records)


def note_again(draft: Draft, records: tuple[Record, ...]) -> None:
    """Have the journal store these rows as they are now; of a claim that is pending it has the row already."""
    for record in records:
        row = _HELD[record.kind](draft.book, record.key)
        if not (isinstance(row, Claim) and row.state == "pending"):
            draft.note_row(record.kind, record.key, row)


def _put_back(draft: Draft, kind: str, key: str, was: RecordValue | None) -> None:
    match kind, was:
        case "membership", None:
            draft.drop_member(*member_of_key(key))
        case "membership", Membership():
            draft.put_member(was)
        case "group", None:
            draft.drop_group(key)
        case "group", GroupRule():
            draft.put_group(was)
        case "move", None:
            draft.drop_move(key)
        case "move", Move():
            draft.put_move(was)
        case "claim", None:
            draft.take_out(key)
        case "tombstone", None:
            draft.unbury(key)
        case _:
            raise AssertionError(f"the making of a claim changed {kind} {key}")
