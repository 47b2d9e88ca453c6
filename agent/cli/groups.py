"""agentctl group set, agentctl group show."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import get_args

from agent.cli import output
from agent.cli.agent_command import AgentCommand, an_id
from agent.cli.guest_options import Once
from agent.client import LocalClient
from agent.core.instance import GroupPolicy
from agent.core.words import agrees, some
from agent.formats import wire
from agent.formats.claim_forms import GroupForm, GroupRules
from agent.formats.claim_view import GroupInfo
from agent.render.claim_text import GroupPage, group_text

COLUMNS = ("id", "policy", "max_server_per_host", "generation", "members", "seated")


class GroupCommand(AgentCommand):
    """About one server group."""

    fields: Mapping[str, object] = MappingProxyType(dict.fromkeys(GroupInfo.__struct_fields__))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Adds the group."""
        parser = super().get_parser(prog_name)
        parser.add_argument("group", metavar="ID", type=an_id, help="of the server group")
        return parser

    def told(self, info: GroupInfo) -> output.Answer:
        """All that is known of it here."""
        most = info.rules.max_server_per_host
        members = {one.instance: one.seated for one in info.members}
        page = GroupPage(info.id, info.policy, most, info.generation, members, info.seated)
        row = (info.id, info.policy, most, info.generation, list(members), list(info.seated))
        return output.Answer(
            wire.to_builtins(info),
            COLUMNS,
            [row],
            lambda: group_text(page, width=self.width, paint=self.paint),
            single=True,
        )


class ShowGroup(GroupCommand):
    """Show the policy of a server group, who is in it, and who of them has a seat on this host."""

    changes = False

    def ask(self, client: LocalClient, options: argparse.Namespace) -> output.Answer:
        """The group."""
        return self.told(client.get_group(options.group))


class SetGroup(GroupCommand):
    """Tell the agent who is in a server group: all its members, here and elsewhere, and its policy."""

    epilog_text = (
        "With --generation whoever was named with a lower one, and is left out now, is in the group no longer; a list\n"
        "that is older than the last changes nothing. Without it members are only added. Whoever was named without\n"
        "one, also by a claim, stays until its claim is released or it has left. Who stays, and why, is said."
    )

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Adds what is told."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--policy",
            metavar="POLICY",
            choices=get_args(GroupPolicy),
            action=Once,
            help=f"one of {', '.join(get_args(GroupPolicy))}; default: no rule",
        )
        parser.add_argument(
            "--max-server-per-host", type=int, metavar="N", action=Once, help="of anti-affinity; default 1"
        )
        parser.add_argument("--member", metavar="UUID", action="append", default=[], help="repeat for more")
        parser.add_argument("--host", metavar="NAME", action="append", default=[], help="that has members; repeat")
        parser.add_argument(
            "--generation", type=int, metavar="N", action=Once,
            help="of this list, higher than that of the one before; see below",
        )  # fmt: skip
        return parser

    def ask(self, client: LocalClient, options: argparse.Namespace) -> output.Answer:
        """The group after that."""
        most = options.max_server_per_host
        form = GroupForm(
            id=options.group,
            policy=options.policy,
            rules=None if most is None else GroupRules(max_server_per_host=most),
            members=tuple(options.member),
            generation=options.generation,
            hosts=tuple(options.host),
        )
        info = client.set_group(form)
        for remark in remarks(info, form):
            self.app.say(remark)
        return self.told(info)


def remarks(info: GroupInfo, told: GroupForm) -> Iterator[str]:
    """Where the group is not as it was told to be."""
    asked, known = told.generation, info.generation
    if asked is not None and known is not None and known > asked:
        yield f"nothing has changed: what is known of group {info.id} is of generation {known}, newer than {asked}"
    left_out = [one for one in info.members if one.instance not in told.members]
    numbers = [one.generation for one in left_out if one.generation is not None]
    numbered = [one.instance for one in left_out if one.generation is not None]
    unnumbered = [one.instance for one in left_out if one.generation is None]
    if numbered and asked is None:
        more = max([*numbers, known or 0]) + 1
        yield (
            f"{_stay(numbered, info)}: without a generation members are only added; `--generation {more}` "
            "takes out who is left out"
        )
    if unnumbered:
        yield (
            f"{_stay(unnumbered, info)}: named without a generation, which no list takes back; it ends with the "
            "release of the claim, or once the instance has left"
        )


def _stay(instances: Sequence[str], info: GroupInfo) -> str:
    return f"{some(instances)} {agrees(instances, 'stays a member', 'stay members')} of group {info.id}"
