"""agentctl check."""

from __future__ import annotations

import argparse

from agent.cli import exits, output
from agent.cli.command import ReportCommand
from agent.cli.conflicts import conflicts_answer
from agent.core.report import Report
from agent.core.words import count
from agent.errors import AgentError
from agent.render.blind_spots import is_blind
from agent.render.nagios import nagios_failure, nagios_line
from agent.render.table import wrap
from agent.render.topology_text import counts, problems_text

PROMETHEUS = "prometheus"


class Check(ReportCommand):
    """Audit this host once, without the agent: what contradicts, and what could not be read."""

    formats = (*output.LIST_FORMATS, PROMETHEUS)
    can_ask_agent = False
    epilog_text = (
        "Exit code: 0 clean, 1 conflicts, 2 bad arguments, 3 cannot see, or a wrong configuration; with --one-line "
        "Nagios's: 0 OK, 1 WARNING, 2 CRITICAL (error and critical), 3 UNKNOWN.\n"
        "For node_exporter, in one step, so that it never reads half a file:\n"
        "  agentctl check -f prometheus > DIR/agent.prom.new\n"
        "  mv DIR/agent.prom.new DIR/agent.prom"
    )

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Adds the Nagios form."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--one-line", action="store_true", help="one line and the exit code as Nagios wants them")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """As the other commands; but a monitor is told on standard output, too, when nothing could be seen."""
        try:
            report = self.fetch(parsed_args)
        except AgentError as error:
            if parsed_args.one_line:
                self.app.stdout.write(nagios_failure(str(error)).text + "\n")
                return exits.COULD_NOT_LOOK
            if parsed_args.formatter == PROMETHEUS:
                from agent.render.prometheus import prometheus_failure  # 50 ms that no other format pays

                self.app.stdout.write(prometheus_failure())
            raise
        if parsed_args.one_line:
            line = nagios_line(report)
            self.app.stdout.write(line.text + "\n")
            return line.code
        self.warn(report)
        answer = self.answer(report, parsed_args)
        if parsed_args.formatter == PROMETHEUS:
            from agent.render.prometheus import prometheus_text  # as above

            self.app.stdout.write(prometheus_text(report))
            return answer.code
        output.write(answer, parsed_args.formatter, self.app.stdout, parsed_args)
        return answer.code

    def fetch(self, _options: argparse.Namespace) -> Report:
        """A look of its own, whether or not the agent runs."""
        return self.with_host(self.app.source.look())

    def answer(self, report: Report, _options: argparse.Namespace) -> output.Answer:
        """The conflicts; in text also what was looked at and what could not be read."""
        answer = conflicts_answer(self, report)
        code = exits.COULD_NOT_LOOK if answer.code == exits.OK and is_blind(report) else answer.code
        return answer._replace(text=lambda: self._text(report, answer.text()), code=code)

    def _text(self, report: Report, conflicts: str) -> str:
        problems = problems_text(report.topology.problems, width=self.width, paint=self.paint)
        seen = "no guests, since a recorded host has none" if self.app.source.sysfs_root else guests(report)
        scope = wrap(f"looked at {counts(report.topology)}; {seen}", self.width, rest="  ")
        return "\n".join(part for part in (conflicts, problems, scope) if part)


def guests(report: Report) -> str:
    """ "2 guests active, 1 not running"."""
    return f"{count(report.health.guests_active, 'guest')} active, {report.health.guests_inactive} not running"
