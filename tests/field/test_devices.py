"""Field cases of the kinds pci-lifecycle, pci-address-numa, pci-pf-vf and mdev.

What a case says of a claim is asserted as the devices that the claim would find free.
"""

from __future__ import annotations

from agent.core.pci import MediatedDevice, PciAddress
from agent.core.usage import DeviceUsage, Usage
from tests.builders import function, guest, h2x4, h8, uuid_of

VGPU = "0b5fd3fb-2389-4a22-ba70-52969a26b9d5"
PF, VF0, VF1 = "0000:3b:00.0", "0000:3b:02.0", "0000:3b:02.1"
CARD = (function(PF, "type-PF"), function(VF0, "type-VF", pf=PF), function(VF1, "type-VF", pf=PF))


def _rows(usage: Usage) -> dict[str, DeviceUsage]:
    return {str(row.address): row for row in usage.pci}


def _free(usage: Usage) -> list[str]:
    return [address for address, row in _rows(usage).items() if row.free]


def test_pci_device_gone_between_list_and_read() -> None:
    """RHBZ#1428692. A device that one look misses is not offered by that look, and is there again with the next."""
    missing, whole = h8(pci=CARD[:2]), h8(pci=CARD)
    assert _free(missing.usage()) == [PF, VF0]
    assert _free(whole.usage()) == [PF, VF0, VF1]


def test_pci_freed_device_not_in_filter() -> None:
    """LP#2115905. Claims: the first gets 5f:00.0, the second nothing."""
    two = (function("0000:5e:00.0"), function("0000:5f:00.0"))
    filtered = h8(pci=two, pci_filter=("0000:5f:00.0",))
    a = guest("a", mem=1024, dev=("0000:5e:00.0",))
    held = _rows(filtered.usage(a))["0000:5e:00.0"]
    assert [owner.name for owner in held.owners] == ["a"]
    assert held.remark is not None
    assert held.remark.startswith("not in the filter")
    assert _free(filtered.usage(a)) == ["0000:5f:00.0"]
    assert _free(filtered.usage()) == ["0000:5f:00.0"]


def test_pci_vfs_recreated() -> None:
    """lxc/incus#2845, as the fold sees the second look: the new VF at the old address has its host driver."""
    more = [function(f"0000:3b:02.{n}", "type-VF", pf=PF, driver="iavf") for n in range(4)]
    usage = h8(pci=(CARD[0], *more)).usage(guest("a", dev=(VF0,)))
    row = _rows(usage)[VF0]
    assert [owner.name for owner in row.owners] == ["a"]
    assert row.remark is not None
    assert row.remark.startswith("re-created")
    assert _free(usage) == [f"0000:3b:02.{n}" for n in (1, 2, 3)]
    assert [conflict.id for conflict in usage.conflicts] == [f"device-missing:pci:{VF0}"]


def test_pci_domain_above_ffff() -> None:
    """jaypipes/ghw#372. Claims: the next guest gets 10000:e1:00.0."""
    functions = [function(text) for text in ("10000:e1:00.0", "0000:e1:00.0", "5d0505:01:00.0")]
    wide = h8(pci=functions, pci_filter=("*:e1:00.0",))
    usage = wide.usage(guest("a", dev=("0000:e1:00.0",)))
    assert {address: len(row.owners) for address, row in _rows(usage).items()} == {
        "0000:e1:00.0": 1,
        "10000:e1:00.0": 0,
    }
    assert _free(usage) == ["10000:e1:00.0"]


def test_pci_numa_node_unknown() -> None:
    """k8snetworkplumbingwg/sriov-network-device-plugin#160. The policies are the claims'; the device names no cell."""
    usage = h2x4(pci=(function("0000:b1:00.0", numa=None),)).usage()
    assert [(row.cell, row.free) for row in usage.pci] == [(None, True)]


def test_pci_pf_blocked_by_vf() -> None:
    """LP#1567549."""
    card = h8(pci=CARD)
    both = guest("x", dev=(VF0, VF1))
    assert _free(card.usage(both)) == []
    assert _rows(card.usage(both))[PF].remark == f"2 of its virtual functions are held, {VF0} by x"
    assert PF in _free(card.usage())
    whole = card.usage(guest("z", dev=(PF,)))
    assert _free(whole) == []
    assert _rows(whole)[VF0].remark == f"its physical function {PF} is held by z"
    assert whole.conflicts == ()


def test_pci_two_requests_one_device() -> None:
    """LP#1986838 asks for two devices in one claim; what it would see is one free device."""
    assert _free(h8(pci=(function("0000:5e:00.0"),)).usage()) == ["0000:5e:00.0"]


def test_mdev_gone_after_host_reboot() -> None:
    """mdevctl/mdevctl#82. A mediated device that a defined guest names stays named though it does not exist."""
    card = h8(pci=(function("0000:65:00.0", mdev_types={"t4": 4}),))
    usage = card.usage(guest("a", state="shut-off", mem=1024, mdev=VGPU))
    (row,) = usage.mdevs
    assert (row.uuid, row.exists, [owner.name for owner in row.owners]) == (VGPU, False, ["a"])
    (only,) = usage.conflicts
    assert (only.id, only.severity) == (f"device-missing:mdev:{VGPU}", "warning")
    assert only.owners[0].uuid == uuid_of("a")


def test_mdev_hostdev_without_alias() -> None:
    """LP#2074219. USB and SCSI elements are left out where the definition is read; PCI and mediated ones are held."""
    parent = PciAddress.parse("0000:65:00.0")
    card = h8(
        pci=(function("0000:5e:00.0"), function("0000:65:00.0", mdev_types={"t4": 3})),
        mdevs=(MediatedDevice(uuid=VGPU, type="t4", parent=parent),),
    )
    usage = card.usage(guest("a", mem=1024, dev=("0000:5e:00.0",), mdev=VGPU))
    assert [owner.name for owner in _rows(usage)["0000:5e:00.0"].owners] == ["a"]
    assert [(row.exists, row.parent, len(row.owners)) for row in usage.mdevs] == [(True, parent, 1)]
    assert usage.conflicts == ()
    assert _free(usage) == []
