"""An immutable set of CPU numbers on one int, and Linux's cpulist text both ways.

The kernel writes lists of NUMA node ids in the same form, so a nodeset is a `CpuSet` too.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import compress, count
from typing import NewType

_GROUP = re.compile(r"(?P<first>\d{1,9})(?:-(?P<last>\d{1,9})(?::(?P<used>\d{1,9})/(?P<size>\d{1,9}))?)?", re.ASCII)

_MASK = re.compile(r"(0x)?[0-9a-f]+(,[0-9a-f]{1,8})*", re.IGNORECASE)

HIGHEST_ID = 1 << 14
"""Twice as many CPUs as any kernel is built for: a number from here on is a typing error."""

_LONGEST = 8 * HIGHEST_ID
"""Characters; every second CPU takes six each, and a comma."""

_QUOTED = 200
_SPARSE = 12
"""Bits for each member from where on it is cheaper to take members out one by one than to look at each bit."""

_BITS = bytes.maketrans(b"01", b"\0\1")


CpuMask = NewType("CpuMask", int)
"""A set of CPUs (or cells) as an int, bit n for number n: for sums over many guests, where each `CpuSet` would cost."""


NO_CPUS = CpuMask(0)


def lowest(mask: int) -> int:
    """Number of the lowest bit that is set; -1 where none is."""
    return (mask & -mask).bit_length() - 1


def union(masks: Iterable[int]) -> int:
    """Every bit that is set in any of them."""
    return functools.reduce(operator.or_, masks, 0)


class CpuSet:
    """Set of non-negative numbers; hashable, ordered when iterated, as cheap to combine as two ints.

    mask: the same set as a plain int.
    """

    __slots__ = ("mask",)
    mask: CpuMask

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        mask = 0
        for number in numbers:
            mask |= 1 << number
        _set_mask(self, mask)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"CpuSet is immutable: {name} cannot be set")

    def __reduce__(self) -> tuple[object, ...]:
        return (CpuSet.from_mask, (self.mask,))

    @classmethod
    def from_mask(cls, mask: int) -> CpuSet:
        """Bit n of `mask` set means n is in the set."""
        made = object.__new__(cls)
        _set_mask(made, mask)
        return made

    @classmethod
    def parse(cls, text: str) -> CpuSet:
        """Read cpulist text: "0-3,8"; "^2" takes away, as libvirt and nova write it; "0-31:2/8" is the kernel's stride.

        Empty text is the empty set. Raises ValueError that quotes the part which is no list.
        """
        if len(text) > _LONGEST:
            raise ValueError(f"{_quoted(text)} is longer than the list of any host's CPUs")
        taken = removed = 0
        for part in (piece.strip() for piece in text.strip().strip("\0").split(",")):
            if part.startswith("^"):
                removed |= _group_mask(part[1:].strip(), text)
            elif part:
                taken |= _group_mask(part, text)
        return cls.from_mask(taken & ~removed)

    @classmethod
    def parse_hex(cls, text: str) -> CpuSet:
        """Read the kernel's comma-grouped hexadecimal mask, "00000000,ffffffff"; any width.

        Empty text is the empty set. Raises ValueError that quotes text which is no such mask.
        """
        digits = text.strip().strip("\0").strip()
        if digits and _MASK.fullmatch(digits) is None:
            raise ValueError(f"{_quoted(text)} is not a hexadecimal mask in groups of 32 bits")
        first, *others = digits.split(",")
        joined = first + "".join(group.zfill(8) for group in others)
        mask = int(joined, 16) if digits else 0
        if mask.bit_length() > HIGHEST_ID:
            raise ValueError(f"{_quoted(text)} goes beyond {HIGHEST_ID - 1}")
        return cls.from_mask(mask)

    @property
    def lowest(self) -> int:
        """Smallest member; ValueError when empty."""
        if not self.mask:
            raise ValueError("the empty CpuSet has no lowest member")
        return lowest(self.mask)

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and number >= 0 and bool(self.mask >> number & 1)

    def __iter__(self) -> Iterator[int]:
        mask = self.mask
        if mask.bit_count() * _SPARSE < mask.bit_length():
            return _one_by_one(mask)
        return compress(count(), f"{mask:b}"[::-1].encode().translate(_BITS))

    def __len__(self) -> int:
        return self.mask.bit_count()

    def __bool__(self) -> bool:
        return bool(self.mask)

    def __eq__(self, other: object) -> bool:
        return self.mask == other.mask if isinstance(other, CpuSet) else NotImplemented

    def __hash__(self) -> int:
        # an int's hash alone is one of 61 for all powers of two, and most sets of a host are single CPUs or pairs
        return hash((self.mask, self.mask.bit_length()))

    def __or__(self, other: CpuSet) -> CpuSet:
        return CpuSet.from_mask(self.mask | other.mask)

    def __and__(self, other: CpuSet) -> CpuSet:
        return CpuSet.from_mask(self.mask & other.mask)

    def __sub__(self, other: CpuSet) -> CpuSet:
        return CpuSet.from_mask(self.mask & ~other.mask)

    def __xor__(self, other: CpuSet) -> CpuSet:
        return CpuSet.from_mask(self.mask ^ other.mask)

    def __le__(self, other: CpuSet) -> bool:
        return not self.mask & ~other.mask

    def isdisjoint(self, other: CpuSet) -> bool:
        """True when no number is in both."""
        return not self.mask & other.mask

    def __str__(self) -> str:
        """Kernel cpulist text, "" when empty: CpuSet.parse(str(s)) == s."""
        return ",".join(_range_text(first, last) for first, last in self._ranges())

    def __repr__(self) -> str:
        return f"CpuSet({str(self)!r})"

    def _ranges(self) -> Iterator[tuple[int, int]]:
        bits = f"0{self.mask:b}"[::-1]
        first = bits.find("1")
        while first >= 0:
            end = bits.index("0", first)
            yield first, end - 1
            first = bits.find("1", end)


# the slot itself, which object.__setattr__ would look up by name each time: a pass makes thousands of sets
_set_mask: Callable[[CpuSet, int], None] = vars(CpuSet)["mask"].__set__


def _one_by_one(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _range_text(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _group_mask(part: str, text: str) -> int:
    match = _GROUP.fullmatch(part)
    if match is None:
        place = "" if part == text else f" in {_quoted(text)}"
        raise ValueError(f"{_quoted(part)}{place} is not a CPU number or range")
    first = int(match["first"])
    last = first if match["last"] is None else int(match["last"])
    if last < first or last >= HIGHEST_ID:
        raise ValueError(f"{_quoted(part)} in {_quoted(text)} runs backwards or beyond {HIGHEST_ID - 1}")
    length = last - first + 1
    if match["size"] is None:
        return ((1 << length) - 1) << first
    used, size = int(match["used"]), int(match["size"])
    if not 0 < used <= size:
        raise ValueError(f"{_quoted(part)} in {_quoted(text)} uses more of a group than the group has")
    return _repeated(used, size, length) << first


def _repeated(used: int, size: int, length: int) -> int:
    """The lowest `used` bits of each `size`, `length` bits in all."""
    mask = (1 << min(used, length)) - 1
    while size < length:
        mask |= mask << size
        size *= 2
    return mask & ((1 << length) - 1)


def _quoted(text: str) -> str:
    return repr(text) if len(text) <= _QUOTED else f"{text[:_QUOTED]!r}..."
