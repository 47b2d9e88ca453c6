"""Devices that guests hold or could have."""

from __future__ import annotations

from types import MappingProxyType

import msgspec
import pytest

from agent.core.conflicts import Conflict
from agent.core.guest import DomainState, GuestDevice, Sighting
from agent.core.host_config import DeviceSpec
from agent.core.pci import MediatedDevice, NetInterface, PciAddress
from agent.core.usage import DeviceUsage, Usage
from tests.builders import configured, function, guest, h8

PF, VF0, VF1 = "0000:3b:00.0", "0000:3b:02.0", "0000:3b:02.1"
CARD = (function(PF, "type-PF"), function(VF0, "type-VF", pf=PF), function(VF1, "type-VF", pf=PF))
NIC, GPU = "0000:5e:00.0", "0000:65:00.0"
VGPU = "0b5fd3fb-2389-4a22-ba70-52969a26b9d5"


def _rows(usage: Usage) -> dict[str, DeviceUsage]:
    return {str(row.address): row for row in usage.pci}


def _with(seen: Sighting, device: GuestDevice) -> Sighting:
    assert seen.domain is not None
    return msgspec.structs.replace(seen, domain=msgspec.structs.replace(seen.domain, devices=(device,)))


def _only(conflicts: tuple[Conflict, ...]) -> Conflict:
    (row,) = conflicts
    return row


def test_without_a_filter_all_functions_but_bridges_are_rows() -> None:
    bridge = function("0000:00:1c.0", class_code="0604")
    assert list(_rows(h8(pci=(bridge, *CARD)).usage())) == [PF, VF0, VF1]


def test_with_a_filter_only_its_devices_and_held_ones_are_rows() -> None:
    on = h8(pci=(*CARD, function(NIC)), pci_filter=(VF1,))
    usage = on.usage(guest("a", dev=(NIC,)))
    assert {address: (row.offered, row.free) for address, row in _rows(usage).items()} == {
        VF1: (True, True),
        NIC: (False, False),
    }


def test_a_row_says_what_the_device_is_and_who_has_it() -> None:
    a = guest("a", dev=(NIC,))
    (row,) = h8(pci=(function(NIC, numa=0, driver="vfio-pci"),)).usage(a).pci
    assert row == DeviceUsage(
        address=PciAddress.parse(NIC),
        type="type-PCI",
        vendor_id="8086",
        product_id="10fb",
        cell=0,
        offered=True,
        free=False,
        owners=row.owners,
    )
    assert [owner.uuid for owner in row.owners] == [a.uuid]


def test_a_device_of_two_running_guests_is_an_error_and_of_one_that_is_off_only_info() -> None:
    on = h8(pci=(function(NIC, driver="vfio-pci"),))
    both = _only(on.conflicts(guest("a", dev=(NIC,)), guest("b", dev=(NIC,), state="paused")))
    assert (both.id, both.severity, both.resource.cell) == (f"device-twice:pci:{NIC}", "error", 0)
    off = _only(on.conflicts(guest("a", dev=(NIC,)), guest("b", dev=(NIC,), state="shut-off")))
    assert (off.id, off.severity) == (f"device-twice:pci:{NIC}", "info")
    assert off.owners == both.owners
    assert both.action.startswith("Find out which of the running guests has it")
    assert off.action.startswith("Give one of them another device")


def test_a_device_that_the_host_lacks_is_missing_for_whoever_names_it() -> None:
    on = h8(pci=CARD)
    running = on.folded(guest("a", dev=(NIC,)))
    assert (_only(running.conflicts).id, _only(running.conflicts).severity) == (f"device-missing:pci:{NIC}", "error")
    assert _rows(running.usage)[NIC].remark == "not on this host (any more)"
    assert not _rows(running.usage)[NIC].free
    assert _only(on.conflicts(guest("a", dev=(NIC,), state="shut-off"))).severity == "warning"


def test_on_a_host_whose_devices_could_not_be_read_none_is_called_missing() -> None:
    made = h8().folded(guest("a", dev=(NIC,)))
    assert made.conflicts == ()
    assert list(_rows(made.usage)) == [NIC]


@pytest.mark.parametrize("driver", ["vfio-pci", "mlx5_vfio_pci", None])
def test_a_held_device_with_a_vfio_driver_or_none_is_well(driver: str | None) -> None:
    made = h8(pci=(function(NIC, driver=driver),)).folded(guest("a", dev=(NIC,)))
    assert (made.conflicts, _rows(made.usage)[NIC].remark) == ((), None)


def test_a_held_device_that_a_host_driver_has_again_is_lost_to_a_running_guest_only() -> None:
    on = h8(pci=(function(NIC, driver="ixgbe"),))
    lost = on.folded(guest("a", dev=(NIC,)))
    assert _only(lost.conflicts).id == f"device-missing:pci:{NIC}"
    assert "host driver ixgbe has it again" in _only(lost.conflicts).cause
    assert on.conflicts(guest("a", dev=(NIC,), state="shut-off")) == ()


def test_vdpa_and_macvtap_leave_the_function_to_the_hosts_driver() -> None:
    vdpa = msgspec.structs.replace(function(VF0, "vdpa", driver="mlx5_core"), vdpa=("vhost-vdpa-0",))
    net = msgspec.structs.replace(function(VF1, "type-VF", driver="iavf"), netdevs=(NetInterface(name="ens1v1"),))
    made = h8(pci=(vdpa, net)).folded(
        _with(guest("a"), GuestDevice(kind="vdpa", source="interface", vdpa="/dev/vhost-vdpa-0")),
        _with(guest("b"), GuestDevice(kind="netdev", source="interface", netdev="ens1v1")),
    )
    assert made.conflicts == ()
    assert {address: [owner.name for owner in row.owners] for address, row in _rows(made.usage).items()} == {
        VF0: ["a"],
        VF1: ["b"],
    }


def test_macvtap_on_a_physical_function_leaves_its_virtual_ones_free() -> None:
    card = msgspec.structs.replace(CARD[0], netdevs=(NetInterface(name="ens1"),))
    tapped = _with(guest("a"), GuestDevice(kind="netdev", source="interface", netdev="ens1"))
    made = h8(pci=(card, *CARD[1:])).folded(tapped, guest("v", dev=(VF0,)))
    assert made.conflicts == ()
    assert {address: row.free for address, row in _rows(made.usage).items()} == {PF: False, VF0: False, VF1: True}


def test_a_physical_function_and_its_virtual_one_cannot_both_be_had() -> None:
    on = h8(pci=CARD)
    row = _only(on.conflicts(guest("p", dev=(PF,)), guest("v", dev=(VF0,)), guest("w", dev=(VF1,))))
    assert (row.id, row.severity) == (f"pf-and-vf:pci:{PF}", "error")
    assert {owner.name for owner in row.owners} == {"p", "v", "w"}
    off = _only(on.conflicts(guest("p", dev=(PF,), state="shut-off"), guest("v", dev=(VF0,))))
    assert off.severity == "info"


def test_a_guest_with_several_functions_of_a_card_is_named_once() -> None:
    row = _only(h8(pci=CARD).conflicts(guest("p", dev=(PF,)), guest("v", dev=(VF0, VF1))))
    assert row.cause == f"Physical function {PF} is held by p, and its virtual function {VF0} and 1 more by v"


def test_what_is_said_of_devices_agrees_with_how_many_there_are() -> None:
    on = h8(pci=CARD)
    remarks = [_rows(on.usage(guest("v", dev=held)))[PF].remark for held in ((VF0,), (VF0, VF1))]
    assert remarks == [
        f"1 of its virtual functions is held, {VF0} by v",
        f"2 of its virtual functions are held, {VF0} by v",
    ]
    states: tuple[DomainState, ...] = ("running", "shut-off")
    one, one_off = (_only(on.conflicts(guest("a", dev=(NIC,), state=state))).action for state in states)
    two, two_off = (
        next(row.action for row in rows if row.kind == "device-missing")
        for rows in (on.conflicts(*(guest(name, dev=(NIC,), state=state) for name in "ab")) for state in states)
    )
    assert one == "Detach it from a and attach it anew; left alone the guest works without it"
    assert two == "Detach it from a and b and attach it anew; left alone the guests work without it"
    assert one_off.endswith("the definition before the guest is started; left alone it does not start")
    assert two_off.endswith("the definitions before the guests are started; left alone they do not start")


def test_one_held_virtual_function_blocks_the_physical_one_and_no_sibling() -> None:
    usage = h8(pci=CARD).usage(guest("v", dev=(VF0,)))
    assert {address: row.free for address, row in _rows(usage).items()} == {PF: False, VF0: False, VF1: True}


def test_a_function_with_a_held_mediated_device_cannot_be_had_as_a_whole() -> None:
    mdevs = (MediatedDevice(uuid=VGPU.upper(), type="t4", parent=PciAddress.parse(GPU)),)
    on = h8(pci=(function(GPU),), mdevs=mdevs)
    usage = on.usage(guest("a", mdev=VGPU))
    assert _rows(usage)[GPU].remark == "a mediated device of it is held by a"
    assert not _rows(usage)[GPU].free
    assert [(row.uuid, row.exists, row.type) for row in usage.mdevs] == [(VGPU, True, "t4")]
    assert _rows(on.usage())[GPU].free


def test_a_mediated_device_of_two_guests_is_named_by_its_uuid() -> None:
    mdevs = (MediatedDevice(uuid=VGPU, parent=PciAddress.parse(GPU)),)
    row = _only(h8(pci=(function(GPU),), mdevs=mdevs).conflicts(guest("a", mdev=VGPU), guest("b", mdev=VGPU)))
    assert (row.id, row.severity) == (f"device-twice:mdev:{VGPU}", "error")


def test_a_missing_mediated_device_is_an_error_for_a_running_guest() -> None:
    row = _only(h8().conflicts(guest("a", mdev=VGPU)))
    assert (row.id, row.severity) == (f"device-missing:mdev:{VGPU}", "error")
    assert f"mediated device {VGPU} does not exist" in row.cause


def test_a_device_that_an_entry_names_but_cannot_mean_is_a_row_that_says_why() -> None:
    remote = DeviceSpec(vendor_id="8086", tags=MappingProxyType({"remote_managed": "true"}))
    made = configured(h8(pci=(*CARD, function(NIC))), device_spec=(remote,))
    rows = _rows(made.usage())
    assert {address: (row.offered, row.free) for address, row in rows.items()} == dict.fromkeys(
        (PF, VF0, VF1, NIC), (False, False)
    )
    assert rows[PF].remark == "not offered: device_spec says remote_managed, which a physical function cannot be"
    assert rows[VF0].remark == (
        "not offered: device_spec says remote_managed, which takes a card that tells its serial number"
    )


def test_the_serial_number_of_the_card_is_that_of_its_virtual_functions() -> None:
    remote = DeviceSpec(vendor_id="8086", tags=MappingProxyType({"remote_managed": "true"}))
    card = (msgspec.structs.replace(CARD[0], serial="X1"), *CARD[1:])
    rows = _rows(configured(h8(pci=card), device_spec=(remote,)).usage())
    assert {address: row.free for address, row in rows.items()} == {PF: False, VF0: True, VF1: True}


def test_a_virtual_function_is_not_for_one_use() -> None:
    once = DeviceSpec(vendor_id="8086", one_time_use=True)
    rows = _rows(configured(h8(pci=(*CARD[1:], function(NIC))), device_spec=(once,)).usage())
    assert {address: row.free for address, row in rows.items()} == {VF0: False, VF1: False, NIC: True}
    assert rows[VF0].remark == (
        "not offered: device_spec says one_time_use, which is for type-PCI and type-PF; this is type-VF"
    )
