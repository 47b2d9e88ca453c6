"""Texts of [pci] alias to values, by nova's rules. Raises ValueError that says what of the text is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar, get_args

import msgspec

from agent.core.pci import DeviceType
from agent.core.pci_request import Alias, PciNumaPolicy, PciSpec
from agent.formats import resource_names
from agent.formats.switches import switch

T = TypeVar("T")

LONGEST_NAME = 256
_UNUSED = "capability_type"
"""nova still takes it, with the value "pci"."""

_ID = re.compile("[0-9a-fA-F]{4}")
_POLICIES: Mapping[str, PciNumaPolicy] = {word: word for word in get_args(PciNumaPolicy)}
_TYPES: Mapping[str, DeviceType] = {word: word for word in get_args(DeviceType) if word != "vdpa"}


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One object of alias."""

    name: str
    vendor_id: str | None = None
    product_id: str | None = None
    device_type: str | None = None
    numa_policy: str | None = None
    resource_class: str | None = None
    traits: str | None = None
    live_migratable: str | bool | None = None
    capability_type: str | None = None


KEYS = tuple(name for name in _Entry.__struct_fields__ if name != _UNUSED)


def aliases(text: str) -> tuple[Alias, ...]:
    """JSON of one object or a list of them, each an alias of one kind of device; `joined` puts equal names together."""
    data = msgspec.json.decode(text)
    entries = msgspec.convert(data if isinstance(data, list) else [data], list[dict[str, object]])
    return tuple(map(_alias, entries))


def joined(entries: Iterable[Alias]) -> tuple[Alias, ...]:
    """By name, in the order of their first entries; the kinds of equal names are alternatives.

    Raises ValueError for the first name whose entries do not agree in policy and type of device.
    """
    by_name: dict[str, list[Alias]] = {}
    for entry in entries:
        by_name.setdefault(entry.name, []).append(entry)
    return tuple(_joined(name, same) for name, same in by_name.items())


def _alias(data: Mapping[str, object]) -> Alias:
    if unknown := sorted(data.keys() - {*KEYS, _UNUSED}):
        raise ValueError(f"unknown: {', '.join(unknown)}; known are {', '.join(KEYS)}")
    entry = msgspec.convert(data, _Entry)
    name = entry.name.strip()
    if not 0 < len(name) <= LONGEST_NAME:
        raise ValueError(f"name has {len(name)} characters; it takes 1 to {LONGEST_NAME}")
    if not (entry.vendor_id and entry.product_id) and not entry.resource_class:
        raise ValueError("it names no device: it takes vendor_id and product_id, or resource_class")
    return Alias(
        name=name,
        specs=(
            PciSpec(
                vendor_id=_device_id("vendor_id", entry.vendor_id),
                product_id=_device_id("product_id", entry.product_id),
                device_type=_word("device_type", entry.device_type, _TYPES),
                resource_class=resource_names.resource_class(entry.resource_class) if entry.resource_class else None,
                traits=resource_names.traits(entry.traits or ""),
            ),
        ),
        numa_policy=_word("numa_policy", entry.numa_policy, _POLICIES),
        live_migratable=None if entry.live_migratable is None else switch("live_migratable", entry.live_migratable),
    )


def _device_id(name: str, text: str | None) -> str | None:
    if text is not None and not _ID.fullmatch(text):
        raise ValueError(f"{name} {text!r} is not of four hexadecimal digits")
    return None if text is None else text.lower()


def _word(name: str, text: str | None, known: Mapping[str, T]) -> T | None:
    if text is None:
        return None
    if text not in known:
        raise ValueError(f"{name} {text!r} is none of {', '.join(known)}")
    return known[text]


def _joined(name: str, same: list[Alias]) -> Alias:
    types = {entry.specs[0].device_type for entry in same}
    policies = {entry.numa_policy or "legacy" for entry in same}
    for what, found in (("device_type", types), ("numa_policy", policies)):
        if len(found) > 1:
            words = " and ".join(sorted(str(word or "none") for word in found))
            raise ValueError(f"the entries of {name} do not agree: they have {what} {words}")
    migratable = {entry.live_migratable for entry in same}
    return Alias(
        name=name,
        specs=tuple(_with_tag(entry) if len(migratable) > 1 else entry.specs[0] for entry in same),
        numa_policy=next((entry.numa_policy for entry in same if entry.numa_policy), None),
        live_migratable=migratable.pop() if len(migratable) == 1 else None,
    )


def _with_tag(entry: Alias) -> PciSpec:
    """Entries of one name that do not agree in this keep it each for itself, as in nova."""
    spec, migratable = entry.specs[0], entry.live_migratable
    if migratable is None:
        return spec
    return msgspec.structs.replace(spec, tags=MappingProxyType({"live_migratable": str(migratable).lower()}))
