"""agentctl snapshot."""

from __future__ import annotations

import argparse
import contextlib
import os
from pathlib import Path

import msgspec

from agent.cli import exits, source
from agent.cli.command import QuickCommand
from agent.cli.exits import BadArguments
from agent.core.words import plain
from agent.formats import wire
from agent.formats.snapshot_file import saved


class SaveSnapshot(QuickCommand):
    """Save all that is known of this host as JSON, for `agentctl fit --snapshot` anywhere else."""

    epilog_text = "The file appears whole or not at all. It holds names of guests and what their makers wrote of them."

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Where to, and where to look."""
        parser = super().get_parser(prog_name)
        parser.allow_abbrev = False
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
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
            _write(parsed_args.output, text.encode())
        return exits.OK


def _write(name: str, content: bytes) -> None:
    """In one step where the name is a file's. Raises BadArguments when nothing can be written there."""
    try:
        path = Path(os.path.realpath(name))
        if path.exists() and not path.is_file():
            path.write_bytes(content)  # a pipe or a terminal: nothing to keep whole
        else:
            _replace(path, content)
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise BadArguments(f"--output {plain(name)}: it cannot be written: {why}") from error


def _replace(path: Path, content: bytes) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            unfinished.unlink()
