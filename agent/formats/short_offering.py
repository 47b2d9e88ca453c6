"""Which devices of a host in the short form are offered to guests, and as what: device_spec, with the tags laid over it
that devices have themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from agent.core.host_config import AddressPattern, DeviceSpec, SpecIndex
from agent.core.pci import PciAddress, PciDevice
from agent.formats import device_spec

_REMOTE = "remote_managed"
_BESIDE_TAGS = frozenset({"managed", "live_migratable", "one_time_use", "resource_class", "traits"})
ASSUMED_SERIAL = "assumed"
"""A card that is managed from afar tells its serial number, or nova would not offer it."""


class OwnTags(NamedTuple):
    """What a device says of itself. names: of all its tags; spec: the same as an entry of device_spec."""

    names: frozenset[str]
    spec: DeviceSpec


def own_tags(tags: Mapping[str, str | None]) -> OwnTags:
    """The tags of a device. Raises ValueError that says what of them is wrong."""
    if naming := sorted(device_spec.SPEC_KEYS & tags.keys()):
        raise ValueError(f"{naming[0]} says which device is meant, and is no tag")
    (spec,), _ = device_spec.device_specs(msgspec.json.encode(dict(tags)).decode())
    return OwnTags(frozenset(tags), spec)


def with_serial(device: PciDevice, own: OwnTags | None, specs: Sequence[DeviceSpec]) -> PciDevice:
    """With a serial number where its own tags or an entry of device_spec say that it is managed from afar."""
    if device.serial or device.type == "type-PF":
        return device
    if own is not None and _REMOTE in own.names:
        is_remote = _is_remote(own.spec)
    else:
        is_remote = any(_is_remote(spec) and spec.matches(device) for spec in specs)
    return msgspec.structs.replace(device, serial=ASSUMED_SERIAL) if is_remote else device


def _is_remote(spec: DeviceSpec) -> bool:
    return spec.tags.get(_REMOTE) == "true"


class Offering:
    """The entries that offer each device as what it is meant to be, and the flaws of what devices say of themselves.

    specs: device_spec; None when it is not given, and every device is offered. own: by address.
    """

    def __init__(
        self, devices: Sequence[PciDevice], own: Mapping[PciAddress, OwnTags], specs: tuple[DeviceSpec, ...] | None
    ) -> None:
        everything = (DeviceSpec(),) if any(one.address not in own for one in devices) else ()
        self._rest = everything if specs is None else specs
        self._own = own
        self._devices = {one.address: one for one in devices}
        index = SpecIndex(self._rest)
        self._meant = {one.address: self._spec_of(one, index) for one in devices} if own else {}

    def flaw_of(self, address: PciAddress) -> str | None:
        """Why a device cannot be what its own tags say; None when it can."""
        device, spec = self._devices[address], self._meant.get(address)
        return None if spec is None or address not in self._own else spec.flaw(device, self._parent(device))

    def entries(self) -> tuple[DeviceSpec, ...]:
        """As [pci] device_spec, the first that matches a device counting."""
        if not self._own:
            return self._rest
        alike: list[DeviceSpec] = []
        alone: list[PciDevice] = []
        for (vendor_id, product_id), same in self._products().items():
            spec = self._meant[same[0].address]
            if spec is not None and all(one.address in self._own and self._meant[one.address] == spec for one in same):
                # one for all of them, since each lookup tries every entry that names no address
                alike.append(msgspec.structs.replace(spec, vendor_id=vendor_id, product_id=product_id))
            else:
                alone += (one for one in same if one.address in self._own)
        return (*alike, *self._named(alone), *self._rest)

    def _spec_of(self, device: PciDevice, index: SpecIndex) -> DeviceSpec | None:
        entry = index.spec_of(device, self._parent(device))
        own = self._own.get(device.address)
        return _nameless(entry) if own is None else _laid_over(own, entry or DeviceSpec())

    def _parent(self, device: PciDevice) -> PciDevice | None:
        return None if device.parent is None else self._devices.get(device.parent)

    def _products(self) -> dict[tuple[str, str], list[PciDevice]]:
        products: dict[tuple[str, str], list[PciDevice]] = {}
        for device in self._devices.values():
            products.setdefault((device.vendor_id, device.product_id), []).append(device)
        return products

    def _named(self, alone: Sequence[PciDevice]) -> Iterator[DeviceSpec]:
        """Entries by address. That of a physical function stands for its virtual ones too, so that these come first,
        or, where one shall not be offered, it is an expression, which does not."""
        children: dict[PciAddress, list[PciDevice]] = {}
        for device in self._devices.values():
            if device.parent is not None:
                children.setdefault(device.parent, []).append(device)
        parents = [one for one in alone if one.address in children]
        first = [one for one in alone if one.address not in children]
        for parent in parents:
            first += (one for one in children[parent.address] if one.address not in self._own)
        for device in (*first, *parents):
            spec = self._meant[device.address]
            if spec is not None:
                is_exact = any(self._meant[one.address] is None for one in children.get(device.address, ()))
                yield msgspec.structs.replace(spec, **_name(device.address, is_exact=is_exact))


def _name(address: PciAddress, *, is_exact: bool) -> dict[str, Any]:
    if not is_exact:
        return {"address": str(address)}
    domain, bus, rest = str(address).split(":")
    slot, function = rest.split(".")
    pattern = AddressPattern(domain=f"{domain}$", bus=f"{bus}$", slot=f"{slot}$", function=f"{function}$")
    return {"pattern": pattern}


def _nameless(spec: DeviceSpec | None) -> DeviceSpec | None:
    """What an entry says a device is good for."""
    if spec is None:
        return None
    return msgspec.structs.replace(spec, address=None, pattern=None, devname=None, vendor_id=None, product_id=None)


def _laid_over(own: OwnTags, entry: DeviceSpec) -> DeviceSpec:
    said = {name: getattr(own.spec, name) for name in own.names & _BESIDE_TAGS}
    tags = MappingProxyType(dict(sorted({**entry.tags, **own.spec.tags}.items())))
    return msgspec.structs.replace(_nameless(entry) or entry, **said, tags=tags)
