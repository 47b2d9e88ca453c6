"""Words, amounts and columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.conflicts import Owner, Resource
from agent.core.reason_text import owner_name
from agent.core.words import plain
from agent.render import words
from agent.render.table import text_table, wrap


@pytest.mark.parametrize(
    ("kib", "text"),
    [
        (0, "0"),
        (4, "4 KiB"),
        (1024, "1 MiB"),
        (1536, "1.5 MiB"),
        (65_011_712, "62 GiB"),
        (-1_572_864, "-1.5 GiB"),
        (1 << 40, "1 PiB"),
        (1 << 50, "1024 PiB"),
    ],
)
def test_memory_has_the_unit_that_keeps_it_short(kib: int, text: str) -> None:
    assert words.size(kib) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "never"),
        (0.4, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (185, "3 min 5 s"),
        (7800, "2 h 10 min"),
        (97200, "1 d 3 h"),
    ],
)
def test_an_age_has_two_units_at_most(seconds: float | None, text: str) -> None:
    assert words.age(seconds) == text


def test_control_characters_in_a_name_are_made_visible() -> None:
    assert plain("a\x1b[31m\nb\x9bé") == "a\\x1b[31m\\x0ab\\x9bé"


@pytest.mark.parametrize(
    ("resource", "text"),
    [
        (Resource(kind="cpu", id="3", cell=0), "CPU 3"),
        (Resource(kind="memory", id="memory", cell=1), "memory of cell 1"),
        (Resource(kind="memory", id="memory"), "memory of the host"),
        (Resource(kind="pages", id="1048576", cell=0), "1 GiB pages of cell 0"),
        (Resource(kind="pci", id="0000:3b:00.1"), "device 0000:3b:00.1"),
        (Resource(kind="guest", id="u-1"), "guest web"),
        (Resource(kind="guest", id="u-2"), "guest u-2"),
    ],
)
def test_a_resource_is_named_as_people_name_it(resource: Resource, text: str) -> None:
    assert words.resource(resource, {"u-1": "web"}) == text


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Owner(type="domain", uuid="u", name="web"), "web"),
        (Owner(type="domain", uuid="u"), "u"),
        (Owner(type="domain", uuid="u", name="  "), "u"),
        (Owner(type="domain"), "an unknown guest"),
        (Owner(type="claim", uuid="c-1"), "c-1 (promised)"),
        (Owner(type="kernel"), "the kernel"),
        (Owner(type="config"), "the configuration"),
        (Owner(type="config", name="cpu_dedicated_set"), "cpu_dedicated_set"),
    ],
)
def test_an_owner_is_named_by_what_it_is(owner: Owner, name: str) -> None:
    assert owner_name(owner) == name


def test_a_table_has_numbers_to_the_right_and_text_to_the_left() -> None:
    assert (
        text_table(("NAME", "N"), [("a", "5"), ("bcd", "10"), ("e", "-")], 80)
        == "NAME   N\na      5\nbcd   10\ne      -\n"
    )


def test_a_long_cpu_list_goes_on_below_itself_after_a_comma() -> None:
    text = text_table(("A", "CPUS"), [("x", "0,4,8,12,16,20,24")], 14)
    assert text == "A  CPUS\nx  0,4,8,12,\n   16,20,24\n"


def test_a_command_in_backticks_is_not_broken_when_a_line_can_hold_it() -> None:
    text = wrap(
        "Re-pin web with `virsh vcpupin web 0 11 --live --config`; left alone nothing breaks.", 50, first="  do  "
    )
    assert text == (
        "  do  Re-pin web with\n      `virsh vcpupin web 0 11 --live --config`;\n      left alone nothing breaks.\n"
    )


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=200), st.integers(20, 60))
def test_wrapping_keeps_every_visible_character_and_the_width(text: str, width: int) -> None:
    lines = wrap(text, width).splitlines()
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert max(len(line) for line in lines) <= width


@given(
    st.lists(st.tuples(*[st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40)] * 3), max_size=5),
    st.integers(40, 100),
)
def test_a_table_of_any_content_keeps_the_width_and_the_content(rows: list[tuple[str, ...]], width: int) -> None:
    lines = text_table(("A", "B", "C"), rows, width).splitlines()
    assert max(len(line) for line in lines) <= width
    everything = sorted("".join(lines).replace(" ", ""))
    assert everything == sorted("ABC" + "".join("".join(row) for row in rows))
