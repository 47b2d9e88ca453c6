"""What the operator configured about this host's resources, as the core needs it."""

from __future__ import annotations

import fnmatch

from agent.core.cpuset import CpuSet
from agent.core.pci import PciDevice
from agent.core.values import Value


class ReservedPages(Value, frozen=True, kw_only=True):
    """Huge pages of one cell and size that guests may not have (nova's reserved_huge_pages)."""

    cell: int
    size_kib: int
    count: int


class DeviceSpec(Value, frozen=True, kw_only=True):
    """Which devices may be given to guests: all that is set must match. address: glob over "0000:3b:00.1"; a part that
    is left out in front matches anything, as in nova."""

    address: str | None = None
    vendor_id: str | None = None
    product_id: str | None = None

    def matches(self, device: PciDevice) -> bool:
        """True when the device, or its physical function, is one of these."""
        addresses = [str(device.address)] + ([str(device.parent)] if device.parent else [])
        return (
            (self.address is None or any(fnmatch.fnmatchcase(text, self.address.lower()) for text in addresses))
            and self.vendor_id in (None, "*", device.vendor_id)
            and self.product_id in (None, "*", device.product_id)
        )


class AcceptRule(Value, frozen=True, kw_only=True):
    """Conflicts of this kind that involve this guest (name or uuid, "*" for all) are intended."""

    kind: str
    guest: str


class HostConfig(Value, frozen=True, kw_only=True):
    """dedicated, shared: None when the option is not set. Neither set is nova's legacy mode: both are then all usable
    CPUs and what only makes sense with a split is not reported. device_spec empty: no filter is configured."""

    dedicated: CpuSet | None = None
    shared: CpuSet | None = None
    reserved_memory_mb: int = 512
    reserved_pages: tuple[ReservedPages, ...] = ()
    cpu_allocation_ratio: float = 4.0
    ram_allocation_ratio: float = 1.0
    device_spec: tuple[DeviceSpec, ...] = ()
    accept: tuple[AcceptRule, ...] = ()

    @property
    def is_legacy(self) -> bool:
        """Neither CPU set is configured."""
        return self.dedicated is None and self.shared is None
