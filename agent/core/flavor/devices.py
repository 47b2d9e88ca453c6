"""The host devices that a flavor's aliases and a guest's ports ask for, and how near each must be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import get_args

from agent.core.flavor.reading import UNREAD, Reading, Unread, whole
from agent.core.instance import Port, VnicType
from agent.core.pci import DeviceType
from agent.core.pci_request import Alias, PciNumaPolicy, PciRequest, PciSpec, PolicySource
from agent.core.request_faults import Property
from agent.core.values import Value
from agent.core.words import brief, some

_POLICIES: Mapping[str, PciNumaPolicy] = {word: word for word in get_args(PciNumaPolicy)}
_MOST = 1 << 16
"""Devices in one entry; far more than any host has."""

_TYPES: Mapping[VnicType, DeviceType | None] = {
    "direct": None,
    "macvtap": None,
    "virtio-forwarder": None,
    "remote-managed": None,
    "direct-physical": "type-PF",
    "vdpa": "vdpa",
}
"""Kinds of ports that need a device of the host, and which."""

_ELSEWHERE: Mapping[VnicType, str] = {
    "accelerator-direct": "cyborg gives out its device",
    "accelerator-direct-physical": "cyborg gives out its device",
    "baremetal": "it is for bare metal",
    "smart-nic": "it is for bare metal",
}


class _Policy(Value, frozen=True, kw_only=True):
    """How near, and who said so."""

    word: PciNumaPolicy = "legacy"
    source: PolicySource = "default"


def devices(reading: Reading, ports: tuple[Port, ...], aliases: tuple[Alias, ...]) -> tuple[PciRequest, ...]:
    """The flavor's requests, then the ports'. The port's policy is the strongest, the alias' the weakest."""
    policy = _policy(reading)
    stated = policy if isinstance(policy, _Policy) else None
    by_alias = tuple(_alias_requests(reading, aliases, stated))
    by_port = tuple(_port_requests(reading, ports, stated))
    if stated is not None and not by_alias and all(one.policy_source == "port" for one in by_port):
        reading.note(f"The policy {stated.word} of the {stated.source} for devices has no effect: it is for none.")
    return by_alias + by_port


def _policy(reading: Reading) -> _Policy | Unread | None:
    flavor, image = reading.both("pci_numa_affinity_policy")
    by_flavor = reading.word(flavor, _POLICIES, "pci-policy-unknown")
    by_image = reading.word(image, _POLICIES, "pci-policy-unknown")
    if by_flavor is UNREAD or by_image is UNREAD:
        return UNREAD
    if flavor and image and by_flavor != by_image:
        return reading.refuse(
            "pci-policy-conflict",
            flavor,
            image,
            found=f"{flavor} and {image} do not agree.",
            change="Take hw_pci_numa_affinity_policy off the image, or set both to the same.",
        )
    if by_flavor is not None:
        return _Policy(word=by_flavor, source="flavor")
    return None if by_image is None else _Policy(word=by_image, source="image")


def _alias_requests(reading: Reading, aliases: tuple[Alias, ...], stated: _Policy | None) -> Iterator[PciRequest]:
    said = _alias_said(reading)
    if said is None:
        return
    known = {alias.name: alias for alias in aliases}
    counts = _alias_counts(reading, said)
    if strange := [name for name in counts if name not in known]:
        _refuse_aliases(reading, said, strange, sorted(known))
    for name, count in counts.items():
        alias = known.get(name)
        if alias is None:
            continue
        policy = stated or (_Policy(word=alias.numa_policy, source="alias") if alias.numa_policy else _Policy())
        yield PciRequest(
            id=f"alias:{name}",
            specs=alias.specs,
            count=count,
            numa_policy=policy.word,
            policy_source=policy.source,
            alias=name,
            live_migratable=alias.live_migratable,
        )


def _alias_said(reading: Reading) -> Property | None:
    value = reading.flavor_words.get("pci_passthrough:alias", "")
    return Property(name="pci_passthrough:alias", value=value, where="flavor") if value.strip() else None


def _alias_counts(reading: Reading, said: Property) -> dict[str, int]:
    """How many of each; an alias that is named twice counts together."""
    counts: dict[str, int] = {}
    formless: list[str] = []
    for entry in (said.value or "").split(","):
        name, colon, number = entry.partition(":")
        count = whole(number, 1, _MOST)
        if colon and name.strip() and count is not None:
            counts[name.strip()] = counts.get(name.strip(), 0) + count
        else:
            formless.append(brief(repr(entry), 100))
    if formless:
        reading.refuse(
            "alias-form",
            said,
            found=f"{said} has {some(formless)}, which is not NAME:COUNT.",
            change="Write pci_passthrough:alias as NAME:COUNT, several parted by commas, as in gpu:1,nic:2.",
        )
    return counts


def _refuse_aliases(reading: Reading, said: Property, strange: list[str], known: list[str]) -> None:
    own = Property(name="[pci] alias", value=", ".join(known) or None, where="config")
    names = some([brief(repr(name), 100) for name in strange])
    reading.refuse(
        "alias-unknown",
        said,
        own,
        found=f"{said} asks for {names}, but of [pci] alias this host has {some(known) if known else 'none'}.",
        change=f"Configure such an alias in [pci] alias of the host, or change {said.name}.",
    )


def _port_requests(reading: Reading, ports: tuple[Port, ...], stated: _Policy | None) -> Iterator[PciRequest]:
    seen: set[str] = set()
    for port in ports:
        if port.id in seen:
            _refuse_port(reading, port)
        elif port.vnic_type in _TYPES:
            yield _port_request(port, stated)
        else:
            _note_port(reading, port)
        seen.add(port.id)


def _port_request(port: Port, stated: _Policy | None) -> PciRequest:
    own = port.numa_affinity_policy
    policy = _Policy(word=own, source="port") if own else stated or _Policy()
    # said of every port, as nova does: a plain function, which says neither, is no device for a port
    remote = "true" if port.vnic_type == "remote-managed" else "false"
    tags: dict[str, str | None] = {"physical_network": port.physical_network or None, "remote_managed": remote}
    if port.trusted is not None:
        tags["trusted"] = "true" if port.trusted else "false"
    spec = PciSpec(device_type=_TYPES[port.vnic_type], tags=MappingProxyType(tags))
    return PciRequest(
        id=port.id,
        specs=(spec,),
        numa_policy=policy.word,
        policy_source=policy.source,
        parent_ifname=port.parent_ifname,
    )


def _refuse_port(reading: Reading, port: Port) -> None:
    said = Property(name="id", value=port.id, where="port")
    reading.refuse(
        "port-twice",
        said,
        said,
        found=f"{said} is said of two ports.",
        change="Give each port once, with an id of its own.",
    )


def _note_port(reading: Reading, port: Port) -> None:
    why = _ELSEWHERE.get(port.vnic_type)
    if why is not None:
        reading.note(f"Port {brief(port.id)} of kind {port.vnic_type} gets no device here: {why}.")
        return
    given = {
        "numa_affinity_policy": port.numa_affinity_policy,
        "hardware_offload": port.hardware_offload,
        "trusted": port.trusted,
    }
    idle = [name for name, value in given.items() if value]
    if idle:
        reading.note(f"Port {brief(port.id)} of kind {port.vnic_type} needs no device: {some(idle)} has no effect.")
