"""What is told of a snapshot: to the local API, to the commands, to whoever watches health."""

from __future__ import annotations

from typing import Literal

from agent.core.conflicts import Conflict
from agent.core.guest import Sighting
from agent.core.ledger import Holds
from agent.core.topology import HostTopology
from agent.core.usage import Usage
from agent.core.values import Value

Status = Literal["ok", "degraded", "down"]


class SourceReport(Value, frozen=True, kw_only=True):
    """One source. age_s: since its last success, None: never read."""

    name: str
    ok: bool
    age_s: float | None = None
    problem: str | None = None


class GuestReport(Value, frozen=True, kw_only=True):
    """One domain, what it holds, and how old the reading is."""

    sighting: Sighting
    holds: Holds
    age_s: float


class Health(Value, frozen=True, kw_only=True):
    """status: "down" when guests cannot be seen at all, "degraded" when something needs a look, else "ok".
    reasons: one sentence for each thing that keeps it from "ok". ready: admissions could be answered."""

    status: Status
    ready: bool
    reasons: tuple[str, ...] = ()
    sources: tuple[SourceReport, ...] = ()
    guests_active: int = 0
    guests_defined: int = 0
    conflicts: int = 0
    conflicts_accepted: int = 0
    problems: int = 0


class Report(Value, frozen=True, kw_only=True):
    """Everything of one snapshot. epoch 0: a single look without a daemon."""

    agent_id: str
    epoch: int
    generation: int
    topology: HostTopology
    guests: tuple[GuestReport, ...]
    usage: Usage
    conflicts: tuple[Conflict, ...]
    health: Health
