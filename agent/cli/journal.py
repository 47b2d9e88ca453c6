"""agentctl journal accept."""

from __future__ import annotations

import argparse

from agent.cli import output
from agent.cli.agent_command import AgentCommand
from agent.client import LocalClient
from agent.render.table import wrap

DONE = "the journal is taken as it is; guests are admitted again"
NOTHING_TO_DO = "nothing was damaged, so nothing has changed: the journal keeps nobody from being admitted"


class AcceptJournal(AgentCommand):
    """Go on with what is left of a journal that was damaged: admit guests again before the longest deadline is over."""

    epilog_text = (
        "Until then the agent admits nobody: a claim that the damaged journal had, and the copy in its place has not,\n"
        "may still be relied on. Say this once nobody waits for a guest that was promised a place here before."
    )

    def ask(self, client: LocalClient, _options: argparse.Namespace) -> output.Answer:
        """That it is done, and whether there was anything to accept."""
        was_damaged = client.accept_journal().was_damaged
        return output.Answer(
            {"accepted": True, "was_damaged": was_damaged},
            ("accepted", "was_damaged"),
            [(True, was_damaged)],
            lambda: wrap(DONE if was_damaged else NOTHING_TO_DO, self.width, rest="  "),
            single=True,
        )
