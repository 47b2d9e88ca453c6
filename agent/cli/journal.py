"""agentctl journal accept."""

from __future__ import annotations

import argparse

from agent.cli import output
from agent.cli.agent_command import AgentCommand
from agent.client import LocalClient


class AcceptJournal(AgentCommand):
    """Go on with what is left of a journal that was damaged: admit guests again before the longest deadline is over."""

    epilog_text = (
        "Until then the agent admits nobody: a claim that the damaged journal had, and the copy in its place has not,\n"
        "may still be relied on. Say this once nobody waits for a guest that was promised a place here before."
    )

    def ask(self, client: LocalClient, _options: argparse.Namespace) -> output.Answer:
        """That it is done."""
        client.accept_journal()
        return output.Answer(
            {"accepted": True},
            ("accepted",),
            [(True,)],
            lambda: "the journal is taken as it is; guests are admitted again\n",
            single=True,
        )
