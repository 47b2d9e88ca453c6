"""agentctl instance forget."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from types import MappingProxyType

from agent.cli import output
from agent.cli.agent_command import AgentCommand, an_id
from agent.client import LocalClient
from agent.core.words import plain
from agent.formats import wire
from agent.formats.claim_view import DepartureView
from agent.render.table import wrap


class ForgetInstance(AgentCommand):
    """Say that an instance lives elsewhere now: its claims here end, and what is still defined of it has no seat."""

    fields: Mapping[str, object] = MappingProxyType(dict.fromkeys(DepartureView.__struct_fields__))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Adds the instance."""
        parser = super().get_parser(prog_name)
        parser.add_argument("instance", metavar="UUID", type=an_id, help="of the instance")
        parser.add_argument(
            "--moved-to", metavar="HOST", help="the host where it lives now; without it, that is taken back"
        )
        return parser

    def ask(self, client: LocalClient, options: argparse.Namespace) -> output.Answer:
        """What is remembered of it."""
        view = client.forget_instance(options.instance, options.moved_to)
        return output.Answer(
            wire.to_builtins(view),
            DepartureView.__struct_fields__,
            [(view.instance, view.at, view.moved_to)],
            lambda: wrap(_text(view), self.width, rest="  "),
            single=True,
        )


def _text(view: DepartureView) -> str:
    where = f", to host {plain(view.moved_to)}" if view.moved_to else ""
    return (
        f"instance {plain(view.instance)} has left{where} at {plain(view.at)}; a domain that still runs here holds on"
    )
