"""Conflicts in text: who, since when, why, what to do."""

from __future__ import annotations

from agent.core.conflicts import Owner, Resource
from agent.render.conflict_text import conflict_block, conflicts_text, tally, worst_first
from agent.render.paint import ansi_paint
from tests.cli_reports import conflict, contended


def test_a_conflict_says_who_since_when_why_and_what_to_do() -> None:
    row = next(row for row in contended().conflicts if row.kind == "cpu-pinned-twice")
    assert (
        conflict_block(row)
        == """\
ERROR  CPU 2: pinned twice
  who    database, web
  since  2026-11-30T12:00:00Z
  why    CPU 2 is pinned by 2 guests: database (vCPU 1), web (vCPU 0)
  do     Re-pin database with `virsh vcpupin database 1 11 --live --config`;
         left alone nothing breaks, but these guests share the time of one CPU
  id     cpu-pinned-twice:cpu:2
"""
    )


def test_the_worst_comes_first_and_what_is_accepted_last() -> None:
    rows = [conflict("info"), conflict("critical", accepted=True), conflict("warning"), conflict("critical")]
    assert [(row.severity, row.accepted) for row in worst_first(rows)] == [
        ("critical", False),
        ("warning", False),
        ("info", False),
        ("critical", True),
    ]


def test_the_last_line_counts_by_severity() -> None:
    rows = [conflict("error"), conflict("error"), conflict("critical"), conflict("warning", accepted=True)]
    assert tally(rows) == "3 conflicts: 1 critical, 2 errors; 1 accepted by the configuration"
    assert tally([]) == "no conflicts"


def test_an_accepted_conflict_says_so_in_its_headline() -> None:
    assert "(accepted by the configuration)" in conflict_block(conflict(accepted=True)).splitlines()[0]


def test_a_look_without_a_daemon_says_that_the_date_is_not_known() -> None:
    assert "  since  not known (only the daemon keeps track)\n" in conflict_block(conflict(since=None))


def test_a_guest_that_another_manager_made_is_marked() -> None:
    row = conflict(owners=(Owner(type="domain", uuid="u", name="instance-1", maker="nova"),))
    assert "  who    instance-1 (made by nova)\n" in conflict_block(row)


def test_a_conflict_without_owners_says_so() -> None:
    assert "  who    nobody that can be named\n" in conflict_block(conflict(owners=()))


def test_the_severity_alone_is_coloured() -> None:
    plain, painted = conflict_block(conflict("critical")), conflict_block(conflict("critical"), paint=ansi_paint)
    assert painted == plain.replace("CRITICAL", "\x1b[1;31mCRITICAL\x1b[0m", 1)


def test_a_name_cannot_steer_the_terminal() -> None:
    row = conflict(
        owners=(Owner(type="domain", uuid="u", name="\x1b[2Jevil"),),
        resource=Resource(kind="guest", id="u"),
        cause="\x1b]0;evil\x07 does it",
    )
    text = conflict_block(row)
    assert all(character.isprintable() or character == "\n" for character in text)
    assert "\\x1b[2Jevil" in text


def test_blocks_are_parted_by_an_empty_line() -> None:
    text = conflicts_text([conflict(), conflict("info")])
    assert text.split("\n\n")[-1] == "2 conflicts: 1 error, 1 info\n"
    assert len(text.split("\n\n")) == 3
