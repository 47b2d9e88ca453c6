"""The devices of a host that guests can be given, in pools of those that no request can tell apart."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

import msgspec

from agent.core.conflicts import Owner
from agent.core.host_config import DeviceSpec, HostConfig
from agent.core.pci import PciAddress, PciDevice
from agent.core.topology import HostTopology
from agent.core.usage import DeviceUsage
from agent.core.values import ReadOnlyMap, Value

REMOTE_MANAGED = "remote_managed"
LIVE_MIGRATABLE = "live_migratable"

_NOT_REMOTE = frozenset({"type-PF", "type-VF", "vdpa"})
"""Types of which nova says that they are not managed remotely where device_spec says nothing."""


class Pool(Value, frozen=True, kw_only=True):
    """Offered functions that are alike in all that a request can ask about and have the same physical function (PF).

    first: one of them, for all to be read from. spec: the entry of [pci] device_spec that offers it; that of the others
    says the same of what they are good for. devices: bit n for device n of the facts. family: number of the PF, their
    own or their parent's; None where nothing is ruled out by giving one of them away. is_pf: it is that PF. tags: what
    requests are compared with, in lower case. resource_class, traits: as Placement would know them. interfaces: of its
    PF.
    """

    first: PciDevice
    spec: DeviceSpec
    devices: int
    family: int | None = None
    is_pf: bool = False
    tags: ReadOnlyMap[str, str | None] = MappingProxyType({})
    resource_class: str = ""
    traits: frozenset[str] = frozenset()
    interfaces: tuple[str, ...] = ()


class DeviceFacts(Value, frozen=True, kw_only=True):
    """addresses: of device n, ascending. number: the reverse. pools: by lowest address; none when no [pci] device_spec
    is configured. alike: numbers of the pools that differ in their cell and physical function alone. relatives: of
    device n that has any, the functions that cannot be given away beside it. unnamed: functions that no entry matches;
    flawed: those that one matches and cannot mean, and why."""

    addresses: tuple[PciAddress, ...] = ()
    number: ReadOnlyMap[PciAddress, int] = MappingProxyType({})
    pools: tuple[Pool, ...] = ()
    alike: tuple[tuple[int, ...], ...] = ()
    relatives: ReadOnlyMap[int, int] = MappingProxyType({})
    unnamed: tuple[PciDevice, ...] = ()
    flawed: tuple[tuple[PciDevice, str], ...] = ()

    def free(self, rows: Iterable[DeviceUsage]) -> int:
        """Bit n for each device n that is offered and free by the books."""
        number, mask = self.number, 0
        for row in rows:
            if row.free and (found := number.get(row.address)) is not None:
                mask |= 1 << found
        return mask

    def holders(self, rows: Iterable[DeviceUsage]) -> ReadOnlyMap[int, tuple[Owner, ...]]:
        """Who has device n, for each that somebody has, offered or not."""
        number = self.number
        return MappingProxyType(
            {found: row.owners for row in rows if row.owners and (found := number.get(row.address)) is not None}
        )


def device_facts(topology: HostTopology, config: HostConfig) -> DeviceFacts:
    """Every function in the pool that it belongs to; the first entry of device_spec that matches counts, as in nova."""
    addresses = tuple(device.address for device in topology.pci)
    number = {address: n for n, address in enumerate(addresses)}
    parents = {n: number[one.parent] for n, one in enumerate(topology.pci) if one.parent in number}
    relatives: dict[int, int] = {}
    for n, parent in parents.items():
        relatives[n] = relatives.get(n, 0) | 1 << parent
        relatives[parent] = relatives.get(parent, 0) | 1 << n
    offering = config.offering()
    pools: dict[object, Pool] = {}
    devices: dict[object, int] = {}
    alike: dict[object, list[int]] = {}
    unnamed: list[PciDevice] = []
    flawed: list[tuple[PciDevice, str]] = []
    for n, device in enumerate(topology.pci):
        family = parents.get(n, n) if n in relatives else None
        card = None if family is None else topology.pci[family]
        spec = offering.spec_of(device, card)
        if spec is None:
            flaw = offering.flaw_of(device, card)
            unnamed += [device] if flaw is None else []
            flawed += [] if flaw is None else [(device, flaw)]
        else:
            kind = _kind(device, spec)
            key = (kind, device.cell, device.parent or device.address)
            devices[key] = devices.get(key, 0) | 1 << n
            if key not in pools:
                alike.setdefault(kind, []).append(len(pools))
                pools[key] = _pool(device, spec, family, is_pf=family == n)
    return DeviceFacts(
        addresses=addresses,
        number=MappingProxyType(number),
        pools=tuple(msgspec.structs.replace(pool, devices=devices[key]) for key, pool in pools.items()),
        alike=tuple(map(tuple, alike.values())),
        relatives=MappingProxyType(relatives),
        unnamed=tuple(unnamed),
        flawed=tuple(flawed),
    )


def _kind(device: PciDevice, spec: DeviceSpec) -> object:
    """Equal for functions that no request can tell apart but by where they are, whichever entries offer them."""
    good_for = (spec.managed, spec.live_migratable, spec.one_time_use, spec.resource_class, spec.traits)
    name = (device.vendor_id, device.product_id, device.type, _interfaces(device))
    return (name, good_for, frozenset(spec.tags.items()))


def _interfaces(device: PciDevice) -> tuple[str, ...]:
    if device.type == "type-PF":
        return tuple(net.name for net in device.netdevs)
    return () if device.parent_ifname is None else (device.parent_ifname,)


def _pool(device: PciDevice, spec: DeviceSpec, family: int | None, *, is_pf: bool) -> Pool:
    return Pool(
        first=device,
        spec=spec,
        devices=0,
        family=family,
        is_pf=is_pf,
        tags=_tags(device, spec),
        resource_class=spec.resource_class or f"CUSTOM_PCI_{device.vendor_id}_{device.product_id}".upper(),
        traits=_traits(spec),
        interfaces=_interfaces(device),
    )


def _tags(device: PciDevice, spec: DeviceSpec) -> ReadOnlyMap[str, str | None]:
    tags = {name: None if value is None else value.lower() for name, value in spec.tags.items()}
    if device.type in _NOT_REMOTE and tags.get(REMOTE_MANAGED) is None:
        tags[REMOTE_MANAGED] = "false"
    if spec.live_migratable is not None:
        tags[LIVE_MIGRATABLE] = str(spec.live_migratable).lower()
    return MappingProxyType(tags)


def _traits(spec: DeviceSpec) -> frozenset[str]:
    """What device_spec says, and what nova adds to it."""
    added = {"COMPUTE_MANAGED_PCI_DEVICE"}
    if spec.live_migratable:
        added.add("HW_PCI_LIVE_MIGRATABLE")
    if spec.one_time_use:
        added.add("HW_PCI_ONE_TIME_USE")
    return frozenset(added.union(spec.traits))
