"""libvirt's node devices, what they add to sysfs, and one row for each fact by which they differ from it."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.pci import MdevType, MediatedDevice, NetInterface, PciAddress, PciDevice
from agent.core.topology import EMPTY, HostTopology
from agent.core.values import Problem
from agent.errors import FormatError
from agent.formats.host_xml import NodeDevice, complete_devices, device_disagreements, read_node_device

NODE_DEVICES = Path(__file__).parent.parent / "data" / "nodedevs"
CAPTURED = sorted(path.stem for path in NODE_DEVICES.glob("*.xml"))
address = PciAddress.parse


def captured(name: str) -> str:
    """The XML of a node device of an emulated machine, as libvirt gave it there."""
    return (NODE_DEVICES / f"{name}.xml").read_text(encoding="utf-8")


def test_a_physical_function_names_its_virtual_ones() -> None:
    assert read_node_device(captured("pci_0000_51_00_0")) == NodeDevice(
        name="pci_0000_51_00_0",
        kind="pci",
        parent="pci_0000_50_00_0",
        parent_address=address("0000:50:00.0"),
        driver="nvme",
        address=address("0000:51:00.0"),
        vendor_id="1b36",
        product_id="0010",
        class_code="0108",
        cell=1,
        iommu_group=16,
        virtual_functions=(address("0000:51:00.1"), address("0000:51:00.2")),
        max_virtual_functions=4,
    )


def test_a_virtual_function_names_its_physical_one() -> None:
    assert read_node_device(captured("pci_0000_51_00_1")) == NodeDevice(
        name="pci_0000_51_00_1",
        kind="pci",
        parent="pci_0000_50_00_0",
        parent_address=address("0000:50:00.0"),
        address=address("0000:51:00.1"),
        vendor_id="1b36",
        product_id="0010",
        class_code="0108",
        cell=1,
        iommu_group=19,
        physical_function=address("0000:51:00.0"),
    )


def test_a_function_in_no_cell_is_read() -> None:
    assert read_node_device(captured("pci_0000_00_10_0")) == NodeDevice(
        name="pci_0000_00_10_0",
        kind="pci",
        parent="computer",
        driver="virtio-pci",
        address=address("0000:00:10.0"),
        vendor_id="1af4",
        product_id="1003",
        class_code="0780",
        iommu_group=6,
    )


def test_a_network_interface_names_its_mac() -> None:
    assert read_node_device(captured("net_eth0_12_25_d3_32_00_81")) == NodeDevice(
        name="net_eth0_12_25_d3_32_00_81",
        kind="net",
        parent="computer",
        interface=NetInterface(name="eth0", mac="12:25:d3:32:00:81"),
    )


def pci_xml(inner: str = "", *, domain: int = 0) -> str:
    return (
        f"<device><name>pci_{domain:04x}_3b_00_0</name><parent>pci_10000_00_1f_7</parent><capability type='pci'>"
        f"<class>0x020000</class><domain>{domain}</domain><bus>59</bus><slot>0</slot><function>0</function>"
        f"<product id='0x101d'>Card</product><vendor id='0x15b3'/>{inner}</capability></device>"
    )


def card(**fields: Any) -> NodeDevice:
    """What `pci_xml()` is read as, with other `fields`."""
    plain: dict[str, Any] = {
        "name": "pci_0000_3b_00_0",
        "kind": "pci",
        "parent": "pci_10000_00_1f_7",
        "parent_address": address("10000:00:1f.7"),
        "address": address("0000:3b:00.0"),
        "vendor_id": "15b3",
        "product_id": "101d",
        "class_code": "0200",
    }
    return NodeDevice(**(plain | fields))


def test_the_serial_number_of_a_card_comes_from_its_read_only_vital_product_data() -> None:
    vital = (
        "<capability type='vpd'><name>ConnectX</name><fields access='readonly'><part_number>MCX623106AN</part_number>"
        "<serial_number>MT2113X00000</serial_number><vendor_field index='0'>PCIe</vendor_field></fields>"
        "<fields access='readwrite'><asset_tag>7</asset_tag></fields></capability>"
    )
    assert read_node_device(pci_xml(vital)) == card(serial="MT2113X00000")


def test_a_function_in_a_domain_wider_than_16_bits_is_read() -> None:
    wide = read_node_device(pci_xml(domain=0x10000))
    assert wide == card(name="pci_10000_3b_00_0", address=address("10000:3b:00.0"))


def test_the_mdev_types_of_a_parent_are_read_in_order() -> None:
    types = (
        "<capability type='mdev_types'><type id='nvidia-36'><name>GRID M60-0Q</name><deviceAPI>vfio-pci</deviceAPI>"
        "<availableInstances>16</availableInstances></type>"
        "<type id='nvidia-11'><deviceAPI>vfio-pci</deviceAPI><availableInstances>0</availableInstances></type>"
        "</capability>"
    )
    assert read_node_device(pci_xml(types)) == card(
        mdev_types=(
            MdevType(id="nvidia-11", device_api="vfio-pci"),
            MdevType(id="nvidia-36", name="GRID M60-0Q", device_api="vfio-pci", available=16),
        )
    )


MDEV_UUID = "c2177883-f1bb-47f0-914d-32a22e3a8804"


@pytest.mark.parametrize("uuid", [f"<uuid>{MDEV_UUID}</uuid>", ""], ids=["in an element", "in the name alone"])
def test_a_mediated_device_is_read_from_old_and_new_libvirt(uuid: str) -> None:
    xml = (
        "<device><name>mdev_c2177883_f1bb_47f0_914d_32a22e3a8804_0000_3b_00_0</name><parent>pci_0000_3b_00_0</parent>"
        f"<driver><name>vfio_mdev</name></driver><capability type='mdev'><type id='nvidia-36'/>{uuid}"
        "<iommuGroup number='12'/></capability></device>"
    )
    assert read_node_device(xml) == NodeDevice(
        name="mdev_c2177883_f1bb_47f0_914d_32a22e3a8804_0000_3b_00_0",
        kind="mdev",
        parent="pci_0000_3b_00_0",
        parent_address=address("0000:3b:00.0"),
        driver="vfio_mdev",
        iommu_group=12,
        mdev_uuid=MDEV_UUID,
        mdev_type="nvidia-36",
    )


def test_a_vdpa_device_names_its_path() -> None:
    xml = (
        "<device><name>vdpa_vdpa0</name><parent>pci_0000_3b_00_2</parent><driver><name>vhost_vdpa</name></driver>"
        "<capability type='vdpa'><chardev>/dev/vhost-vdpa-0</chardev></capability></device>"
    )
    assert read_node_device(xml) == NodeDevice(
        name="vdpa_vdpa0",
        kind="vdpa",
        parent="pci_0000_3b_00_2",
        parent_address=address("0000:3b:00.2"),
        driver="vhost_vdpa",
        vdpa="/dev/vhost-vdpa-0",
    )


def test_a_device_of_another_kind_is_named_and_nothing_else_of_it_read() -> None:
    xml = "<device><name>block_vda</name><parent>computer</parent><capability type='storage'/></device>"
    assert read_node_device(xml) == NodeDevice(name="block_vda", kind="storage", parent="computer")


def test_a_bad_field_costs_only_itself() -> None:
    inner = "<capability type='phys_function'/><numa node='x'/><capability type='mdev_types'><type/></capability>"
    xml = pci_xml(inner).replace("<bus>59", "<bus>300").replace("0x15b3", "Mellanox").replace("0x020000", "0x1234567")
    assert read_node_device(xml) == card(
        address=None,
        vendor_id=None,
        class_code=None,
        problems=(
            "address is 'domain=0 bus=300 slot=0 function=0', not a PCI address",
            "vendor is 'Mellanox', not a hexadecimal number of up to 4 digits",
            "class is '0x1234567', not a hexadecimal number of up to 6 digits",
            "numa node is 'x', not a number",
            "phys_function address is missing",
            "a type of mdev_types names no id",
        ),
    )


@pytest.mark.parametrize("xml", ["", "<device/>", "<domain><name>a</name></domain>", "<device><name>a</name>"])
def test_a_text_that_is_no_device_is_refused(xml: str) -> None:
    with pytest.raises(FormatError, match="node device"):
        read_node_device(xml)


EDIT = st.tuples(st.integers(min_value=0), st.integers(min_value=0, max_value=30), st.text(max_size=15))


@given(st.sampled_from(CAPTURED), st.lists(EDIT, min_size=1, max_size=4))
def test_any_edit_of_a_device_is_read_or_refused(name: str, edits: list[tuple[int, int, str]]) -> None:
    text = captured(name)
    for start, length, replacement in edits:
        position = start % len(text)
        text = text[:position] + replacement + text[position + length :]
    try:
        read = read_node_device(text)
    except FormatError:
        return
    assert complete_devices(EMPTY, (read,)) == EMPTY


def ours(**fields: Any) -> PciDevice:
    """The card of `pci_xml()` as sysfs shows it, with other `fields`."""
    plain: dict[str, Any] = {
        "address": address("0000:3b:00.0"),
        "vendor_id": "15b3",
        "product_id": "101d",
        "class_code": "0200",
        "cell": 1,
        "driver": "mlx5_core",
        "iommu_group": 5,
    }
    return PciDevice(**(plain | fields))


def host(*devices: PciDevice, mdevs: tuple[MediatedDevice, ...] = ()) -> HostTopology:
    return HostTopology(cells=(), cpus=(), pci=devices, mdevs=mdevs)


def row(what: str, sysfs: str, libvirt: str) -> Problem:
    return Problem(
        source="libvirt node devices",
        what=what,
        values=MappingProxyType({"sysfs": sysfs, "libvirt": libvirt}),
    )


def test_devices_on_which_both_agree_have_no_row() -> None:
    agreed = card(cell=1, driver="mlx5_core", iommu_group=5, serial="MT1")
    assert device_disagreements(host(ours(serial="MT1")), (agreed,)) == ()


def test_what_only_one_side_says_of_a_device_is_no_row() -> None:
    assert device_disagreements(host(ours()), (card(serial="MT1"),)) == ()
    assert device_disagreements(host(ours(cell=None, driver=None)), (card(cell=1, driver="vfio-pci"),)) == ()


def test_a_host_whose_devices_libvirt_does_not_list_at_all_has_no_row() -> None:
    assert device_disagreements(host(ours()), ()) == ()


@pytest.mark.parametrize(
    ("fields", "what", "sysfs", "libvirt"),
    [
        ({"vendor_id": "8086"}, "vendor", "15b3", "8086"),
        ({"product_id": "0000"}, "product", "101d", "0000"),
        ({"class_code": "0207"}, "class", "0200", "0207"),
        ({"cell": 0}, "cell", "1", "0"),
        ({"driver": "vfio-pci"}, "driver", "mlx5_core", "vfio-pci"),
        ({"iommu_group": 6}, "IOMMU group", "5", "6"),
        ({"serial": "MT2"}, "serial number", "MT1", "MT2"),
    ],
)
def test_a_fact_that_differs_is_one_row_and_the_word_of_sysfs_stays(
    fields: dict[str, Any], what: str, sysfs: str, libvirt: str
) -> None:
    topology = host(ours(serial="MT1"))
    told = row(f"libvirt names another {what} of 1 PCI function", f"0000:3b:00.0: {sysfs}", f"0000:3b:00.0: {libvirt}")
    assert device_disagreements(topology, (card(**fields),)) == (told,)
    assert complete_devices(topology, (card(**fields),)) == topology


def test_many_functions_that_differ_alike_are_one_row_that_shows_the_first() -> None:
    shown = [ours(address=PciAddress(0, 0x3B, slot, 0)) for slot in range(20)]
    said = [card(address=device.address, driver="vfio-pci") for device in shown]
    (told,) = device_disagreements(host(*shown), said)
    assert told.what == "libvirt names another driver of 20 PCI functions"
    assert told.values["libvirt"].startswith("0000:3b:00.0: vfio-pci; ")
    assert told.values["libvirt"].endswith("0000:3b:0f.0: vfio-pci; 4 more")


def test_functions_that_one_side_alone_shows_are_named() -> None:
    gone = ours(address=address("0000:3b:00.7"))
    come = card(address=address("0000:5e:00.0"))
    assert device_disagreements(host(ours(), gone), (card(), come)) == (
        row("libvirt does not list 1 PCI function that sysfs shows", "0000:3b:00.7", "-"),
        row("libvirt lists 1 PCI function that sysfs does not show", "-", "0000:5e:00.0"),
    )


def test_other_virtual_functions_of_a_physical_one_are_named() -> None:
    physical = ours(type="type-PF", sriov_totalvfs=8, sriov_numvfs=1)
    virtual = ours(address=address("0000:3b:00.1"), type="type-VF", parent=physical.address)
    said = (
        card(virtual_functions=(address("0000:3b:00.1"), address("0000:3b:00.2")), max_virtual_functions=4),
        card(address=virtual.address, physical_function=address("0000:5e:00.0")),
    )
    assert device_disagreements(host(physical, virtual), said) == (
        row(
            "libvirt names another physical function of 1 PCI function",
            "0000:3b:00.1: 0000:3b:00.0",
            "0000:3b:00.1: 0000:5e:00.0",
        ),
        row("libvirt names another number of possible VFs of 1 PCI function", "0000:3b:00.0: 8", "0000:3b:00.0: 4"),
        row(
            "libvirt names other virtual functions of 1 physical function",
            "0000:3b:00.0: 0000:3b:00.1",
            "0000:3b:00.0: 0000:3b:00.1 0000:3b:00.2",
        ),
    )


def test_another_network_interface_of_a_function_is_named() -> None:
    device = ours(netdevs=(NetInterface(name="ens1", mac="52:54:00:00:00:01"),))
    said = NodeDevice(
        name="net_ens1_52_54_00_00_00_02",
        kind="net",
        parent_address=device.address,
        interface=NetInterface(name="ens1", mac="52:54:00:00:00:02"),
    )
    assert device_disagreements(host(device), (card(), said)) == (
        row(
            "libvirt names another network interface of 1 PCI function",
            "0000:3b:00.0: ens1 52:54:00:00:00:01",
            "0000:3b:00.0: ens1 52:54:00:00:00:02",
        ),
    )


def test_a_mediated_device_of_another_type_is_named_and_one_that_is_not_started_is_not() -> None:
    shown = MediatedDevice(uuid=MDEV_UUID, type="nvidia-36", parent=address("0000:3b:00.0"))
    said = NodeDevice(name="mdev_a", kind="mdev", mdev_uuid=MDEV_UUID, mdev_type="nvidia-11")
    stopped = NodeDevice(name="mdev_b", kind="mdev", mdev_uuid="11111111-2222-3333-4444-555555555555")
    assert device_disagreements(host(mdevs=(shown,)), (said, stopped)) == (
        row(
            "libvirt names another type or parent of 1 mediated device",
            f"{MDEV_UUID}: nvidia-36 on 0000:3b:00.0",
            f"{MDEV_UUID}: nvidia-11 on 0000:3b:00.0",
        ),
    )


def test_a_field_that_could_not_be_read_is_a_row_that_names_the_device() -> None:
    assert device_disagreements(host(ours()), (card(problems=("numa node is 'x', not a number",)),)) == (
        Problem(
            source="libvirt node devices",
            what="could not be read: pci_0000_3b_00_0: numa node is 'x', not a number",
        ),
    )


def test_serial_numbers_that_sysfs_shows_to_root_alone_are_filled_in() -> None:
    other = ours(address=address("0000:5e:00.0"))
    completed = complete_devices(host(ours(), other), (card(serial="MT2113X00000"),))
    assert completed == host(msgspec.structs.replace(ours(), serial="MT2113X00000"), other)
