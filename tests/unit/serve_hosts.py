"""Hosts with devices to give away in a line or two, and answers by trying everything, to hold `serve` against."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec

from agent.core.cpuset import CpuSet
from agent.core.fit.devices.serve import needs, serve
from agent.core.fit.host import Offer, host_facts, offer_of
from agent.core.host_config import DeviceSpec
from agent.core.pci import DeviceType, PciAddress, PciDevice
from agent.core.pci_request import PciNumaPolicy, PciRequest, PciSpec
from agent.core.placement import GivenDevices
from tests.builders import Node, configured, function, guest, host

EVERYTHING = (DeviceSpec(vendor_id="8086"),)
NOTHING: Mapping[str, str | None] = MappingProxyType({})


def pf(card: int) -> str:
    """Address of the physical function of a card."""
    return f"0000:{card:02x}:00.0"


def vf(card: int, number: int) -> str:
    """Address of a virtual function of a card; they begin in slot 1."""
    return f"0000:{card:02x}:{(number + 8) // 8:02x}.{number % 8}"


def nic(card: int, cell: int | None, vfs: int, kind: DeviceType = "type-VF") -> tuple[PciDevice, ...]:
    """A card and its virtual functions."""
    parts = (function(vf(card, n), kind, numa=cell, pf=pf(card)) for n in range(vfs))
    return (function(pf(card), "type-PF", numa=cell), *parts)


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """A host with these devices. sockets: of each cell, None where it is not known. taken: addresses that a guest has.
    bare: cells without CPUs."""

    devices: tuple[PciDevice, ...]
    spec: tuple[DeviceSpec, ...] = EVERYTHING
    sockets: tuple[int | None, ...] = (0, 1)
    taken: tuple[str, ...] = ()
    bare: tuple[int, ...] = ()

    def offer(self) -> Offer:
        """What it has for a guest to come."""
        cpus = {cell: "" if cell in self.bare else f"{4 * cell}-{4 * cell + 3}" for cell in range(len(self.sockets))}
        made = host({cell: Node(text, 8192) for cell, text in cpus.items()}, pci=self.devices)
        made = configured(made, device_spec=self.spec)
        on = [
            msgspec.structs.replace(cpu, socket=None if cpu.cell is None else self.sockets[cpu.cell])
            for cpu in made.topology.cpus
        ]
        topology = msgspec.structs.replace(made.topology, cpus=tuple(on))
        guests = [guest(f"has {address}", dev=(address,)) for address in self.taken]
        return offer_of(host_facts(topology, made.config), made.usage(*guests))


def asks(
    name: str,
    kind: DeviceType | None = "type-VF",
    count: int = 1,
    policy: PciNumaPolicy = "required",
    *,
    tags: Mapping[str, str | None] = NOTHING,
) -> PciRequest:
    """A request for devices of one kind."""
    spec = PciSpec(device_type=kind, tags=MappingProxyType(dict(tags)))
    return PciRequest(id=name, specs=(spec,), count=count, numa_policy=policy)


def served(
    room: Room | Offer, *requests: PciRequest, cells: Sequence[int] | None = (0,), near_only: bool = False
) -> tuple[GivenDevices, ...] | None:
    """What `serve` gives."""
    has = room if isinstance(room, Offer) else room.offer()
    on = None if cells is None else CpuSet(cells)
    return serve(needs(requests, has), has, on, near_only=near_only)


def given(
    room: Room | Offer, *requests: PciRequest, cells: Sequence[int] | None = (0,), near_only: bool = False
) -> dict[str, list[str]] | None:
    """The same as text, by request."""
    answer = served(room, *requests, cells=cells, near_only=near_only)
    return None if answer is None else {one.request: list(map(str, one.devices)) for one in answer}


def free(room: Room) -> tuple[PciDevice, ...]:
    """Devices that no guest has, nor any relative of them."""
    taken = {PciAddress.parse(text) for text in room.taken}
    parents = {device.parent for device in room.devices if device.address in taken}
    return tuple(one for one in room.devices if not {one.address, one.parent} & taken and one.address not in parents)


def will_do(room: Room, device: PciDevice, request: PciRequest) -> bool:
    """By nova's rules, one device at a time."""
    spec = next((spec for spec in room.spec if spec.matches(device)), None)
    if spec is None:
        return False
    has = {name: (value or "").lower() or None for name, value in spec.tags.items()}
    if device.type != "type-PCI":
        has["remote_managed"] = has.get("remote_managed") or "false"
    types = {one.device_type for one in request.specs}
    is_remote, wants_remote = has.get("remote_managed") == "true", False
    does = False
    for one in request.specs:
        asked = {name: (value or "").lower() or None for name, value in one.tags.items()}
        wants_remote = wants_remote or asked.get("remote_managed") == "true"
        fits_tags = all(has.get(name) == value for name, value in asked.items())
        does = does or (one.device_type in {None, device.type} and fits_tags)
    if is_remote and device.type == "type-PF":
        return False
    return (
        does
        and (device.type in types or device.type in {"type-PCI", "type-VF"})
        and (wants_remote or not is_remote)
        and request.live_migratable in {None, spec.live_migratable}
    )


def is_allowed(
    room: Room, device: PciDevice, policy: PciNumaPolicy, cells: Sequence[int] | None, *, near_only: bool
) -> bool:
    """The policy over the set of the guest's host cells."""
    with_cpus = len(room.sockets) - len(room.bare)
    if cells is None or with_cpus <= 1 or device.cell in cells:
        return True
    if policy == "required":
        return False
    if policy == "socket":
        known = {cell: socket for cell, socket in enumerate(room.sockets) if cell not in room.bare}
        return device.cell is not None and known.get(device.cell) in {known.get(cell) for cell in cells} - {None}
    if near_only:
        return False
    return policy == "preferred" or device.cell is None


def answers(
    room: Room, requests: Sequence[PciRequest], cells: Sequence[int] | None, *, near_only: bool = False
) -> Iterator[tuple[tuple[PciDevice, ...], ...]]:
    """Every way to serve all of them."""

    def rest(place: int, used: tuple[PciDevice, ...]) -> Iterator[tuple[tuple[PciDevice, ...], ...]]:
        if place == len(requests):
            yield ()
            return
        asked = requests[place]
        those = [
            one
            for one in free(room)
            if one not in used
            and will_do(room, one, asked)
            and is_allowed(room, one, asked.numa_policy, cells, near_only=near_only)
        ]
        for some in itertools.combinations(those, asked.count):
            if not has_relatives(used + some):
                yield from ((some, *others) for others in rest(place + 1, used + some))

    return rest(0, ())


def has_relatives(devices: Sequence[PciDevice]) -> bool:
    """A physical function and one of its virtual ones are both there."""
    return bool({one.parent for one in devices if one.parent} & {one.address for one in devices})
