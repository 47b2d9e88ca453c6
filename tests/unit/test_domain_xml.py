"""Domain XML as libvirt wrote it for guests that really ran, and what each part of it becomes."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from agent.core.cpuset import CpuSet
from agent.core.guest import GuestCell, GuestDevice, MemoryDevice, ObservedDomain, Pin
from agent.core.pci import PciAddress
from agent.formats.domain_xml import ReadDomain, read_domain
from tests.unit.domain_texts import captured, guest, observed

NOVA_FACTS = {
    "title": "All of it",
    "package": "34.0.0",
    "name": "web-1",
    "created": "2026-11-29 08:15:12",
    "flavor": "pinned.4",
    "flavor_id": "7b1a7f53-8d1d-4ac6-a2ff-2e1e2d5e94a5",
    "flavor_memory": "64",
    "flavor_disk": "1",
    "flavor_swap": "0",
    "flavor_ephemeral": "0",
    "flavor_vcpus": "4",
    "extra:hw:cpu_policy": "dedicated",
    "extra:hw:numa_nodes": "2",
    "image": "9a2f6a15-2f6a-4f6e-8f0e-0b7a4f5f4a11",
    "image:hw_machine_type": "q35",
    "user": "alice",
    "user_id": "aa4f4a2c4e0b4f0f8f5c1f0b3a6d9e21",
    "project": "shop",
    "project_id": "bb4f4a2c4e0b4f0f8f5c1f0b3a6d9e22",
    "root": "image 9a2f6a15-2f6a-4f6e-8f0e-0b7a4f5f4a11",
    "port:4cf4a2c4-0b4f-0f8f-5c1f-0b3a6d9e2100": "192.0.2.17",
}


def test_a_running_guest_of_nova_is_read_whole() -> None:
    assert read_domain(captured("nova-everything")) == ReadDomain(
        domain=ObservedDomain(
            uuid="11111111-2222-3333-4444-555555555555",
            name="instance-0000002a",
            maker="nova",
            vcpus=4,
            vcpus_online=CpuSet((0, 1, 3)),
            memory_kib=65536,
            cpuset=CpuSet((0, 1)),
            vcpu_pins=(
                Pin(thread=0, cpus=CpuSet((0,))),
                Pin(thread=1, cpus=CpuSet((1,))),
                Pin(thread=3, cpus=CpuSet((0,))),
            ),
            emulator_pin=CpuSet((0, 1)),
            iothreads=3,
            iothread_pins=(Pin(thread=4, cpus=CpuSet((1,))),),
            mode="strict",
            nodeset=CpuSet((0,)),
            cells=(
                GuestCell(id=0, vcpus=CpuSet((0, 1)), memory_kib=32768, mode="strict", nodeset=CpuSet((0,))),
                GuestCell(id=1, vcpus=CpuSet((2, 3)), memory_kib=32768, mode="preferred", nodeset=CpuSet((0,))),
            ),
            current_memory_kib=65536,
            facts=MappingProxyType(NOVA_FACTS),
        ),
        problems=(),
    )


def read(body: str) -> ReadDomain:
    return read_domain(guest(body))


def test_unplugged_virtio_mem_is_not_memory_of_the_guest_though_libvirt_counts_it() -> None:
    assert read_domain(captured("modules")) == ReadDomain(
        domain=ObservedDomain(
            uuid="33333333-2222-3333-4444-555555555555",
            name="modules",
            maker="libvirt",
            vcpus=2,
            vcpus_online=CpuSet((0, 1)),
            memory_kib=64 * 1024 + 128 * 1024,
            current_memory_kib=196608,
            max_memory_kib=1048576,
            cells=(GuestCell(id=0, vcpus=CpuSet((0, 1)), memory_kib=65536),),
            memory_devices=(
                MemoryDevice(model="dimm", size_kib=131072, guest_cell=0, nodeset=CpuSet((0,))),
                MemoryDevice(model="virtio-mem", size_kib=0, guest_cell=0, nodeset=CpuSet((0,))),
            ),
        )
    )


def test_a_growing_virtio_mem_module_holds_what_was_requested() -> None:
    module = (
        "<memory unit='GiB'>9</memory><devices><memory model='virtio-mem'><target><size unit='GiB'>8</size>"
        "<block unit='MiB'>2</block><requested unit='GiB'>4</requested><current unit='GiB'>1</current></target>"
        "</memory></devices>"
    )
    assert read(module).domain == observed(
        memory_kib=5 << 20, memory_devices=(MemoryDevice(model="virtio-mem", size_kib=4 << 20),)
    )


def test_modules_of_files_and_of_huge_pages_keep_their_kind() -> None:
    modules = (
        "<memory unit='GiB'>4</memory><devices>"
        "<memory model='nvdimm'><source><path>/tmp/nvdimm</path></source>"
        "<target><size unit='GiB'>1</size><node>1</node></target></memory>"
        "<memory model='dimm'><source><pagesize unit='MiB'>2</pagesize><nodemask>1-3</nodemask></source>"
        "<target><size unit='GiB'>1</size><node>0</node></target></memory></devices>"
    )
    assert read(modules).domain == observed(
        memory_kib=4 << 20,
        memory_devices=(
            MemoryDevice(model="nvdimm", size_kib=1 << 20, guest_cell=1),
            MemoryDevice(model="dimm", size_kib=1 << 20, guest_cell=0, page_size_kib=2048, nodeset=CpuSet((1, 2, 3))),
        ),
    )


def test_huge_pages_without_a_size_are_those_of_the_host_and_no_size_is_invented() -> None:
    assert read_domain(captured("huge-pages-of-default-size")) == ReadDomain(
        domain=ObservedDomain(
            uuid="22222222-2222-3333-4444-555555555555",
            name="huge-default",
            maker="libvirt",
            vcpus=1,
            vcpus_online=CpuSet((0,)),
            memory_kib=16384,
            current_memory_kib=16384,
            default_huge_pages=True,
        )
    )


def test_a_running_guest_of_ovirt_has_huge_pages_in_one_guest_cell_only() -> None:
    assert read_domain(captured("ovirt-pages-per-cell")) == ReadDomain(
        domain=ObservedDomain(
            uuid="44444444-2222-3333-4444-555555555555",
            name="pages-per-cell",
            maker="ovirt",
            vcpus=2,
            vcpus_online=CpuSet((0, 1)),
            memory_kib=32768,
            cpuset=CpuSet((0,)),
            mode="restrictive",
            nodeset=CpuSet((0,)),
            cells=(
                GuestCell(id=0, vcpus=CpuSet((0,)), memory_kib=16384, mode="restrictive", nodeset=CpuSet((0,))),
                GuestCell(
                    id=1,
                    vcpus=CpuSet((1,)),
                    memory_kib=16384,
                    mode="restrictive",
                    nodeset=CpuSet((0,)),
                    page_size_kib=2048,
                ),
            ),
            current_memory_kib=32768,
            facts=MappingProxyType({"clusterVersion": "4.7", "cpuPolicy": "dedicated", "startTime": "1764490512.25"}),
        )
    )


def test_pages_for_all_guest_cells_leave_out_the_cell_that_names_another_size() -> None:
    body = (
        "<memory>3145728</memory><memoryBacking><hugepages><page size='2048' unit='KiB'/>"
        "<page size='1' unit='GiB' nodeset='1'/></hugepages><locked/></memoryBacking>"
        "<cpu><numa><cell id='0' cpus='0' memory='1' unit='GiB'/><cell id='1' memory='2' unit='GiB'/></numa></cpu>"
    )
    assert read(body).domain == observed(
        memory_kib=3 << 20,
        page_size_kib=2048,
        memory_locked=True,
        cells=(
            GuestCell(id=0, vcpus=CpuSet((0,)), memory_kib=1 << 20, page_size_kib=2048),
            GuestCell(id=1, vcpus=CpuSet(), memory_kib=2 << 20, page_size_kib=1 << 20),
        ),
    )


def test_pages_of_four_kib_are_small_pages() -> None:
    assert read("<memoryBacking><hugepages><page size='4' unit='KiB'/></hugepages></memoryBacking>") == ReadDomain(
        domain=observed()
    )


@pytest.mark.parametrize(
    ("unit", "number", "kib"),
    [
        ("", "8", 8),
        ("b", "2048", 2),
        ("bytes", "2049", 3),
        ("KB", "1024", 1000),
        ("k", "7", 7),
        ("KiB", "7", 7),
        ("MB", "1", 977),
        ("M", "1", 1 << 10),
        ("MiB", "1", 1 << 10),
        ("GB", "1", 976563),
        ("G", "1", 1 << 20),
        ("gib", "1", 1 << 20),
        ("TB", "1", 976562500),
        ("T", "1", 1 << 30),
        ("TiB", "1", 1 << 30),
        ("PB", "1", 976562500000),
        ("PiB", "1", 1 << 40),
        ("EB", "1", 976562500000000),
        ("EiB", "1", 1 << 50),
    ],
)
def test_every_unit_of_libvirt_is_rounded_up_to_kib(unit: str, number: str, kib: int) -> None:
    attribute = f" unit='{unit}'" if unit else ""
    assert read(f"<memory{attribute}>{number}</memory>") == ReadDomain(domain=observed(memory_kib=kib))


def test_host_devices_of_every_kind_are_found_and_usb_and_scsi_are_not_among_them() -> None:
    assert read_domain(captured("devices-inactive")) == ReadDomain(
        domain=ObservedDomain(
            uuid="55555555-2222-3333-4444-555555555555",
            name="devices",
            maker="libvirt",
            vcpus=1,
            vcpus_online=CpuSet((0,)),
            memory_kib=16384,
            current_memory_kib=16384,
            devices=(
                pci("hostdev", "10000:01:1f.7", managed=True),
                pci("hostdev", "0000:3b:02.2", managed=False),
                GuestDevice(kind="mdev", source="hostdev", mdev="c2177883-f1bb-47f0-914d-32a22e3a8804", managed=False),
                pci("interface hostdev", "0000:3b:02.1", managed=True),
                GuestDevice(kind="vdpa", source="interface vdpa", vdpa="/dev/vhost-vdpa-0"),
                pci("disk nvme", "0000:81:00.0", managed=True),
            ),
            facts=MappingProxyType({"os": "http://debian.org/debian/12", "metadata": "http://example.org/inventory/1"}),
        )
    )


@pytest.mark.parametrize(
    ("interface", "devices"),
    [
        (
            "<interface type='direct'><source dev='ens3f0v1' mode='passthrough'/></interface>",
            (GuestDevice(kind="netdev", source="interface direct passthrough", netdev="ens3f0v1"),),
        ),
        (
            "<interface type='direct'><source network='sriov' dev='ens3f0v2' mode='passthrough'/></interface>",
            (GuestDevice(kind="netdev", source="interface network sriov passthrough", netdev="ens3f0v2"),),
        ),
        ("<interface type='direct'><source dev='ens3f0' mode='bridge'/></interface>", ()),
        ("<interface type='direct'><source dev='ens3f0'/></interface>", ()),
    ],
)
def test_macvtap_takes_the_whole_interface_in_passthrough_mode_only(
    interface: str, devices: tuple[GuestDevice, ...]
) -> None:
    assert read(f"<devices>{interface}</devices>").domain.devices == devices


def pci(source: str, address: str, *, managed: bool | None = None) -> GuestDevice:
    return GuestDevice(kind="pci", source=source, address=PciAddress.parse(address), managed=managed)


CHOSEN = "<address type='pci' domain='0x0000' bus='0x3b' slot='0x02' function='0x3'/>"
ACTUAL = f"<actual type='hostdev'><source>{CHOSEN}</source></actual>"


@pytest.mark.parametrize(
    ("interface", "device"),
    [
        (
            f"<interface type='hostdev' managed='yes'><source network='pool'>{CHOSEN}</source></interface>",
            pci("interface network pool", "0000:3b:02.3", managed=True),
        ),
        (
            f"<interface type='network'><source network='pool'/>{ACTUAL}</interface>",
            pci("interface network pool", "0000:3b:02.3"),
        ),
        (
            "<interface type='hostdev'><source network='pool'/></interface>",
            GuestDevice(kind="pci", source="interface network pool"),
        ),
    ],
    ids=["in place", "in actual", "not chosen yet"],
)
def test_the_device_that_libvirt_chose_from_a_network_is_named_with_the_network(
    interface: str, device: GuestDevice
) -> None:
    assert read(f"<devices>{interface}</devices>") == ReadDomain(domain=observed(devices=(device,)))


def test_a_network_interface_without_a_host_device_is_none() -> None:
    bridge = "<devices><interface type='network'><source network='default' bridge='virbr0'/></interface></devices>"
    assert read(bridge) == ReadDomain(domain=observed())


def test_nvme_functions_below_a_disk_are_held_too() -> None:
    source = "<source type='pci' managed='no'><address domain='0x0' bus='0x{}' slot='0' function='0'/></source>"
    disk = (
        "<devices><disk type='file'><source file='/a'/>"
        f"<backingStore type='nvme'>{source.format('81')}</backingStore>"
        f"<mirror type='nvme' job='copy'>{source.format('82')}</mirror></disk></devices>"
    )
    assert read(disk).domain == observed(
        devices=(pci("disk nvme", "0000:81:00.0", managed=False), pci("disk nvme", "0000:82:00.0", managed=False))
    )


def test_the_vcpu_element_alone_says_how_many_vcpus_float() -> None:
    assert read("<vcpu placement='static'>3</vcpu>") == ReadDomain(
        domain=observed(vcpus=3, vcpus_online=CpuSet((0, 1, 2)))
    )


def test_the_current_count_is_of_the_lowest_vcpus() -> None:
    assert read("<vcpu current='2'>16</vcpu>") == ReadDomain(domain=observed(vcpus=16, vcpus_online=CpuSet((0, 1))))


def test_ranges_and_exceptions_of_pins_are_read_and_sorted_by_vcpu() -> None:
    body = (
        "<vcpu cpuset='0-7,^3'>16</vcpu><cputune><vcpupin vcpu='15' cpuset='2-7'/><vcpupin vcpu='3' cpuset='2-7,^3,9'/>"
        "<emulatorpin cpuset='1,^1,0'/></cputune>"
    )
    assert read(body) == ReadDomain(
        domain=observed(
            vcpus=16,
            vcpus_online=CpuSet(range(16)),
            cpuset=CpuSet((0, 1, 2, 4, 5, 6, 7)),
            vcpu_pins=(
                Pin(thread=3, cpus=CpuSet((2, 4, 5, 6, 7, 9))),
                Pin(thread=15, cpus=CpuSet((2, 3, 4, 5, 6, 7))),
            ),
            emulator_pin=CpuSet((0,)),
        )
    )


def test_memory_left_to_the_placement_of_libvirt_names_no_cell() -> None:
    body = "<vcpu placement='auto'>1</vcpu><numatune><memory mode='strict' placement='auto'/></numatune>"
    assert read(body) == ReadDomain(domain=observed(mode="strict"))


def test_a_domain_of_the_test_driver_is_read() -> None:
    body = "<memory unit='KiB'>8388608</memory><currentMemory unit='KiB'>2097152</currentMemory><vcpu>2</vcpu>"
    assert read_domain(guest(body, attributes="type='test' id='1'")) == ReadDomain(
        domain=observed(memory_kib=8388608, current_memory_kib=2097152, vcpus=2, vcpus_online=CpuSet((0, 1)))
    )


def test_metadata_of_an_older_nova_is_of_nova() -> None:
    metadata = (
        "<metadata><nova:instance xmlns:nova='http://openstack.org/xmlns/libvirt/nova/1.0'>"
        "<nova:flavor name='m1.tiny'/></nova:instance></metadata>"
    )
    assert read(metadata) == ReadDomain(domain=observed(maker="nova", facts=MappingProxyType({"flavor": "m1.tiny"})))
