"""The free devices that the requests of one guest compete for, put together as far as none of them can tell them apart.

It holds for every set of host cells that a search may try: only distances differ between them. Virtual functions (VFs)
are here whatever cannot be given away beside its physical function (PF), vDPA devices too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent.core.fit.devices.facts import DeviceFacts


class PoolKey(NamedTuple):
    """The cell that the kernel names for a device, and the numbers of the requests that it will do for, ascending: all
    that decides on its distances."""

    cell: int | None
    requests: tuple[int, ...]


class FreePool(NamedTuple):
    """What is free of one pool, as bits and counted. vfs_lost: how many free VFs are lost with one of it."""

    free: int
    free_count: int
    vfs_lost: int


class PoolGroup(NamedTuple):
    """Pools for the same requests on one cell, of which none excludes what another request could have."""

    key: PoolKey
    pools: tuple[FreePool, ...]


class PfWithVfs(NamedTuple):
    """A PF and its VFs, by pool, which exclude each other and both of which some request could have."""

    pf: FreePool
    vfs: tuple[FreePool, ...]

    @property
    def vf_count(self) -> int:
        """Free VFs that are lost when the PF is given."""
        return sum(pool.free_count for pool in self.vfs)


class AlikePfs(NamedTuple):
    """PFs for the same requests on the same cell, with VFs that are alike in this as well. vfs: of each, in order."""

    pf: PoolKey
    vfs: tuple[PoolKey, ...]
    members: tuple[PfWithVfs, ...]


class Supply(NamedTuple):
    """All free devices that will do for any of the requests."""

    groups: tuple[PoolGroup, ...] = ()
    pfs: tuple[AlikePfs, ...] = ()


def supply(pools: Sequence[Sequence[int]], devices: DeviceFacts, free: int) -> Supply:
    """For requests for each of which these pools will do. free: bit n for device n."""
    requests: dict[int, list[int]] = {}
    for number, some in enumerate(pools):
        for pool in some:
            if devices.pools[pool].devices & free:
                requests.setdefault(pool, []).append(number)
    keys = {pool: PoolKey(devices.pools[pool].first.cell, tuple(some)) for pool, some in sorted(requests.items())}
    vfs_of = _vfs_by_pf(keys, devices, free)
    excluding = {pool for pf, vfs in vfs_of.items() for pool in (pf, *vfs)}
    alike: dict[PoolKey, list[FreePool]] = {}
    for pool, key in keys.items():
        if pool not in excluding:
            alike.setdefault(key, []).append(_free_pool(pool, devices, free))
    return Supply(
        groups=tuple(PoolGroup(key, tuple(some)) for key, some in alike.items()),
        pfs=_alike_pfs(vfs_of, keys, devices, free),
    )


def _vfs_by_pf(keys: Mapping[int, PoolKey], devices: DeviceFacts, free: int) -> dict[int, list[int]]:
    """By pool of a PF that some request could have, those of its VFs that some request could have."""
    pf_of_family = {devices.pools[pool].family: pool for pool in keys if devices.pools[pool].is_pf}
    vfs: dict[int, list[int]] = {}
    for pool in keys:
        one = devices.pools[pool]
        if one.family in pf_of_family and not one.is_pf and one.devices & free:
            vfs.setdefault(pf_of_family[one.family], []).append(pool)
    return vfs


def _alike_pfs(
    vfs_of: Mapping[int, list[int]], keys: Mapping[int, PoolKey], devices: DeviceFacts, free: int
) -> tuple[AlikePfs, ...]:
    alike: dict[tuple[PoolKey, ...], list[PfWithVfs]] = {}
    for pf, vfs in sorted(vfs_of.items()):
        # sorted by the requests, so that PFs with the same VFs in another order are alike too
        vfs.sort(key=lambda pool: (keys[pool].requests, keys[pool].cell is None, keys[pool].cell, pool))
        found = PfWithVfs(_free_pool(pf, devices, free), tuple(_free_pool(pool, devices, free) for pool in vfs))
        alike.setdefault((keys[pf], *(keys[pool] for pool in vfs)), []).append(found)
    return tuple(AlikePfs(some[0], some[1:], tuple(members)) for some, members in alike.items())


def _free_pool(pool: int, devices: DeviceFacts, free: int) -> FreePool:
    one = devices.pools[pool]
    mask = one.devices & free
    lost = devices.relatives[one.family] if one.is_pf and one.family is not None else 0
    return FreePool(mask, mask.bit_count(), (lost & free).bit_count())
