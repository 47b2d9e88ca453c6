"""Where libvirt's node devices and sysfs contradict one another, and what libvirt alone can tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import MappingProxyType

import msgspec

from agent.core.pci import PciAddress, PciDevice
from agent.core.topology import HostTopology
from agent.core.values import Problem
from agent.core.words import count
from agent.formats.host_xml.node_device import NodeDevice

SOURCE = "libvirt node devices"

_MOST = 16

_FACTS: tuple[tuple[str, Callable[[PciDevice], object], Callable[[NodeDevice], object]], ...] = (
    ("vendor", lambda ours: ours.vendor_id, lambda theirs: theirs.vendor_id),
    ("product", lambda ours: ours.product_id, lambda theirs: theirs.product_id),
    ("class", lambda ours: ours.class_code, lambda theirs: theirs.class_code),
    ("cell", lambda ours: ours.cell, lambda theirs: theirs.cell),
    ("driver", lambda ours: ours.driver, lambda theirs: theirs.driver),
    ("IOMMU group", lambda ours: ours.iommu_group, lambda theirs: theirs.iommu_group),
    ("physical function", lambda ours: ours.parent, lambda theirs: theirs.physical_function),
    ("number of possible VFs", lambda ours: ours.sriov_totalvfs, lambda theirs: theirs.max_virtual_functions),
    ("serial number", lambda ours: ours.serial, lambda theirs: theirs.serial),
)
"""What is compared. Free instances of mdev types are not: they move from one second to the next."""


def device_disagreements(topology: HostTopology, devices: Iterable[NodeDevice]) -> tuple[Problem, ...]:
    """What sysfs and libvirt say differently of PCI functions, one row for each fact of each kind, with both values.

    What one side does not say of a function is no disagreement; a function that only one side shows is one. `devices`:
    all PCI functions libvirt has, and what else it has. The topology takes sysfs's word.
    """
    devices = tuple(devices)
    rows = [
        Problem(source=SOURCE, what=f"could not be read: {device.name}: {text}")
        for device in devices
        for text in device.problems
    ]
    theirs = {device.address: device for device in devices if device.address is not None}
    if theirs:
        ours = {device.address: device for device in topology.pci}
        rows += _presence(ours.keys(), theirs.keys())
        pairs = [(ours[address], theirs[address]) for address in sorted(ours.keys() & theirs.keys())]
        rows += _facts(pairs)
        rows += _virtual_functions(topology, pairs)
        rows += _interfaces(ours, devices)
    rows += _mediated(topology, devices)
    return tuple(rows)


def complete_devices(topology: HostTopology, devices: Iterable[NodeDevice]) -> HostTopology:
    """The topology with the serial numbers of cards that sysfs shows to root alone and libvirt to everyone."""
    serials = {device.address: device.serial for device in devices if device.serial is not None}
    if not serials:
        return topology
    completed = tuple(
        msgspec.structs.replace(device, serial=serials[device.address])
        if device.serial is None and device.address in serials
        else device
        for device in topology.pci
    )
    return msgspec.structs.replace(topology, pci=completed)


def _row(what: str, sysfs: str, libvirt: str) -> Problem:
    return Problem(source=SOURCE, what=what, values=MappingProxyType({"sysfs": sysfs, "libvirt": libvirt}))


def _presence(ours: Iterable[PciAddress], theirs: Iterable[PciAddress]) -> Iterator[Problem]:
    shown, listed = set(ours), set(theirs)
    if unlisted := shown - listed:
        what = f"libvirt does not list {count(len(unlisted), 'PCI function')} that sysfs shows"
        yield _row(what, _told(map(str, sorted(unlisted))), "-")
    if unseen := listed - shown:
        what = f"libvirt lists {count(len(unseen), 'PCI function')} that sysfs does not show"
        yield _row(what, "-", _told(map(str, sorted(unseen))))


def _facts(pairs: Iterable[tuple[PciDevice, NodeDevice]]) -> Iterator[Problem]:
    pairs = tuple(pairs)
    for name, of_sysfs, of_libvirt in _FACTS:
        differ = [
            (ours.address, said, other)
            for ours, theirs in pairs
            if (said := of_sysfs(ours)) is not None and (other := of_libvirt(theirs)) is not None and said != other
        ]
        if differ:
            yield _row(
                f"libvirt names another {name} of {count(len(differ), 'PCI function')}",
                _told(f"{address}: {said}" for address, said, _ in differ),
                _told(f"{address}: {other}" for address, _, other in differ),
            )


def _virtual_functions(topology: HostTopology, pairs: Iterable[tuple[PciDevice, NodeDevice]]) -> Iterator[Problem]:
    children: dict[PciAddress, list[PciAddress]] = {}
    for device in topology.pci:
        if device.parent is not None:
            children.setdefault(device.parent, []).append(device.address)
    differ = [
        (ours.address, children.get(ours.address, []), theirs.virtual_functions)
        for ours, theirs in pairs
        if theirs.max_virtual_functions is not None
        and sorted(children.get(ours.address, [])) != sorted(theirs.virtual_functions)
    ]
    if differ:
        yield _row(
            f"libvirt names other virtual functions of {count(len(differ), 'physical function')}",
            _told(f"{address}: {' '.join(map(str, ours)) or '-'}" for address, ours, _ in differ),
            _told(f"{address}: {' '.join(map(str, theirs)) or '-'}" for address, _, theirs in differ),
        )


def _interfaces(ours: dict[PciAddress, PciDevice], devices: Iterable[NodeDevice]) -> Iterator[Problem]:
    differ = []
    for device in devices:
        parent = None if device.parent_address is None else ours.get(device.parent_address)
        if device.interface is None or parent is None or not parent.netdevs:
            continue
        if device.interface not in parent.netdevs:
            shown = " ".join(f"{net.name} {net.mac}" for net in parent.netdevs)
            differ.append((parent.address, shown, f"{device.interface.name} {device.interface.mac}"))
    if differ:
        yield _row(
            f"libvirt names another network interface of {count(len(differ), 'PCI function')}",
            _told(f"{address}: {shown}" for address, shown, _ in differ),
            _told(f"{address}: {said}" for address, _, said in differ),
        )


def _mediated(topology: HostTopology, devices: Iterable[NodeDevice]) -> Iterator[Problem]:
    # A mediated device that libvirt alone has is defined and not started: no contradiction.
    ours = {mdev.uuid: mdev for mdev in topology.mdevs}
    differ = []
    for device in devices:
        mdev = None if device.mdev_uuid is None else ours.get(device.mdev_uuid)
        if mdev is None:
            continue
        said = (device.mdev_type or mdev.type, device.parent_address or mdev.parent)
        if said != (mdev.type, mdev.parent):
            differ.append((mdev.uuid, f"{mdev.type} on {mdev.parent}", f"{said[0]} on {said[1]}"))
    if differ:
        yield _row(
            f"libvirt names another type or parent of {count(len(differ), 'mediated device')}",
            _told(f"{uuid}: {shown}" for uuid, shown, _ in differ),
            _told(f"{uuid}: {said}" for uuid, _, said in differ),
        )


def _told(texts: Iterable[str]) -> str:
    told = list(texts)
    more = [f"{len(told) - _MOST} more"] if len(told) > _MOST else []
    return "; ".join(told[:_MOST] + more)
