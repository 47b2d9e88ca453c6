"""agentctl topology."""

from __future__ import annotations

import argparse
from typing import Any

from agent.cli.command import ReportCommand
from agent.cli.output import Answer
from agent.core.report import Report
from agent.formats import wire
from agent.render.cpu_states import cpu_states
from agent.render.topology_text import topology_text

PARTS = ("cpus", "cells", "caches", "pci", "problems")
FIRST = "id"


class Topology(ReportCommand):
    """Show what this host has: cells, cores, pages, caches, devices, and a map of its CPUs."""

    epilog_text = "json and yaml hold everything; table, value and csv hold one part (--rows)."

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Adds what to show."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--rows", choices=PARTS, default=PARTS[0], help="what table, value and csv list (default: cpus)"
        )
        parser.add_argument("--all-devices", action="store_true", help="in text: bridges and each virtual function too")
        return parser

    def fetch(self, options: argparse.Namespace) -> Report:
        """As the other commands; raises HostReadError, too, when the host is not known."""
        return self.with_host(super().fetch(options))

    def answer(self, report: Report, options: argparse.Namespace) -> Answer:
        """The topology as it is known; the map also needs the usage."""
        data = wire.to_builtins(report.topology)
        rows = _with_states(data["cpus"], report) if options.rows == "cpus" else data[options.rows]
        columns = list(rows[0]) if rows else [FIRST]
        return Answer(
            data,
            columns,
            [list(row.values()) for row in rows],
            lambda: topology_text(
                report.topology,
                report.usage,
                report.conflicts,
                width=self.width,
                paint=self.paint,
                everything=options.all_devices,
            ),
        )


def _with_states(rows: list[dict[str, Any]], report: Report) -> list[dict[str, Any]]:
    states = cpu_states(report.topology, report.usage, report.conflicts)
    return [{**row, "state": states[row["id"]].name.lower()} for row in rows]
