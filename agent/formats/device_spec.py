"""Texts of [pci] device_spec to values, by nova's rules. Raises ValueError that says what of the text is wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from agent.core.host_config import AddressPattern, DeviceSpec

NOVA_TAGS = frozenset(
    {
        "physical_network",
        "trusted",
        "remote_managed",
        "managed",
        "live_migratable",
        "one_time_use",
        "resource_class",
        "traits",
    }
)
"""What nova's device_spec may say about a device besides which one it is."""

SPEC_KEYS = frozenset({"address", "devname", "vendor_id", "product_id"})
"""What in it says which device."""

_HIGHEST = {"domain": 0xFFFFFFFF, "bus": 0xFF, "slot": 0x1F, "function": 0x7}
_DIGITS = {"domain": 4, "bus": 2, "slot": 2, "function": 1}


class _SpecEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One object of device_spec, the keys that say which device."""

    address: str | dict[str, str] | None = None
    devname: str | None = None
    vendor_id: str = "*"
    product_id: str = "*"


def device_specs(text: str) -> tuple[tuple[DeviceSpec, ...], frozenset[str]]:
    """JSON of one object or a list of them: the devices they name, and keys that nova does not give a meaning to."""
    data = msgspec.json.decode(text)
    entries = msgspec.convert(data if isinstance(data, list) else [data], list[dict[str, Any]])
    strange = frozenset(key for entry in entries for key in entry) - SPEC_KEYS - NOVA_TAGS
    return tuple(_device_spec(msgspec.convert(entry, _SpecEntry)) for entry in entries), strange


def _device_spec(entry: _SpecEntry) -> DeviceSpec:
    if entry.address and entry.devname:
        raise ValueError("address and devname name the same thing; give one of them")
    return DeviceSpec(
        address=_address_glob(entry.address) if entry.address and isinstance(entry.address, str) else None,
        pattern=_address_pattern(entry.address) if isinstance(entry.address, dict) else None,
        devname=entry.devname or None,
        vendor_id=_device_id("vendor_id", entry.vendor_id),
        product_id=_device_id("product_id", entry.product_id),
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
