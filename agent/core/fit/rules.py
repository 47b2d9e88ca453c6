"""How the operator wants guests placed where there is a choice, and how long a choice is looked for."""

from __future__ import annotations

from agent.core.reasons import Reason
from agent.core.values import Value

MOST_STEPS = 20_000


class FitRules(Value, frozen=True, kw_only=True):
    """pack: cells with the least that is free first, not the most. share_cells: several cells of one guest may go to
    one host cell. most_steps: bound of the search for host cells that have the devices too; beyond it the answer is no,
    with the reason search-stopped."""

    pack: bool = False
    share_cells: bool = False
    most_steps: int = MOST_STEPS


class NoFit(Value, frozen=True, kw_only=True):
    """Every reason why not, by guest cell and host cell."""

    reasons: tuple[Reason, ...]
