"""`serve` answers exactly when trying everything finds an answer, and each answer obeys every rule."""

from __future__ import annotations

from types import MappingProxyType

import msgspec
from hypothesis import given as generated
from hypothesis import settings
from hypothesis import strategies as st

from agent.core.cpuset import CpuSet
from agent.core.fit.devices.serve import needs, too_far, unserved
from agent.core.host_config import DeviceSpec
from agent.core.pci import DeviceType, PciDevice
from agent.core.pci_request import PciRequest, PciSpec
from tests.builders import function
from tests.unit.serve_hosts import Room, answers, free, has_relatives, is_allowed, nic, pf, served, vf, will_do

SAID: tuple[dict[str, str | None], ...] = (
    {},
    {},
    {},
    {"physical_network": "a"},
    {"physical_network": None},
    {"remote_managed": "true"},
)
TAGS = st.sampled_from([MappingProxyType(tags) for tags in SAID])
Case = tuple[Room, tuple[PciRequest, ...]]

CELLS = st.sampled_from((0, 1, 2))
PLACES = st.sampled_from((0, 0, 1, 1, 2, None))


@st.composite
def mixed_rooms(draw: st.DrawFn) -> Room:
    """Two cards, up to three loose devices; two products with what device_spec says of each; some of it taken."""
    devices: list[PciDevice] = []
    for card in (1, 2):
        kinds: tuple[DeviceType, ...] = ("type-VF", "type-VF", "vdpa")
        devices += nic(card, draw(PLACES), draw(st.integers(0, 3)), draw(st.sampled_from(kinds)))
    devices += [function(pf(card), numa=draw(PLACES)) for card in range(3, draw(st.integers(3, 6)))]
    products = [draw(st.sampled_from(("10fb", "10fb", "10fb", "10ed"))) for _ in devices]
    devices = [
        msgspec.structs.replace(one, product_id=name, serial="S1") for one, name in zip(devices, products, strict=True)
    ]
    migratable = st.sampled_from((None, None, True, False))
    spec = (DeviceSpec(product_id=name, tags=draw(TAGS), live_migratable=draw(migratable)) for name in ("10fb", "10ed"))
    return Room(
        devices=tuple(devices),
        spec=tuple(one for one in spec if draw(st.integers(0, 7))),
        sockets=draw(st.tuples(*[st.sampled_from((0, 1, None))] * 3)),
        taken=tuple(draw(st.sets(st.sampled_from((pf(1), vf(1, 0), vf(2, 0), pf(3))), max_size=1))),
        bare=draw(st.sampled_from(((), (), (), (2,), (1, 2)))),
    )


@st.composite
def rooms_of_cards(draw: st.DrawFn) -> Room:
    """Three or four cards, each of which can be given as a whole or in parts."""
    devices: list[PciDevice] = []
    for card in range(1, draw(st.integers(4, 5))):
        devices += nic(card, draw(PLACES), draw(st.integers(1, 2)))
    return Room(devices=tuple(devices), sockets=(0, 0, 1))


TYPES: tuple[DeviceType | None, ...] = (None, "type-PCI", "type-VF", "type-VF", "type-VF", "type-PF", "type-PF", "vdpa")
SPECS = st.builds(PciSpec, device_type=st.sampled_from(TYPES), tags=TAGS)
REQUESTS = st.lists(
    st.builds(
        PciRequest,
        id=st.just(""),
        specs=st.lists(SPECS, min_size=1, max_size=2).map(tuple),
        count=st.sampled_from((1, 1, 1, 2, 3)),
        numa_policy=st.sampled_from(("required", "socket", "socket", "preferred", "legacy")),
        live_migratable=st.sampled_from((None, None, None, None, True, False)),
    ),
    min_size=1,
    max_size=3,
).map(lambda made: tuple(msgspec.structs.replace(one, id=f"r{n}") for n, one in enumerate(made)))
OF_CARDS = st.lists(
    st.builds(
        PciRequest,
        id=st.just(""),
        specs=st.sampled_from(((PciSpec(device_type="type-VF"),), (PciSpec(device_type="type-PF"),))),
        count=st.integers(1, 2),
        numa_policy=st.sampled_from(("required", "preferred", "legacy")),
    ),
    min_size=2,
    max_size=4,
).map(lambda made: tuple(msgspec.structs.replace(one, id=f"r{n}") for n, one in enumerate(made)))
CASES = st.tuples(mixed_rooms(), REQUESTS) | st.tuples(rooms_of_cards(), OF_CARDS)
GUEST_CELLS = st.none() | st.sets(CELLS, min_size=1).map(lambda cells: tuple(sorted(cells)))


@settings(max_examples=300, deadline=None)
@generated(CASES, GUEST_CELLS, st.booleans())
def test_devices_are_given_exactly_when_there_is_a_way(
    case: Case, cells: tuple[int, ...] | None, near_only: bool
) -> None:
    room, requests = case
    answer = served(room, *requests, cells=cells, near_only=near_only)
    possible = next(answers(room, requests, cells, near_only=near_only), None)
    assert (answer is None) == (possible is None)
    if answer is None:
        return
    by_address = {one.address: one for one in free(room)}
    assert [one.request for one in answer] == [one.id for one in requests]
    everything = [by_address[address] for one in answer for address in one.devices]
    assert len({one.address for one in everything}) == len(everything)
    assert not has_relatives(everything)
    for one, request in zip(answer, requests, strict=True):
        assert len(one.devices) == request.count
        for device in (by_address[address] for address in one.devices):
            assert will_do(room, device, request)
            assert is_allowed(room, device, request.numa_policy, cells, near_only=near_only)


@settings(max_examples=100, deadline=None)
@generated(CASES, GUEST_CELLS, st.randoms(use_true_random=False))
def test_the_order_of_requests_changes_nothing(case: Case, cells: tuple[int, ...] | None, chance: object) -> None:
    room, requests = case
    turned = tuple(reversed(requests))
    first, second = served(room, *requests, cells=cells), served(room, *turned, cells=cells)
    assert first == (None if second is None else tuple(reversed(second)))


@settings(max_examples=100, deadline=None)
@generated(CASES, st.sets(CELLS, min_size=1).map(lambda cells: tuple(sorted(cells))))
def test_as_few_devices_as_can_be_are_off_the_cells_of_the_guest(case: Case, cells: tuple[int, ...]) -> None:
    room, requests = case
    answer = served(room, *requests, cells=cells)
    if answer is None or len(room.sockets) - len(room.bare) <= 1:
        return
    cell_of = {one.address: one.cell for one in room.devices}
    far = [_price(cell_of[address], cells) for one in answer for address in one.devices]
    least = min(
        sum(_price(device.cell, cells) for some in way for device in some) for way in answers(room, requests, cells)
    )
    assert sum(far) == least


def _price(cell: int | None, cells: tuple[int, ...]) -> int:
    """The kernel names no distances on these hosts."""
    return 0 if cell in cells else 1 if cell is None else 11


@settings(max_examples=100, deadline=None)
@generated(CASES, st.sets(CELLS, min_size=1).map(lambda cells: tuple(sorted(cells))))
def test_there_is_a_reason_exactly_when_there_is_no_answer(case: Case, cells: tuple[int, ...]) -> None:
    room, requests = case
    has = room.offer()
    wanted = needs(requests, has)
    assert bool(unserved(wanted, has)) == (served(has, *requests, cells=None) is None)
    assert bool(too_far(wanted, has, CpuSet(cells))) == (served(has, *requests, cells=cells) is None)


@settings(max_examples=100, deadline=None)
@generated(CASES, st.sets(CELLS, min_size=1).map(lambda cells: tuple(sorted(cells))), st.booleans())
def test_a_need_never_promises_less_than_can_be_had(case: Case, cells: tuple[int, ...], near_only: bool) -> None:
    room, requests = case
    has = room.offer()
    for need, request in zip(needs(requests, has), requests, strict=True):
        most = sum(
            will_do(room, one, request) and is_allowed(room, one, request.numa_policy, cells, near_only=near_only)
            for one in free(room)
        )
        assert need.within(CpuSet(cells), near_only=near_only).bit_count() == most
        soft = served(has, request, cells=None) is not None and served(has, request, cells=cells) is None
        assert need.is_hard or not soft
