"""What all commands share: a report, a format, a width, colours where they are wanted."""

from __future__ import annotations

import abc
import argparse
import os
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cliff.command import Command

from agent.cli import output, source
from agent.cli.help_text import HelpText
from agent.core.report import Report
from agent.errors import HostReadError
from agent.render.blind_spots import blind_spots
from agent.render.paint import Paint, ansi_paint, no_paint

if TYPE_CHECKING:
    from agent.cli.app import AgentCtl

NOT_A_TERMINAL = (80, 24)


class QuickCommand(Command):
    """A cliff command that asks no plug-in registry: that would read the metadata of every installed package."""

    app: AgentCtl
    epilog_text = ""

    def _load_hooks(self) -> None:
        self._hooks = []

    def get_epilog(self) -> str:
        """The class's own epilog; cliff would look up which package each command is from."""
        return self.epilog_text


class HostCommand(QuickCommand):
    """A command about one host, with an output format of choice."""

    formats: Sequence[str] = output.LIST_FORMATS
    can_ask_agent = True
    looks_at_host = True
    changes = False

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The options of all such commands; subclasses add theirs."""
        parser = super().get_parser(prog_name)
        parser.allow_abbrev = False
        parser.formatter_class = HelpText
        output.add_options(parser, self.formats)
        source.add_options(
            parser, hidden_default=True, agent=self.can_ask_agent, host=self.looks_at_host, changes=self.changes
        )
        return parser

    def warn(self, report: Report) -> None:
        """Say beside the output what could not be seen, so that last known values are not taken for today's."""
        for sentence in (*blind_spots(report), *source.undated(report)):
            self.app.say(sentence)

    @staticmethod
    def with_host(report: Report) -> Report:
        """The report. Raises HostReadError when it knows no CPU of the host: then it knows nothing of that."""
        if report.topology.cpus:
            return report
        why = next((one.problem for one in report.health.sources if one.name == "sysfs" and one.problem), None)
        raise HostReadError(why or "no CPU of this host is known yet. See agentctl status.")

    @property
    def width(self) -> int:
        """The terminal's columns; 80 where there is none."""
        return shutil.get_terminal_size(NOT_A_TERMINAL).columns

    @property
    def paint(self) -> Paint:
        """Colours on a terminal, unless NO_COLOR or a dumb terminal says otherwise."""
        wanted = self.app.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return ansi_paint if wanted else no_paint


class ReportCommand(HostCommand):
    """A command that shows something of a report."""

    @abc.abstractmethod
    def answer(self, report: Report, options: argparse.Namespace) -> output.Answer:
        """What to say of the report. Raises BadArguments."""

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Get the report, write the answer, return its exit code."""
        report = self.fetch(parsed_args)
        self.warn(report)
        answer = self.answer(report, parsed_args)
        output.write(answer, parsed_args.formatter, self.app.stdout, parsed_args)
        return answer.code

    def fetch(self, _options: argparse.Namespace) -> Report:
        """The report; what `Source.report` raises."""
        return self.app.source.report(self.app.say)
