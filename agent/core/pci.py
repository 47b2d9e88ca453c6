"""PCI functions of a host: addresses and what is known of each device."""

from __future__ import annotations

import functools
import re
from typing import Literal

import msgspec

from agent.core.values import Value

_ADDRESS = re.compile(
    r"(?:(?P<domain>[0-9a-f]{1,8}):)?(?P<bus>[0-9a-f]{1,2}):(?P<slot>[0-9a-f]{1,2})\.(?P<function>[0-7])", re.IGNORECASE
)
HIGHEST_SLOT = 0x1F

DeviceType = Literal["type-PCI", "type-PF", "type-VF", "vdpa"]
"""nova's names: a plain function, a physical function with virtual ones, a virtual function, one with a vDPA device."""


@functools.total_ordering
class PciAddress:
    """domain:bus:slot.function, ordered so. The domain may be wider than 16 bits (VMD and Hyper-V make such).

    A class of its own and no Struct: the codec writes it as the text that lspci, libvirt and nova use.
    """

    __slots__ = ("_key",)
    _key: tuple[int, int, int, int]

    def __init__(self, domain: int, bus: int, slot: int, function: int) -> None:
        object.__setattr__(self, "_key", (domain, bus, slot, function))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"PciAddress is immutable: {name} cannot be set")

    def __reduce__(self) -> tuple[object, ...]:
        return (PciAddress, self._key)

    @classmethod
    def parse(cls, text: str) -> PciAddress:
        """Read "0000:3b:00.1" or "3b:00.1"; raises ValueError that quotes the text."""
        match = _ADDRESS.fullmatch(text.strip())
        if match is None or int(match["slot"], 16) > HIGHEST_SLOT:
            raise ValueError(f"{text!r} is not a PCI address (domain:bus:slot.function in hexadecimal)")
        domain, bus, slot = (int(match[part] or "0", 16) for part in ("domain", "bus", "slot"))
        return cls(domain, bus, slot, int(match["function"]))

    @property
    def domain(self) -> int:
        """PCI segment."""
        return self._key[0]

    @property
    def bus(self) -> int:
        """Bus number, up to 0xff."""
        return self._key[1]

    @property
    def slot(self) -> int:
        """Device number on the bus, up to 0x1f."""
        return self._key[2]

    @property
    def function(self) -> int:
        """Function number, up to 7."""
        return self._key[3]

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, PciAddress) else NotImplemented

    def __lt__(self, other: PciAddress) -> bool:
        return self._key < other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __str__(self) -> str:
        domain, bus, slot, function = self._key
        return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"

    def __repr__(self) -> str:
        return f"PciAddress.parse({str(self)!r})"


class NetInterface(Value, frozen=True, kw_only=True):
    """A network interface that the kernel made of a PCI function."""

    name: str
    mac: str | None = None


class MdevType(Value, frozen=True, kw_only=True):
    """A kind of mediated device that a parent can still make `available` of."""

    id: str
    name: str | None = None
    device_api: str | None = None
    available: int = 0


class MediatedDevice(Value, frozen=True, kw_only=True):
    """A mediated device that exists now. parent: the PCI function it lives on, None for another bus."""

    uuid: str
    type: str | None = None
    parent: PciAddress | None = None


class PciDevice(Value, frozen=True, kw_only=True):
    """One PCI function as the kernel shows it.

    cell: NUMA node, None when the kernel says -1. vendor_id, product_id: 4 hexadecimal digits; class_code: 4 digits
    (base class and subclass), written "class". parent: the physical function of a virtual one. sriov_*: of a physical
    function, None otherwise. vdpa: names of its vDPA devices and
    of their character devices. serial: from the card's vital product data.
    """

    address: PciAddress
    vendor_id: str
    product_id: str
    class_code: str = msgspec.field(name="class")
    cell: int | None = None
    type: DeviceType = "type-PCI"
    parent: PciAddress | None = None
    driver: str | None = None
    iommu_group: int | None = None
    sriov_totalvfs: int | None = None
    sriov_numvfs: int | None = None
    netdevs: tuple[NetInterface, ...] = ()
    parent_ifname: str | None = None
    vdpa: tuple[str, ...] = ()
    mdev_types: tuple[MdevType, ...] = ()
    serial: str | None = None
