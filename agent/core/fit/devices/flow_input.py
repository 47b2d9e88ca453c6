"""What the requests of one guest may have from where it is, and how far each of it is: what a flow is made over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from agent.core.fit.devices.supply import AlikePfs, FreePool, PfWithVfs, PoolKey, Supply

Distances = tuple[int, ...]
"""How far a device is for each request; RULED_OUT where the request may not have it."""


class Bin(NamedTuple):
    """Pools at equal distances, of which none excludes what another request may have. free_count: of all of them."""

    distances: Distances
    free_count: int
    pools: tuple[FreePool, ...]


class PfGroup(NamedTuple):
    """PFs at equal distances that are alike but for how many of their VFs are free, those with the fewest first.
    distances: of the PF, then of each pool of VFs. vfs_left[part][n]: free VFs of that pool of all PFs but the first n.
    """

    distances: tuple[Distances, ...]
    pfs: tuple[PfWithVfs, ...]
    vfs_left: tuple[tuple[int, ...], ...]


class FlowInput(NamedTuple):
    """All that the requests may have."""

    bins: tuple[Bin, ...]
    pf_groups: tuple[PfGroup, ...]


def flow_input(supply: Supply, distances_of: Callable[[PoolKey, FreePool], Distances | None]) -> FlowInput:
    """What of the supply is in reach. distances_of: of a pool, as of all with this key; None where no request may have
    it."""
    bins: dict[Distances, list[FreePool]] = {}
    for group in supply.groups:
        if (distances := distances_of(group.key, group.pools[0])) is not None:
            bins.setdefault(distances, []).extend(group.pools)
    groups: dict[tuple[object, ...], tuple[tuple[Distances, ...], list[PfWithVfs]]] = {}
    for alike in supply.pfs:
        first = alike.members[0]
        of_pf = distances_of(alike.pf, first.pf)
        of_each = map(distances_of, alike.vfs, first.vfs)
        of_vfs = [(n, found) for n, found in enumerate(of_each) if found is not None]
        if of_pf is None or not of_vfs:
            _put_in_bins(alike, of_pf, of_vfs, bins)
            continue
        columns = (of_pf, *(found for _, found in of_vfs))
        for one in alike.members:
            vfs = tuple(one.vfs[n] for n, _ in of_vfs)
            counts = tuple(pool.free_count for pool in vfs) if len(vfs) > 1 else None
            groups.setdefault((columns, counts), (columns, []))[1].append(PfWithVfs(one.pf, vfs))
    return FlowInput(
        bins=_bins(bins),
        pf_groups=tuple(_pf_group(columns, pfs) for columns, pfs in groups.values()),
    )


def with_whole_pfs(reachable: FlowInput, numbers: Sequence[int]) -> FlowInput:
    """What is left to share out when so many PFs of each group are given, and VFs of the others alone."""
    return _in_bins(
        reachable, [(group.pfs[:n], group.pfs[n:]) for group, n in zip(reachable.pf_groups, numbers, strict=True)]
    )


def side_by_side(reachable: FlowInput) -> FlowInput:
    """The same as if no PF excluded its VFs."""
    return _in_bins(reachable, [(group.pfs, group.pfs) for group in reachable.pf_groups])


def _in_bins(reachable: FlowInput, parts: Sequence[tuple[Sequence[PfWithVfs], Sequence[PfWithVfs]]]) -> FlowInput:
    """parts: of each group, of which the PFs are there, and of which the VFs."""
    bins: dict[Distances, list[FreePool]] = {one.distances: list(one.pools) for one in reachable.bins}
    for group, (whole, others) in zip(reachable.pf_groups, parts, strict=True):
        of_pf, *of_vfs = group.distances
        bins.setdefault(of_pf, []).extend(one.pf for one in whole)
        for part, distances in enumerate(of_vfs):
            bins.setdefault(distances, []).extend(one.vfs[part] for one in others)
    return FlowInput(bins=_bins(bins), pf_groups=())


def _bins(bins: Mapping[Distances, Sequence[FreePool]]) -> tuple[Bin, ...]:
    return tuple(Bin(found, sum(pool.free_count for pool in pools), tuple(pools)) for found, pools in bins.items())


def _put_in_bins(
    alike: AlikePfs,
    of_pf: Distances | None,
    of_vfs: Sequence[tuple[int, Distances]],
    bins: dict[Distances, list[FreePool]],
) -> None:
    """PFs that no request may have, or none of whose VFs any request may."""
    if of_pf is not None:
        bins.setdefault(of_pf, []).extend(one.pf for one in alike.members)
    for n, found in of_vfs:
        bins.setdefault(found, []).extend(one.vfs[n] for one in alike.members)


def _pf_group(distances: tuple[Distances, ...], pfs: list[PfWithVfs]) -> PfGroup:
    pfs.sort(key=lambda one: one.vf_count)
    return PfGroup(
        distances=distances,
        pfs=tuple(pfs),
        vfs_left=tuple(
            tuple(sum(one.vfs[part].free_count for one in pfs[n:]) for n in range(len(pfs) + 1))
            for part in range(len(distances) - 1)
        ),
    )
