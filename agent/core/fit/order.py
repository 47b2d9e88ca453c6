"""In which order host cells are preferred (nova-rules B1)."""

from __future__ import annotations

from agent.core.fit.host import CellOffer, Offer
from agent.core.fit.rules import FitRules
from agent.core.instance import InstanceRequest


def ordered(request: InstanceRequest, offer: Offer, rules: FitRules) -> tuple[CellOffer, ...]:
    """The cells that have CPUs. With more of them than the guest has: the fewest devices first, or the most for a guest
    that wants some; then the most room first (the least when packing): CPUs before memory; then by id."""
    hosts = tuple(room for room in offer.cells if room.facts.has_cpus)
    if len(hosts) <= len(request.cells):
        return hosts
    devices = _devices_by_cell(offer)
    towards = -1 if request.devices else 1
    fullest = 1 if rules.pack else -1
    is_pinned = request.cpu_policy in ("dedicated", "mixed")

    def key(room: CellOffer) -> tuple[int, int, int]:
        cpus = room.free_cpus.bit_count() if is_pinned else room.floating
        return towards * devices.get(room.facts.id, 0), fullest * cpus, fullest * _memory(room)

    return tuple(sorted(hosts, key=key))


def _memory(room: CellOffer) -> int:
    return room.free_kib + sum(pages.free * pages.size_kib for pages in room.pages)


def _devices_by_cell(offer: Offer) -> dict[int | None, int]:
    counts: dict[int | None, int] = {}
    for pool in offer.facts.devices.pools:
        cell = pool.first.cell
        counts[cell] = counts.get(cell, 0) + (pool.devices & offer.free_devices).bit_count()
    return counts
