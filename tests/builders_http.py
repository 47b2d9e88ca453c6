"""What a server of the local API needs beside the handler under test."""

from __future__ import annotations

from agent.core.snapshot import Identity
from agent.formats.envelope import ApiResponse, Refusal, refused, respond

IDENTITY = Identity(agent_id="a1", boot_id="b1", epoch=3)
GENERATION = 17
NOW = "2026-11-30T12:00:00Z"


def refuse(code: str, message: str, status: int) -> ApiResponse:
    """The refusal of an agent that has this identity and picture."""
    return respond(refused(IDENTITY, GENERATION, NOW, Refusal(code=code, message=message)), status)
