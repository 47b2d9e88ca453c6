"""Page size and locked memory of a guest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import get_args

from agent.core.flavor.encryption import encryption_locks
from agent.core.flavor.reading import UNREAD, Reading, Unread, not_said
from agent.core.instance import PageWord
from agent.core.request_faults import Property

_WORDS: Mapping[str, PageWord] = {word: word for word in get_args(PageWord)}
_SIZE = re.compile(r"(?P<number>\d{0,18}(\.\d{1,9}|\d))(?:(?P<prefix>[KMGTPEZYRQ])i?)?(?P<unit>b|bit|B)", re.ASCII)
_LARGEST_KIB = 1 << 50


def page_size(reading: Reading) -> int | PageWord | Unread | None:
    """KiB, a word, or None: nothing said. An image can only narrow what the flavor leaves open."""
    flavor, image = reading.both("mem_page_size")
    by_flavor, by_image = _size(reading, flavor), _size(reading, image)
    if flavor is None and image is not None:
        return reading.refuse(
            "page-size-image-alone",
            image,
            not_said("mem_page_size"),
            found=f"{image} narrows what a flavor leaves open, but there is no hw:mem_page_size of the flavor.",
            change="Set hw:mem_page_size of the flavor to any or large, or take hw_mem_page_size off the image.",
        )
    if by_flavor is UNREAD or flavor is None or image is None:
        return by_flavor
    if by_flavor in {"any", "large"}:
        return by_image
    return reading.refuse(
        "page-size-conflict",
        flavor,
        image,
        found=f"{flavor} leaves nothing open, but there is {image}.",
        change="Take hw_mem_page_size off the image, or set hw:mem_page_size of the flavor to any or large.",
    )


def memory_locked(reading: Reading, *, is_realtime: bool) -> bool:
    """Whether the host must keep all of it in RAM: asked for, realtime, or encrypted by a kind that needs it."""
    flavor, image = reading.both("locked_memory")
    by_flavor = reading.truth(flavor, "locked-memory-unclear")
    by_image = reading.truth(image, "locked-memory-unclear")
    encrypted = encryption_locks(reading)
    asked = by_flavor is True or by_image is True
    if flavor and image and UNREAD not in {by_flavor, by_image} and by_flavor != by_image:
        _refuse_conflict(reading, flavor, image)
    elif asked and not any(reading.both("mem_page_size")):
        _refuse_without_pages(reading, flavor if by_flavor is True and flavor else image)
    elif encrypted and (flavor or image) and not asked:
        reading.note(f"{flavor or image} gives way to memory encryption, which locks it.")
    return asked or encrypted or is_realtime


def _size(reading: Reading, said: Property | None) -> int | PageWord | Unread | None:
    if said is None:
        return None
    text = said.value or ""
    found = _WORDS.get(text) or _size_kib(text)
    if found is not None:
        return found
    return reading.refuse(
        "page-size-unknown",
        said,
        found=f"{said} is no page size.",
        change=f"Set {said.name} to small, large, any, a number of KiB as in 2048, or a size as in 2MB or 1GB.",
    )


def _size_kib(text: str) -> int | None:
    """ "2048" is KiB already, "2MB" and "2MiB" are the same, "16Mbit" is 2 MiB; None: not whole KiB, or none at all."""
    match = _SIZE.fullmatch(text if not text.isdecimal() else f"{text}KB")
    if match is None:
        return None
    before, _, after = match["number"].partition(".")
    size = int(before + after) * 1024 ** " KMGTPEZYRQ".index(match["prefix"] or " ")
    kib, rest = divmod(size, 10 ** len(after) * (8192 if match["unit"] in {"b", "bit"} else 1024))
    return kib if not rest and 0 < kib <= _LARGEST_KIB else None


def _refuse_conflict(reading: Reading, flavor: Property, image: Property) -> None:
    reading.refuse(
        "locked-memory-conflict",
        flavor,
        image,
        found=f"{flavor} and {image} say the opposite.",
        change="Take hw_locked_memory off the image, or set both to the same.",
    )


def _refuse_without_pages(reading: Reading, said: Property | None) -> None:
    if said is None:
        return
    reading.refuse(
        "locked-memory-pages",
        said,
        not_said("mem_page_size"),
        found=f"{said} needs a page size, but there is no hw:mem_page_size of the flavor.",
        change=f"Set hw:mem_page_size of the flavor, as in small, or take {said.name} off the {said.where}.",
    )
