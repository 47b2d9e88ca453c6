"""The one question: may this guest come, and where would it go."""

from __future__ import annotations

from agent.core.placement import Placement
from agent.core.reasons import Reason
from agent.core.values import Value


class Admitted(Value, frozen=True, kw_only=True, tag="admitted"):
    """Yes: what the guest gets. epoch, generation: the picture of the host that this was decided on."""

    placement: Placement
    epoch: int
    generation: int


class Refused(Value, frozen=True, kw_only=True, tag="refused"):
    """No: every reason, by guest cell and host cell. epoch, generation: as of `Admitted`."""

    reasons: tuple[Reason, ...]
    epoch: int
    generation: int


Answer = Admitted | Refused
