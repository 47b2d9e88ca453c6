"""What the operator configured about this host's resources, as the core needs it."""

from __future__ import annotations

import fnmatch
import heapq
import re
import string
from collections.abc import Iterator, Sequence
from types import MappingProxyType

from agent.core.cpuset import CpuSet
from agent.core.pci import PciAddress, PciDevice
from agent.core.pci_request import Alias
from agent.core.values import ReadOnlyMap, Value


class ReservedPages(Value, frozen=True, kw_only=True):
    """Huge pages of one cell and size that guests may not have (nova's reserved_huge_pages)."""

    cell: int
    size_kib: int
    count: int


class AddressPattern(Value, frozen=True, kw_only=True):
    """A PCI address by regular expressions, each matched from the start of its part (nova's address object)."""

    domain: str = ".*"
    bus: str = ".*"
    slot: str = ".*"
    function: str = ".*"

    @property
    def parts(self) -> tuple[str, str, str, str]:
        """In the order of an address."""
        return (self.domain, self.bus, self.slot, self.function)

    def matches(self, address: PciAddress) -> bool:
        """True when every part does."""
        return all(map(re.match, self.parts, re.split("[:.]", str(address))))


class DeviceSpec(Value, frozen=True, kw_only=True):
    """Which devices may be given to guests: all that is set must match.

    address: "0000:3b:00.1" or the same with * for any part. pattern: the address by regular expressions. devname: the
    network interface of the device or of its physical function. As in nova, an address that leaves nothing open stands
    for the virtual functions of that device too; one with * or an expression stands only for what it matches itself.

    The rest says what the device is good for. tags: nova's and own ones by name, None for nova's null (a
    physical_network of null is an overlay). managed: libvirt binds its driver. one_time_use: not offered again.
    resource_class, traits: as Placement knows them.
    """

    address: str | None = None
    vendor_id: str | None = None
    product_id: str | None = None
    pattern: AddressPattern | None = None
    devname: str | None = None
    tags: ReadOnlyMap[str, str | None] = MappingProxyType({})
    managed: bool | None = None
    live_migratable: bool | None = None
    one_time_use: bool = False
    resource_class: str | None = None
    traits: tuple[str, ...] = ()

    def matches(self, device: PciDevice) -> bool:
        """True when the device is one of these."""
        return (
            self._matches_address(device)
            and self._matches_name(device)
            and self.vendor_id in {None, "*", device.vendor_id}
            and self.product_id in {None, "*", device.product_id}
        )

    def flaw(self, device: PciDevice, parent: PciDevice | None = None) -> str | None:
        """Why a device that this matches cannot be meant by it; None when it can.

        parent: the device's physical function, whose card serial is the virtual one's too.
        """
        if self.one_time_use and device.type in {"type-VF", "vdpa"}:
            return f"device_spec says one_time_use, which is for type-PCI and type-PF; this is {device.type}"
        if self.tags.get("remote_managed") != "true":
            return None
        if device.type == "type-PF":
            return "device_spec says remote_managed, which a physical function cannot be"
        if not (device.serial or (parent and parent.serial)):
            return "device_spec says remote_managed, which takes a card that tells its serial number"
        return None

    def _matches_address(self, device: PciDevice) -> bool:
        addresses = [device.address]
        if device.parent is not None and self._names_one_address:
            addresses.append(device.parent)
        return (self.pattern is None or any(map(self.pattern.matches, addresses))) and (
            self.address is None or any(fnmatch.fnmatchcase(str(one), self.address.lower()) for one in addresses)
        )

    def _matches_name(self, device: PciDevice) -> bool:
        return self.devname is None or self.devname in {device.parent_ifname, *(net.name for net in device.netdevs)}

    @property
    def one_address(self) -> PciAddress | None:
        """The only address that this can match besides those of virtual functions of it; None when it leaves any part
        open."""
        try:
            return None if self.address is None else PciAddress.parse(self.address)
        except ValueError:
            return None

    @property
    def _names_one_address(self) -> bool:
        parts = re.split("[:.]", self.address) if self.address else self.pattern.parts if self.pattern else ()
        return all(set(part) <= set(string.hexdigits) for part in parts)


class AcceptRule(Value, frozen=True, kw_only=True):
    """This guest's part (name or uuid, "*" for all guests) in conflicts of this kind is intended."""

    kind: str
    guest: str


class HostConfig(Value, frozen=True, kw_only=True):
    """dedicated, shared: None when the option is not set. Neither set is nova's legacy mode: both are then all usable
    CPUs and what only makes sense with a split is not reported; both the same (vcpu_pin_set) is that mode on fewer
    CPUs. device_spec empty: no filter is configured. pack_cells: guests go to the cells with the least that is free,
    not the most. share_cells: several cells of one guest may go to one cell of the host. host: its name, as others know
    it; empty: not known."""

    dedicated: CpuSet | None = None
    shared: CpuSet | None = None
    reserved_memory_mb: int = 512
    reserved_pages: tuple[ReservedPages, ...] = ()
    cpu_allocation_ratio: float = 4.0
    ram_allocation_ratio: float = 1.0
    device_spec: tuple[DeviceSpec, ...] = ()
    alias: tuple[Alias, ...] = ()
    pack_cells: bool = False
    share_cells: bool = False
    accept: tuple[AcceptRule, ...] = ()
    host: str = ""

    @property
    def is_legacy(self) -> bool:
        """Neither CPU set is configured."""
        return self.dedicated is None and self.shared is None

    @property
    def has_split(self) -> bool:
        """Pinned and floating guests have CPUs of their own."""
        return self.dedicated != self.shared

    def offering(self) -> SpecIndex:
        """For looking up many devices."""
        return SpecIndex(self.device_spec)


class SpecIndex:
    """Which entry of device_spec offers a device. Entries that name one address are found by it, so that thousands of
    them cost no more than one."""

    def __init__(self, specs: Sequence[DeviceSpec]) -> None:
        self._by_address: dict[PciAddress, list[tuple[int, DeviceSpec]]] = {}
        self._others: list[tuple[int, DeviceSpec]] = []
        for place, spec in enumerate(specs):
            address = spec.one_address
            where = self._others if address is None else self._by_address.setdefault(address, [])
            where.append((place, spec))

    def spec_of(self, device: PciDevice, parent: PciDevice | None = None) -> DeviceSpec | None:
        """The first entry that matches and can mean the device, as in nova; None when none does.

        parent: the device's physical function, when it is a virtual one.
        """
        return next((spec for spec in self._matching(device) if spec.flaw(device, parent) is None), None)

    def flaw_of(self, device: PciDevice, parent: PciDevice | None = None) -> str | None:
        """Why the first entry that matches cannot mean the device; None when it can or when none matches."""
        return next((spec.flaw(device, parent) for spec in self._matching(device)), None)

    def _matching(self, device: PciDevice) -> Iterator[DeviceSpec]:
        named = self._by_address.get(device.address, [])
        if device.parent is not None:
            named = [*named, *self._by_address.get(device.parent, [])]
        for _, spec in heapq.merge(sorted(named, key=_place), self._others, key=_place):
            if spec.matches(device):
                yield spec


def _place(entry: tuple[int, DeviceSpec]) -> int:
    return entry[0]
