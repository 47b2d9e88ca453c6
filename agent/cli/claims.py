"""agentctl claim list, show, confirm, renew, abort, release, accept-observed, recheck."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agent.cli import files, output
from agent.cli.agent_command import AgentCommand, an_id
from agent.cli.exits import BadArguments
from agent.cli.guest_options import Once
from agent.client import LocalClient
from agent.errors import FormatError, WireError
from agent.formats import wire
from agent.formats.claim_forms import GroupForm
from agent.formats.claim_view import ClaimAnswer, ClaimView
from agent.formats.xml_text import LONGEST_TEXT, parse_xml
from agent.render.claim_text import ClaimPage, claim_line, claim_text, claims_text, held_cpus
from agent.render.domain_parts import domain_parts, merged, xml_text

COLUMNS = ("claim_id", "state", "kind", "role", "instance", "name", "cpus", "deadline_at", "group", "ending", "reason")
SHORT = ("claim_id", "state", "kind", "name", "cpus")
FIELDS: Mapping[str, object] = MappingProxyType(
    dict.fromkeys((*ClaimView.__struct_fields__, *ClaimAnswer.__struct_fields__[1:]))
)


def page_of(view: ClaimView) -> ClaimPage:
    """What is shown of a claim."""
    return ClaimPage(
        claim_id=view.claim_id,
        state=view.state,
        kind=view.kind,
        role=view.role,
        instance=view.instance,
        since=view.state_since,
        made_at=view.made_at,
        deadline_at=view.deadline_at,
        move_id=view.move_id,
        peer=view.peer,
        placement=view.placement,
        group=view.group,
        holds=view.holds,
        reason=view.reason,
        ended=None if view.ended is None else view.ended.how,
        ending=view.ending,
        is_observed=view.kind is not None and view.binding is None and view.placement is None,
    )


def claim_document(answer: ClaimAnswer) -> dict[str, Any]:
    """The claim's own keys, and beside them what is told of this call."""
    document: dict[str, Any] = wire.to_builtins(answer)
    return {**document.pop("claim"), **document}


def row_of(view: ClaimView) -> list[object]:
    """In the order of COLUMNS."""
    uuid, name = (None, None) if view.instance is None else (view.instance.uuid, view.instance.name)
    cpus = str(held_cpus(page_of(view)))
    return [
        view.claim_id,
        view.state,
        view.kind,
        view.role,
        uuid,
        name,
        cpus,
        view.deadline_at,
        view.group,
        view.ending,
        view.reason,
    ]


class ToldClaim(AgentCommand):
    """A command whose answer is one claim."""

    fields = FIELDS

    def say_remarks(self, answer: ClaimAnswer) -> None:
        """What is to be known beside the claim."""
        for remark in answer.remarks:
            self.app.say(remark)
        if answer.guarantee is not None:
            self.app.say(f"the group was checked on this {answer.guarantee} alone")

    def told(self, answer: ClaimAnswer, *, whole: bool) -> output.Answer:
        """The claim as it is now; whole: for people all of it, else a line."""
        self.say_remarks(answer)
        page, now_s = page_of(answer.claim), time.time()
        return output.Answer(
            claim_document(answer),
            COLUMNS,
            [row_of(answer.claim)],
            lambda: (
                claim_text(page, now_s=now_s, width=self.width, paint=self.paint)
                if whole
                else claim_line(page, now_s=now_s, width=self.width)
            ),
            single=True,
        )


class ClaimCommand(ToldClaim):
    """About one claim, by its id."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Adds the claim."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "claim", metavar="ID", type=an_id, help="of the claim, as claim build and claim list print it"
        )
        return parser


class ListClaims(AgentCommand):
    """List all claims that hold something here."""

    formats = output.LIST_FORMATS
    changes = False

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Adds all columns."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--long", action="store_true", help=f"table: all columns: {', '.join(COLUMNS)}")
        return parser

    def ask(self, client: LocalClient, options: argparse.Namespace) -> output.Answer:
        """A row each; a table is kept narrow unless asked otherwise."""
        views = client.list_claims().claims
        if options.formatter == "table" and not options.long:
            options.columns = options.columns or list(SHORT)
        now_s = time.time()
        return output.Answer(
            [wire.to_builtins(view) for view in views],
            COLUMNS,
            [row_of(view) for view in views],
            lambda: claims_text([page_of(view) for view in views], now_s=now_s, width=self.width),
        )


class ShowClaim(ClaimCommand):
    """Show one claim: its state, its place, what it holds, what may be done with it; or its place as a domain's XML."""

    changes = False
    epilog_text = (
        "The parts that put a guest where it was promised a place, and a whole definition with them in it:\n"
        "  agentctl claim show ID --domain-xml\n"
        "  agentctl claim show ID --into web.xml > new.xml"
    )

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Adds the domain."""
        parser = super().get_parser(prog_name)
        domain = parser.add_mutually_exclusive_group()
        domain.add_argument(
            "--domain-xml", action="store_true",
            help="print uuid, memory, vCPUs, pins, memory policy, pages, guest cells and host devices for libvirt",
        )  # fmt: skip
        domain.add_argument(
            "--into", metavar="FILE",
            help="print the domain of this file with them in the place of its own; - is standard input",
        )  # fmt: skip
        return parser

    def ask(self, client: LocalClient, options: argparse.Namespace) -> output.Answer:
        """The claim, or its domain."""
        answer = client.get_claim(options.claim)
        if options.domain_xml or options.into is not None:
            return self._domain(answer.claim, options)
        return self.told(answer, whole=True)

    def _domain(self, view: ClaimView, options: argparse.Namespace) -> output.Answer:
        if options.formatter != output.TEXT:
            raise BadArguments("a domain is XML: -f does not go with --domain-xml and --into")
        if view.ended is not None:
            raise BadArguments(f"claim {view.claim_id} has ended ({view.ended.how}): it promises no place any more")
        if view.instance is None or view.placement is None:
            raise BadArguments(
                f"claim {view.claim_id} has no place of its own: its guest was here before anybody asked. "
                "See `agentctl show` for where that is."
            )
        parts = domain_parts(view.instance, view.placement, view.binding)
        if options.into is not None:
            parts = merged(_read(options.into), parts)
        return output.Answer({}, (), (), lambda: xml_text(parts))


class ConfirmClaim(ClaimCommand):
    """Take a guest that has come for settled, or a change in place for made."""

    def ask(self, client: LocalClient, options: argparse.Namespace) -> output.Answer:
        """The claim after that."""
        return self.told(client.confirm_claim(options.claim), whole=False)


class RenewClaim(ClaimCommand):
    """Keep a place for longer."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Adds how long."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--ttl", type=float, metavar="S", help="seconds from now; default: as many as last time")
        return parser

    def ask(self, client: LocalClient, options: argparse.Namespace) -> output.Answer:
        """The claim after that."""
        answer = client.renew_claim(options.claim, options.ttl)
        if answer.claim.deadline_at is None and answer.claim.ended is None:
            self.app.say(f"nothing has changed: claim {answer.claim.claim_id} waits for nothing and has no deadline")
        return self.told(answer, whole=False)


class EndClaim(ClaimCommand):
    """Ends a claim."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Adds why."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--reason", metavar="TEXT", help="one sentence for whoever reads the claim later")
        return parser


class AbortClaim(EndClaim):
    """Give a place back whose guest does not come; of an id that is not known yet: refuse whoever claims under it."""

    def ask(self, client: LocalClient, options: argparse.Namespace) -> output.Answer:
        """The claim after that."""
        return self.told(client.abort_claim(options.claim, options.reason), whole=False)


class ReleaseClaim(EndClaim):
    """End the claim of a guest that is not to be here any more; a domain that runs holds on by itself."""

    def ask(self, client: LocalClient, options: argparse.Namespace) -> output.Answer:
        """The claim after that."""
        return self.told(client.release_claim(options.claim, options.reason), whole=False)


class AcceptObserved(ClaimCommand):
    """Let a claim hold what is seen of its guest in the place of what was promised: ends claim-drift."""

    def ask(self, client: LocalClient, options: argparse.Namespace) -> output.Answer:
        """The claim after that."""
        return self.told(client.accept_observed(options.claim), whole=False)


class RecheckClaim(ClaimCommand):
    """Right before a guest comes: see that its seat in its group and its place are still its own; renews the claim."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Adds the group as it is now."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--group", metavar="JSON", action=Once,
            help='as {"id": "g", "policy": "anti-affinity"}; default: as it is known here',
        )  # fmt: skip
        return parser

    def ask(self, client: LocalClient, options: argparse.Namespace) -> output.Answer:
        """The claim after that."""
        group = None if options.group is None else _group(options.group)
        return self.told(client.recheck_claim(options.claim, group), whole=False)


def _group(text: str) -> GroupForm:
    """Raises BadArguments."""
    try:
        return wire.from_json(text.encode(), GroupForm)
    except (WireError, UnicodeEncodeError) as error:
        raise BadArguments(f"--group: {error}") from error


def _read(name: str) -> Any:
    """The domain of a file. Raises BadArguments, and HostReadError when it cannot be read."""
    try:
        text = files.read(name, LONGEST_TEXT, "--into").decode()
        root = parse_xml(text, files.shown(name))
    except (FormatError, UnicodeDecodeError) as error:
        raise BadArguments(f"--into {files.shown(name)}: {error}") from error
    if root.tag != "domain":
        raise BadArguments(f"--into {files.shown(name)}: it is a <{root.tag}>, not a <domain>")
    return root
