"""Devices that may be used once (device_spec's one_time_use): which have been, and that they are offered no more."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from agent.core.claim.book import Draft
from agent.core.claim.values import SpentDevice, Step
from agent.core.guest import Sighting
from agent.core.host_config import HostConfig
from agent.core.ledger import Holds
from agent.core.pci import PciAddress
from agent.core.topology import HostTopology
from agent.core.usage.rows import DeviceUsage, Usage


def once_only(topology: HostTopology, config: HostConfig) -> frozenset[PciAddress]:
    """The functions that may be used once."""
    if not any(spec.one_time_use for spec in config.device_spec):
        return frozenset()
    offering = config.offering()
    specs = ((device.address, offering.spec_of(device)) for device in topology.pci)
    return frozenset(address for address, spec in specs if spec is not None and spec.one_time_use)


def note_spent(
    draft: Draft, sightings: Mapping[str, Sighting], holds: Mapping[str, Holds], once: frozenset[PciAddress]
) -> None:
    """Every such function that an active guest has is spent from now on. holds: what is seen of each guest."""
    if not once:
        return
    for uuid, seen in sightings.items():
        held = holds.get(uuid)
        for address in held.devices if held is not None and seen.is_active else ():
            if address in once and address not in draft.book.spent:
                draft.put(SpentDevice(address=address, instance=uuid, name=seen.name, at=draft.now.wall))


def offer_again(draft: Draft, address: PciAddress) -> SpentDevice:
    """The operator says that the device is clean. Raises KeyError when it is not spent."""
    spent = draft.book.spent[address]
    draft.note(Step(sequence=0, at="", event="device-offered", instance=spent.instance, note=str(address)))
    draft.drop(spent)
    return spent


def with_spent(usage: Usage, spent: Mapping[PciAddress, SpentDevice]) -> Usage:
    """The rows in which no spent device is free."""
    if not spent or not any(row.free and row.address in spent for row in usage.pci):
        return usage
    rows = tuple(_kept_back(row, spent[row.address]) if row.address in spent else row for row in usage.pci)
    return msgspec.structs.replace(usage, pci=rows)


def _kept_back(row: DeviceUsage, spent: SpentDevice) -> DeviceUsage:
    if not row.free:
        return row
    remark = (
        f"for one use, which {spent.name or spent.instance} had at {spent.at}: once it is clean,"
        f" `agentctl device offer-again {row.address}`"
    )
    return msgspec.structs.replace(row, free=False, remark=remark, kept_back=True)
