"""agentctl conflicts."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from agent.cli import exits
from agent.cli.command import ReportCommand
from agent.cli.output import Answer
from agent.core.conflicts import Conflict
from agent.core.reason_text import owner_name
from agent.core.report import Report
from agent.formats import wire
from agent.render.blind_spots import is_blind
from agent.render.conflict_text import conflicts_text, worst_first

SHORT = ("severity", "resource", "kind", "owners", "since", "cause")
COLUMNS = ("severity", "kind", "resource", "cell", "owners", "since", "accepted", "cause", "action", "id")


class Conflicts(ReportCommand):
    """List what contradicts on this host: who is in it, since when, why, and what to do."""

    epilog_text = "Exit code: 0 no conflicts, 1 some (accepted ones do not count), 2 bad arguments, 3 could not look."

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Adds all columns."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--long", action="store_true", help="table: all columns, what to do too")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """As the other commands; a table is kept narrow unless asked otherwise."""
        if parsed_args.formatter == "table" and not parsed_args.long:
            parsed_args.columns = parsed_args.columns or list(SHORT)
        return super().take_action(parsed_args)

    def answer(self, report: Report, _options: argparse.Namespace) -> Answer:
        """A row each, worst first."""
        return conflicts_answer(self, report)


def conflicts_answer(command: ReportCommand, report: Report) -> Answer:
    """The conflicts and their exit code."""
    rows = worst_first(report.conflicts)
    return Answer(
        wire.to_builtins(rows),
        COLUMNS,
        [_row(row) for row in rows],
        lambda: conflicts_text(rows, width=command.width, paint=command.paint),
        exit_code(rows, report),
    )


def exit_code(rows: Sequence[Conflict], report: Report) -> int:
    """1 with an unaccepted conflict; without one, 3 if nobody could look now, since "none" is a guess then; else 0."""
    if any(not row.accepted for row in rows):
        return exits.FOUND
    return exits.COULD_NOT_LOOK if is_blind(report) else exits.OK


def _row(row: Conflict) -> tuple[object, ...]:
    return (
        row.severity, row.kind, f"{row.resource.kind} {row.resource.id}", row.resource.cell,
        [owner_name(owner) for owner in row.owners], row.since, row.accepted, row.cause, row.action, row.id,
    )  # fmt: skip
