"""agentctl called as from a shell, with what it wrote and how it ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from agent.cli.main import main
from tests.promising_agent import PromisingAgent


class Done(NamedTuple):
    """One command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it wrote, read as JSON."""
        return json.loads(self.out)

    @property
    def line(self) -> str:
        """All of it without its line breaks."""
        return " ".join((self.out + self.err).split())


Run = Callable[..., Done]


def runs_beside(agent: PromisingAgent, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Commands with the read-only socket in their environment, as `make run` prints it."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("COMPUTE_AGENT_SOCKET", str(agent.read_only_socket))

    def run(*arguments: str) -> Done:
        code = main(arguments)
        return Done(code, *capsys.readouterr())

    return run
