"""Host devices given to the guest: PCI functions, mediated devices, vDPA devices."""

from __future__ import annotations

from collections.abc import Iterator

from agent.core.guest import GuestDevice
from agent.core.pci import PciAddress
from agent.formats.xml_text import Element, Reader


def read_devices(root: Element, reader: Reader) -> tuple[GuestDevice, ...]:
    """<hostdev>, then <interface>, then <disk>, each in the order of the XML. USB and SCSI are no resources here."""
    devices = root.find("devices")
    if devices is None:
        return ()
    found: list[GuestDevice] = []
    for element in devices.iterfind("hostdev"):
        found.extend(_hostdev(element, reader))
    for element in devices.iterfind("interface"):
        found.extend(_interface(element, reader))
    for element in devices.iterfind("disk"):
        found.extend(_disk(element, reader))
    return tuple(found)


def _hostdev(element: Element, reader: Reader) -> Iterator[GuestDevice]:
    kind = element.get("type")
    if kind == "pci":
        yield from _pci(element, element.find("source/address"), "hostdev", reader)
    elif kind == "mdev":
        address = element.find("source/address")
        uuid = None if address is None else address.get("uuid")
        if uuid:
            yield GuestDevice(kind="mdev", source="hostdev", mdev=uuid.strip().lower(), managed=_managed(element))
        else:
            reader.problems.append("hostdev of type mdev names no uuid")


def _interface(element: Element, reader: Reader) -> Iterator[GuestDevice]:
    source = element.find("source")
    actual = element.find("actual")
    kind = element.get("type") if actual is None else actual.get("type", element.get("type"))
    network = None if source is None else source.get("network")
    name = f"interface network {network}" if network else f"interface {kind}"
    if actual is not None and (chosen := actual.find("source")) is not None:
        source = chosen
    mode = None if source is None else source.get("mode")
    if kind == "direct" and source is not None and mode == "passthrough":
        if device := source.get("dev"):
            yield GuestDevice(kind="netdev", source=f"{name} passthrough", netdev=device)
        elif network is None:
            reader.problems.append("interface of type direct, mode passthrough, names no device")
    elif kind == "hostdev":
        address = None if source is None else source.find("address")
        if address is None and network:  # the pool has not given its device yet
            yield GuestDevice(kind="pci", source=name, managed=_managed(element))
        else:
            yield from _pci(element, address, name, reader)
    elif kind == "vdpa":
        device = None if source is None else source.get("dev")
        if device:
            yield GuestDevice(kind="vdpa", source=name, vdpa=device)
        else:
            reader.problems.append("interface of type vdpa names no device")


def _disk(element: Element, reader: Reader) -> Iterator[GuestDevice]:
    # A disk in a backing chain or the target of a running copy keeps its function too.
    for holder in (element, *element.iter("backingStore"), *element.iter("mirror")):
        source = holder.find("source")
        if source is not None and holder.get("type") == "nvme":
            yield from _pci(source, source.find("address"), "disk nvme", reader)


def _pci(holder: Element, address: Element | None, name: str, reader: Reader) -> Iterator[GuestDevice]:
    function: PciAddress | None = reader.pci_address(address, f"{name}: address")
    if function is not None:
        yield GuestDevice(kind="pci", source=name, address=function, managed=_managed(holder))


def _managed(element: Element) -> bool | None:
    text = element.get("managed")
    return None if text is None else text == "yes"
