"""One pass over the properties of a request: how their text is read, and where its faults are gathered."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Final, TypeVar

from agent.core import nova_text
from agent.core.cpuset import CpuSet
from agent.core.instance import RequestSpec
from agent.core.nova_text import yes_or_no
from agent.core.request_faults import FaultKind, Property, RequestFault
from agent.core.words import brief

W = TypeVar("W")

_LONGEST = 2000
"""Characters of a sentence; each value in it is shortened before."""

_LIST = re.compile(r"[\d\s,^-]*", re.ASCII)


class Unread(enum.Enum):
    """Stands for a value whose property is at fault: what depends on it is not judged, so no fault follows another."""

    UNREAD = "unread"


UNREAD: Final = Unread.UNREAD


class Reading:
    """What one request says, and the faults and notes found so far. A property with empty text was not set."""

    def __init__(self, spec: RequestSpec) -> None:
        self.flavor_words: Mapping[str, str] = spec.flavor.extra_specs
        self.image_words: Mapping[str, str] = spec.image.properties
        self.faults: list[RequestFault] = []
        self.notes: list[str] = []

    def flavor(self, name: str) -> Property | None:
        """The flavor's property hw:NAME."""
        value = self.flavor_words.get(f"hw:{name}", "")
        return Property(name=f"hw:{name}", value=value, where="flavor") if value.strip() else None

    def image(self, name: str) -> Property | None:
        """The image's property hw_NAME."""
        value = self.image_words.get(f"hw_{name}", "")
        return Property(name=f"hw_{name}", value=value, where="image") if value.strip() else None

    def both(self, name: str) -> tuple[Property | None, Property | None]:
        """The flavor's and the image's."""
        return self.flavor(name), self.image(name)

    def refuse(self, kind: FaultKind, *properties: Property, found: str, change: str) -> Unread:
        """Keep a fault; the result stands for the value that cannot be told."""
        said = tuple(_safe(one) for one in properties)
        sentences = {"found": brief(found, _LONGEST), "change": brief(change, _LONGEST)}
        self.faults.append(RequestFault(kind=kind, properties=said, **sentences))
        return UNREAD

    def note(self, sentence: str) -> None:
        """Keep a note."""
        self.notes.append(brief(sentence, _LONGEST))

    def word(self, said: Property | None, words: Mapping[str, W], kind: FaultKind) -> W | Unread | None:
        """What the words mean that a property is one of."""
        if said is None:
            return None
        found = words.get(said.value or "")
        if found is not None:
            return found
        return self.refuse(
            kind,
            said,
            found=f"{said} is none of {', '.join(words)}.",
            change=f"Set {said.name} to one of {', '.join(words)}, or take it off.",
        )

    def truth(self, said: Property | None, kind: FaultKind) -> bool | Unread | None:
        """Yes or no in any of nova's spellings. Another word is refused, where nova would take it for no."""
        if said is None:
            return None
        meaning = yes_or_no(said.value or "")
        if meaning is not None:
            return meaning
        return self.refuse(
            kind,
            said,
            found=f"{said} is neither yes nor no.",
            change=f"Set {said.name} to true or false.",
        )


def not_said(name: str) -> Property:
    """The flavor's property hw:NAME, which is missing."""
    return Property(name=f"hw:{name}", value=None, where="flavor")


def whole(text: str | None, least: int, most: int) -> int | None:
    """A number in decimal digits within these bounds, else None."""
    digits = (text or "").strip()
    if re.fullmatch(r"\d{1,18}", digits, re.ASCII) is None:
        return None
    return int(digits) if least <= int(digits) <= most else None


def cpu_list(text: str | None) -> CpuSet:
    """The numbers in "0-3,^2", blanks around any sign allowed. Raises ValueError that quotes what is no such list."""
    if _LIST.fullmatch(text or "") is None:
        raise ValueError(f"{brief(repr(text), 100)} is not a list of CPU numbers and ranges")
    return nova_text.cpu_list(text or "")


def masked(text: str | None, vcpus: int) -> CpuSet:
    """As `cpu_list`; a list that begins by taking away takes from all vCPUs."""
    stripped = (text or "").strip()
    return cpu_list(f"0-{vcpus - 1},{stripped}" if stripped.startswith("^") else stripped)


def _safe(said: Property) -> Property:
    value = None if said.value is None else brief(said.value)
    return Property(name=brief(said.name), value=value, where=said.where)
