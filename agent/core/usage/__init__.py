"""Total, used, promised and free of a host, folded from topology, configuration and what is seen. Never raises."""

from __future__ import annotations

from agent.core.usage.fold import fold
from agent.core.usage.rows import (
    Amount,
    CellUsage,
    CpuAmount,
    CpuHolder,
    DeviceUsage,
    Folded,
    HostUsage,
    MdevUsage,
    PageAmount,
    Remark,
    Usage,
)

__all__ = [
    "Amount",
    "CellUsage",
    "CpuAmount",
    "CpuHolder",
    "DeviceUsage",
    "Folded",
    "HostUsage",
    "MdevUsage",
    "PageAmount",
    "Remark",
    "Usage",
    "fold",
]
