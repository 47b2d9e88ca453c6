"""The host as libvirt tells it: capabilities, node devices."""

from __future__ import annotations

import functools
from types import MappingProxyType
from typing import Any

from agent.adapters.libvirt.binding import load_libvirt
from agent.adapters.libvirt.connection import LibvirtConnection
from agent.core.values import ReadOnlyMap, Value
from agent.errors import LibvirtError

DEVICE_KINDS = ("PCI_DEV", "MDEV_TYPES", "MDEV", "VDPA", "VPD")
"""What is listed. Network interfaces are not: a host of a thousand guests has a thousand taps, and sysfs tells the
interface of a PCI function for the price of one readdir. Disks, SCSI and USB are the thousands nobody asks for."""

DEVICES_AT_ONCE = 4
"""Few: the XML of a card makes libvirt read its vital product data, which some cards answer very slowly."""


class NodeDevices(Value, frozen=True, kw_only=True):
    """Node devices by libvirt's name ("pci_0000_3b_00_0"). xmls: text of each that could be read; failed: why not.

    A device that went away between the list and the read is in neither. begun_at: monotonic seconds before the list;
    connection: number of the connection.
    """

    begun_at: float
    connection: int
    xmls: ReadOnlyMap[str, str] = MappingProxyType({})
    failed: ReadOnlyMap[str, str] = MappingProxyType({})


def capabilities_xml(connection: LibvirtConnection) -> str:
    """The capabilities XML of the host. Raises LibvirtUnavailable, LibvirtTimeout, LibvirtError."""
    text: str = connection.call(lambda raw: raw.getCapabilities(), doing="read the capabilities")
    return text


def node_device_xmls(connection: LibvirtConnection) -> NodeDevices:
    """XML of the PCI, mdev and vDPA devices. Raises as above when the list fails."""
    link = connection.current()
    begun_at = connection.clock()
    devices = {device.name(): device for device in connection.call_on(link, _devices, doing="list the node devices")}
    works = (
        (name, f"read node device {name}", functools.partial(device_xml, devices[name])) for name in sorted(devices)
    )
    xmls: dict[str, str] = {}
    failed: dict[str, str] = {}
    for name, answer in connection.each_call(link, works, at_once=DEVICES_AT_ONCE):
        if isinstance(answer, LibvirtError):
            failed[name] = str(answer)
        elif answer is not None:
            xmls[name] = answer
    return NodeDevices(
        begun_at=begun_at, connection=link.number, xmls=MappingProxyType(xmls), failed=MappingProxyType(failed)
    )


def _devices(raw: Any) -> list[Any]:
    libvirt = load_libvirt()
    flags = 0
    for kind in DEVICE_KINDS:
        flags |= getattr(libvirt, f"VIR_CONNECT_LIST_NODE_DEVICES_CAP_{kind}", 0)
    devices: list[Any] = raw.listAllDevices(flags)
    return devices


def device_xml(device: Any, _raw: Any) -> str | None:
    """XML of a virNodeDevice; None when the device has gone since it was listed. Raises libvirtError."""
    libvirt = load_libvirt()
    try:
        text: str = device.XMLDesc(0)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_NODE_DEVICE:
            return None
        raise
    return text
