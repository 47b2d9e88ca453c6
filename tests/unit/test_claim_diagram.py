"""docs/ledger.md shows the table that the code runs on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.core.claim.diagram import NOT_DRAWN, PARTS, filled, picture
from agent.core.claim.table import MEANING, STATES, TRANSITIONS
from tests.gates.ledger_doc import main

DOCUMENT = Path(__file__).parents[2] / "docs" / "ledger.md"


def test_the_document_is_as_the_table_makes_it() -> None:
    text = DOCUMENT.read_text()
    assert filled(text) == text, "make sample writes it anew"
    assert [name for name in PARTS if text.count(f"<!-- made: {name} -->") != 1] == []


def test_each_arrow_of_the_picture_is_a_row_of_the_table_and_none_is_missing() -> None:
    arrows = re.findall(r"^    (\w+) --> (\w+): (.+)$", picture(), re.MULTILINE)
    drawn = {(before, event, after) for before, after, names in arrows for event in names.split(", ")}
    wanted = {(row.before, row.event, row.after) for row in TRANSITIONS}
    left_out = {row for row in wanted if row[0] == row[2] or row[1] in NOT_DRAWN}
    assert drawn == wanted - left_out


def test_the_tables_have_each_state_event_and_transition() -> None:
    text = DOCUMENT.read_text()
    for name in (*STATES, *MEANING):
        assert f"\n| `{name}` |" in text
    rows = re.findall(r"^\| `([a-z-]+)` \| `([a-z-]+)` \| `([a-z-]+)` \| (.+) \|$", text, re.MULTILINE)
    assert {row[:3] for row in rows} == {(row.before, row.event, row.after) for row in TRANSITIONS}
    assert len(rows) == len(set(rows))


def test_a_script_makes_the_parts_anew_and_leaves_the_rest(tmp_path: Path) -> None:
    stale = tmp_path / "ledger.md"
    stale.write_text("before\n<!-- made: states -->\nold\n<!-- end -->\nafter\n")
    assert main([str(stale)]) == 0
    assert stale.read_text() == f"before\n<!-- made: states -->\n{PARTS['states']()}\n<!-- end -->\nafter\n"
    assert main([str(tmp_path / "missing")]) == 2


def test_a_part_that_there_is_not_is_an_error() -> None:
    with pytest.raises(KeyError):
        filled("<!-- made: nonsense -->\n<!-- end -->")
