"""agentctl usage."""

from __future__ import annotations

import argparse

from agent.cli.command import ReportCommand
from agent.cli.output import Answer
from agent.core.report import Report
from agent.formats import wire
from agent.render.usage_text import UsageRow, usage_rows, usage_text


class Usage(ReportCommand):
    """Show total, used, promised and free CPUs, memory, pages and devices, by cell and for the host."""

    epilog_text = (
        "CPUs are lists such as 0-3,8; memory in tables and json is KiB. Free amounts below 0 mean over-commit."
    )

    def fetch(self, options: argparse.Namespace) -> Report:
        """As the other commands; raises HostReadError, too, when the host is not known."""
        return self.with_host(super().fetch(options))

    def answer(self, report: Report, _options: argparse.Namespace) -> Answer:
        """As the API tells it."""
        return Answer(
            {"epoch": report.epoch, "generation": report.generation, **wire.to_builtins(report.usage)},
            UsageRow._fields,
            usage_rows(report.usage),
            lambda: usage_text(report.usage, width=self.width),
        )
