"""virNodeDeviceGetXMLDesc: a PCI function, a mediated device, a network interface or a vDPA device."""

from __future__ import annotations

import re
from typing import Any

from agent.core.pci import MdevType, NetInterface, PciAddress
from agent.core.values import Value
from agent.errors import FormatError
from agent.formats.xml_text import Element, Reader, parse_xml, quote, text_of

_PCI_NAME = re.compile(r"pci_([0-9a-f]{4,8})_([0-9a-f]{2})_([0-9a-f]{2})_([0-7])")
_MDEV_NAME = re.compile(r"mdev_([0-9a-f]{8}(?:_[0-9a-f]{4}){3}_[0-9a-f]{12})(?:_.*)?")


class NodeDevice(Value, frozen=True, kw_only=True):
    """One node device; None or empty: not said.

    kind: libvirt's word for its capability ("pci", "mdev", "net", "vdpa", "storage", ...). parent: libvirt's name of
    the parent; parent_address: its address when that is a PCI function. vendor_id, product_id, class_code: 4
    hexadecimal digits, as in `PciDevice`. virtual_functions and max_virtual_functions: of a physical function;
    physical_function: of a virtual one. serial: from the vital product data, which the kernel shows to root alone.
    mdev_uuid, mdev_type: of a mediated device. vdpa: /dev path of a vDPA device. problems: one sentence for each field
    that could not be read.
    """

    name: str
    kind: str
    parent: str | None = None
    parent_address: PciAddress | None = None
    driver: str | None = None
    address: PciAddress | None = None
    vendor_id: str | None = None
    product_id: str | None = None
    class_code: str | None = None
    cell: int | None = None
    iommu_group: int | None = None
    physical_function: PciAddress | None = None
    virtual_functions: tuple[PciAddress, ...] = ()
    max_virtual_functions: int | None = None
    serial: str | None = None
    mdev_types: tuple[MdevType, ...] = ()
    mdev_uuid: str | None = None
    mdev_type: str | None = None
    interface: NetInterface | None = None
    vdpa: str | None = None
    problems: tuple[str, ...] = ()


def read_node_device(xml: str) -> NodeDevice:
    """What virNodeDeviceGetXMLDesc said. Raises FormatError when it is not well-formed or names no device."""
    root = parse_xml(xml, f"the XML of a node device that begins {quote(xml[:60])}")
    name = text_of(root, "name")
    if root.tag != "device" or name is None:
        raise FormatError(f"the XML of node device {quote(name)} is a <{root.tag[:80]}> or names no device")
    reader = Reader()
    capability = root.find("capability")
    kind = "" if capability is None else capability.get("type", "")
    parent = text_of(root, "parent")
    fields: dict[str, Any] = {}
    if capability is not None:
        if kind == "pci":
            fields = _pci(capability, reader)
        elif kind == "mdev":
            fields = _mdev(capability, name, reader)
        elif kind == "net":
            fields = _net(capability)
        elif kind == "vdpa":
            fields = {"vdpa": text_of(capability, "chardev")}
    return NodeDevice(
        name=name,
        kind=kind,
        parent=parent,
        parent_address=address_in_name(parent),
        driver=text_of(root, "driver/name"),
        problems=tuple(reader.problems),
        **fields,
    )


def address_in_name(name: str | None) -> PciAddress | None:
    """The address in libvirt's name of a PCI function, "pci_0000_3b_00_1"; None for other devices."""
    match = None if name is None else _PCI_NAME.fullmatch(name)
    if match is None or int(match[3], 16) > 0x1F:
        return None
    return PciAddress(int(match[1], 16), int(match[2], 16), int(match[3], 16), int(match[4]))


def _pci(capability: Element, reader: Reader) -> dict[str, Any]:
    parts = {part: capability.findtext(part, "") for part in ("domain", "bus", "slot", "function")}
    numa, group = capability.find("numa"), capability.find("iommuGroup")
    fields: dict[str, Any] = {
        # the four numbers are elements here, attributes everywhere else
        "address": reader.pci_address(Element("address", parts), "address"),
        "vendor_id": _identity(capability.find("vendor"), "vendor", reader),
        "product_id": _identity(capability.find("product"), "product", reader),
        "class_code": _class_code(text_of(capability, "class"), reader),
        "cell": None if numa is None else _cell(numa.get("node"), reader),
        "iommu_group": None if group is None else reader.number(group.get("number"), "iommuGroup number"),
    }
    for inner in capability.iterfind("capability"):
        kind = inner.get("type")
        if kind == "phys_function":
            fields["physical_function"] = reader.pci_address(inner.find("address"), "phys_function address")
        elif kind == "virt_functions":
            found = (reader.pci_address(address, "virt_functions address") for address in inner.iterfind("address"))
            fields["virtual_functions"] = tuple(sorted(address for address in found if address is not None))
            fields["max_virtual_functions"] = reader.number(inner.get("maxCount"), "virt_functions maxCount")
        elif kind == "mdev_types":
            fields["mdev_types"] = _mdev_types(inner, reader)
        elif kind == "vpd":
            fields["serial"] = text_of(inner, "fields[@access='readonly']/serial_number")
    return fields


def _identity(element: Element | None, where: str, reader: Reader) -> str | None:
    text = None if element is None else element.get("id")
    return None if text is None else reader.hexadecimal(text, where, 4)


def _class_code(text: str | None, reader: Reader) -> str | None:
    # base class, subclass and programming interface; the last is no part of what a device is
    digits = None if text is None else reader.hexadecimal(text, "class", 6)
    return None if digits is None else digits[:4]


def _cell(text: str | None, reader: Reader) -> int | None:
    return None if text == "-1" else reader.number(text, "numa node")


def _mdev_types(capability: Element, reader: Reader) -> tuple[MdevType, ...]:
    types = []
    for element in capability.iterfind("type"):
        identity = element.get("id")
        if not identity:
            reader.problems.append("a type of mdev_types names no id")
            continue
        where = f"mdev type {quote(identity)}: availableInstances"
        available = reader.number(text_of(element, "availableInstances"), where)
        types.append(
            MdevType(
                id=identity,
                name=text_of(element, "name"),
                device_api=text_of(element, "deviceAPI"),
                available=available or 0,
            )
        )
    return tuple(sorted(types, key=lambda kind: kind.id))


def _mdev(capability: Element, name: str, reader: Reader) -> dict[str, Any]:
    # Before libvirt 7.3 the uuid stood in the name alone.
    kind, group = capability.find("type"), capability.find("iommuGroup")
    named = _MDEV_NAME.fullmatch(name)
    uuid = text_of(capability, "uuid") or (named[1].replace("_", "-") if named else None)
    if uuid is None:
        reader.problems.append("a mediated device names no uuid")
    return {
        "mdev_uuid": None if uuid is None else uuid.lower(),
        "mdev_type": None if kind is None else kind.get("id"),
        "iommu_group": None if group is None else reader.number(group.get("number"), "iommuGroup number"),
    }


def _net(capability: Element) -> dict[str, Any]:
    name = text_of(capability, "interface")
    mac = text_of(capability, "address")
    return {} if name is None else {"interface": NetInterface(name=name, mac=None if mac is None else mac.lower())}
