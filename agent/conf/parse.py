"""Option text to values, by nova's rules. Each function raises ValueError that says what of the text is wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from agent.core.conflicts import ConflictKind
from agent.core.cpuset import CpuSet
from agent.core.host_config import AcceptRule, AddressPattern, DeviceSpec, ReservedPages

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
_HIGHEST_CELL, _MOST_PAGES_KIB = 2**20, 2**50
_CONTENDED = frozenset({"cpu", "memory", "pages", "pci", "mdev"})
"""First words of what can be contended, besides guests, in the id of a conflict."""
_PAGE_KEYS = frozenset({"node", "size", "count"})


class _SpecEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One object of device_spec, the keys that say which device."""

    address: str | dict[str, str] | None = None
    devname: str | None = None
    vendor_id: str = "*"
    product_id: str = "*"


def cpu_set(text: str) -> CpuSet:
    """A set that is not empty: "2-7,^4", blanks around any sign allowed."""
    cpus = CpuSet.parse(re.sub(r"(?<=[-^,])\s+|\s+(?=[-,])", "", text))
    if not cpus:
        raise ValueError("no CPU is left")
    return cpus


def reserved_pages(entry: Mapping[str, str]) -> ReservedPages:
    """{"node": "0", "size": "2048" (KiB) or "1GB", "count": "64"}."""
    if entry.keys() != _PAGE_KEYS:
        raise ValueError("it must name exactly node, size and count, as in node:0,size:2048,count:64")
    try:
        pages = ReservedPages(cell=int(entry["node"]), size_kib=_size_kib(entry["size"]), count=int(entry["count"]))
    except ValueError as error:
        raise ValueError(f"node and count are numbers, size is KiB or has a unit: {error}") from error
    if pages.cell < 0 or pages.size_kib <= 0 or pages.count < 0:
        raise ValueError("a node or count below 0, or a size of nothing")
    if pages.cell > _HIGHEST_CELL or pages.size_kib * max(pages.count, 1) > _MOST_PAGES_KIB:
        raise ValueError("more than any host has")
    return pages


def device_specs(text: str) -> tuple[tuple[DeviceSpec, ...], frozenset[str]]:
    """JSON of one object or a list of them: the devices they name, and keys that nova does not give a meaning to."""
    data = msgspec.json.decode(text)
    entries = msgspec.convert(data if isinstance(data, list) else [data], list[dict[str, Any]])
    strange = frozenset(key for entry in entries for key in entry) - SPEC_KEYS - NOVA_TAGS
    return tuple(_device_spec(msgspec.convert(entry, _SpecEntry)) for entry in entries), strange


def accept_rule(text: str) -> AcceptRule:
    """KIND:GUEST. A guest whose name has a colon or a comma is given by its uuid: these are signs of another meaning,
    and a rule that fits nobody would go unnoticed."""
    kind, colon, guest = (part.strip() for part in text.partition(":"))
    if not colon or not guest:
        raise ValueError('it must be KIND:GUEST, where GUEST is a name, a uuid or "*"')
    if kind not in get_args(ConflictKind):
        raise ValueError(f"{kind!r} is no kind of conflict; kinds are {', '.join(get_args(ConflictKind))}")
    if set(guest) & set(",\n"):
        raise ValueError(
            "one line takes one rule, and a guest whose name has a comma is given by its uuid. "
            "Write a line accept = KIND:GUEST for each guest"
        )
    if ":" in guest:
        raise ValueError(_why_no_guest(kind, guest))
    return AcceptRule(kind=kind, guest=guest)


def _why_no_guest(kind: str, text: str) -> str:
    """Of a text with a colon: most likely it was copied from the id of a conflict."""
    resource, _, name = text.partition(":")
    if resource == "guest":
        return f"the guest stands right behind the kind. Write accept = {kind}:{name}"
    if resource in _CONTENDED:
        return (
            f'"{text}" names what is contended, not a guest. Write KIND:GUEST, one such line for each guest that may '
            f"share, as in accept = {kind}:GUEST"
        )
    return f'"{text}" has a colon. Give a guest with such a name by its uuid'


def _size_kib(text: str) -> int:
    if text.strip().isdecimal():
        return int(text)
    # a fifth of the time that the daemon and agentctl need to start, for the few who write sizes with a unit
    from oslo_utils import strutils

    return int(strutils.string_to_bytes(text, return_int=True)) // 1024


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
