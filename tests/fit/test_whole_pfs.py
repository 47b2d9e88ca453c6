"""Physical functions given as a whole beside virtual ones of several products: exact, or it says that it is not."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterable, Sequence

import msgspec
import pytest

from agent.core.cpuset import CpuSet
from agent.core.fit.decide import fit
from agent.core.fit.devices.assign import MOST_COLUMNS
from agent.core.fit.devices.needs import needs
from agent.core.fit.devices.serve import serve, unserved
from agent.core.fit.devices.whole_pf_search import ServingStopped
from agent.core.fit.host import Offer
from agent.core.fit.matching import Shortage, match
from agent.core.fit.rules import NoFit
from agent.core.host_config import DeviceSpec
from agent.core.instance import InstanceRequest
from agent.core.pci import DeviceType, PciDevice
from agent.core.pci_request import PciNumaPolicy, PciRequest, PciSpec
from agent.core.reasons import DevicesContended, SearchStopped
from tests.unit.serve_hosts import Room, nic, pf

MORE = int(os.environ.get("FIT_EXAMPLES", "1"))
PFS = ("10fb", "10fc")
PRODUCTS = ("1000", "1001", "1002", "1003", "1004", "1005")
Card = tuple[str, int, tuple[int, ...]]
"""Product of the physical function, cell, and how many virtual ones of each product."""


def room_of(cards: Sequence[Card]) -> Room:
    """With all of the devices offered."""
    devices: list[PciDevice] = []
    for number, (product, cell, many) in enumerate(cards, 1):
        whole, *parts = nic(number, cell, sum(many))
        names = [name for name, some in zip(PRODUCTS, many, strict=False) for _ in range(some)]
        devices.append(msgspec.structs.replace(whole, product_id=product))
        devices += [msgspec.structs.replace(one, product_id=name) for one, name in zip(parts, names, strict=True)]
    return Room(devices=tuple(devices), spec=(DeviceSpec(vendor_id="8086"),))


def asks(
    name: str,
    count: int,
    products: Iterable[str],
    *types: DeviceType,
    policy: PciNumaPolicy = "preferred",
) -> PciRequest:
    """Any of these products as any of these types."""
    specs = tuple(PciSpec(product_id=one, device_type=kind) for one in products for kind in types)
    return PciRequest(id=name, specs=specs, count=count, numa_policy=policy)


def is_possible(cards: Sequence[Card], requests: Sequence[PciRequest], cells: CpuSet) -> bool:
    """Some choice of whole cards leaves every request enough: each device to one request, by trying all choices."""
    for whole in itertools.product((False, True), repeat=len(cards)):
        there: list[tuple[str, DeviceType, int]] = []
        for is_whole, (product, cell, many) in zip(whole, cards, strict=True):
            if is_whole:
                there.append((product, "type-PF", cell))
            else:
                named = zip(PRODUCTS, many, strict=False)
                there += [(name, "type-VF", cell) for name, some in named for _ in range(some)]
        rows = [
            sum(1 << n for n, device in enumerate(there) if will_do(device, request, cells))
            for request in requests
            for _ in range(request.count)
        ]
        if not isinstance(match(rows, (1 << len(there)) - 1), Shortage):
            return True
    return False


def will_do(device: tuple[str, DeviceType, int], request: PciRequest, cells: CpuSet) -> bool:
    """It is what is asked for, and near enough."""
    product, kind, cell = device
    is_near = request.numa_policy == "preferred" or cell in cells
    return is_near and any((spec.product_id, spec.device_type) == (product, kind) for spec in request.specs)


def given_is_right(cards: Sequence[Card], requests: Sequence[PciRequest], offer: Offer, cells: CpuSet) -> bool:
    """Whether there was an answer; what it gives is checked."""
    answer = serve(needs(tuple(requests), offer), offer, cells)
    if answer is None:
        return False
    devices = {device.address: device for device in room_of(cards).devices}
    taken = [address for one in answer for address in one.devices]
    assert len(set(taken)) == len(taken)
    assert not {devices[address].parent for address in taken} & set(taken)
    for asked, one in zip(requests, answer, strict=True):
        assert len(one.devices) == asked.count
        for device in map(devices.__getitem__, one.devices):
            assert device.cell is not None
            assert will_do((device.product_id, device.type, device.cell), asked, cells)
    return True


def random_case(chance: random.Random) -> tuple[list[Card], list[PciRequest]]:
    """Cards of two products, requests that overlap; often just enough, or one too many."""
    products = PRODUCTS[: chance.randint(2, 3)]
    cards = [
        (chance.choice(PFS), chance.choice((0, 0, 1)), tuple(chance.randint(0, 2) for _ in products))
        for _ in range(chance.randint(5, 7))
    ]
    whole = chance.sample(range(len(cards)), chance.randint(1, 3))
    left = [sum(many[n] for card, (_, _, many) in enumerate(cards) if card not in whole) for n in range(len(products))]
    policy: PciNumaPolicy = chance.choice(("preferred", "preferred", "required"))
    kinds = chance.choice(([PFS], [PFS[:1], PFS[1:]], [PFS[:1], PFS]))
    requests = [asks(f"pf{n}", chance.randint(1, 2), some, "type-PF", policy=policy) for n, some in enumerate(kinds)]
    for n, product in enumerate(products):
        also = chance.choice(((), (), products, (products[n - 1],)))
        types: tuple[DeviceType, ...] = chance.choice(
            (("type-VF",), ("type-VF",), ("type-VF",), ("type-VF", "type-PF"))
        )
        count = max(left[n] + chance.choice((0, 0, -1, 1)), 1)
        requests.append(
            asks(f"vf{n}", count, {product, *also, *(PFS if len(types) > 1 else ())}, *types, policy=policy)
        )
    return cards, requests


@pytest.mark.parametrize("seed", range(150 * MORE))
def test_whole_and_virtual_functions_are_given_exactly_when_trying_every_choice_finds_one(seed: int) -> None:
    cards, requests = random_case(random.Random(seed))
    cells = CpuSet([0])
    assert given_is_right(cards, requests, room_of(cards).offer(), cells) == is_possible(cards, requests, cells)


def many_cards(count: int, seed: int) -> list[Card]:
    """None of which are alike."""
    chance = random.Random(seed)
    return [(PFS[0], 0, tuple(chance.randint(0, 4) for _ in PRODUCTS)) for _ in range(count)]


def just_enough(cards: Sequence[Card], whole: int, more: int = 0) -> list[PciRequest]:
    """Some cards as a whole, and of every product what the others have."""
    left = [sum(many[n] for _, _, many in cards[whole:]) for n in range(len(PRODUCTS))]
    return [
        asks("whole", whole + more, PFS, "type-PF"),
        *(asks(name, count, (name,), "type-VF") for name, count in zip(PRODUCTS, left, strict=True)),
    ]


@pytest.mark.parametrize("seed", range(10))
def test_sixteen_cards_of_six_products_are_decided(seed: int) -> None:
    cards = many_cards(16, seed)
    offer = room_of(cards).offer()
    assert given_is_right(cards, just_enough(cards, 8), offer, CpuSet([0]))
    requests = just_enough(cards, 8, more=1)
    counts = [request.count for request in requests[1:]]
    can = any(
        all(sum(many[n] for _, _, many in left) >= count for n, count in enumerate(counts))
        for left in itertools.combinations(cards, 7)
    )
    assert given_is_right(cards, requests, offer, CpuSet([0])) == can


@pytest.mark.parametrize("seed", range(10))
def test_sixteen_cards_of_two_makes_are_decided_when_requests_overlap(seed: int) -> None:
    chance = random.Random(seed)
    cards = [(PFS[number % 2], 0, tuple(chance.randint(0, 4) for _ in PRODUCTS)) for number in range(16)]
    whole = chance.sample(range(0, 16, 2), 2) + chance.sample(range(1, 16, 2), 5)
    left = [sum(many[n] for card, (_, _, many) in enumerate(cards) if card not in whole) for n in range(len(PRODUCTS))]
    requests = [asks("even", 2, PFS[:1], "type-PF"), asks("odd", 5, PFS[1:], "type-PF")]
    for first in range(0, len(PRODUCTS), 2):
        # the second takes what the first product leaves as well
        of_two = min(left[first], 3)
        requests.append(asks(f"one{first}", left[first] - of_two, PRODUCTS[first : first + 1], "type-VF"))
        requests.append(asks(f"two{first}", left[first + 1] + of_two, PRODUCTS[first : first + 2], "type-VF"))
    requests = [request for request in requests if request.count]
    assert given_is_right(cards, requests, room_of(cards).offer(), CpuSet([0]))


def test_whole_cards_are_taken_near_the_guest_where_they_can_be() -> None:
    cards = [(product, 1 - cell, many) for cell, (product, _, many) in zip((0, 1) * 8, many_cards(16, 3), strict=True)]
    requests = [asks("whole", 4, PFS, "type-PF"), *(asks(name, 4, (name,), "type-VF") for name in PRODUCTS)]
    offer = room_of(cards).offer()
    answer = serve(needs(tuple(requests), offer), offer, CpuSet([1]))
    assert answer is not None
    near = {pf(number) for number, (_, cell, _) in enumerate(cards, 1) if cell == 1}
    assert {str(address) for address in answer[0].devices} <= near


def test_of_many_requests_alike_those_that_are_too_many_are_named_and_no_others() -> None:
    cards = [(PFS[0], 0, (6, 2)), (PFS[0], 0, (6, 2))]
    ports = [asks(f"port{n:02}", 1, ("1000",), "type-VF") for n in range(11)]
    others = [asks("whole", 1, PFS, "type-PF"), asks("other", 1, ("1001",), "type-VF")]
    offer = room_of(cards).offer()
    mixed = [*ports[:5], *others, *ports[5:]]
    (reason,) = unserved(needs(tuple(mixed), offer), offer)
    assert isinstance(reason, DevicesContended)
    assert (reason.requests, reason.asked) == (
        tuple(port.id for port in ports[4:5]) + ("whole",) + tuple(port.id for port in ports[5:]),
        (1,) * 8,
    )
    assert unserved(needs((*ports[:6], *others), offer), offer) == ()


def test_more_cards_than_can_be_decided_stop_the_search_which_says_so() -> None:
    cards = many_cards(40, 1)
    requests = tuple(just_enough(cards, 20, more=1))
    offer = room_of(cards).offer()
    with pytest.raises(ServingStopped) as stopped:
        serve(needs(requests, offer), offer, None)
    assert 0 < stopped.value.steps <= MOST_COLUMNS
    answer = fit(InstanceRequest(vcpus=1, memory_kib=1024, devices=requests), offer)
    assert isinstance(answer, NoFit)
    assert SearchStopped(steps=stopped.value.steps) in answer.reasons
