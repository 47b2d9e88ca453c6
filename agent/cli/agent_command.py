"""What commands share that are about the agent's own books: it alone is asked, and its no is an answer."""

from __future__ import annotations

import abc
import argparse
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from agent.cli import exits, output
from agent.cli.command import HostCommand
from agent.cli.exits import BadArguments
from agent.client import LocalClient
from agent.errors import RequestRefused
from agent.formats.envelope import INVALID
from agent.render.claim_text import ADVICE, refused_text

NOT_THERE = "ClaimNotFound"
"""Of groups and moves too."""

OF_GROUP = "GroupAffinityViolation"
"""Its message is for a scheduler, word for word; its reason says who is in the way."""

UNDECIDED = frozenset({"AgentNotReady", "UnsupportedVersion", "InternalError"})
"""Codes that say nothing of what was asked."""


def an_id(text: str) -> str:
    """An argument that names something; for `type` of argparse."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty")
    return text


class AgentCommand(HostCommand):
    """A command that only the agent can answer. fields: keys of what it answers, for -c of a refused one."""

    formats: Sequence[str] = output.FORMATS
    looks_at_host = False
    changes = True
    fields: Mapping[str, object] = MappingProxyType({})

    @abc.abstractmethod
    def ask(self, client: LocalClient, options: argparse.Namespace) -> output.Answer:
        """The answer. Raises BadArguments, RequestRefused and what else the client raises."""

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Ask, write the answer, return its exit code; json and yaml have every refusal, too."""
        client = self._client()
        try:
            answer = self.ask(client, parsed_args)
        except RequestRefused as refused:
            answer = self._no(refused)
            if answer.code != exits.FOUND:
                if parsed_args.formatter in output.DATA_FORMATS:
                    output.write(answer, parsed_args.formatter, self.app.stdout, parsed_args)
                raise _as_end(refused, answer.code) from refused
        output.write(answer, parsed_args.formatter, self.app.stdout, parsed_args)
        return answer.code

    def advice(self, _code: str, retry: str) -> str:
        """Whether, where and how to ask again."""
        return ADVICE.get(retry, ADVICE["never"])

    def _client(self) -> LocalClient:
        where = self.app.source
        if where.direct or where.sysfs_root is not None or where.connection_uri is not None or where.config_files:
            raise BadArguments(
                f"{self.cmd_name} is about the agent's own books: --direct, --sysfs-root, --connect and --config-file "
                "do not go with it"
            )
        return where.changing_client() if self.changes else where.reading_client()

    def _no(self, refused: RequestRefused) -> output.Answer:
        flat = {"code": refused.code, "message": str(refused), "retry": refused.retry, "reasons": list(refused.reasons)}
        return output.Answer(
            dict(refused.document),
            list(flat),
            [list(flat.values())],
            lambda: refused_text(
                str(refused),
                refused.reasons,
                self.advice(refused.code, refused.retry),
                for_callers=refused.code == OF_GROUP,
                width=self.width,
                paint=self.paint,
            ),
            _code(refused.code),
            single=True,
            others=self.fields,
        )


def _code(code: str) -> int:
    if code in (INVALID, NOT_THERE):
        return exits.BAD_ARGUMENTS
    return exits.COULD_NOT_LOOK if code in UNDECIDED else exits.FOUND


def _as_end(refused: RequestRefused, code: int) -> Exception:
    """With every reason, for standard error; a request that is at fault needs no advice."""
    reasons = refused.reasons or (str(refused),)
    if code == exits.BAD_ARGUMENTS:
        return BadArguments("\n".join(reasons))
    said = "\n".join(dict.fromkeys((str(refused), *reasons, ADVICE.get(refused.retry, ""))))
    return RequestRefused(said.rstrip(), code=refused.code, retry=refused.retry, reasons=refused.reasons)
