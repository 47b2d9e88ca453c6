"""What the journal keeps as rows of text: each value as JSON, under its kind and key."""

from __future__ import annotations

from typing import NamedTuple, cast

from agent.core.claim.values import RECORDS, Record, RecordValue, Step
from agent.core.words import brief
from agent.errors import WireError
from agent.formats import wire


class Row(NamedTuple):
    """text: JSON of the value; None: there shall be no such row."""

    kind: str
    key: str
    text: str | None


class StepRow(NamedTuple):
    """text: JSON of the whole step; the others are in it too, and apart for whoever looks for one."""

    sequence: int
    at: str
    event: str
    claim_id: str | None
    instance: str | None
    text: str


def to_row(record: Record) -> Row:
    """The row of a record. Raises WireError where kind and value do not go together, or a text is no Unicode."""
    its_type, name = _type_of(record.kind, record.key), f"{record.kind} {record.key!r}"
    _text(record.key, name)
    if record.value is None:
        return Row(record.kind, record.key, None)
    if not isinstance(record.value, its_type):
        raise WireError(f"journal row {name}: {type(record.value).__name__} is not its type")
    return Row(record.kind, record.key, _text(record.value, name))


def from_row(kind: str, key: str, text: str) -> Record:
    """The inverse of `to_row` for a row that is there. Raises WireError that names kind, key and the field at fault."""
    try:
        value = wire.from_json(text, _type_of(kind, key))
    except WireError as error:
        raise WireError(f"journal row {brief(kind)} {brief(repr(key))}: {error}") from error
    return Record(kind=kind, key=key, value=cast("RecordValue", value))


def to_step_row(step: Step) -> StepRow:
    """The row of a step. Raises WireError where a text is no Unicode."""
    text = _text(step, f"step {step.sequence}")
    return StepRow(step.sequence, step.at, step.event, step.claim_id, step.instance, text)


def from_step(text: str) -> Step:
    """The step of a row's text. Raises WireError that names the field at fault."""
    return wire.from_json(text, Step)


def _type_of(kind: str, key: str) -> type[object]:
    known = RECORDS.get(kind)
    if known is None:
        raise WireError(f"journal row {brief(repr(key))}: {brief(repr(kind))} is no kind of row that is known")
    return known


def _text(value: object, row: str) -> str:
    try:
        return wire.to_json(value).decode()
    except (ValueError, TypeError, OverflowError) as error:  # such as half of a surrogate pair, from somebody's JSON
        raise WireError(f"journal row {row}: {error}") from error
