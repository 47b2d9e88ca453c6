"""The parts of a libvirt domain that put a guest where it was promised a place, and nothing else of it.

Built and put in as a tree. `formats/domain_xml` reads from them exactly what the claim holds.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from types import MappingProxyType
from xml.etree import ElementTree

from agent.core.arrival import keeps_siblings_idle
from agent.core.cpuset import CpuSet
from agent.core.instance import Instance, InstanceRequest
from agent.core.pci import PciAddress
from agent.core.placement import CellPlacement, Placement
from agent.core.values import ReadOnlyMap
from agent.core.words import plain

Element = ElementTree.Element

NAMESPACE = "urn:compute-agent:placement:1"
"""Of our element in <metadata>. `formats/domain_xml/maker` reads it."""

SMALL_PAGE_KIB = 4
"""Never a huge page. A larger small page of a host is written out: to libvirt that says the same as nothing."""

REALTIME_PRIORITY = 1
"""nova's default too: above every ordinary thread, below the kernel's own."""

_WHOLE = ("uuid", "memory", "currentMemory", "vcpu", "vcpus", "numatune")
"""What goes from a domain altogether. currentMemory and the list of plugged vCPUs count by numbers that change."""

_PARTLY: ReadOnlyMap[str, frozenset[str]] = MappingProxyType(
    {
        "cputune": frozenset({"vcpupin", "emulatorpin", "iothreadpin", "vcpusched", "emulatorsched", "iothreadsched"}),
        "memoryBacking": frozenset({"hugepages", "locked"}),
        "cpu": frozenset({"topology", "numa"}),
        "metadata": frozenset({f"{{{NAMESPACE}}}placement"}),
    }
)
"""Children that go from an element which stays: an own iothread pin might lie where nothing was promised."""


def domain_parts(instance: Instance, placement: Placement, binding: InstanceRequest | None = None) -> Element:
    """A <domain> of uuid, memory, vCPUs, pins, memory policy, pages, guest cells and host devices; no type, no <os>.

    binding: what else was asked for and decides nothing here: the guest's CPU topology, realtime, locked memory.
    """
    root = Element("domain")
    if instance.name.strip() and instance.name.isprintable():
        _add(root, "name").text = instance.name
    _add(root, "uuid").text = plain(instance.uuid)
    _isolation(root, placement, binding)
    _add(root, "memory", unit="KiB").text = str(placement.memory_kib)
    _backing(root, placement, binding)
    _vcpus(root, placement)
    _pins(root, placement, binding)
    _memory_policy(root, placement)
    _guest_cpu(root, placement, binding)
    _devices(root, placement)
    return root


def merged(domain: Element, parts: Element) -> Element:
    """The domain with these parts in the place of its own; all else of it stays. `domain` is not changed.

    Its name stays where it has one. PCI host devices of its own go: they were not promised.
    """
    root = copy.deepcopy(domain)
    for tag in _WHOLE:
        _remove(root, tag)
    for tag, children in _PARTLY.items():
        for element in root.findall(tag):
            for child in [one for one in element if one.tag in children]:
                element.remove(child)
    for devices in root.findall("devices"):
        for device in devices.findall("hostdev[@type='pci']"):
            devices.remove(device)
    for part in parts:
        _put(root, copy.deepcopy(part))
    return root


def xml_text(root: Element) -> str:
    """Indented, without a declaration. Ends with a newline."""
    tree = copy.deepcopy(root)
    ElementTree.indent(tree)
    return ElementTree.tostring(tree, encoding="unicode") + "\n"


def _put(root: Element, part: Element) -> None:
    there = root.find(part.tag)
    if there is None:
        root.append(part)
    elif part.tag != "name":
        there.extend(part)


def _remove(root: Element, tag: str) -> None:
    for element in root.findall(tag):
        root.remove(element)


def _isolation(root: Element, placement: Placement, binding: InstanceRequest | None) -> None:
    # The idle siblings stand nowhere else in a domain; without this they would be free once the claim has ended.
    if keeps_siblings_idle(placement, binding):
        ElementTree.register_namespace("compute-agent", NAMESPACE)
        _add(_add(root, "metadata"), f"{{{NAMESPACE}}}placement", cpu_thread_policy="isolate")


def _backing(root: Element, placement: Placement, binding: InstanceRequest | None) -> None:
    sizes: dict[int, list[int]] = {}
    for cell in placement.cells:
        if cell.page_size_kib > SMALL_PAGE_KIB:
            sizes.setdefault(cell.page_size_kib, []).append(cell.guest_cell)
    # What another guest's memory pushes out to the swap makes a realtime vCPU wait.
    is_locked = binding is not None and (binding.memory_locked or bool(binding.realtime))
    if not sizes and not is_locked:
        return
    backing = _add(root, "memoryBacking")
    if sizes:
        pages = _add(backing, "hugepages")
        for size_kib, cells in sizes.items():
            _add(pages, "page", size=size_kib, unit="KiB", nodeset=CpuSet(cells))
    if is_locked:
        _add(backing, "locked")


def _vcpus(root: Element, placement: Placement) -> None:
    floating = placement.shared_cpus | CpuSet(cpu for cell in placement.cells for cpu in cell.shared_cpus)
    vcpu = _add(root, "vcpu", placement="static")
    vcpu.text = str(placement.vcpus)
    if floating:
        vcpu.set("cpuset", str(floating))


def _pins(root: Element, placement: Placement, binding: InstanceRequest | None) -> None:
    pins = sorted(pin for cell in placement.cells for pin in _cell_pins(cell))
    tune = Element("cputune")
    for vcpu, cpus in pins:
        _add(tune, "vcpupin", vcpu=vcpu, cpuset=cpus)
    if placement.emulator_cpus:
        _add(tune, "emulatorpin", cpuset=placement.emulator_cpus)
    if binding is not None and binding.realtime:
        _add(tune, "vcpusched", vcpus=binding.realtime, scheduler="fifo", priority=REALTIME_PRIORITY)
    if len(tune):
        root.append(tune)


def _cell_pins(cell: CellPlacement) -> Iterator[tuple[int, str]]:
    for vcpu in cell.vcpus:
        if vcpu in cell.pins:
            yield vcpu, str(cell.pins[vcpu])
        elif cell.shared_cpus:
            yield vcpu, str(cell.shared_cpus)


def _memory_policy(root: Element, placement: Placement) -> None:
    if not placement.cells:
        return
    tune = _add(root, "numatune")
    _add(tune, "memory", mode="strict", nodeset=CpuSet(cell.host_cell for cell in placement.cells))
    for cell in placement.cells:
        _add(tune, "memnode", cellid=cell.guest_cell, mode="strict", nodeset=cell.host_cell)


def _guest_cpu(root: Element, placement: Placement, binding: InstanceRequest | None) -> None:
    topology = None if binding is None else binding.cpu_topology
    if not placement.cells and topology is None:
        return
    cpu = _add(root, "cpu")
    if topology is not None:
        _add(cpu, "topology", sockets=topology.sockets, cores=topology.cores, threads=topology.threads)
    if placement.cells:
        numa = _add(cpu, "numa")
        for cell in placement.cells:
            one = _add(numa, "cell", id=cell.guest_cell)
            if cell.vcpus:
                one.set("cpus", str(cell.vcpus))
            one.set("memory", str(cell.memory_kib))
            one.set("unit", "KiB")


def _devices(root: Element, placement: Placement) -> None:
    addresses = [address for given in placement.devices for address in given.devices]
    if not addresses:
        return
    devices = _add(root, "devices")
    for address in addresses:
        device = _add(devices, "hostdev", mode="subsystem", type="pci", managed="yes")
        _add(_add(device, "source"), "address", **_numbers(address))


def _numbers(address: PciAddress) -> dict[str, str]:
    return {
        "domain": f"0x{address.domain:04x}",
        "bus": f"0x{address.bus:02x}",
        "slot": f"0x{address.slot:02x}",
        "function": f"0x{address.function:x}",
    }


def _add(parent: Element, tag: str, **attributes: object) -> Element:
    return ElementTree.SubElement(parent, tag, {name: str(value) for name, value in attributes.items()})
