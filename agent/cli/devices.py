"""agentctl device offer-again."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from types import MappingProxyType

from agent.cli import output
from agent.cli.agent_command import AgentCommand
from agent.cli.exits import BadArguments
from agent.client import LocalClient
from agent.core.pci import PciAddress
from agent.core.words import plain
from agent.formats import wire
from agent.formats.claim_view import OfferedView
from agent.render.table import wrap


class OfferDeviceAgain(AgentCommand):
    """Say that a device for one use is clean: it is offered again though a guest has had it."""

    epilog_text = (
        "A device whose entry in device_spec says one_time_use is kept back once a guest has had it; `agentctl usage`\n"
        "names each, with the guest. Clean it (firmware, memory, settings), then say so here."
    )
    fields: Mapping[str, object] = MappingProxyType(dict.fromkeys(OfferedView.__struct_fields__))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Adds the device."""
        parser = super().get_parser(prog_name)
        parser.add_argument("address", metavar="ADDRESS", help="of the device, as in 0000:3b:00.0")
        return parser

    def ask(self, client: LocalClient, options: argparse.Namespace) -> output.Answer:
        """Who had it."""
        view = client.offer_again(_address(options.address))
        return output.Answer(
            wire.to_builtins(view),
            OfferedView.__struct_fields__,
            [(str(view.address), view.instance, view.name, view.at)],
            lambda: wrap(_text(view), self.width, rest="  "),
            single=True,
        )


def _address(text: str) -> PciAddress:
    try:
        return PciAddress.parse(text)
    except ValueError as error:
        raise BadArguments(f"ADDRESS: {error}") from error


def _text(view: OfferedView) -> str:
    return f"device {view.address} is offered again, which {plain(view.name or view.instance)} had at {plain(view.at)}"
