"""How many VFs are lost at least when so many PFs must be given, for every set of requests that live on VFs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agent.core.fit.devices.flow_input import Distances, FlowInput
from agent.core.fit.devices.pci_distance import RULED_OUT
from agent.core.fit.devices.together import together


class _Set(NamedTuple):
    """Requests that share the VFs that will do. spare: VFs that they can lose; lost: how many with each PF of each
    group, the PFs in the order in which they are given."""

    spare: int
    lost: tuple[tuple[int, ...], ...]


class WholePfBound:
    """A necessary condition that no flow can see, since there a PF and its VFs are given side by side."""

    def __init__(self, counts: Sequence[int], flow_input: FlowInput) -> None:
        of_pfs = [group.distances[0] for group in flow_input.pf_groups]
        requests = range(len(counts))
        for_pfs = [n for n in requests if any(distances[n] != RULED_OUT for distances in of_pfs)]
        for_vfs = [n for n in requests if n not in for_pfs and counts[n]]
        self._must = sum(counts[n] for n in for_pfs) - _beside_whole_pfs(for_pfs, flow_input)
        self._sets = [_set(some, counts, flow_input) for some in together(for_vfs)] if self._must > 0 else []

    def can_hold(self, least: Sequence[int], most: Sequence[int]) -> bool:
        """False when nothing can come of giving at least and at most so many PFs of each group."""
        more = max(self._must - sum(least), 0)
        for spare, lost in self._sets:
            fixed = 0
            open_: list[int] = []
            for of_group, low, high in zip(lost, least, most, strict=True):
                fixed += sum(of_group[:low])
                open_ += of_group[low:high]
            if len(open_) < more or fixed + sum(sorted(open_)[:more]) > spare:
                return False
        return True


def _is_for(requests: Sequence[int], distances: Distances) -> bool:
    return any(distances[n] != RULED_OUT for n in requests)


def _beside_whole_pfs(requests: Sequence[int], flow_input: FlowInput) -> int:
    """How many devices these could have that are none of the PFs in question."""
    in_bins = sum(one.free_count for one in flow_input.bins if _is_for(requests, one.distances))
    return in_bins + sum(
        left[0]
        for group in flow_input.pf_groups
        for left, distances in zip(group.vfs_left, group.distances[1:], strict=True)
        if _is_for(requests, distances)
    )


def _set(requests: Sequence[int], counts: Sequence[int], flow_input: FlowInput) -> _Set:
    lost = tuple(
        tuple(
            sum(
                pool.free_count
                for pool, distances in zip(one.vfs, group.distances[1:], strict=True)
                if _is_for(requests, distances)
            )
            for one in group.pfs
        )
        for group in flow_input.pf_groups
    )
    return _Set(_beside_whole_pfs(requests, flow_input) - sum(counts[n] for n in requests), lost)
