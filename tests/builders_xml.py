"""Definitions of guests and node devices as libvirt writes them, in the terms of the field cases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from agent.core.pci import PciAddress
from tests.builders import KIB_PER_MIB, uuid_of

NOVA = "http://openstack.org/xmlns/libvirt/nova/1.1"


def domain_xml(
    name: str,
    pins: Mapping[int, int | str] = MappingProxyType({}),
    *,
    vcpus: int | None = None,
    emu: str | None = None,
    mem: int = 512,
    node: int | None = None,
    page: int | None = None,
    dev: Iterable[str] = (),
    mdev: str | None = None,
    by_nova: bool = False,
) -> str:
    """A guest, with the uuid that `builders.uuid_of` gives its name. mem in MiB; node: all memory bound to it."""
    parts = [
        f"<name>{name}</name><uuid>{uuid_of(name)}</uuid>",
        f"<metadata><nova:instance xmlns:nova='{NOVA}'/></metadata>" if by_nova else "",
        f"<memory unit='KiB'>{mem * KIB_PER_MIB}</memory>",
        f"<vcpu placement='static'>{vcpus if vcpus is not None else max(len(pins), 1)}</vcpu>",
        "".join(_memory(node, page)),
        "<cputune>",
        *(f"<vcpupin vcpu='{vcpu}' cpuset='{cpus}'/>" for vcpu, cpus in pins.items()),
        "" if emu is None else f"<emulatorpin cpuset='{emu}'/>",
        "</cputune><devices>",
        *map(_hostdev, dev),
        "" if mdev is None else _mediated(mdev),
        "</devices>",
    ]
    return f"<domain type='kvm'>{''.join(parts)}</domain>"


def pci_device_xml(address: str, *, numa: int = 0) -> tuple[str, str]:
    """The name and XML that libvirt gives a PCI function without a driver."""
    parsed = PciAddress.parse(address)
    name = f"pci_{parsed.domain:04x}_{parsed.bus:02x}_{parsed.slot:02x}_{parsed.function:x}"
    parts = [
        "<capability type='pci'><class>0x020000</class>",
        f"<domain>{parsed.domain}</domain><bus>{parsed.bus}</bus>",
        f"<slot>{parsed.slot}</slot><function>{parsed.function}</function>",
        f"<product id='0x10fb'/><vendor id='0x8086'/><numa node='{numa}'/></capability>",
    ]
    return name, f"<device><name>{name}</name><path>/sys/devices/x</path>{''.join(parts)}</device>"


def _memory(node: int | None, page: int | None) -> Iterator[str]:
    if node is not None:
        yield f"<numatune><memory mode='strict' nodeset='{node}'/></numatune>"
    if page is not None:
        yield f"<memoryBacking><hugepages><page size='{page}' unit='KiB'/></hugepages></memoryBacking>"


def _hostdev(text: str) -> str:
    address = PciAddress.parse(text)
    attributes = (
        f"domain='0x{address.domain:04x}' bus='0x{address.bus:02x}' slot='0x{address.slot:02x}'"
        f" function='0x{address.function:x}'"
    )
    return f"<hostdev mode='subsystem' type='pci'><source><address {attributes}/></source></hostdev>"


def _mediated(uuid: str) -> str:
    return f"<hostdev mode='subsystem' type='mdev' model='vfio-pci'><source><address uuid='{uuid}'/></source></hostdev>"
