"""Rows of the journal: every kind of record survives as text, and what is not known is refused by kind and key."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.core.claim.values import RECORDS, Record, Step
from agent.errors import WireError
from agent.formats.journal_rows import from_row, from_step, to_row, to_step_row
from tests.builders_journal import claim_of, record_of, step_of
from tests.unit.test_wire import anything


@pytest.mark.parametrize("kind", RECORDS)
@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_record_of_each_kind_comes_back_as_it_was(kind: str, data: st.DataObject) -> None:
    record = Record(kind=kind, key=data.draw(st.text()), value=data.draw(anything(RECORDS[kind])))
    row = to_row(record)
    assert row[:2] == (kind, record.key)
    assert row.text is not None
    assert from_row(*row[:2], row.text) == record


@given(step=anything(Step))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_step_comes_back_as_it_was_and_can_be_looked_for(step: Step) -> None:
    row = to_step_row(step)
    assert row[:5] == (step.sequence, step.at, step.event, step.claim_id, step.instance)
    assert from_step(row.text) == step


def test_a_row_that_shall_not_be_there_has_no_text() -> None:
    assert to_row(Record(kind="claim", key="claim-1", value=None)) == ("claim", "claim-1", None)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"colour": "red"}, "colour"),
        ({"state": "asleep"}, r"Invalid enum value 'asleep'.*\$\.state"),
        ({"placement": {"memory_kib": "much", "vcpus": 1}}, r"\$\.placement\.memory_kib"),
    ],
)
def test_what_is_no_claim_of_ours_is_refused_by_kind_key_and_field(change: dict[str, Any], told: str) -> None:
    text = to_row(record_of(claim_of(7))).text
    assert text is not None
    changed = msgspec.json.encode(msgspec.json.decode(text) | change).decode()
    with pytest.raises(WireError, match=f"journal row claim 'claim-7': not a Claim: .*{told}"):
        from_row("claim", "claim-7", changed)


def test_a_kind_that_is_not_known_is_refused_by_its_name() -> None:
    with pytest.raises(WireError, match="journal row 'l-1': 'lease' is no kind of row that is known"):
        from_row("lease", "l-1", "{}")


def test_a_row_whose_key_would_forge_a_line_of_the_log_is_named_without_doing_so() -> None:
    with pytest.raises(WireError) as caught:
        from_row("claim", "x\nERROR all is lost", "{}")
    assert "\n" not in str(caught.value)


def test_a_step_with_a_text_that_is_none_is_refused_by_its_number() -> None:
    with pytest.raises(WireError, match=r"journal row step 3: .*surrogates not allowed"):
        to_step_row(step_of(3, event="\ud800"))
