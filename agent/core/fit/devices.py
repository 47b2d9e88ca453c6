"""The devices of a host that guests can be given, in pools of those that no request can tell apart."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from agent.core.host_config import DeviceSpec, HostConfig
from agent.core.pci import PciAddress, PciDevice
from agent.core.topology import HostTopology
from agent.core.usage import DeviceUsage
from agent.core.values import ReadOnlyMap, Value


class Pool(Value, frozen=True, kw_only=True):
    """Offered functions that are alike in all that a request can ask about and have the same physical function.

    first: one of them, for all to be read from. spec: the entry of [pci] device_spec that offers them. devices: bit n
    for device n of the facts.
    """

    first: PciDevice
    spec: DeviceSpec
    devices: int


class DeviceFacts(Value, frozen=True, kw_only=True):
    """addresses: of device n, ascending. number: the reverse. pools: by lowest address; none when no [pci] device_spec
    is configured. relatives: of device n that has any, the functions that cannot be given away beside it."""

    addresses: tuple[PciAddress, ...] = ()
    number: ReadOnlyMap[PciAddress, int] = MappingProxyType({})
    pools: tuple[Pool, ...] = ()
    relatives: ReadOnlyMap[int, int] = MappingProxyType({})

    def free(self, rows: Iterable[DeviceUsage]) -> int:
        """Bit n for each device n that is offered and free by the books."""
        number, mask = self.number, 0
        for row in rows:
            if row.free and (found := number.get(row.address)) is not None:
                mask |= 1 << found
        return mask


def device_facts(topology: HostTopology, config: HostConfig) -> DeviceFacts:
    """Every function in the pool that it belongs to; the first entry of device_spec that matches counts, as in nova."""
    addresses = tuple(device.address for device in topology.pci)
    number = {address: n for n, address in enumerate(addresses)}
    alike: dict[object, tuple[PciDevice, DeviceSpec, int]] = {}
    relatives: dict[int, int] = {}
    for n, device in enumerate(topology.pci):
        parent = None if device.parent is None else number.get(device.parent)
        if parent is not None:
            relatives[n] = relatives.get(n, 0) | 1 << parent
            relatives[parent] = relatives.get(parent, 0) | 1 << n
        spec = next((spec for spec in config.device_spec if spec.matches(device)), None)
        if spec is not None:
            key = _alike(device, spec)
            first, _, mask = alike.get(key, (device, spec, 0))
            alike[key] = (first, spec, mask | 1 << n)
    return DeviceFacts(
        addresses=addresses,
        number=MappingProxyType(number),
        pools=tuple(Pool(first=first, spec=spec, devices=mask) for first, spec, mask in alike.values()),
        relatives=MappingProxyType(relatives),
    )


def _alike(device: PciDevice, spec: DeviceSpec) -> object:
    family = device.parent if device.parent is not None else device.address
    name = (device.vendor_id, device.product_id, device.type, device.cell)
    return (*name, id(spec), family, device.parent_ifname, device.serial is not None)
