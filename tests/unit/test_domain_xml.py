"""Domain XML as libvirt wrote it for guests that really ran, and what each part of it becomes."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from agent.core.cpuset import CpuSet
from agent.core.guest import GuestCell, ObservedDomain, Pin
from agent.formats.domain_xml import ReadDomain, read_domain

DOMAINS = Path(__file__).parent.parent / "data" / "domains"


def captured(name: str) -> str:
    """The XML of a guest that ran, as virsh dumpxml printed it."""
    return (DOMAINS / f"{name}.xml").read_text()


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
            facts=MappingProxyType(
                {
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
            ),
        ),
        problems=(),
    )
