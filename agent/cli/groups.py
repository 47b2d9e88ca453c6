"""agentctl group set, agentctl group show."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from types import MappingProxyType
from typing import get_args

from agent.cli import output
from agent.cli.agent_command import AgentCommand
from agent.cli.guest_options import Once
from agent.client import LocalClient
from agent.core.instance import GroupPolicy
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
        parser.add_argument("group", metavar="ID", help="of the server group")
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
    """Tell the agent who is in a server group: all its members, here and elsewhere; those left out are not in it."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Adds what is told."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--policy", choices=get_args(GroupPolicy), action=Once, help="default: no rule")
        parser.add_argument(
            "--max-server-per-host", type=int, metavar="N", action=Once, help="of anti-affinity; default 1"
        )
        parser.add_argument("--member", metavar="UUID", action="append", default=[], help="repeat for more")
        parser.add_argument("--host", metavar="NAME", action="append", default=[], help="that has members; repeat")
        parser.add_argument(
            "--generation", type=int, metavar="N", action=Once,
            help="of this list: an older one never replaces a newer one",
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
        return self.told(client.set_group(form))
