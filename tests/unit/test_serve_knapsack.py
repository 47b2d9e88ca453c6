"""Many cards of which some must be given as a whole, with just enough of every product left in the others."""

from __future__ import annotations

import itertools
import random

import msgspec
import pytest

from agent.core.host_config import DeviceSpec
from agent.core.pci_request import PciRequest, PciSpec
from tests.unit.serve_hosts import Room, asks, nic, pf, served

PRODUCTS = ("1000", "1001", "1002")
CARDS, WHOLE = 12, 5


def sizes(chance: random.Random) -> list[tuple[int, ...]]:
    """Virtual functions of each product on each card."""
    return [tuple(chance.randint(0, 4) for _ in PRODUCTS) for _ in range(CARDS)]


def room_of(cards: list[tuple[int, ...]]) -> Room:
    """All on cell 0."""
    devices = []
    for card, many in enumerate(cards, 1):
        whole, *parts = nic(card, 0, sum(many))
        products = [name for name, some in zip(PRODUCTS, many, strict=True) for _ in range(some)]
        devices += [
            whole,
            *(msgspec.structs.replace(one, product_id=p) for one, p in zip(parts, products, strict=True)),
        ]
    return Room(devices=tuple(devices), spec=tuple(DeviceSpec(product_id=name) for name in ("10fb", *PRODUCTS)))


def wanted(left: list[tuple[int, ...]]) -> list[PciRequest]:
    """Everything of these cards."""
    counts = [sum(many[n] for many in left) for n in range(len(PRODUCTS))]
    return [
        PciRequest(id=name, specs=(PciSpec(product_id=name, device_type="type-VF"),), count=count)
        for name, count in zip(PRODUCTS, counts, strict=True)
    ]


def is_possible(cards: list[tuple[int, ...]], whole: int, counts: list[int]) -> bool:
    """Some choice of whole cards leaves that many of each product."""
    return any(
        all(sum(many[n] for many in left) >= count for n, count in enumerate(counts))
        for left in itertools.combinations(cards, len(cards) - whole)
    )


@pytest.mark.parametrize("seed", range(12))
def test_just_enough_is_found_and_too_little_is_refused(seed: int) -> None:
    chance = random.Random(seed)
    cards = sizes(chance)
    taken = set(chance.sample(range(CARDS), WHOLE))
    requests = wanted([many for n, many in enumerate(cards) if n not in taken])
    room = room_of(cards).offer()
    for whole in (WHOLE, WHOLE + 1, WHOLE + 2):
        answer = served(room, asks("whole", "type-PF", whole), *requests)
        assert (answer is not None) == is_possible(cards, whole, [one.count for one in requests])
        if answer is not None:
            given = {one.request: {str(address) for address in one.devices} for one in answer}
            parts = set().union(*(given[name] for name in PRODUCTS))
            assert not {pf(int(address[5:7], 16)) for address in parts} & given["whole"]
