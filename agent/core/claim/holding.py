"""What claims hold, and how a claim and the domain that came of it count once (LEDGER R3, R4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from agent.core.arrival import arrived
from agent.core.claim.drift import drift
from agent.core.claim.values import Claim, State
from agent.core.conflicts import Owner
from agent.core.cpuset import CpuSet, union
from agent.core.guest import Sighting
from agent.core.holds import HostSets, hold, owner_of
from agent.core.ledger import STARTING_UP, Holds, PageHold
from agent.core.usage.rows import CpuHolder
from agent.core.values import ReadOnlyMap

K = TypeVar("K")

ON_ITS_WAY: frozenset[State] = frozenset({"pending", "reserved", "overdue", "arriving"})
"""States in which the kernel may not have given its domain all of its memory yet."""

_Pool = tuple[int | None, int]


class Promise(NamedTuple):
    """All that counts for one instance, made anew only when its claims, its domain or the host's sets change.

    owner: the domain when one is seen, else the claim. claims: those that hold, the earliest first. holds: what is
    seen of it and what its claims hold, each id once and of each amount the most. extra: what the claims hold beyond
    what is seen. claimant: as the owner of that part. holders: a row for each CPU of it; adds: there is any such part.
    unsettled: pages of a domain that is still coming, which the kernel may not have given it yet. drift: in what its
    domain differs from its resident claim.
    """

    instance: str
    owner: Owner
    claims: tuple[Claim, ...]
    holds: Holds
    extra: Holds
    claimant: Owner
    holders: tuple[CpuHolder, ...] = ()
    adds: bool = False
    unsettled: tuple[PageHold, ...] = ()
    drift: tuple[str, ...] = ()


def claimed(claim: Claim, sets: HostSets) -> Holds:
    """What a claim holds by itself: as its guest would be seen to, placed as it was promised; what was seen, where that
    was accepted in the placement's stead."""
    if claim.observed is not None:
        return claim.observed
    if claim.placement is not None:
        return hold(arrived(claim.instance, claim.placement, claim.binding), sets)
    return Holds(uuid=claim.instance.uuid)


def merged(parts: Iterable[Holds]) -> Holds:
    """What is held by these together, of one guest (R4): ids by union, of amounts the most for each key, never a sum.

    At least one part.
    """
    first, *others = parts
    return _merged((first, *others)) if others else first


def promise_of(claims: Iterable[Claim], seen: Sighting | None, seen_holds: Holds | None, sets: HostSets) -> Promise:
    """What counts for one instance. claims: of it, at least one that has not ended. seen_holds: `hold` of the
    sighting."""
    holding = tuple(claim for claim in claims if claim.state != "ended")
    instance = holding[0].instance
    parts = [claimed(claim, sets) for claim in holding]
    promised = merged(parts)
    extra = promised if seen_holds is None else beyond(promised, seen_holds)
    claimant = Owner(type="claim", uuid=instance.uuid, name=instance.name)
    cpus = extra.cpus | extra.sibling_cpus
    return Promise(
        instance=instance.uuid,
        owner=claimant if seen is None else owner_of(seen),
        claims=holding,
        holds=promised if seen_holds is None else merged((seen_holds, promised)),
        extra=extra,
        claimant=claimant,
        holders=tuple(CpuHolder(cpu=cpu, owners=(claimant,)) for cpu in cpus),
        adds=bool(cpus) or _has_amounts(extra),
        unsettled=() if seen_holds is None or not _is_coming(holding, seen) else seen_holds.pages,
        drift=next(
            (
                drift(claim, part, seen, seen_holds)
                for claim, part in zip(holding, parts, strict=True)
                if claim.state == "resident"
            ),
            (),
        ),
    )


def _is_coming(claims: Iterable[Claim], seen: Sighting | None) -> bool:
    """Its QEMU may still be taking its memory: for the first time, or at a start anew."""
    if seen is None or not seen.is_active:
        return False
    return seen.reason == STARTING_UP or any(one.state in ON_ITS_WAY and one.role != "in_place" for one in claims)


def beyond(promised: Holds, seen: Holds) -> Holds:
    """What of the promised is not among what is seen: ids by difference, amounts by what is missing of each key."""
    # Of a guest whose definition was never readable, where its threads may run is no proof that it holds a CPU.
    certain = seen.kernel_pins if seen.guessed else seen.cpus
    cpus = promised.cpus - certain
    devices, mdevs = frozenset(seen.devices), frozenset(seen.mdevs)
    return Holds(
        uuid=promised.uuid,
        cpus=cpus,
        emulator_cpus=promised.emulator_cpus & cpus,
        sibling_cpus=promised.sibling_cpus - seen.sibling_cpus - certain - cpus,
        confined=promised.confined - seen.confined,
        cell_memory_kib=_missing(promised.cell_memory_kib, seen.cell_memory_kib),
        host_memory_kib=max(promised.host_memory_kib - seen.host_memory_kib, 0),
        pages=_page_holds(_missing(_pools(promised), _pools(seen))),
        cell_shared=_missing(promised.cell_shared, seen.cell_shared),
        host_shared=max(promised.host_shared - seen.host_shared, 0),
        devices=tuple(one for one in promised.devices if one not in devices),
        mdevs=tuple(one for one in promised.mdevs if one not in mdevs),
    )


def _has_amounts(holds: Holds) -> bool:
    return bool(
        holds.cell_memory_kib
        or holds.host_memory_kib
        or holds.pages
        or holds.cell_shared
        or holds.host_shared
        or holds.devices
        or holds.mdevs
    )


def _merged(parts: tuple[Holds, ...]) -> Holds:
    cpus = _union(parts, lambda one: one.cpus)
    by_vcpus = _union(parts, lambda one: one.cpus - one.emulator_cpus)
    pages = {key: number for key, number in _most(map(_pools, parts)).items() if number}
    return Holds(
        uuid=parts[0].uuid,
        cpus=cpus,
        emulator_cpus=cpus - by_vcpus,
        kernel_pins=_union(parts, lambda one: one.kernel_pins),
        sibling_cpus=_union(parts, lambda one: one.sibling_cpus) - by_vcpus,
        confined=_union(parts, lambda one: one.confined),
        cell_memory_kib=_most(one.cell_memory_kib for one in parts),
        host_memory_kib=max(one.host_memory_kib for one in parts),
        pages=_page_holds(pages),
        cell_shared=_most(one.cell_shared for one in parts),
        host_shared=max(one.host_shared for one in parts),
        devices=tuple(sorted({address for one in parts for address in one.devices})),
        mdevs=tuple(sorted({uuid for one in parts for uuid in one.mdevs})),
        guessed=any(one.guessed for one in parts),
        uncertain=any(one.uncertain for one in parts),
    )


def _union(parts: Iterable[Holds], of: Callable[[Holds], CpuSet]) -> CpuSet:
    return CpuSet.from_mask(union(of(one).mask for one in parts))


def _most(parts: Iterable[Mapping[K, int]]) -> ReadOnlyMap[K, int]:
    found: dict[K, int] = {}
    for part in parts:
        for key, number in part.items():
            found[key] = max(found.get(key, number), number)
    return MappingProxyType(found)


def _missing(wanted: Mapping[K, int], there: Mapping[K, int]) -> ReadOnlyMap[K, int]:
    left = {key: number - there.get(key, 0) for key, number in wanted.items()}
    return MappingProxyType({key: number for key, number in left.items() if number > 0})


def _pools(holds: Holds) -> dict[_Pool, int]:
    return {(hold.cell, hold.size_kib): hold.count for hold in holds.pages}


def _page_holds(pools: Mapping[_Pool, int]) -> tuple[PageHold, ...]:
    return tuple(
        PageHold(cell=cell, size_kib=size, count=pools[cell, size])
        for cell, size in sorted(pools, key=lambda pool: (pool[0] is None, pool[0] or 0, pool[1]))
    )
