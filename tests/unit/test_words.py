"""What outside text may not do, however it is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.words import field, plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("web-1", "web-1"),
        ("gäst 日本", "gäst 日本"),
        ("a\x1b[31m\nb\x9bé", "a\\x1b[31m\\x0ab\\x9bé"),
        ("\u202etxt.exe", "\\u202etxt.exe"),
        ("one\u2028two\u2029three\x85four", "one\\u2028two\\u2029three\\x85four"),
        ("tag\U000e0001", "tag\\U000e0001"),
        ("half\ud800", "half\\ud800"),
    ],
)
def test_what_is_not_printable_is_shown_by_its_number(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_a_name_cannot_end_its_field_or_begin_another() -> None:
    assert field("x; y] guests_went=[z\x1b") == "x\\x3b y\\x5d guests_went\\x3d\\x5bz\\x1b"
    assert field("instance-0000002a") == "instance-0000002a"


@given(st.text(st.characters()))
def test_any_text_is_one_printable_line_and_stays_as_it_is_when_escaped_again(text: str) -> None:
    once = plain(text)
    assert once.isprintable()
    assert plain(once) == once
    assert field(field(text)) == field(text)
