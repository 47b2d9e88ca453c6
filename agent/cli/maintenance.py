"""agentctl maintenance on, off, show."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from types import MappingProxyType

from agent.cli import output
from agent.cli.agent_command import AgentCommand
from agent.client import LocalClient
from agent.core.claim.values import Maintenance
from agent.core.words import plain
from agent.formats import wire
from agent.formats.claim_view import MaintenanceView
from agent.render.table import wrap


class MaintenanceCommand(AgentCommand):
    """About whether new guests are refused."""

    fields: Mapping[str, object] = MappingProxyType({"maintenance": None})

    def told(self, view: MaintenanceView) -> output.Answer:
        """How it is now."""
        found = view.maintenance
        reason, since = (None, None) if found is None else (found.reason, found.since)
        return output.Answer(
            wire.to_builtins(view),
            ("maintenance", "reason", "since"),
            [(found is not None, reason, since)],
            lambda: wrap(_text(found), self.width, rest="  "),
            single=True,
        )


class MaintenanceOn(MaintenanceCommand):
    """Refuse new guests from now on, over restarts of the agent too; those that are here stay."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Adds why."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--reason", metavar="TEXT", required=True, help="what whoever is refused is told")
        return parser

    def ask(self, client: LocalClient, options: argparse.Namespace) -> output.Answer:
        """How it is after that."""
        return self.told(client.set_maintenance(options.reason))


class MaintenanceOff(MaintenanceCommand):
    """Take new guests again."""

    def ask(self, client: LocalClient, _options: argparse.Namespace) -> output.Answer:
        """How it is after that."""
        return self.told(client.set_maintenance(None))


class ShowMaintenance(MaintenanceCommand):
    """Show whether new guests are refused, why and since when."""

    changes = False

    def ask(self, client: LocalClient, _options: argparse.Namespace) -> output.Answer:
        """How it is."""
        return self.told(client.get_maintenance())


def _text(found: Maintenance | None) -> str:
    if found is None:
        return "no maintenance: new guests are taken"
    return f"in maintenance since {plain(found.since)}, new guests are refused: {plain(found.reason)}"
