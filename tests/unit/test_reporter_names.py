"""A guest's name forges neither a line of the log nor a field of its line."""

from __future__ import annotations

import logging

import pytest

from agent.core.snapshot import Findings, SourceState, take_in
from agent.reporter import report_pass
from tests.builders import guest
from tests.hostile import unsafe
from tests.unit.test_reporter import seen, start

FORGED = "a; b] guests_went=[c\x1b[31m\x9b\u202e\u2028\npass epoch=9"
SHOWN = "a\\x3b b\\x5d guests_went\\x3d\\x5bc\\x1b\\x5b31m\\x9b\\u202e\\u2028\\x0apass epoch\\x3d9"


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "agent.reporter")
    return caplog


def test_a_guest_that_comes_changes_or_goes_is_named_safely(lines: pytest.LogCaptureFixture) -> None:
    before = start()
    came = seen(before, guest(FORGED, {0: 2}), at=11.0)
    moved = seen(came, guest(FORGED, {0: 3}), at=21.0)
    report_pass(before, came)
    report_pass(came, moved)
    report_pass(moved, seen(moved, at=31.0))
    assert [message.split("free_dedicated=")[1].partition(" ")[2] for message in lines.messages] == [
        f"guests_came=[{SHOWN}]",
        f"guests_changed=[{SHOWN}=running]",
        f"guests_went=[{SHOWN}]",
    ]


def test_a_holder_in_a_conflict_is_named_safely(lines: pytest.LogCaptureFixture) -> None:
    before = start(guest("honest", {0: 2}))
    report_pass(before, seen(before, guest("honest", {0: 2}), guest(FORGED, {0: 2}), at=11.0))
    (line,) = lines.messages
    assert unsafe(line) == ""
    assert f"{SHOWN}" in line.partition("appeared=[")[2].partition(")]")[0]
    assert line.count(" guests_went=[") == 0


def test_what_a_source_says_begins_no_line_and_no_field(lines: pytest.LogCaptureFixture) -> None:
    before = start()
    failed = take_in(before, Findings(sources=(SourceState(name="libvirt", problem=f"[Errno 5] {FORGED}"),)))
    report_pass(before, failed)
    (line,) = lines.messages
    assert (unsafe(line), "\n" in line) == ("", False)
    assert line.endswith(
        "sources_failed=[libvirt ([Errno 5] a; b] guests_went\\x3d[c\\x1b[31m\\x9b\\u202e\\u2028\\x0apass epoch=9)]"
    )
