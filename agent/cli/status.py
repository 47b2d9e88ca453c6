"""agentctl status."""

from __future__ import annotations

import argparse

from agent.cli import exits
from agent.cli.command import ReportCommand
from agent.cli.output import FORMATS, Answer
from agent.core.report import Report
from agent.errors import DaemonUnavailable
from agent.formats import wire
from agent.render.host_state import status_text

PROBE_CODES = {"ok": exits.OK, "degraded": exits.FOUND, "down": exits.COULD_NOT_LOOK}


class Status(ReportCommand):
    """Show how the agent and its host are, on one screen."""

    formats = FORMATS
    looks_at_host = False
    epilog_text = "With --exit-code: 0 ok, 1 degraded, 3 down or no answer; without it 0 if the agent answers."

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Adds the probe."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--exit-code", action="store_true", help="let the exit code say how it is, for probes")
        return parser

    def fetch(self, _options: argparse.Namespace) -> Report:
        """The daemon's report: only it knows its own state. Raises DaemonUnavailable."""
        where = self.app.source
        if where.direct or where.sysfs_root is not None or where.connection_uri is not None or where.config_files:
            raise exits.BadArguments(
                "status is the agent's own: --direct, --sysfs-root, --connect and --config-file do not go with it; "
                "try `agentctl check`"
            )
        try:
            return where.ask()
        except DaemonUnavailable as error:
            raise DaemonUnavailable(f"{error}\nstatus needs it; `agentctl check` looks at the host without.") from error

    def warn(self, report: Report) -> None:
        """Nothing: what could not be seen is on the screen itself."""

    def answer(self, report: Report, options: argparse.Namespace) -> Answer:
        """Health, with the identity that it is of."""
        identity = {"agent_id": report.agent_id, "epoch": report.epoch, "generation": report.generation}
        health = wire.to_builtins(report.health)
        flat = {
            **identity,
            **health,
            "sources": [f"{s['name']} {'ok' if s['ok'] else s['problem']}" for s in health["sources"]],
        }
        return Answer(
            {**identity, **health},
            list(flat),
            [list(flat.values())],
            lambda: status_text(report, width=self.width, paint=self.paint),
            PROBE_CODES[report.health.status] if options.exit_code else exits.OK,
            single=True,
        )
