"""Why devices cannot be given, with the numbers and the names."""

from __future__ import annotations

from types import MappingProxyType

import msgspec

from agent.core.cpuset import CpuSet
from agent.core.fit.devices.serve import needs, too_far, unserved
from agent.core.host_config import DeviceSpec
from agent.core.pci_request import PciRequest, PciSpec
from agent.core.reasons import DevicesContended, DevicesFar, DevicesShort, NotOffered, Reason, SaidElse, SocketsUnknown
from tests.builders import function, uuid_of
from tests.unit.serve_hosts import Room, asks, nic, pf, vf


def short(room: Room, *requests: PciRequest) -> tuple[Reason, ...]:
    """Wherever the guest is."""
    has = room.offer()
    return unserved(needs(requests, has), has)


def far(room: Room, cells: tuple[int, ...], *requests: PciRequest) -> tuple[Reason, ...]:
    """From these host cells."""
    has = room.offer()
    return too_far(needs(requests, has), has, CpuSet(cells))


def test_what_is_short_is_told_with_the_guests_that_have_the_rest() -> None:
    room = Room(devices=(*nic(1, 0, 2), *nic(2, 1, 2)), taken=(vf(1, 1), pf(2)))
    (reason,) = short(room, asks("a", count=3))
    assert isinstance(reason, DevicesShort)
    assert (reason.request, reason.asked, reason.free, reason.offered) == ("a", 3, 1, 4)
    assert [owner.uuid for owner in reason.holders] == [uuid_of(f"has {vf(1, 1)}")]
    (kept,) = reason.kept_back
    assert [str(one) for one in (*kept.devices, *kept.by)] == [vf(2, 0), vf(2, 1), pf(2)]
    assert (kept.is_by_pf, [owner.name for owner in kept.owners]) == (True, [f"has {pf(2)}"])


def test_a_card_is_kept_back_by_those_of_its_parts_that_are_held() -> None:
    room = Room(devices=nic(1, 0, 3), taken=(vf(1, 0), vf(1, 2)))
    (reason,) = short(room, asks("a", "type-PF"))
    assert isinstance(reason, DevicesShort)
    assert (reason.free, reason.offered) == (0, 1)
    assert reason.holders == ()
    (kept,) = reason.kept_back
    assert [str(one) for one in (*kept.devices, *kept.by)] == [pf(1), vf(1, 0), vf(1, 2)]
    assert (kept.is_by_pf, [owner.name for owner in kept.owners]) == (False, [f"has {vf(1, 0)}", f"has {vf(1, 2)}"])


def instead(room: Room, request: PciRequest) -> NotOffered | None:
    """What there is where nothing is offered."""
    (reason,) = short(room, request)
    assert isinstance(reason, DevicesShort)
    assert (reason.offered, reason.specs) == (0, request.specs)
    return reason.instead


def test_devices_that_no_entry_names_are_counted_with_the_entry_that_would() -> None:
    room = Room(devices=nic(1, 0, 2), spec=())
    (parts,) = {(one.vendor_id, one.product_id) for one in room.devices[1:]}
    tags = MappingProxyType({"physical_network": "left"})
    entry = PciSpec(vendor_id=parts[0], product_id=parts[1], tags=tags)
    request = PciRequest(id="a", specs=(PciSpec(vendor_id=parts[0], device_type="type-VF", tags=tags),))
    assert instead(room, request) == NotOffered(unnamed=2, entries=(entry,))


def test_a_host_without_such_a_device_tells_a_few_others_of_the_vendor() -> None:
    cards = tuple(msgspec.structs.replace(function(pf(n)), vendor_id="10de", product_id=f"20b{n}") for n in range(1, 5))
    gpu = PciRequest(id="gpu", specs=(PciSpec(vendor_id="10de", product_id="20b6"),))
    for spec in (), (DeviceSpec(vendor_id="10de"),):
        found = instead(Room(devices=(*cards, *nic(9, 0, 0)), spec=spec), gpu)
        assert found == NotOffered(same_vendor=("10de:20b1", "10de:20b2", "10de:20b3"))
    assert instead(Room(devices=nic(9, 0, 0)), gpu) == NotOffered()


def test_devices_with_another_network_are_told_with_the_networks_that_they_have() -> None:
    specs = tuple(
        DeviceSpec(address=pf(n), tags=MappingProxyType({"physical_network": name}))
        for n, name in enumerate(("left", "right"), 1)
    )
    room = Room(devices=(*nic(1, 0, 2), *nic(2, 0, 1), *nic(3, 0, 1)), spec=specs)
    wish = PciSpec(tags=MappingProxyType({"physical_network": "up", "remote_managed": "false"}))
    said = SaidElse(name="physical_network", asked="up", found=("left", "right"))
    assert instead(room, PciRequest(id="p", specs=(wish,))) == NotOffered(named=3, differs=(said,))


def test_a_port_is_told_of_network_cards_alone_and_of_those_whose_class_nobody_knows() -> None:
    wish = PciSpec(tags=MappingProxyType({"physical_network": "up", "remote_managed": "false"}))
    parts = [
        function(vf(card, 0), "type-VF", pf=pf(card), class_code=code)
        for card, code in enumerate(("0200", "0000", "0302"), 1)
    ]
    room = Room(devices=(function(pf(4)), *parts), spec=())
    found = instead(room, PciRequest(id="p", specs=(wish,)))
    assert found is not None
    assert (found.unnamed, [one.product_id for one in found.entries]) == (2, ["10fb"])


def test_a_card_that_is_given_only_to_who_asks_for_its_type_is_told_so() -> None:
    card = PciRequest(id="a", specs=(PciSpec(vendor_id="8086", product_id="10fb"),))
    found = instead(Room(devices=(function(pf(1), "type-PF"),)), card)
    assert found == NotOffered(same_vendor=("8086:10fb (type-PF, which has to be asked for)",))


def test_an_entry_that_is_there_and_cannot_mean_the_device_is_not_told_to_be_added() -> None:
    room = Room(devices=nic(1, 0, 1), spec=(DeviceSpec(vendor_id="8086", one_time_use=True),))
    found = instead(room, asks("a"))
    assert found is not None
    assert (found.unnamed, found.flaw) == (
        0,
        "device_spec says one_time_use, which is for type-PCI and type-PF; this is type-VF",
    )


def test_a_card_that_would_do_as_a_whole_and_in_parts_counts_by_its_parts() -> None:
    both = PciRequest(id="a", specs=tuple(PciSpec(device_type=kind) for kind in ("type-PF", "type-VF")), count=4)
    room = Room(devices=(*nic(1, 0, 2), *nic(2, 0, 0)))
    assert short(room, both) == (DevicesShort(request="a", asked=4, free=3, offered=4, specs=both.specs),)


def test_of_requests_that_are_too_much_together_only_those_that_are_in_each_others_way_are_named() -> None:
    room = Room(devices=(*nic(1, 0, 2), function(pf(2))))
    assert short(room, asks("part"), asks("other", "type-PCI"), asks("whole", "type-PF")) == (
        DevicesContended(requests=("part", "whole"), asked=(1, 1), free=2, has_pfs=True),
    )
    assert short(room, asks("part"), asks("other", "type-PCI")) == ()


def test_requests_that_are_served_from_here_only_one_by_one_are_told_together() -> None:
    room = Room(devices=(*nic(1, 0, 2), *nic(2, 1, 2)))
    assert short(room, asks("part"), asks("whole", "type-PF")) == ()
    assert far(room, (0,), asks("part"), asks("whole", "type-PF")) == (
        DevicesContended(requests=("part", "whole"), asked=(1, 1), free=2, cells=CpuSet((0,)), has_pfs=True),
    )


def test_requests_for_more_devices_than_there_are_for_any_of_them_are_told_with_the_numbers() -> None:
    room = Room(devices=nic(1, 0, 2))
    assert short(room, asks("a", count=2), asks("b")) == (DevicesContended(requests=("a", "b"), asked=(2, 1), free=2),)


def test_what_is_too_far_is_told_with_what_is_free_in_each_cell() -> None:
    devices = tuple(function(pf(n), numa=cell) for n, cell in enumerate((0, 1, 1, None), 1))
    room = Room(devices=devices, taken=(pf(2),))
    expected = DevicesFar(
        request="a",
        policy="required",
        asked=2,
        cells=CpuSet((1,)),
        near=1,
        by_cell=MappingProxyType({0: 1, 1: 1}),
        elsewhere=1,
    )
    assert far(room, (1,), asks("a", "type-PCI", 2)) == (expected,)
    assert far(room, (1,), asks("a", "type-PCI", 2, "legacy")) == ()
    assert far(room, (0, 1), asks("a", "type-PCI", 2)) == ()


def test_near_by_policy_socket_is_all_of_the_socket() -> None:
    devices = tuple(function(pf(n), numa=cell) for n, cell in enumerate((0, 1, 2), 1))
    (reason,) = far(Room(devices=devices, sockets=(0, 0, 1)), (0,), asks("a", "type-PCI", 3, "socket"))
    assert isinstance(reason, DevicesFar)
    assert (reason.near, dict(reason.by_cell)) == (2, {0: 1, 1: 1, 2: 1})


def test_cells_without_a_known_socket_are_told_for_policy_socket() -> None:
    room = Room(devices=(function(pf(1), numa=0),), sockets=(0, None, 1))
    assert far(room, (1,), asks("a", "type-PCI", policy="socket")) == (SocketsUnknown(request="a", cells=CpuSet((1,))),)
    (reason,) = far(room, (2,), asks("a", "type-PCI", policy="socket"))
    assert isinstance(reason, DevicesFar)


def test_what_any_cell_will_do_for_is_never_too_far() -> None:
    room = Room(devices=(function(pf(1), numa=0),))
    assert far(room, (1,), asks("a", "type-PCI", policy="preferred")) == ()
