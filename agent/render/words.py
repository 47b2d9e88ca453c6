"""Small pieces of text: amounts with units, counts, names."""

from __future__ import annotations

from collections.abc import Iterable

from agent.core.conflicts import Conflict, Owner, Resource
from agent.core.reason_text import owner_name
from agent.core.words import plain, some

NOTHING = "-"
"""What a person reads where there is no value."""

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")
_STEP = 1024
_RESOURCE_WORDS = {"cpu": "CPU", "pci": "device", "mdev": "mediated device"}


def size(kib: int) -> str:
    """An amount of memory with three or four digits: "62.8 GiB", "512 MiB", "-1.5 GiB", "0"."""
    if not kib:
        return "0"
    amount, unit = float(abs(kib)), 0
    while amount >= _STEP and unit < len(_UNITS) - 1:
        amount, unit = amount / _STEP, unit + 1
    digits = f"{amount:.1f}".removesuffix(".0")
    return f"{'-' if kib < 0 else ''}{digits} {_UNITS[unit]}"


def age(seconds: float | None) -> str:
    """How long ago, in two units at most: "12 s", "3 min 5 s", "2 h 10 min", "4 d 3 h"; "never" for None."""
    if seconds is None:
        return "never"
    whole = max(0, int(seconds))
    for bigger, big, smaller, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= bigger:
            rest = whole % bigger // smaller
            return f"{whole // bigger} {big}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"


def owners(many: Iterable[Owner]) -> str:
    """All of them, by name; "-" for nobody."""
    return some([owner_name(owner) for owner in many]) or NOTHING


def cell(number: int | None) -> str:
    """ "cell 3", or "the host" where no single cell is meant."""
    return "the host" if number is None else f"cell {number}"


def resource(what: Resource, names: dict[str, str] | None = None) -> str:
    """What is contended: "CPU 3", "memory of cell 0", "2 MiB pages of cell 1", "device 0000:3b:00.1", "guest web-1".

    names: guests' names by uuid.
    """
    if what.kind == "memory":
        return f"memory of {cell(what.cell)}"
    if what.kind == "pages":
        sort = size(int(what.id)) if what.id.isdecimal() else plain(what.id)
        return f"{sort} pages of {cell(what.cell)}"
    shown = (names or {}).get(what.id, what.id)
    return plain(f"{_RESOURCE_WORDS.get(what.kind, what.kind)} {shown}")


def headline(conflict: Conflict) -> str:
    """The contended thing and the kind, short: "CPU 3: pinned twice"."""
    names = {owner.uuid: owner.name for owner in conflict.owners if owner.uuid and owner.name}
    words = conflict.kind.replace("-", " ").removeprefix(conflict.resource.kind + " ")
    return f"{resource(conflict.resource, names)}: {words}"
