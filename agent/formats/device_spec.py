"""Texts of [pci] device_spec to values, by nova's rules. Raises ValueError that says what of the text is wrong."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec

from agent.core.host_config import AddressPattern, DeviceSpec
from agent.formats import resource_names
from agent.formats.switches import switch

SPEC_KEYS = frozenset({"address", "devname", "vendor_id", "product_id"})
"""What says which device."""

_LIKE = 0.6
"""From here on a key is rather a mistyped one of nova's than a tag: "vendor" for vendor_id would offer every device."""

_VERY_LIKE = 0.75
"""From here on it is refused in a file that a person wrote; a configuration may have worked so for years."""

_HIGHEST = {"domain": 0xFFFFFFFF, "bus": 0xFF, "slot": 0x1F, "function": 0x7}
_DIGITS = {"domain": 4, "bus": 2, "slot": 2, "function": 1}


class _SpecEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One object of device_spec, without tags that are only compared."""

    address: str | dict[str, str] | None = None
    devname: str | None = None
    vendor_id: str = "*"
    product_id: str = "*"
    managed: str | bool | None = None
    live_migratable: str | bool | None = None
    one_time_use: str | bool | None = None
    resource_class: str | None = None
    traits: str | None = None


_COMPARED_NOT = frozenset(_SpecEntry.__struct_fields__)
_COMPARED = frozenset({"physical_network", "trusted", "remote_managed"})
NOVA_TAGS = _COMPARED | _COMPARED_NOT - SPEC_KEYS
"""What nova gives a meaning to among the rest, which says what the device is good for; others are the operator's."""


def device_specs(text: str) -> tuple[tuple[DeviceSpec, ...], tuple[str, ...]]:
    """JSON of one object or a list of them: the devices they name, and what is odd about it, as ends of a sentence."""
    data = msgspec.json.decode(text)
    entries = msgspec.convert(data if isinstance(data, list) else [data], list[dict[str, object]])
    strange = sorted({key for entry in entries for key in entry} - SPEC_KEYS - NOVA_TAGS)
    return tuple(map(_device_spec, entries)), tuple(odd for key in strange for odd in _mistyped(key))


def _mistyped(key: str) -> list[str]:
    near = difflib.get_close_matches(key.lower(), sorted(SPEC_KEYS | NOVA_TAGS), 1, _LIKE)
    return [f"{key} is a tag that nothing asks for, where {near[0]} may be meant"] if near else []


def meant_by(key: str) -> str | None:
    """The key of nova's that is most likely mistyped here; None for a key of nova's or a tag of somebody's own."""
    known = SPEC_KEYS | NOVA_TAGS
    near = [] if key in known else difflib.get_close_matches(key[:80].lower(), sorted(known), 1, _VERY_LIKE)
    return near[0] if near else None


def _device_spec(data: Mapping[str, object]) -> DeviceSpec:
    entry = msgspec.convert(data, _SpecEntry)
    if entry.address and entry.devname:
        raise ValueError("address and devname name the same thing; give one of them")
    return DeviceSpec(
        address=_address_glob(entry.address) if entry.address and isinstance(entry.address, str) else None,
        pattern=_address_pattern(entry.address) if isinstance(entry.address, dict) else None,
        devname=entry.devname or None,
        vendor_id=_device_id("vendor_id", entry.vendor_id),
        product_id=_device_id("product_id", entry.product_id),
        tags=MappingProxyType(dict(sorted(_tags(data)))),
        managed=_switch("managed", entry.managed),
        live_migratable=_switch("live_migratable", entry.live_migratable),
        one_time_use=_switch("one_time_use", entry.one_time_use) or False,
        resource_class=resource_names.resource_class(entry.resource_class) if entry.resource_class else None,
        traits=resource_names.traits(entry.traits or ""),
    )


def _switch(name: str, value: str | bool | None) -> bool | None:
    return None if value is None else switch(name, value)


def _tags(data: Mapping[str, object]) -> Iterator[tuple[str, str | None]]:
    for name, value in data.items():
        if name in _COMPARED_NOT:
            continue
        if value is not None and not isinstance(value, str | bool | int | float):
            raise ValueError(f"tag {name} is {type(value).__name__}, and only a text or null can be asked for")
        if name == "remote_managed":
            yield name, None if value is None else str(switch(name, str(value))).lower()
        else:
            yield (
                name,
                None if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode(),
            )


def _device_id(name: str, text: str) -> str | None:
    return None if text.strip() == "*" else _hexadecimal(name, text, highest=0xFFFF, digits=4)


def _hexadecimal(name: str, text: str, *, highest: int, digits: int) -> str:
    if not re.fullmatch(r"(0[xX])?[0-9a-fA-F]+", text.strip()) or int(text, 16) > highest:
        raise ValueError(f"{name} {text!r} is neither * nor a hexadecimal number up to {highest:x}")
    return f"{int(text, 16):0{digits}x}"


def _address_glob(text: str) -> str:
    """ "[[[domain]:]bus]:slot[.function]" with every part that is left out as *, numbers as the kernel writes them."""
    front, _, function = text.partition(".")
    places = [part.strip() or "*" for part in front.split(":")]
    if len(places) > 3:
        raise ValueError(f"address {text!r} has more than domain:bus:slot.function")
    parts = dict(zip(_HIGHEST, ["*"] * (3 - len(places)) + places + [function.strip() or "*"], strict=True))
    domain, bus, slot, last = (
        "*" if part == "*" else _hexadecimal(f"{name} of address", part, highest=_HIGHEST[name], digits=_DIGITS[name])
        for name, part in parts.items()
    )
    return f"{domain}:{bus}:{slot}.{last}"


def _address_pattern(parts: Mapping[str, str]) -> AddressPattern:
    if not parts.keys() <= _HIGHEST.keys():
        raise ValueError(f"address {parts} has other parts than domain, bus, slot and function")
    for name, expression in parts.items():
        try:
            re.compile(expression)
        except re.error as error:
            raise ValueError(f"{name} {expression!r} of address is no regular expression: {error}") from error
    return AddressPattern(**parts)
