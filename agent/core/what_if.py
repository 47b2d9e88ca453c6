"""The books of a host to which a guest had come that is only thought of, or from which some had gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from types import MappingProxyType

import msgspec

from agent.core.arrival import arrived
from agent.core.claim.book import Book
from agent.core.claim.values import Membership
from agent.core.guest import Sighting
from agent.core.instance import Group, Instance
from agent.core.placement import Placement
from agent.core.snapshot import Snapshot, configured, with_book
from agent.core.topology import HostTopology

__all__ = ["arrived", "with_guest", "without_guests"]

_Pool = tuple[int | None, int]
"""The cell, and the size of its pages in KiB."""


def with_guest(snapshot: Snapshot, instance: Instance, placement: Placement, group: Group | None = None) -> Snapshot:
    """The same picture with the guest running as placed, a member of the group; epoch and generation stay those of the
    picture."""
    if group is not None:
        snapshot = msgspec.structs.replace(snapshot, book=_with_member(snapshot.book, group.id, instance.uuid))
    seen = arrived(instance, placement)
    given = Counter[_Pool]()
    for cell in placement.cells:
        given[cell.host_cell, cell.page_size_kib] -= cell.memory_kib // cell.page_size_kib
    after = _with(snapshot, {**snapshot.ledger.sightings, seen.uuid: seen}, given)
    if seen.uuid not in after.book.of:
        return after
    return msgspec.structs.replace(with_book(after, after.book, (seen.uuid,)), generation=snapshot.generation)


def without_guests(snapshot: Snapshot, uuids: Collection[str]) -> Snapshot:
    """The picture had these guests never come, nor claimed anything; epoch and generation stay."""
    sightings = {uuid: seen for uuid, seen in snapshot.ledger.sightings.items() if uuid not in uuids}
    back = Counter[_Pool]()
    for holds in (snapshot.holds[uuid] for uuid in uuids if uuid in snapshot.holds):
        for pages in holds.pages:
            back[pages.cell, pages.size_kib] += pages.count
    bare = msgspec.structs.replace(snapshot, book=_without_claims(snapshot.book, uuids))
    return _with(bare, sightings, back)


def _with_member(book: Book, group: str, uuid: str) -> Book:
    member = Membership(group=group, instance=uuid, generation=None, last_here_at_s=0.0)
    return book._replace(members=book.members.set((group, uuid), member))


def _without_claims(book: Book, uuids: Collection[str]) -> Book:
    claims, of = book.claims, book.of
    for uuid in uuids:
        for claim_id in of.get(uuid, ()):
            claims = claims.delete(claim_id)
        of = of.delete(uuid) if uuid in of else of
    return book._replace(claims=claims, of=of)


def _with(snapshot: Snapshot, sightings: Mapping[str, Sighting], more_free: Mapping[_Pool, int]) -> Snapshot:
    ledger = msgspec.structs.replace(snapshot.ledger, sightings=MappingProxyType(dict(sightings)))
    topology = _with_pages(snapshot.topology, more_free)
    after = configured(msgspec.structs.replace(snapshot, ledger=ledger, topology=topology), snapshot.config)
    return msgspec.structs.replace(after, generation=snapshot.generation)


def _with_pages(topology: HostTopology, more_free: Mapping[_Pool, int]) -> HostTopology:
    """As the kernel would show it, which counts pages of guests with those of others: else it would look as if others
    had let go of them, or taken them."""
    cells = tuple(
        msgspec.structs.replace(
            cell,
            pages=tuple(
                msgspec.structs.replace(pool, free=pool.free + more_free.get((cell.id, pool.size_kib), 0))
                for pool in cell.pages
            ),
        )
        for cell in topology.cells
    )
    return msgspec.structs.replace(topology, cells=cells)
