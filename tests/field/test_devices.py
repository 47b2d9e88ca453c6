"""Field cases of the kinds pci-lifecycle, pci-address-numa, pci-pf-vf and mdev.

What a case says of a claim is asserted as the devices that the claim would find free.
"""

from __future__ import annotations

from agent.core.pci import MediatedDevice, PciAddress
from agent.core.usage import DeviceUsage, Usage
from tests.builders import function, guest, h2x4, h8

VGPU = "0b5fd3fb-2389-4a22-ba70-52969a26b9d5"
PF, VF0, VF1 = "0000:3b:00.0", "0000:3b:02.0", "0000:3b:02.1"
CARD = (function(PF, "type-PF"), function(VF0, "type-VF", pf=PF), function(VF1, "type-VF", pf=PF))


def _rows(usage: Usage) -> dict[str, DeviceUsage]:
    return {str(row.address): row for row in usage.pci}


def _free(usage: Usage) -> list[str]:
    return [address for address, row in _rows(usage).items() if row.free]


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
    whole = card.folded(guest("z", dev=(PF,)))
    assert _free(whole.usage) == []
    assert _rows(whole.usage)[VF0].remark == f"its physical function {PF} is held by z"
    assert whole.conflicts == ()


def test_pci_two_requests_one_device() -> None:
    """LP#1986838 asks for two devices in one claim; what it would see is one free device."""
    assert _free(h8(pci=(function("0000:5e:00.0"),)).usage()) == ["0000:5e:00.0"]


def test_mdev_hostdev_without_alias() -> None:
    """LP#2074219. USB and SCSI elements are left out where the definition is read; PCI and mediated ones are held."""
    parent = PciAddress.parse("0000:65:00.0")
    card = h8(
        pci=(function("0000:5e:00.0"), function("0000:65:00.0", mdev_types={"t4": 3})),
        mdevs=(MediatedDevice(uuid=VGPU, type="t4", parent=parent),),
    )
    made = card.folded(guest("a", mem=1024, dev=("0000:5e:00.0",), mdev=VGPU))
    assert [owner.name for owner in _rows(made.usage)["0000:5e:00.0"].owners] == ["a"]
    assert [(row.exists, row.parent, len(row.owners)) for row in made.usage.mdevs] == [(True, parent, 1)]
    assert made.conflicts == ()
    assert _free(made.usage) == []
