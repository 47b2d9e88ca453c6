"""agentctl claim build."""

from __future__ import annotations

import argparse
import uuid
from typing import Any, get_args

import msgspec

from agent.cli import guest_options, output
from agent.cli.claims import ToldClaim
from agent.cli.exits import BadArguments
from agent.cli.guest_options import Once
from agent.client import LocalClient
from agent.core.claim.refusal import REMEMBERED
from agent.core.claim.values import MOVES, ClaimKind
from agent.core.claim.way_out import claim_command
from agent.core.instance import Instance, RequestSpec
from agent.errors import DaemonUnavailable
from agent.formats import wire
from agent.formats.claim_forms import group_form
from agent.formats.request import NOBODY

OF_CLAIM_ID = uuid.UUID("7c1f3c1e-3e0c-5d0b-9a35-0f6a4f0b7e11")
"""Where uuids of instances that nobody named come from: the same claim id gives the same one, on any host."""

UNSENT = (FileNotFoundError, NotADirectoryError, ConnectionRefusedError, PermissionError)
"""Why a request cannot have reached the agent."""


class BuildClaim(ToldClaim):
    """Ask for a place and have it kept: where the guest shall go, or every reason why not."""

    epilog_text = (
        "  agentctl claim build --name web --vcpus 2 --memory-mb 2048 \\\n"
        "    --extra-spec hw:cpu_policy=dedicated\n"
        "Then define the guest with the uuid and the place that it was promised (agentctl claim show ID --into FILE)\n"
        "and start it: once it is seen, it is resident. docs/api.md has all kinds, docs/fit.md the request's form."
    )

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Adds the guest and the claim's own."""
        parser = super().get_parser(prog_name)
        guest = guest_options.add_options(parser)
        guest.add_argument(
            "--instance", metavar="UUID", action=Once, help="also its domain's; default: made from --claim-id"
        )
        guest.add_argument("--name", action=Once, help="of the guest, for people")
        claim = parser.add_argument_group("the claim")
        claim.add_argument(
            "--kind",
            metavar="KIND",
            choices=get_args(ClaimKind),
            default="build",
            help=f"one of {', '.join(get_args(ClaimKind))}; default build",
        )
        claim.add_argument(
            "--claim-id",
            metavar="ID",
            action=Once,
            help="default: a new one. The same command with the same id again gets the same claim, or the same refusal",
        )
        claim.add_argument("--replaces", metavar="ID", action=Once, help="end this claim of the guest in the same step")
        claim.add_argument("--ttl", type=float, metavar="S", action=Once, help="seconds until its domain must be here")
        claim.add_argument("--move-id", metavar="ID", action=Once, help="of the move that this is one half of")
        claim.add_argument("--peer", metavar="HOST", action=Once, help="the other host of the move")
        return parser

    def advice(self, code: str, retry: str) -> str:
        """A claim id that was refused for good is refused whenever it is asked for again."""
        if code in REMEMBERED:
            return "Try another host, or this one later under a new --claim-id."
        return super().advice(code, retry)

    def ask(self, client: LocalClient, options: argparse.Namespace) -> output.Answer:
        """The claim, or why not."""
        document = claim_of(options)
        try:
            answer = client.claim(document)
        except DaemonUnavailable as error:
            if isinstance(error.__cause__, UNSENT):
                raise
            claim_id = document["claim_id"]
            raise DaemonUnavailable(
                f"{error}\nNobody knows whether claim {claim_id} was made: see `{claim_command('show', claim_id)}`, or "
                f"end it with `{claim_command('abort', claim_id)}`."
            ) from error
        if not answer.is_new:
            self.app.say(f"claim {answer.claim.claim_id} was made before; this is what it is now")
        return self.told(answer, whole=True)


def claim_of(options: argparse.Namespace) -> dict[str, Any]:
    """The body of POST /v1/claims. Raises BadArguments."""
    spec = guest_options.spec_of(options)
    if options.kind in MOVES and options.move_id is None:
        raise BadArguments(f"a {options.kind} is one half of a move: --move-id names it, the same on both hosts")
    ordered: dict[str, Any] = wire.to_builtins(spec)
    given = {
        "ttl_s": options.ttl,
        "replaces": options.replaces,
        "move_id": options.move_id,
        "peer": options.peer,
        "group": None if spec.group is None else wire.to_builtins(group_form(spec.group)),
    }
    claim_id = str(uuid.uuid4()) if options.claim_id is None else options.claim_id
    return {
        "claim_id": claim_id,
        "kind": options.kind,
        "instance": wire.to_builtins(_instance(spec, options, claim_id)),
        "spec": {name: ordered[name] for name in ("flavor", "image", "ports")},
        "context": {name: value for name, value in given.items() if value is not None},
    }


def _instance(spec: RequestSpec, options: argparse.Namespace, claim_id: str) -> Instance:
    known = spec.instance
    if options.name is not None:
        known = msgspec.structs.replace(known, name=options.name)
    if options.instance is not None:
        try:
            named = str(uuid.UUID(options.instance))
        except ValueError:
            raise BadArguments(f"--instance {options.instance}: no uuid, as in {uuid.uuid4()}") from None
        if known.uuid not in (NOBODY, named):
            raise BadArguments(f"--instance {named}: the request is of instance {known.uuid}; leave one of them out")
        return msgspec.structs.replace(known, uuid=named)
    if known.uuid != NOBODY:
        return known
    if options.kind != "build":
        raise BadArguments(f"--instance UUID is missing: a {options.kind} is of a guest that has one")
    return msgspec.structs.replace(known, uuid=str(uuid.uuid5(OF_CLAIM_ID, claim_id)))
