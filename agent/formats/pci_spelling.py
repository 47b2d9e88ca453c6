"""How people write PCI devices and nova's options about them, into how it is checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from agent.formats.device_spec import SPEC_KEYS
from agent.formats.spelling import renamed

_DEVICE_NAMES: Mapping[str, str] = MappingProxyType({"numa_node": "cell"})
_IDS = ("vendor_id", "product_id", "class")
_HEX = re.compile(r"(?:0x)?([0-9a-f]{4})", re.IGNORECASE)
_TYPES: Mapping[str, str] = MappingProxyType({"pci": "type-PCI", "pf": "type-PF", "vf": "type-VF", "vdpa": "vdpa"})


def device(given: Any, path: str, faults: list[str]) -> Any:
    """One PCI function of a host; what is no object as it is."""
    if not isinstance(given, dict):
        return given
    found = renamed(given, _DEVICE_NAMES, path, faults)
    found |= {name: _hexadecimal(found[name]) for name in _IDS if name in found}
    if "type" in found:
        found["type"] = _type(found["type"])
    if isinstance(tags := found.get("tags"), dict):
        found["tags"] = {name: _joined(value) if name == "traits" else _tag(value) for name, value in tags.items()}
    nothing = {"cell": -1, "parent": ""}
    return {name: value for name, value in found.items() if name not in nothing or value != nothing[name]}


def device_specs(given: Any) -> Any:
    """[pci] device_spec as a list of objects; anything else as it is."""
    return _each(given, _spec)


def aliases(given: Any) -> Any:
    """[pci] alias as a list of objects; anything else as it is."""
    return _each(given, _alias)


def _each(given: Any, spelled: Any) -> Any:
    every = list(_entries(given))
    return [spelled(entry) for entry in every] if all(isinstance(entry, dict) for entry in every) else given


def _entries(given: Any) -> Iterator[Any]:
    """An object, a list of them, JSON text of either, or a list of such texts."""
    for one in given if isinstance(given, list) else [given]:
        read = _decoded(one) if isinstance(one, str) else one
        yield from read if isinstance(read, list) else [read]


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return text


def _spec(entry: dict[str, Any]) -> dict[str, Any]:
    """Null is a tag's value, and of the keys that name devices it says nothing."""
    return {
        name: _joined(value) if name == "traits" else value
        for name, value in entry.items()
        if value is not None or name not in SPEC_KEYS
    }


def _alias(entry: dict[str, Any]) -> dict[str, Any]:
    found = dict(entry)
    found |= {name: _hexadecimal(found[name]) for name in ("vendor_id", "product_id") if name in found}
    if "device_type" in found:
        found["device_type"] = _type(found["device_type"])
    if "traits" in found:
        found["traits"] = _joined(found["traits"])
    return found


def _hexadecimal(value: Any) -> Any:
    match = _HEX.fullmatch(value) if isinstance(value, str) else None
    return value if match is None else match[1].lower()


def _type(value: Any) -> Any:
    return _TYPES.get(value.lower().removeprefix("type-"), value) if isinstance(value, str) else value


def _tag(value: Any) -> Any:
    """Tags are compared as texts, so true and 1 are those of nova's."""
    return str(value).lower() if isinstance(value, int) else value


def _joined(value: Any) -> Any:
    is_words = isinstance(value, list) and all(isinstance(word, str) for word in value)
    return ",".join(value) if is_words else value
