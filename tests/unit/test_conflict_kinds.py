"""Each kind of conflict that is declared has a rule behind it: some host and some guests make a row of it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import get_args

import msgspec
from immutables import Map

from agent.core.claim.book import Book
from agent.core.claim.values import Departure, State, Tombstone
from agent.core.conflicts import IN_EACH_OTHERS_WAY, Conflict, ConflictKind
from agent.core.cpuset import CpuSet
from agent.core.guest import RunIdentity, Sighting
from agent.core.instance import Group
from tests.builders import Host, function, guest, h2x4, h8, ht8, uuid_of
from tests.builders_claims import book_with, claim_of, place, rows_of
from tests.seating import Desk, on

ISOLATE = {"extra:hw:cpu_thread_policy": "isolate"}
PF, VF, ABSENT = "0000:3b:00.0", "0000:3b:02.0", "0000:99:00.0"
CARD = (function(PF, "type-PF", driver="vfio-pci"), function(VF, "type-VF", pf=PF, driver="vfio-pci"))


def _changed(seen: Sighting, **fields: object) -> Sighting:
    return msgspec.structs.replace(seen, **fields)


SCENES: dict[ConflictKind, tuple[Host, tuple[Sighting, ...]]] = {
    "cpu-pinned-twice": (h8(), (guest("a", {0: 2}), guest("b", {0: 2}))),
    "sibling-of-isolated": (ht8(), (guest("a", {0: 0}, facts=ISOLATE), guest("b", {0: 4}))),
    "pinned-to-offline": (h8(online="0-6"), (guest("a", {0: 7}),)),
    "pinned-outside-dedicated": (h8(), (guest("a", {0: 0}),)),
    "shared-on-dedicated": (h8(), (guest("a", vcpus=2, cpuset="2-3"),)),
    "emulator-on-dedicated": (h8(), (guest("a", emu="2"),)),
    "memory-over-commit": (h2x4(), (guest("a", mem=9000, node=0),)),
    "pages-over-commit": (h8(pages={2048: 4}), (guest("a", mem=10, page=2048, node=0),)),
    "device-twice": (h8(pci=CARD), (guest("a", dev=(VF,)), guest("b", dev=(VF,)))),
    "device-missing": (h8(pci=CARD), (guest("a", dev=(ABSENT,)),)),
    "pf-and-vf": (h8(pci=CARD), (guest("a", dev=(PF,)), guest("b", dev=(VF,)))),
    "memory-elsewhere": (h2x4(), (_changed(guest("a", node=0), memory_elsewhere=CpuSet([1])),)),
    "domain-lost-by-libvirt": (h8(), (_changed(guest("a"), validity="lost-by-libvirt"),)),
}


def _group(*names: str) -> list[Conflict]:
    """Of guests that a server group keeps apart."""
    desk = Desk(*map(on, names))
    desk.set_group(Group(id="g", policy="anti-affinity", members=names))
    return desk.rows()


def _claimed(state: State) -> Callable[..., tuple[Conflict, ...]]:
    """Of guests that are not seen, each with a claim in this state."""

    def rows(*names: str) -> tuple[Conflict, ...]:
        claims = [claim_of(name, place(2 + n), state=state, move_id="m", peer="n2") for n, name in enumerate(names)]
        return rows_of(h8(), book_with(*claims))

    return rows


def _drifted(*names: str) -> tuple[Conflict, ...]:
    """Of guests on other CPUs than they were promised."""
    claims = [claim_of(name, place(2 + n), state="resident") for n, name in enumerate(names)]
    return rows_of(h8(), book_with(*claims), *(guest(name, {0: 5 + n}, node=0) for n, name in enumerate(names)))


def _moved(*names: str) -> tuple[Conflict, ...]:
    """Of guests that were said to live on another host."""
    away = {uuid_of(name): Departure(instance=uuid_of(name), at="", moved_to="n2") for name in names}
    return rows_of(h8(), Book(departures=Map(away)), *map(guest, names))


def _late(*names: str) -> tuple[Conflict, ...]:
    """Of guests that came though their claims had been aborted."""
    graves = [
        Tombstone(claim_id=name, ending="aborted", ended_at="", at_s=0.0, sequence=1, claim=claim_of(name))
        for name in names
    ]
    book = Book(
        tombstones=Map({one.claim_id: one for one in graves}), ends=Map({uuid_of(name): (name,) for name in names})
    )
    return rows_of(h8(), book, *(guest(name, run=RunIdentity(libvirt_id=1, pid=7)) for name in names))


BY_THE_BOOK: dict[ConflictKind, Callable[..., Collection[Conflict]]] = {
    "group-violated": _group,
    "claim-drift": _drifted,
    "claim-overdue": _claimed("overdue"),
    "migration-stuck": _claimed("doubtful"),
    "guest-elsewhere": _moved,
    "arrived-without-claim": _late,
}
"""Kinds that only a book of claims brings, by the names of the guests in them."""


def test_every_kind_that_is_declared_can_come() -> None:
    assert {*SCENES, *BY_THE_BOOK} == set(get_args(ConflictKind))
    come = {kind: {row.kind for row in host.conflicts(*guests)} for kind, (host, guests) in SCENES.items()}
    come |= {kind: {row.kind for row in rows("a", "b")} for kind, rows in BY_THE_BOOK.items()}
    assert come == {kind: {kind} for kind in get_args(ConflictKind)}


def test_only_kinds_that_take_two_are_called_in_each_others_way() -> None:
    alone = {kind: host.conflicts(guests[0]) for kind, (host, guests) in SCENES.items()}
    alone |= {kind: tuple(rows("a")) for kind, rows in BY_THE_BOOK.items()}
    assert {kind for kind, rows in alone.items() if not rows} == IN_EACH_OTHERS_WAY
