"""One request for devices, as this host can serve it."""

from __future__ import annotations

from types import MappingProxyType

from agent.core.pci_request import PciRequest
from agent.core.values import ReadOnlyMap, Value


class Need(Value, frozen=True, kw_only=True):
    """pools: numbers of the pools (of `DeviceFacts`) whose devices will do, before any look at cells. is_hard: the
    policy can rule out host cells. near: by host cell, at most how many more free devices a guest there may have;
    elsewhere: how many it may have wherever it is."""

    request: PciRequest
    pools: tuple[int, ...]
    is_hard: bool
    near: ReadOnlyMap[int, int] = MappingProxyType({})
    elsewhere: int = 0
