"""Why a claim, or a change of one, is refused."""

from __future__ import annotations

from typing import Literal

from agent.core.reasons import Reason
from agent.core.values import Value

Code = Literal[
    "ComputeResourcesUnavailable",
    "GroupAffinityViolation",
    "PciRequestError",
    "InvalidRequest",
    "ClaimConflict",
    "ClaimNotFound",
    "ClaimEnded",
    "InstanceBusy",
    "IllegalTransition",
    "HostInMaintenance",
    "AgentNotReady",
    "JournalUnavailable",
]

Retry = Literal["elsewhere", "later", "never"]

REMEMBERED: frozenset[Code] = frozenset(
    {"ComputeResourcesUnavailable", "GroupAffinityViolation", "PciRequestError", "HostInMaintenance"}
)
"""Codes that decide over a claim id for good: the same call again gets the same answer. The others say that nothing was
decided, and a later call, under the same id too, may be granted."""


class ClaimRefusal(Value, frozen=True, kw_only=True):
    """message: one sentence for people: what, where, found, what to do. retry: whether another host, or a later call,
    can help. reasons: as typed values (a fit's). claim_id: of the claim in the way, where one is."""

    code: Code
    message: str
    retry: Retry
    reasons: tuple[Reason, ...] = ()
    claim_id: str | None = None
