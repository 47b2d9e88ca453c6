"""agentctl snapshot."""

from __future__ import annotations

import argparse

import msgspec

from agent.cli import exits, files, source
from agent.cli.command import QuickCommand
from agent.cli.help_text import HelpText
from agent.formats import wire
from agent.formats.snapshot_file import saved


class SaveSnapshot(QuickCommand):
    """Save all that is known of this host as JSON, for `agentctl fit --snapshot` anywhere else."""

    epilog_text = "The file appears whole or not at all. It holds names of guests and what their makers wrote of them."

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Where to, and where to look."""
        parser = super().get_parser(prog_name)
        parser.allow_abbrev = False
        parser.formatter_class = HelpText
        parser.add_argument("--output", metavar="FILE", default="-", help="default -, standard output")
        source.add_options(parser, hidden_default=True)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Write it."""
        snapshot = self.app.source.snapshot(self.app.say)
        text = msgspec.json.format(wire.to_json(saved(snapshot)), indent=1).decode() + "\n"
        if parsed_args.output == "-":
            self.app.stdout.write(text)
        else:
            files.write(parsed_args.output, text.encode(), "--output")
        return exits.OK
