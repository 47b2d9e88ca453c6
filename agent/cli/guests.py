"""agentctl domains, agentctl show GUEST."""

from __future__ import annotations

import argparse

from agent.cli.command import ReportCommand
from agent.cli.find import find_guest
from agent.cli.output import FORMATS, Answer
from agent.cli.source import started
from agent.core.report import Report
from agent.formats import wire
from agent.render.guest_text import GuestRow, conflicts_of, guest_rows, guest_text, guests_text


class Domains(ReportCommand):
    """List all guests, whoever made them, and what each holds."""

    def answer(self, report: Report, _options: argparse.Namespace) -> Answer:
        """A row each."""
        rows = guest_rows(report.guests, report.conflicts)
        data = [{**row._asdict(), "devices": list(row.devices)} for row in rows]
        return Answer(
            data, GuestRow._fields, rows, lambda: guests_text(report.guests, report.conflicts, width=self.width)
        )


class Show(ReportCommand):
    """Show everything about one guest: pins, cells, pages, devices, conflicts."""

    formats = FORMATS

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Adds the guest."""
        parser = super().get_parser(prog_name)
        parser.add_argument("guest", metavar="GUEST", help="name or uuid, or the beginning of one")
        return parser

    def answer(self, report: Report, options: argparse.Namespace) -> Answer:
        """The guest's part of the report, and the conflicts it is in."""
        guest = find_guest(report.guests, options.guest)
        conflicts = conflicts_of(guest.sighting.uuid, report.conflicts)
        data = {**wire.to_builtins(guest), "conflicts": wire.to_builtins(conflicts)}
        (row,) = guest_rows([guest], report.conflicts)
        return Answer(
            data,
            GuestRow._fields,
            [row],
            lambda: guest_text(guest, conflicts, started=started(guest), width=self.width, paint=self.paint),
            single=True,
        )
