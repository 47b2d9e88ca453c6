"""PCI functions, their interfaces, vDPA and mediated devices as sysfs shows them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from agent.adapters.sysfs import discover
from agent.adapters.sysfs.files import read_file
from agent.core.pci import MdevType, MediatedDevice, NetInterface, PciAddress, PciDevice
from tests.builders_sysfs import Mdev, MdevKind, Node, Pci, build_tree, remove, write

NODES = {0: Node(cpus="0-3", mem_mib=1024), 1: Node(cpus="4-7", mem_mib=1024)}
PF, VF, PLAIN = "0000:3b:00.0", "0000:3b:02.0", "0000:5e:00.0"
PCI = "sys/bus/pci/devices"
UUID = "0b5fd3fb-2389-4a22-ba70-52969a26b9d5"


def vpd(*keywords: tuple[bytes, bytes]) -> bytes:
    """Vital product data with an identifier string, and a read-only part of these keywords."""
    part = b"".join(name + bytes([len(value)]) + value for name, value in keywords)
    return b"\x82\x04\x00Card\x90" + len(part).to_bytes(2, "little") + part + b"\x78"


def addresses(root: Path) -> list[str]:
    return [str(device.address) for device in discover(root).pci]


def test_a_network_card_with_virtual_functions_is_told_in_full(tmp_path: Path) -> None:
    pci = [
        Pci(
            address=PF,
            numa=1,
            driver="ixgbe",
            totalvfs=63,
            iommu_group=41,
            net={"ens1f0": "3c:fd:fe:00:00:01"},
            vpd=vpd((b"PN", b"X-1"), (b"SN", b"MT2113X00000 ")),
        ),
        Pci(address=VF, numa=1, driver="vfio-pci", pf=PF, product="10ed", iommu_group=60),
    ]
    seen = discover(build_tree(tmp_path, nodes=NODES, pci=pci))
    assert seen.problems == ()
    assert seen.pci == (
        PciDevice(
            address=PciAddress.parse(PF),
            vendor_id="8086",
            product_id="10fb",
            class_code="0200",
            cell=1,
            type="type-PF",
            driver="ixgbe",
            iommu_group=41,
            sriov_totalvfs=63,
            sriov_numvfs=1,
            netdevs=(NetInterface(name="ens1f0", mac="3c:fd:fe:00:00:01"),),
            serial="MT2113X00000",
        ),
        PciDevice(
            address=PciAddress.parse(VF),
            vendor_id="8086",
            product_id="10ed",
            class_code="0200",
            cell=1,
            type="type-VF",
            parent=PciAddress.parse(PF),
            driver="vfio-pci",
            iommu_group=60,
            parent_ifname="ens1f0",
        ),
    )


def test_a_physical_function_without_virtual_ones_yet_is_one(tmp_path: Path) -> None:
    seen = discover(
        build_tree(tmp_path, nodes=NODES, pci=[Pci(address=PF, totalvfs=8), Pci(address=PLAIN, totalvfs=0)])
    )
    assert [(device.type, device.sriov_totalvfs, device.sriov_numvfs) for device in seen.pci] == [
        ("type-PF", 8, 0),
        ("type-PCI", None, None),
    ]


def test_an_old_kernel_shows_virtual_functions_by_links_alone(tmp_path: Path) -> None:
    root = build_tree(tmp_path, nodes=NODES, pci=[Pci(address=PF), Pci(address=VF, pf=PF)])
    remove(root, f"{PCI}/{PF}/sriov_totalvfs")
    remove(root, f"{PCI}/{PF}/sriov_numvfs")
    seen = discover(root)
    assert [(device.type, device.sriov_numvfs) for device in seen.pci] == [("type-PF", 1), ("type-VF", None)]


def test_a_virtual_function_with_a_vdpa_device_is_labelled_so(tmp_path: Path) -> None:
    pci = [Pci(address=PF, net={"p0": "3c:fd:fe:00:00:01"}), Pci(address=VF, pf=PF, vdpa=["vdpa0"])]
    seen = discover(build_tree(tmp_path, nodes=NODES, pci=pci))
    assert [(device.type, device.vdpa, device.parent_ifname) for device in seen.pci] == [
        ("type-PF", (), None),
        ("vdpa", ("vdpa0", "vhost-vdpa-0"), "p0"),
    ]


def test_the_uplink_is_the_parents_interface_not_a_representor(tmp_path: Path) -> None:
    net = {"eth0": "3c:fd:fe:00:00:02", "eth1": "3c:fd:fe:00:00:01"}
    root = build_tree(tmp_path, nodes=NODES, pci=[Pci(address=PF, net=net), Pci(address=VF, pf=PF)])
    write(root, f"{PCI}/{PF}/net/eth0/phys_port_name", "pf0vf0")
    write(root, f"{PCI}/{PF}/net/eth1/phys_port_name", "p0")
    seen = discover(root)
    assert [netdev.name for netdev in seen.pci[0].netdevs] == ["eth1", "eth0"]
    assert seen.pci[1].parent_ifname == "eth1"


def test_the_interface_of_a_virtio_card_is_found_one_folder_down(tmp_path: Path) -> None:
    root = build_tree(tmp_path, nodes=NODES, pci=[Pci(address=PLAIN)])
    write(root, f"{PCI}/{PLAIN}/virtio2/net/eth0/address", "52:54:00:00:00:01")
    assert discover(root).pci[0].netdevs == (NetInterface(name="eth0", mac="52:54:00:00:00:01"),)


def test_domains_wider_than_16_bits_are_kept(tmp_path: Path) -> None:
    wide = ["0000:e1:00.0", "10000:e1:00.0", "5d0505:01:00.0"]
    assert addresses(build_tree(tmp_path, nodes=NODES, pci=[Pci(address=address) for address in wide])) == wide


def test_an_address_that_cannot_be_read_is_left_out_with_one_row(tmp_path: Path) -> None:
    root = build_tree(tmp_path, nodes=NODES, pci=[Pci(address=PF), Pci(address="0000:3b:00.9")])
    seen = discover(root)
    assert [str(device.address) for device in seen.pci] == [PF]
    assert [problem.source for problem in seen.problems] == [f"{PCI}/0000:3b:00.9"]


def test_a_device_without_a_cell_is_in_none(tmp_path: Path) -> None:
    assert discover(build_tree(tmp_path, nodes=NODES, pci=[Pci(address=PF, numa=-1)])).pci[0].cell is None


def test_a_cell_that_the_host_does_not_have_is_told_with_both_values(tmp_path: Path) -> None:
    seen = discover(build_tree(tmp_path, nodes=NODES, pci=[Pci(address=PF, numa=7)]))
    assert seen.pci[0].cell is None
    assert [dict(problem.values) for problem in seen.problems] == [{"numa_node": "7", "cells": "0,1"}]


def test_a_devices_cell_number_beats_its_list_of_near_cpus(tmp_path: Path) -> None:
    root = build_tree(tmp_path, nodes=NODES, pci=[Pci(address=PF, numa=1), Pci(address=PLAIN, numa=0)])
    write(root, f"{PCI}/{PF}/local_cpulist", "0-7")
    write(root, f"{PCI}/{PLAIN}/local_cpulist", "0-3")
    seen = discover(root)
    assert [device.cell for device in seen.pci] == [1, 0]
    assert [dict(problem.values) for problem in seen.problems] == [
        {"numa_node": "1 (CPUs 4-7)", "local_cpulist": "0-7"}
    ]


def test_a_device_that_goes_away_while_it_is_read_costs_only_itself(tmp_path: Path) -> None:
    root = build_tree(tmp_path, nodes=NODES, pci=[Pci(address=PF), Pci(address=VF, pf=PF), Pci(address=PLAIN)])

    def read(path: str) -> bytes:
        if f"{VF}/" in path:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), path)
        return read_file(path)

    seen = discover(root, read=read)
    assert [str(device.address) for device in seen.pci] == [PF, PLAIN]
    assert [problem.source for problem in seen.problems] == [f"{PCI}/{VF}"]
    assert seen.is_partial
    assert addresses(root) == [PF, VF, PLAIN]


def test_ids_are_read_from_uevent_where_their_own_files_are_missing(tmp_path: Path) -> None:
    root = build_tree(tmp_path, nodes=NODES, pci=[Pci(address=PF)])
    for name in ("vendor", "device", "class"):
        remove(root, f"{PCI}/{PF}/{name}")
    write(root, f"{PCI}/{PF}/uevent", "DRIVER=ixgbe\nPCI_CLASS=20000\nPCI_ID=8086:10FB\nPCI_SLOT_NAME=0000:3b:00.0")
    device = discover(root).pci[0]
    assert (device.vendor_id, device.product_id, device.class_code) == ("8086", "10fb", "0200")


def test_types_and_devices_of_a_mediated_parent_are_told(tmp_path: Path) -> None:
    offer = MdevKind(available=4, name="GRID T4-1Q", device_api="vfio-pci")
    pci = [Pci(address="0000:65:00.0", class_code="030200", mdev_types={"nvidia-222": offer})]
    mdevs = [Mdev(uuid=UUID, type="nvidia-222", parent="0000:65:00.0")]
    seen = discover(build_tree(tmp_path, nodes=NODES, pci=pci, mdevs=mdevs))
    assert seen.pci[0].mdev_types == (MdevType(id="nvidia-222", name="GRID T4-1Q", device_api="vfio-pci", available=4),)
    parent = PciAddress.parse("0000:65:00.0")
    assert seen.mdevs == (MediatedDevice(uuid=UUID, type="nvidia-222", parent=parent),)


@pytest.mark.parametrize(
    ("data", "serial", "problems"),
    [
        (vpd((b"SN", b"A1")), "A1", 0),
        (vpd((b"PN", b"A1")), None, 0),
        (b"\x90\x05\x00SN\x02A1\x78", "A1", 0),
        (b"", None, 0),
        (b"\xff" * 64, None, 0),
        (b"\x00" * 64, None, 0),
        (b"\x82\x04\x00Card\x78", None, 0),
        (b"\x90\xff\x00SN\x02A1\x78", None, 1),
        (b"\x90\x05\x00SN\x09A1\x78", None, 1),
        (b"\x82\x04", None, 1),
        (b"\x12" * 64, None, 1),
    ],
)
def test_the_serial_of_a_card_is_read_from_its_vital_product_data(
    tmp_path: Path, data: bytes, serial: str | None, problems: int
) -> None:
    seen = discover(build_tree(tmp_path, nodes=NODES, pci=[Pci(address=PF, vpd=data)]))
    assert (seen.pci[0].serial, len(seen.problems)) == (serial, problems)


def test_cards_that_nobody_asks_a_serial_of_are_not_bothered(tmp_path: Path) -> None:
    disk = Pci(address=PF, class_code="010802", vpd=vpd((b"SN", b"A1")))
    assert discover(build_tree(tmp_path, nodes=NODES, pci=[disk])).pci[0].serial is None


def test_devices_that_change_are_seen_changed(tmp_path: Path) -> None:
    one = build_tree(tmp_path, nodes=NODES, pci=[Pci(address=PF, totalvfs=4), Pci(address=VF, pf=PF)])
    assert addresses(one) == [PF, VF]
    assert addresses(build_tree(tmp_path, nodes=NODES, pci=[Pci(address=PF, totalvfs=4)])) == [PF]
