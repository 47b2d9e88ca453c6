"""What outside text may not do, however it is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.words import brief, field, plain, plain_lines, sentence, some


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


def test_a_sentence_keeps_its_marks_and_sets_no_field() -> None:
    assert sentence("[Errno 5] no file; x] y=[z\n") == "[Errno 5] no file; x] y\\x3d[z\\x0a"
    assert sentence("cpu_dedicated_set=4-7 is not online") == "cpu_dedicated_set=4-7 is not online"


def test_lines_stay_lines_and_long_text_is_cut() -> None:
    assert plain_lines("a\x1b\n\x85b") == "a\\x1b\n\\x85b"
    assert brief("x" * 20, 10) == "xxxxxxx..."
    assert brief("x\n", 10) == "x\\x0a"


@given(st.text(st.characters()))
def test_any_text_is_one_printable_line_and_stays_as_it_is_when_escaped_again(text: str) -> None:
    once = plain(text)
    assert once.isprintable()
    assert plain(once) == once
    assert field(field(text)) == field(text)


def test_of_a_long_list_the_first_few_are_named() -> None:
    assert [some(["a", "b", "c"][:count], 2) for count in range(4)] == ["", "a", "a, b", "a, b and 1 more"]
    assert some(["a", "b", "c"], 2, between="; ") == "a; b and 1 more"
