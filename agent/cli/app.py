"""The cliff application: options, dispatch, and what becomes of every failure."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import errno
import importlib.metadata
import io
import logging
import os
import shutil
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from cliff.app import App
from cliff.command import Command
from cliff.commandmanager import CommandManager
from cliff.complete import CompleteCommand
from cliff.help import HelpCommand

from agent.cli import exits, source
from agent.cli.command import NOT_A_TERMINAL, QuickCommand
from agent.cli.help_text import HelpText
from agent.cli.summary import SUMMARY
from agent.core.words import plain, plain_lines
from agent.errors import AgentError
from agent.release import version
from agent.render.table import wrap

NAME = "agentctl"
NAGIOS_OPTION = "--one-line"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
COMMANDS = {
    "status": "agent.cli.status:Status",
    "topology": "agent.cli.topology:Topology",
    "usage": "agent.cli.usage:Usage",
    "domains": "agent.cli.guests:Domains",
    "show": "agent.cli.guests:Show",
    "why": "agent.cli.why:Why",
    "conflicts": "agent.cli.conflicts:Conflicts",
    "check": "agent.cli.check:Check",
    "fit": "agent.cli.fit:Fit",
    "snapshot": "agent.cli.snapshot:SaveSnapshot",
    "claim build": "agent.cli.claim_build:BuildClaim",
    "claim list": "agent.cli.claims:ListClaims",
    "claim show": "agent.cli.claims:ShowClaim",
    "claim confirm": "agent.cli.claims:ConfirmClaim",
    "claim renew": "agent.cli.claims:RenewClaim",
    "claim abort": "agent.cli.claims:AbortClaim",
    "claim release": "agent.cli.claims:ReleaseClaim",
    "claim accept-observed": "agent.cli.claims:AcceptObserved",
    "claim recheck": "agent.cli.claims:RecheckClaim",
    "migration hold": "agent.cli.moves:HoldForMove",
    "migration show": "agent.cli.moves:ShowMove",
    "migration finish": "agent.cli.moves:FinishMove",
    "group show": "agent.cli.groups:ShowGroup",
    "group set": "agent.cli.groups:SetGroup",
    "maintenance show": "agent.cli.maintenance:ShowMaintenance",
    "maintenance on": "agent.cli.maintenance:MaintenanceOn",
    "maintenance off": "agent.cli.maintenance:MaintenanceOff",
    "instance forget": "agent.cli.instances:ForgetInstance",
    "device offer-again": "agent.cli.devices:OfferDeviceAgain",
    "journal accept": "agent.cli.journal:AcceptJournal",
}
"""By name; the words of one are separate arguments."""


class Help(QuickCommand, HelpCommand):
    """Print what a command does and its options."""

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """One command's help; ours where no command is named, as cliff's lists installed packages."""
        if not parsed_args.cmd:
            self.app.parser.print_help(self.app.stdout)
            return exits.OK
        if (family := _family(parsed_args.cmd)) and len(parsed_args.cmd) == 1:
            self.app.stdout.write(_family_help(family))
            return exits.OK
        self.app.find(parsed_args.cmd)
        return super().take_action(parsed_args)


class Complete(QuickCommand, CompleteCommand):
    """Print the completion for bash: eval "$(agentctl complete)"."""


class Commands(CommandManager):
    """Our commands by name, each imported when it runs; no scan of installed packages."""

    def __init__(self) -> None:
        super().__init__()
        for name, target in COMMANDS.items():
            self.commands[name] = importlib.metadata.EntryPoint(name=name, value=target, group=NAME)
        self.add_legacy_command("guests", "domains")


class AgentCtl(App):
    """agentctl. cliff's own `run` starts a shell without a command and ends all failures with 1; neither is wanted."""

    NAME = NAME
    source: source.Source

    def __init__(self) -> None:
        super().__init__(description=None, version=None, command_manager=Commands(), deferred_help=True)
        self.command_manager.add_command("help", Help)
        self.command_manager.add_command("complete", Complete)

    def build_option_parser(
        self, _description: str | None, _version: str | None, _argparse_kwargs: dict[str, object] | None = None
    ) -> argparse.ArgumentParser:
        """The options that stand before or behind any command."""
        parser = argparse.ArgumentParser(
            prog=NAME, usage=f"{NAME} COMMAND [options]", description=SUMMARY, epilog=exits.TABLE, add_help=False,
            allow_abbrev=False, formatter_class=HelpText,
        )  # fmt: skip
        parser.add_argument("-h", "--help", dest="deferred_help", action="store_true", help="this text, or a command's")
        parser.add_argument("--version", action="store_true", help="the version")
        parser.add_argument("--debug", action="store_true", help="show the traceback of a fault")
        parser.add_argument(
            "-v", "--verbose", action="store_true", help="log on standard error what is read from where"
        )
        source.add_options(parser)
        return parser

    def run(self, argv: Sequence[str]) -> int:
        """Run one command, return its exit code. Raises what the command raises."""
        with _complaints():
            self.options, rest = self.parser.parse_known_args(argv)
        _log(self.options.verbose)
        if self.options.version:
            self.stdout.write(f"{NAME} {version()}\n")
            return exits.OK
        if self.options.deferred_help and not rest:
            self.parser.print_help(self.stdout)
            return exits.OK
        if not rest:
            raise exits.BadArguments(f"no command was given. See `{NAME} --help`.")
        self.source = source.from_options(self.options)
        return self.run_subcommand(["help", *rest] if self.options.deferred_help else rest)

    def run_subcommand(self, argv: list[str]) -> int:
        """Find the command and run it."""
        factory, name, arguments = self.find(argv)
        command = factory(self, self.options, cmd_name=name)
        parser = command.get_parser(f"{NAME} {name}")
        with _complaints():
            options = parser.parse_args(arguments)
        return command.run(options)

    def find(self, argv: list[str]) -> tuple[type[Command], str, list[str]]:
        """The command's class, the name it was called by and its arguments. Raises BadArguments."""
        try:
            return self.command_manager.find_command(argv)
        except ValueError:
            raise exits.BadArguments(self._unknown(argv)) from None

    def say(self, text: str) -> None:
        """A line for people, beside the output."""
        _tell(text)

    def _unknown(self, argv: Sequence[str]) -> str:
        word = argv[0]
        if word.startswith("-"):
            return f"there is no option {word} before a command. See `{NAME} --help`."
        if family := _family(argv):
            verbs = ", ".join(name.partition(" ")[2] for name in family)
            wrong = "" if len(argv) == 1 or argv[1].startswith("-") else f"there is no {word} {argv[1]}; "
            one_of = "one of " if len(family) > 1 else ""
            return f"{wrong}{word} is followed by {one_of}{verbs}. See `{NAME} {word} --help`."
        near = difflib.get_close_matches(word, {name.partition(" ")[0]: None for name, _ in self.command_manager})
        guess = f" Did you mean {' or '.join(near)}?" if near else ""
        return f"there is no command {word}.{guess} See `{NAME} --help`."


def _family(argv: Sequence[str]) -> list[str]:
    """The commands of two words that begin with this one."""
    return [name for name in COMMANDS if name.startswith(f"{argv[0]} ")]


def _family_help(names: Sequence[str]) -> str:
    """A line for each of them."""
    lines = [wrap(_summary(name), NOT_A_TERMINAL[0], first=f"  {name:<24}") for name in names]
    return "".join([*lines, f"More: {NAME} {names[0]} --help\n"])


def _summary(name: str) -> str:
    entry = importlib.metadata.EntryPoint(name=name, value=COMMANDS[name], group=NAME)
    return (entry.load().__doc__ or "").partition("\n")[0]


def run(argv: Sequence[str]) -> int:
    """Run agentctl, turn every end into an exit code and a line on standard error. Never raises."""
    _open_closed_streams()
    _tolerate_unprintable(sys.stdout)
    code = _run(list(argv))
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = exits.BROKEN_PIPE
        _discard(sys.stdout)
    except OSError as error:  # a full disk
        code = _output_lost(error)
    _flush_beside()
    return code


def _run(argv: list[str]) -> int:
    debug = "--debug" in argv
    bad = exits.COULD_NOT_LOOK if NAGIOS_OPTION in argv else exits.BAD_ARGUMENTS  # Nagios takes 2 for CRITICAL
    try:
        return AgentCtl().run(argv)
    except SystemExit as end:  # argparse
        return bad if end.code == exits.BAD_ARGUMENTS else int(end.code or 0)
    except exits.BadArguments as error:
        return _fail(str(error), bad, debug=debug)
    except BrokenPipeError:
        _discard(sys.stdout)
        return exits.BROKEN_PIPE
    except AgentError as error:
        return _fail(str(error), exits.COULD_NOT_LOOK, debug=debug)
    except OSError as error:
        if error.errno not in FULL:
            return _unexpected(error, debug=debug)
        return _output_lost(error)
    except Exception as error:  # noqa: BLE001  # the top of the program: nobody else is left to say what happened
        return _unexpected(error, debug=debug)


def _unexpected(error: Exception, *, debug: bool) -> int:
    hint = "" if debug else f" ({NAME} --debug ... shows where)"
    return _fail(f"unexpected {type(error).__name__}: {error}{hint}", exits.COULD_NOT_LOOK, debug=debug)


def _output_lost(error: OSError) -> int:
    _discard(sys.stdout)
    return _fail(f"the output could not be written: {error.strerror}", exits.COULD_NOT_LOOK, debug=False)


def _fail(text: str, code: int, *, debug: bool) -> int:
    if debug:
        _write_beside(traceback.format_exc())
    _tell(text)
    return code


def _tell(text: str) -> None:
    """For people, each line with our name. On a terminal none is longer than it is wide; whoever keeps them in a file,
    or looks for one, has each on one line."""
    lines = text.rstrip("\n").split("\n")
    if sys.stderr.isatty():
        width = shutil.get_terminal_size(NOT_A_TERMINAL).columns
        _write_beside("".join(wrap(line, width, first=f"{NAME}: ", rest="  ", keeps_words=True) for line in lines))
    else:
        _write_beside("".join(f"{NAME}: {line}\n" for line in lines))


def _write_beside(text: str) -> None:
    """On standard error, safe to show. If that is lost, the answer and its exit code count all the same."""
    try:
        sys.stderr.write(plain_lines(text))
    except (OSError, ValueError):
        _discard(sys.stderr)


@contextlib.contextmanager
def _complaints() -> Iterator[None]:
    """What argparse says goes out as all else does: in Debian 12 a full standard error ended the command there."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            yield
    finally:
        if said.getvalue():
            _write_beside(said.getvalue())


def _flush_beside() -> None:
    """Argparse and logging write there too; what stays in the buffer would turn the exit code into Python's 120."""
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    """The reader has gone (head, less), or the disk is full: keep Python's last flush from complaining about it."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _open_closed_streams() -> None:
    """Python gives None for a stream that the caller closed (agentctl >&-): then nobody wants to read it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  # until the end


def _tolerate_unprintable(stream: TextIO) -> None:
    """A guest's name in letters that the locale lacks is shown escaped."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")


class _LogLine(logging.Formatter):
    """Names of guests and what libvirt says are safe to show here too."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        """On one line."""
        return plain(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802  # logging's name
        """A traceback ends with the text of its exception."""
        return plain_lines(super().formatException(ei))


def _log(verbose: bool) -> None:
    """Nothing but what the report says, unless asked for: Python would print warnings of the readers otherwise."""
    if verbose:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_LogLine("%(name)s: %(message)s"))
        logging.basicConfig(level=logging.DEBUG, handlers=[handler])
    elif not logging.getLogger("agent").handlers:
        logging.getLogger("agent").addHandler(logging.NullHandler())
