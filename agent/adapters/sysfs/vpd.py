"""The serial number in the vital product data of a PCI card."""

from __future__ import annotations

import os

_LARGE = 0x80
_READ_ONLY = 0x10
_END = 0x0F
_ITEMS = 16
"""A card has an identifier string, a read-only and a writable part; more is rubbish."""


def serial_number(descriptor: int) -> str | None:
    """Value of keyword SN of the read-only part; None when the card has none. Raises OSError, ValueError on rubbish.

    Only the bytes on the way to it are asked for: each four cost the card a request.
    """
    offset = 0
    for _ in range(_ITEMS):
        head = os.pread(descriptor, 3, offset)
        if not head or head[0] >> 3 == _END or head[0] in {0x00, 0xFF}:
            return None
        if not head[0] & _LARGE:
            offset += 1 + (head[0] & 7)
            continue
        if len(head) < 3:
            raise ValueError(f"ends in a tag at byte {offset}")
        length = int.from_bytes(head[1:3], "little")
        if head[0] & 0x7F == _READ_ONLY:
            return _keyword(os.pread(descriptor, length, offset + 3), length, b"SN")
        offset += 3 + length
    raise ValueError(f"has no end within {_ITEMS} items")


def _keyword(part: bytes, length: int, wanted: bytes) -> str | None:
    if len(part) < length:
        raise ValueError(f"read-only part has {len(part)} bytes of {length}")
    offset = 0
    while offset + 3 <= length:
        end = offset + 3 + part[offset + 2]
        if end > length:
            raise ValueError(f"keyword {part[offset : offset + 2]!r} runs over the end of its part")
        if part[offset : offset + 2] == wanted:
            return part[offset + 3 : end].decode("ascii", errors="replace").strip(" \0") or None
        offset = end
    return None
