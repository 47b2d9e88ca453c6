"""Sockets, cores and threads that a guest shall see."""

from __future__ import annotations

import math
from collections.abc import Iterator

from agent.core.flavor.reading import UNREAD, Reading, Unread, whole
from agent.core.instance import LARGEST_NUMBER, GuestCpuTopology
from agent.core.request_faults import Property
from agent.core.values import Value

_PARTS = ("sockets", "cores", "threads")
_MOST = 65536
"""nova's own maximum of each."""


class _Numbers(Value, frozen=True, kw_only=True):
    """Three numbers in the order of the parts and where they are said; 0: not said."""

    numbers: tuple[int, ...]
    said: tuple[Property | None, ...]


def cpu_topology(reading: Reading, vcpus: int | Unread) -> GuestCpuTopology | None:
    """The shape closest to what is preferred, of all that keep below the maxima; None when nothing is said of it.

    Among equally close ones: fewest threads, then most sockets.
    """
    flavor_most, image_most = _numbers(reading, "cpu_max_", "flavor"), _numbers(reading, "cpu_max_", "image")
    flavor, image = _numbers(reading, "cpu_", "flavor"), _numbers(reading, "cpu_", "image")
    if flavor_most is UNREAD or image_most is UNREAD or flavor is UNREAD or image is UNREAD or vcpus is UNREAD:
        return None
    said = [one for four in (flavor_most, image_most, flavor, image) for one in four.said if one is not None]
    if not said or not _agree(reading, flavor_most, image_most):
        return None
    most = _lower(flavor_most, image_most)
    if not _within(reading, image, most):
        return None
    preferred = _preferred(flavor, image, most)
    best = max(_shapes(vcpus, most.numbers), key=lambda shape: _closeness(shape, preferred), default=None)
    if best is None:
        _refuse_impossible(reading, vcpus, most)
        return None
    return GuestCpuTopology(sockets=best[0], cores=best[1], threads=best[2])


def _numbers(reading: Reading, prefix: str, where: str) -> _Numbers | Unread:
    side = reading.flavor if where == "flavor" else reading.image
    said = tuple(side(f"{prefix}{part}") for part in _PARTS)
    numbers = tuple(_number(reading, one) for one in said)
    read = tuple(one for one in numbers if one is not UNREAD)
    return _Numbers(numbers=read, said=said) if len(read) == len(numbers) else UNREAD


def _number(reading: Reading, said: Property | None) -> int | Unread:
    number = 0 if said is None else whole(said.value, 0, LARGEST_NUMBER)
    if number is not None or said is None:
        return number or 0
    return reading.refuse(
        "topology-number",
        said,
        found=f"{said} is not a number from 0 on.",
        change=f"Set {said.name} to a whole number, or take it off.",
    )


def _agree(reading: Reading, flavor: _Numbers, image: _Numbers) -> bool:
    """An image may only lower a maximum."""
    fine = True
    for most, own, said, wish in zip(flavor.numbers, image.numbers, flavor.said, image.said, strict=True):
        if said is not None and wish is not None and most and own > most:
            reading.refuse(
                "topology-maximum",
                said,
                wish,
                found=f"{wish} is above the maximum, {said}.",
                change=f"Set {wish.name} of the image to at most {most}, or raise {said.name} of the flavor.",
            )
            fine = False
    return fine


def _lower(flavor: _Numbers, image: _Numbers) -> _Numbers:
    pairs = list(zip(image.numbers, flavor.numbers, strict=True))
    return _Numbers(
        numbers=tuple(own or most or _MOST for own, most in pairs),
        said=tuple(image.said[n] if own else flavor.said[n] if most else None for n, (own, most) in enumerate(pairs)),
    )


def _within(reading: Reading, image: _Numbers, most: _Numbers) -> bool:
    fine = True
    for own, top, said, limit in zip(image.numbers, most.numbers, image.said, most.said, strict=True):
        if said is not None and own > top:
            reading.refuse(
                "topology-beyond-maximum",
                said,
                *([limit] if limit else []),
                found=f"{said} is above the maximum, {limit or top}.",
                change=f"Set {said.name} of the image to at most {top}.",
            )
            fine = False
    return fine


def _preferred(flavor: _Numbers, image: _Numbers, most: _Numbers) -> tuple[int, ...]:
    """The image's wish as a whole, if it has any; else the flavor's, unless a maximum has overtaken it."""
    if any(image.numbers):
        return image.numbers
    overtaken = any(own > top for own, top in zip(flavor.numbers, most.numbers, strict=True))
    return (0, 0, 0) if overtaken else flavor.numbers


def _shapes(vcpus: int, most: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """All of the right product, the fewest threads first, then the most sockets."""
    for threads in _divisors(vcpus, most[2]):
        for cores in _divisors(vcpus // threads, most[1]):
            sockets = vcpus // threads // cores
            if sockets <= most[0]:
                yield sockets, cores, threads


def _divisors(number: int, most: int) -> list[int]:
    low = [one for one in range(1, math.isqrt(number) + 1) if number % one == 0]
    return sorted(one for one in {*low, *(number // one for one in low)} if one <= most)


def _closeness(shape: tuple[int, ...], preferred: tuple[int, ...]) -> int:
    return sum(1 for own, wish in zip(shape, preferred, strict=True) if wish and own == wish)


def _refuse_impossible(reading: Reading, vcpus: int, most: _Numbers) -> None:
    said = [one for one in most.said if one is not None]
    total = Property(name="vcpus", value=str(vcpus), where="flavor")
    reading.refuse(
        "topology-impossible",
        *said,
        total,
        found=f"No sockets, cores and threads within {', '.join(map(str, said))} make {total}.",
        change="Raise a maximum, or change vcpus to a product of what they allow.",
    )
