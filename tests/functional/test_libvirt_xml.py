"""What a real libvirt says of this host agrees with its sysfs, and what it makes of definitions is read as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.adapters.sysfs import discover
from agent.core.cpuset import CpuSet
from agent.core.guest import GuestCell, GuestDevice, MemoryDevice, ObservedDomain, Pin
from agent.core.pci import PciAddress
from agent.formats.domain_xml import ReadDomain, read_domain
from agent.formats.host_xml import device_disagreements, disagreements, read_capabilities, read_node_device
from tests.functional.lab import Libvirtd

UUID = "7c1c3a52-4a0e-4b0e-9d0b-3f1f5f6d7e8f"


def test_libvirt_and_sysfs_agree_about_this_host(libvirtd: Libvirtd) -> None:
    topology = discover(Path("/"))
    assert disagreements(topology, read_capabilities(libvirtd.virsh("capabilities"))) == ()
    names = libvirtd.virsh("nodedev-list").split()
    devices = [read_node_device(libvirtd.virsh("nodedev-dumpxml", name)) for name in names]
    assert device_disagreements(topology, devices) == ()


def defined(libvirtd: Libvirtd, folder: Path, body: str) -> ReadDomain:
    """What libvirt makes of a definition that its own schema accepts."""
    text = (
        f"<domain type='qemu'><name>defined</name><uuid>{UUID}</uuid>{body}"
        "<os><type arch='x86_64' machine='q35'>hvm</type></os></domain>"
    )
    path = folder / "domain.xml"
    path.write_text(text)
    libvirtd.virsh("define", "--validate", str(path))
    try:
        return read_domain(libvirtd.virsh("dumpxml", "defined"))
    finally:
        libvirtd.virsh("undefine", "defined")


def observed(**fields: object) -> ReadDomain:
    plain = {
        "uuid": UUID,
        "name": "defined",
        "maker": "libvirt",
        "vcpus": 1,
        "vcpus_online": CpuSet((0,)),
        "memory_kib": 65536,
        "current_memory_kib": 65536,
    }
    return ReadDomain(domain=ObservedDomain(**(plain | fields)))  # type: ignore[arg-type]


MEMORY = "<memory unit='MiB'>64</memory>"
PINS = (
    f"{MEMORY}<vcpu cpuset='0-7,^3' current='2'>16</vcpu><iothreadids><iothread id='7'/></iothreadids><cputune>"
    "<vcpupin vcpu='15' cpuset='2-7'/><vcpupin vcpu='3' cpuset='2-7,^3,9'/><emulatorpin cpuset='0-1'/>"
    "<iothreadpin iothread='7' cpuset='1'/></cputune>"
)
PCI = "domain='0x{}' bus='0x{}' slot='0x{}' function='0x{}'"
MODULES = (
    "<maxMemory slots='4' unit='GiB'>20</maxMemory><memory unit='GiB'>11</memory><vcpu>1</vcpu>"
    "<cpu><numa><cell id='0' cpus='0' memory='1' unit='GiB'/></numa></cpu><devices>"
    "<memory model='virtio-mem'><target><size unit='GiB'>8</size><node>0</node><block unit='MiB'>2</block>"
    "<requested unit='GiB'>4</requested></target></memory>"
    "<memory model='nvdimm'><source><path>/tmp/nvdimm</path></source>"
    "<target><size unit='GiB'>1</size><node>0</node></target></memory>"
    "<memory model='dimm'><source><pagesize unit='MiB'>2</pagesize><nodemask>1-3</nodemask></source>"
    "<target><size unit='GiB'>1</size><node>0</node></target></memory></devices>"
)
CELLS = (
    "<memory unit='GiB'>3</memory><memoryBacking><hugepages><page size='2' unit='MiB'/>"
    "<page size='1' unit='GiB' nodeset='1'/></hugepages><locked/></memoryBacking><vcpu>2</vcpu>"
    "<numatune><memory mode='strict' nodeset='0-1'/><memnode cellid='1' mode='preferred' nodeset='3'/></numatune>"
    "<cpu><numa><cell id='0' cpus='0-1' memory='1' unit='GiB'/><cell id='1' memory='2' unit='GiB'/></numa></cpu>"
)
DEVICES = (
    f"{MEMORY}<vcpu>1</vcpu><devices>"
    "<disk type='nvme'><source type='pci' managed='yes' namespace='1'><address "
    f"{PCI.format('0000', '81', '00', '0')}/></source><target dev='vda'/></disk>"
    "<interface type='hostdev'><source><address type='pci' "
    f"{PCI.format('0000', '3b', '02', '1')}/></source></interface>"
    "<interface type='vdpa'><source dev='/dev/vhost-vdpa-0'/></interface>"
    "<hostdev mode='subsystem' type='pci' managed='yes'><source><address "
    f"{PCI.format('10000', '01', '1f', '7')}/></source></hostdev>"
    "<hostdev mode='subsystem' type='mdev' model='vfio-pci'><source>"
    f"<address uuid='{UUID.upper()}'/></source></hostdev></devices>"
)


def pci(source: str, address: str, *, managed: bool | None) -> GuestDevice:
    return GuestDevice(kind="pci", source=source, address=PciAddress.parse(address), managed=managed)


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (
            PINS,
            observed(
                vcpus=16,
                vcpus_online=CpuSet((0, 1)),
                cpuset=CpuSet((0, 1, 2, 4, 5, 6, 7)),
                vcpu_pins=(
                    Pin(thread=3, cpus=CpuSet((2, 4, 5, 6, 7, 9))),
                    Pin(thread=15, cpus=CpuSet(range(2, 8))),
                ),
                emulator_pin=CpuSet((0, 1)),
                iothreads=1,
                iothread_pins=(Pin(thread=7, cpus=CpuSet((1,))),),
            ),
        ),
        (
            f"{MEMORY}<vcpu placement='auto'>1</vcpu><numatune><memory mode='strict' placement='auto'/></numatune>",
            observed(mode="strict"),
        ),
        (
            f"{MEMORY}<memoryBacking><hugepages/></memoryBacking><vcpu>1</vcpu>",
            observed(default_huge_pages=True),
        ),
        (
            MODULES,
            observed(
                memory_kib=7 << 20,
                current_memory_kib=11 << 20,
                max_memory_kib=20 << 20,
                cells=(GuestCell(id=0, vcpus=CpuSet((0,)), memory_kib=1 << 20),),
                memory_devices=(
                    MemoryDevice(model="virtio-mem", size_kib=4 << 20, guest_cell=0),
                    MemoryDevice(model="nvdimm", size_kib=1 << 20, guest_cell=0),
                    MemoryDevice(
                        model="dimm",
                        size_kib=1 << 20,
                        guest_cell=0,
                        page_size_kib=2048,
                        nodeset=CpuSet((1, 2, 3)),
                    ),
                ),
            ),
        ),
        (
            CELLS,
            observed(
                vcpus=2,
                vcpus_online=CpuSet((0, 1)),
                memory_kib=3 << 20,
                current_memory_kib=3 << 20,
                mode="strict",
                nodeset=CpuSet((0, 1)),
                page_size_kib=2048,
                memory_locked=True,
                cells=(
                    GuestCell(
                        id=0,
                        vcpus=CpuSet((0, 1)),
                        memory_kib=1 << 20,
                        mode="strict",
                        nodeset=CpuSet((0, 1)),
                        page_size_kib=2048,
                    ),
                    GuestCell(
                        id=1,
                        vcpus=CpuSet(),
                        memory_kib=2 << 20,
                        mode="preferred",
                        nodeset=CpuSet((3,)),
                        page_size_kib=1 << 20,
                    ),
                ),
            ),
        ),
        (
            DEVICES,
            observed(
                devices=(
                    pci("hostdev", "10000:01:1f.7", managed=True),
                    GuestDevice(kind="mdev", source="hostdev", mdev=UUID, managed=False),
                    pci("interface hostdev", "0000:3b:02.1", managed=None),
                    GuestDevice(kind="vdpa", source="interface vdpa", vdpa="/dev/vhost-vdpa-0"),
                    pci("disk nvme", "0000:81:00.0", managed=True),
                ),
            ),
        ),
    ],
    ids=["pins", "placement by libvirt", "default pages", "modules", "cells", "devices"],
)
def test_what_libvirt_makes_of_a_definition_is_read_whole(
    libvirtd: Libvirtd, tmp_path: Path, body: str, read: ReadDomain
) -> None:
    assert defined(libvirtd, tmp_path, body) == read
