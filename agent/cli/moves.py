"""agentctl migration hold, show, finish."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import get_args

from agent.cli import output
from agent.cli.agent_command import AgentCommand, an_id
from agent.cli.claims import ToldClaim
from agent.cli.exits import BadArguments
from agent.cli.guest_options import Once
from agent.client import LocalClient
from agent.core.claim.values import MOVES, Outcome
from agent.core.instance import Instance
from agent.formats import wire
from agent.formats.claim_view import MoveView
from agent.render.move_text import MovePage, move_text

KINDS: Sequence[str] = sorted(MOVES)


def add_move(parser: argparse.ArgumentParser) -> None:
    """The move that a command is about."""
    parser.add_argument(
        "move", metavar="MOVE", type=an_id, help="id of the move, as claim list and claim show print it"
    )


class MoveCommand(AgentCommand):
    """About one move, by its id."""

    fields: Mapping[str, object] = MappingProxyType(dict.fromkeys(MoveView.__struct_fields__))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Adds the move."""
        parser = super().get_parser(prog_name)
        add_move(parser)
        return parser

    def told(self, view: MoveView) -> output.Answer:
        """All of it."""
        data = wire.to_builtins(view)
        return output.Answer(
            data,
            list(data),
            [list(data.values())],
            lambda: move_text(MovePage(**data), width=self.width, paint=self.paint),
            single=True,
        )


class ShowMove(MoveCommand):
    """Show what this host knows of a move: its guest, its claims here, and how it ended."""

    changes = False

    def ask(self, client: LocalClient, options: argparse.Namespace) -> output.Answer:
        """The move."""
        return self.told(client.get_move(options.move))


class FinishMove(MoveCommand):
    """Say how a move, or a change in place, ended: what this host no longer needs for it is free then."""

    epilog_text = (
        "  confirmed  the guest lives where it went, or as it was changed: what it had before is free\n"
        "  reverted   it is back where it was, or as it was: what was kept for the other place is free\n"
        "  failed     as reverted, by a fault\n"
        "The other host of a move has to be told, too."
    )

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Adds how."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--outcome", choices=get_args(Outcome), required=True, action=Once, help="see below")
        return parser

    def ask(self, client: LocalClient, options: argparse.Namespace) -> output.Answer:
        """The move after that."""
        return self.told(client.finish_move(options.move, options.outcome))


class HoldForMove(ToldClaim):
    """Say that a guest is about to leave for another host: what it has here is kept until the move is finished."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Adds the move and its guest."""
        parser = super().get_parser(prog_name)
        parser.add_argument("move", metavar="MOVE", type=an_id, help="id of the move, the same on both hosts")
        parser.add_argument("--instance", metavar="UUID", required=True, action=Once, help="the guest's")
        parser.add_argument("--name", action=Once, help="of the guest, for people")
        parser.add_argument("--kind", choices=KINDS, required=True, action=Once, help="of the move")
        parser.add_argument("--peer", metavar="HOST", action=Once, help="the host that it goes to")
        state = parser.add_mutually_exclusive_group()
        state.add_argument(
            "--cold", dest="is_cold", action="store_true", default=None,
            help="it is switched off for the move; default: but for a live_migration",
        )  # fmt: skip
        state.add_argument("--running", dest="is_cold", action="store_false", help="it runs on until it is there")
        return parser

    def ask(self, client: LocalClient, options: argparse.Namespace) -> output.Answer:
        """The claim of the guest after that."""
        try:
            named = str(uuid.UUID(options.instance))
        except ValueError:
            raise BadArguments(f"--instance {options.instance}: no uuid, as in {uuid.uuid4()}") from None
        guest = Instance(uuid=named, name=options.name or "")
        answer = client.hold_for_move(options.move, options.kind, guest, options.peer, options.is_cold)
        return self.told(answer, whole=False)
