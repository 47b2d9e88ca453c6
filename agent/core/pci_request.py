"""Host devices that a guest asks for, and the names (aliases) that flavors ask by."""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

from agent.core.pci import DeviceType
from agent.core.values import ReadOnlyMap, Value

PciNumaPolicy = Literal["required", "socket", "preferred", "legacy"]
"""How near a device must be to the host cells of its guest (nova's words): on one of them; on a socket of one of them;
anywhere, near ones first; on one of them or on none."""

PolicySource = Literal["port", "flavor", "image", "alias", "default"]
"""Where the policy of a request came from, the strongest first."""


class PciSpec(Value, frozen=True, kw_only=True):
    """One kind of device that will do: all that is set must match.

    device_type None: a plain or a virtual function; physical functions and vDPA must be asked for by name. tags: what
    [pci] device_spec must say of the device, by tag; the value None stands for nova's null ("physical_network": null,
    an overlay network), which as in nova a device without the tag meets too. traits: all of them.
    """

    vendor_id: str | None = None
    product_id: str | None = None
    device_type: DeviceType | None = None
    tags: ReadOnlyMap[str, str | None] = MappingProxyType({})
    resource_class: str | None = None
    traits: tuple[str, ...] = ()


class PciRequest(Value, frozen=True, kw_only=True):
    """`count` devices, each of any of `specs`.

    id: unique in one guest; "alias:NAME" of a flavor's, the port's id of a port's. live_migratable: True: only devices
    that are said to be; False: only those said not to be; None: any. parent_ifname: only functions of the physical one
    with that interface.
    """

    id: str
    specs: tuple[PciSpec, ...]
    count: int = 1
    numa_policy: PciNumaPolicy = "legacy"
    policy_source: PolicySource = "default"
    alias: str | None = None
    live_migratable: bool | None = None
    parent_ifname: str | None = None


class Alias(Value, frozen=True, kw_only=True):
    """A name for devices ([pci] alias). Several entries of one name are alternatives; they agree in the rest."""

    name: str
    specs: tuple[PciSpec, ...]
    numa_policy: PciNumaPolicy | None = None
    live_migratable: bool | None = None
