"""What becomes of a change that the disk did not take: all that it did, and nothing that came after, is undone."""

from __future__ import annotations

from agent.core.claim.book import Book, Draft
from agent.core.claim.values import Claim, Record


def undo(draft: Draft, before: Book, made: Book, records: tuple[Record, ...], claim_id: str) -> None:
    """Put back what was there before a claim was made, where nobody has changed it since.

    before, made: the book then and right after. records: of that change. claim_id: of the claim, which is pending.
    The rows are noted again as they are now: whether the disk has those of the change nobody knows.
    """
    claim = draft.book.claims.get(claim_id)
    if claim is not None and claim.state == "pending":
        draft.take_back(claim)
    for kind, key in ((record.kind, record.key) for record in records):
        was, is_now = before.row(kind, key), draft.book.row(kind, key)
        if is_now is made.row(kind, key) and is_now is not was:
            draft.put_back(kind, key, was)
    note_again(draft, records)


def note_again(draft: Draft, records: tuple[Record, ...]) -> None:
    """Have the journal store these rows as they are now; of a claim that is pending it has the row already."""
    for record in records:
        row = draft.book.row(record.kind, record.key)
        if not (isinstance(row, Claim) and row.state == "pending"):
            draft.note_row(record.kind, record.key, row)
