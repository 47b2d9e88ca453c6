"""Which devices a guest is given, rule by rule."""

from __future__ import annotations

from types import MappingProxyType

import msgspec
import pytest

from agent.core.fit.devices.serve import needs
from agent.core.host_config import DeviceSpec
from agent.core.pci import NetInterface, PciDevice
from agent.core.pci_request import PciNumaPolicy, PciRequest, PciSpec
from tests.builders import function
from tests.unit.serve_hosts import NOTHING, Room, asks, given, nic, pf, vf

GPU, OTHER = "0000:81:00.0", "0000:c1:00.0"


def loose(*cells: int | None) -> Room:
    """Plain functions, one for each of these cells, from bus 1 on; four cells on two sockets."""
    return Room(devices=tuple(function(pf(n), numa=cell) for n, cell in enumerate(cells, 1)), sockets=(0, 0, 1, 1))


@pytest.mark.parametrize(
    ("policy", "fits"), [("preferred", True), ("required", False), ("legacy", False), ("socket", False)]
)
def test_bug_1805891_a_guest_on_cell_1_has_a_physical_function_of_cell_0_only_by_policy_preferred(
    policy: PciNumaPolicy, fits: bool
) -> None:
    room = Room(devices=nic(0x3B, 0, 0), spec=(DeviceSpec(address=pf(0x3B)),))
    answer = given(room, asks("alias:nic", "type-PF", policy=policy), cells=(1,))
    assert answer == ({"alias:nic": [pf(0x3B)]} if fits else None)
    assert given(room, asks("alias:nic", "type-PF", policy=policy), cells=(0,)) == {"alias:nic": [pf(0x3B)]}


@pytest.mark.parametrize(
    ("policy", "allowed"),
    [("required", {2}), ("socket", {2, 3}), ("legacy", {2, None}), ("preferred", {0, 1, 2, 3, None})],
)
def test_a_policy_says_from_which_cells_a_guest_on_cell_2_may_have_devices(
    policy: PciNumaPolicy, allowed: set[int | None]
) -> None:
    for cell in (0, 1, 2, 3, None):
        answer = given(loose(cell), asks("a", "type-PCI", policy=policy), cells=(2,))
        assert (answer is not None) == (cell in allowed), cell


def test_a_policy_is_over_all_cells_of_the_guest() -> None:
    room = loose(0, 2)
    assert given(room, asks("a", "type-PCI", 2), cells=(0, 2)) == {"a": [pf(1), pf(2)]}
    assert given(room, asks("a", "type-PCI", 2), cells=(0, 1)) is None
    assert given(room, asks("a", "type-PCI", 2, "socket"), cells=(1, 3)) == {"a": [pf(1), pf(2)]}


@pytest.mark.parametrize("policy", ["required", "socket", "legacy", "preferred"])
def test_a_guest_without_cells_has_devices_from_anywhere(policy: PciNumaPolicy) -> None:
    assert given(loose(3), asks("a", "type-PCI", policy=policy), cells=None) == {"a": [pf(1)]}


@pytest.mark.parametrize("policy", ["required", "socket", "legacy", "preferred"])
@pytest.mark.parametrize("cell", [0, 1, None])
def test_nothing_is_far_where_one_cell_has_all_cpus(policy: PciNumaPolicy, cell: int | None) -> None:
    room = Room(devices=(function(GPU, numa=cell),), bare=(1,))
    (need,) = needs((asks("a", "type-PCI", policy=policy),), room.offer())
    assert (need.is_hard, dict(need.reach)) == (False, {0: 0b1, 1: 0b1, None: 0b1})
    assert given(room, asks("a", "type-PCI", policy=policy), near_only=True) == {"a": [GPU]}


def test_policy_socket_takes_the_cell_itself_where_its_socket_is_not_known() -> None:
    devices = tuple(function(pf(n + 1), numa=n) for n in (0, 1))
    room = Room(devices=devices, sockets=(None, None))
    assert given(room, asks("a", "type-PCI", policy="socket"), cells=(1,)) == {"a": [pf(2)]}
    assert given(room, asks("a", "type-PCI", 2, "socket"), cells=(1,)) is None


def test_near_devices_come_first_then_those_without_a_cell_then_the_nearest_of_the_others() -> None:
    room = loose(3, None, 0, 1)
    wanted = [asks("a", "type-PCI", count, "preferred") for count in (1, 2, 4)]
    assert [given(room, one, cells=(1,)) for one in wanted] == [
        {"a": [pf(4)]},
        {"a": [pf(2), pf(4)]},
        {"a": [pf(1), pf(2), pf(3), pf(4)]},
    ]


def test_a_request_that_must_have_the_near_device_leaves_the_far_one_to_the_other_whatever_its_place() -> None:
    room = loose(0, 1)
    strict, soft = asks("strict", "type-PCI"), asks("soft", "type-PCI", policy="preferred")
    expected = {"strict": [pf(1)], "soft": [pf(2)]}
    assert given(room, strict, soft) == expected
    assert given(room, soft, strict) == expected


@pytest.mark.parametrize("policy", ["preferred", "legacy"])
def test_when_only_near_devices_count_a_policy_that_could_do_with_others_is_as_required(policy: PciNumaPolicy) -> None:
    request = asks("a", "type-PCI", policy=policy)
    assert given(loose(None), request) == {"a": [pf(1)]}
    assert given(loose(None), request, near_only=True) is None
    assert given(loose(0), request, near_only=True) == {"a": [pf(1)]}


def test_a_count_is_reached_over_several_cards() -> None:
    room = Room(devices=(*nic(1, 0, 2), *nic(2, 0, 2)))
    assert given(room, asks("a", count=3)) == {"a": [vf(1, 0), vf(1, 1), vf(2, 0)]}
    assert given(room, asks("a", count=5)) is None


def test_virtual_functions_are_spread_over_the_cards_with_the_most_that_is_free() -> None:
    room = Room(devices=(*nic(1, 0, 2), *nic(2, 0, 4), *nic(3, 0, 3)))
    assert given(room, asks("a")) == {"a": [vf(2, 0)]}
    assert given(room, asks("a", count=4)) == {"a": [vf(1, 0), vf(2, 0), vf(2, 1), vf(3, 0)]}


def test_a_physical_function_is_given_where_the_fewest_virtual_ones_are_lost_with_it() -> None:
    room = Room(devices=(*nic(1, 0, 2), *nic(2, 0, 1), *nic(3, 0, 1)))
    assert given(room, asks("a", "type-PF")) == {"a": [pf(2)]}


def test_a_card_is_never_given_as_a_whole_and_in_part() -> None:
    whole, part = asks("whole", "type-PF"), asks("part")
    assert given(Room(devices=nic(1, 0, 2)), whole, part) is None
    two = Room(devices=(*nic(1, 0, 2), *nic(2, 0, 1)))
    assert given(two, part, whole) == {"whole": [pf(2)], "part": [vf(1, 0)]}
    assert given(two, whole, asks("part", count=2)) == {"whole": [pf(2)], "part": [vf(1, 0), vf(1, 1)]}
    assert given(two, whole, asks("part", count=3)) is None


def of_two_products(card: int, old: int, new: int) -> tuple[PciDevice, ...]:
    """A card with so many virtual functions of either product."""
    made = nic(card, 0, old + new)
    return (*made[: old + 1], *(msgspec.structs.replace(one, product_id="10ed") for one in made[old + 1 :]))


@pytest.mark.parametrize(
    ("old", "new", "whole"), [(3, 1, pf(2)), (1, 4, pf(1)), (4, 1, None), (3, 2, None), (2, 1, pf(2)), (1, 2, pf(1))]
)
def test_whole_cards_are_chosen_so_that_the_parts_that_are_left_are_enough_of_each_product(
    old: int, new: int, whole: str | None
) -> None:
    room = Room(
        devices=(*of_two_products(1, 3, 1), *of_two_products(2, 1, 4)),
        spec=tuple(DeviceSpec(product_id=name) for name in ("10fb", "10ed")),
    )
    wanted = (
        PciRequest(id=name, specs=(PciSpec(product_id=product, device_type="type-VF"),), count=count)
        for name, product, count in (("old", "10fb", old), ("new", "10ed", new))
    )
    answer = given(room, asks("whole", "type-PF"), *wanted)
    assert (answer and answer["whole"]) == (None if whole is None else [whole])


def test_a_virtual_function_that_is_not_offered_but_taken_keeps_its_physical_one_back() -> None:
    room = Room(devices=nic(1, 0, 2), spec=(DeviceSpec(product_id="10ed"),))
    devices = tuple(
        msgspec.structs.replace(one, product_id="10ed") if one.type == "type-PF" else one for one in room.devices
    )
    room = msgspec.structs.replace(room, devices=devices)
    assert given(room, asks("a", "type-PF")) == {"a": [pf(1)]}
    assert given(msgspec.structs.replace(room, taken=(vf(1, 1),)), asks("a", "type-PF")) is None


def test_a_taken_physical_function_keeps_its_virtual_ones_back_though_it_is_not_offered() -> None:
    room = Room(devices=nic(1, 0, 2), spec=(DeviceSpec(address="*:01:01.*"),))
    assert given(room, asks("a")) == {"a": [vf(1, 0)]}
    assert given(msgspec.structs.replace(room, taken=(pf(1),)), asks("a")) is None


def test_physical_functions_and_vdpa_devices_are_kept_back_before_cells_are_looked_at() -> None:
    room = Room(devices=(*nic(1, 0, 0), *nic(2, 0, 1, "vdpa"), *nic(3, 1, 1)))
    assert given(room, asks("a", None, policy="preferred")) == {"a": [vf(3, 0)]}
    assert given(room, asks("a", None)) is None
    assert given(room, asks("a", "vdpa")) == {"a": [vf(2, 0)]}
    assert given(room, asks("a", "type-PF")) == {"a": [pf(1)]}


def test_remotely_managed_functions_are_kept_back_and_need_a_serial_number() -> None:
    remote = MappingProxyType({"remote_managed": "true"})
    card = tuple(msgspec.structs.replace(one, product_id="10ed") for one in nic(1, 0, 1))
    room = Room(devices=card, spec=(DeviceSpec(product_id="10ed", tags=remote), DeviceSpec(vendor_id="none")))
    assert given(room, asks("a", tags=remote)) is None
    with_serial = tuple(msgspec.structs.replace(one, serial="X1") if one.type == "type-PF" else one for one in card)
    room = msgspec.structs.replace(room, devices=with_serial)
    assert given(room, asks("a", tags={"remote_managed": "True"})) == {"a": [vf(1, 0)]}
    assert given(room, asks("a")) is None
    assert given(room, asks("a", "type-PF", tags=remote)) is None


def test_a_virtual_function_cannot_be_for_one_use_and_the_next_entry_counts() -> None:
    once = DeviceSpec(vendor_id="8086", one_time_use=True, tags=MappingProxyType({"n": "1"}))
    room = Room(devices=(*nic(1, 0, 1), function(GPU)), spec=(once,))
    assert given(room, asks("a")) is None
    assert given(room, asks("a", "type-PCI")) == {"a": [GPU]}
    assert given(msgspec.structs.replace(room, spec=(once, DeviceSpec())), asks("a")) == {"a": [vf(1, 0)]}


@pytest.mark.parametrize(
    ("said", "asked", "fits"),
    [
        ({"physical_network": "PhysNet"}, {"physical_network": "physnet"}, True),
        ({"physical_network": "physnet"}, {"physical_network": "other"}, False),
        ({"physical_network": "physnet"}, {"physical_network": None}, False),
        ({"physical_network": "physnet"}, {}, True),
        ({"physical_network": None}, {"physical_network": None}, True),
        ({"physical_network": None}, {"physical_network": "physnet"}, False),
        ({}, {"physical_network": None}, True),
        ({}, {"physical_network": "physnet"}, False),
        ({"trusted": "true"}, {"trusted": "True"}, True),
        ({}, {"trusted": "false"}, False),
        ({}, {"remote_managed": "False"}, True),
        ({"remote_managed": "false"}, {"remote_managed": "False"}, True),
    ],
)
def test_tags_are_compared_as_nova_does(said: dict[str, str | None], asked: dict[str, str | None], fits: bool) -> None:
    room = Room(devices=nic(1, 0, 1), spec=(DeviceSpec(tags=MappingProxyType(said)),))
    assert (given(room, asks("a", tags=asked)) is not None) == fits


def test_a_plain_function_is_neither_managed_remotely_nor_not() -> None:
    room = Room(devices=(function(GPU),))
    assert given(room, asks("a", "type-PCI", tags={"remote_managed": "false"})) is None
    assert given(room, asks("a", "type-PCI", tags=NOTHING)) == {"a": [GPU]}


@pytest.mark.parametrize(
    ("said", "asked", "fits"),
    [
        (True, True, True),
        (False, True, False),
        (None, True, False),
        (True, False, False),
        (False, False, True),
        (None, False, False),
        (True, None, True),
        (None, None, True),
    ],
)
def test_live_migratable_is_asked_for_by_what_device_spec_says(
    said: bool | None, asked: bool | None, fits: bool
) -> None:
    room = Room(devices=(function(GPU),), spec=(DeviceSpec(live_migratable=said),))
    request = msgspec.structs.replace(asks("a", "type-PCI"), live_migratable=asked)
    assert (given(room, request) is not None) == fits


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        (PciSpec(vendor_id="8086", product_id="10fb"), True),
        (PciSpec(vendor_id="8086", product_id="10ed"), False),
        (PciSpec(vendor_id="15b3", product_id="10fb"), False),
        (PciSpec(resource_class="CUSTOM_GPU"), True),
        (PciSpec(resource_class="CUSTOM_PCI_8086_10FB"), False),
        (PciSpec(traits=("CUSTOM_BIG",)), True),
        (PciSpec(traits=("CUSTOM_BIG", "HW_PCI_LIVE_MIGRATABLE", "COMPUTE_MANAGED_PCI_DEVICE")), True),
        (PciSpec(traits=("CUSTOM_BIG", "CUSTOM_FAST")), False),
        (PciSpec(tags=MappingProxyType({"live_migratable": "true"})), True),
        (PciSpec(tags=MappingProxyType({"live_migratable": "false"})), False),
    ],
)
def test_all_that_a_kind_says_must_match(spec: PciSpec, fits: bool) -> None:
    offered = DeviceSpec(resource_class="CUSTOM_GPU", traits=("CUSTOM_BIG", "CUSTOM_RED"), live_migratable=True)
    room = Room(devices=(function(GPU),), spec=(offered,))
    assert (given(room, PciRequest(id="a", specs=(spec,))) is not None) == fits


def test_without_a_resource_class_a_device_has_the_one_of_its_ids() -> None:
    request = PciRequest(id="a", specs=(PciSpec(resource_class="CUSTOM_PCI_8086_10FB"),))
    assert given(Room(devices=(function(GPU),)), request) == {"a": [GPU]}


def test_any_of_several_kinds_will_do() -> None:
    other = msgspec.structs.replace(function(OTHER), product_id="10ed")
    kinds = tuple(PciSpec(product_id=name) for name in ("10ed", "10fb"))
    room = Room(devices=(function(GPU), other))
    assert given(room, PciRequest(id="a", specs=kinds, count=2)) == {"a": [GPU, OTHER]}
    assert given(room, PciRequest(id="a", specs=kinds[:1], count=2)) is None


def test_only_functions_of_the_physical_one_with_the_interface_will_do() -> None:
    ens1 = tuple(
        msgspec.structs.replace(one, parent_ifname="ens1")
        if one.parent
        else msgspec.structs.replace(one, netdevs=(NetInterface(name="ens1"),))
        for one in nic(2, 0, 1)
    )
    room = Room(devices=(*nic(1, 0, 3), *ens1))
    wanted = [msgspec.structs.replace(asks("a", kind), parent_ifname="ens1") for kind in ("type-VF", "type-PF")]
    assert [given(room, one) for one in wanted] == [{"a": [vf(2, 0)]}, {"a": [pf(2)]}]


def test_nothing_is_given_without_a_device_spec_and_nothing_is_asked_for_without_requests() -> None:
    room = Room(devices=nic(1, 0, 1), spec=())
    assert given(room, asks("a")) is None
    assert given(room) == {}


def test_a_need_says_where_its_devices_are() -> None:
    room = loose(0, 0, 2, 3, None)
    found = {
        policy: (need.is_hard, dict(need.reach))
        for policy in ("required", "socket", "legacy", "preferred")
        for need in needs((asks("a", "type-PCI", policy=policy),), room.offer())
    }
    assert found == {
        "required": (True, {0: 0b00011, 2: 0b00100, 3: 0b01000}),
        "socket": (True, {0: 0b00011, 1: 0b00011, 2: 0b01100, 3: 0b01100}),
        "legacy": (True, {0: 0b00011, 2: 0b00100, 3: 0b01000, None: 0b10000}),
        "preferred": (False, {0: 0b00011, 2: 0b00100, 3: 0b01000, None: 0b11111}),
    }


def test_entries_that_say_the_same_make_one_pool_of_a_card() -> None:
    card = nic(1, 0, 3)
    each = tuple(DeviceSpec(address=vf(1, n)) for n in range(3))
    other = DeviceSpec(address=vf(1, 2), tags=MappingProxyType({"physical_network": "a"}))
    assert [pool.devices for pool in Room(devices=card, spec=each).offer().facts.devices.pools] == [0b1110]
    devices = Room(devices=card, spec=(*each[:2], other)).offer().facts.devices
    assert ([pool.devices for pool in devices.pools], devices.alike) == ([0b0110, 0b1000], ((0,), (1,)))
