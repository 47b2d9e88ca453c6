"""Names of resource classes and traits, as nova makes Placement's of what an operator writes."""

from __future__ import annotations

import re

CUSTOM = "CUSTOM_"

_STANDARD_CLASSES = frozenset(
    {
        "DISK_GB",
        "FPGA",
        "IPV4_ADDRESS",
        "MEMORY_MB",
        "MEM_ENCRYPTION_CONTEXT",
        "NET_BW_EGR_KILOBIT_PER_SEC",
        "NET_BW_IGR_KILOBIT_PER_SEC",
        "NET_PACKET_RATE_EGR_KILOPACKET_PER_SEC",
        "NET_PACKET_RATE_IGR_KILOPACKET_PER_SEC",
        "NET_PACKET_RATE_KILOPACKET_PER_SEC",
        "NUMA_CORE",
        "NUMA_MEMORY_MB",
        "NUMA_SOCKET",
        "NUMA_THREAD",
        "PCI_DEVICE",
        "PCPU",
        "PGPU",
        "SRIOV_NET_VF",
        "VCPU",
        "VGPU",
        "VGPU_DISPLAY_HEAD",
    }
)

_STANDARD_TRAIT = re.compile("(COMPUTE|HW|MISC|OWNER|STORAGE)_[A-Z0-9_]+")
"""The namespaces of standard traits; their hundreds of names are not told apart from others in them."""


def resource_class(text: str) -> str:
    """A standard class or a custom one: "gpu vf" is CUSTOM_GPU_VF."""
    name = text.upper()
    return name if name in _STANDARD_CLASSES or name.startswith(CUSTOM) else _custom(name)


def traits(text: str) -> tuple[str, ...]:
    """Of a list with commas, sorted, each once. Empty text: none."""
    return tuple(sorted({_trait(part.strip()) for part in text.split(",") if part.strip()}))


def _trait(name: str) -> str:
    if _STANDARD_TRAIT.fullmatch(name):
        return name
    return name.upper() if name.upper().startswith(CUSTOM) else _custom(name.upper())


def _custom(name: str) -> str:
    return CUSTOM + re.sub("[^A-Z0-9]+", "_", name)
