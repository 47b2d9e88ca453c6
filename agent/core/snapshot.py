"""One immutable picture of the host, its books and where they come from."""

from __future__ import annotations

from agent.core.host_config import HostConfig
from agent.core.ledger import Ledger
from agent.core.topology import HostTopology
from agent.core.usage import Usage
from agent.core.values import Value


class SourceState(Value, frozen=True, kw_only=True):
    """How far one source can be trusted now.

    name: "sysfs", "udev", "libvirt", "capabilities", "nodedev", "domains", "processes", "journal". read_at: monotonic
    seconds of the last success, None: never. problem: one sentence with what to do, None: fine.
    """

    name: str
    read_at: float | None = None
    problem: str | None = None


class Identity(Value, frozen=True, kw_only=True):
    """Which agent, on which boot of the host, since which start of the agent."""

    agent_id: str
    boot_id: str
    epoch: int


class Snapshot(Value, frozen=True, kw_only=True):
    """Readers take a reference; only the tracker replaces it, and each replacement raises `generation`.

    complete: a pass over all sources has been made since the start.
    """

    identity: Identity
    generation: int
    config: HostConfig
    topology: HostTopology
    ledger: Ledger
    usage: Usage
    sources: tuple[SourceState, ...] = ()
    complete: bool = False
