"""XML that others wrote: parsed without a document type, read field by field, a bad field costing only itself."""

from __future__ import annotations

import functools
import re
from xml.etree import ElementTree

from agent.core.cpuset import CpuSet
from agent.core.pci import HIGHEST_SLOT, PciAddress
from agent.errors import FormatError

Element = ElementTree.Element

LONGEST_TEXT = 4 << 20
"""libvirt's protocol carries no string longer than 4 MiB, so a longer text is not from libvirt."""

MOST_ELEMENTS = 200_000
"""Each costs some 300 bytes while it is parsed; a guest with 1000 devices has under 20 000."""

_LONGEST_QUOTE = 80
_MOST_DIGITS = 20
_HEXADECIMAL = re.compile(r"0[xX]([0-9a-fA-F]{1,8})")
_HIGHEST_BUS = 0xFF
_HIGHEST_PCI_DOMAIN = 0xFFFFFFFF

_BYTES = {
    "": 1024, "b": 1, "bytes": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "pb": 10**15, "eb": 10**18,
    "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50, "e": 1 << 60,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40, "pib": 1 << 50, "eib": 1 << 60,
}  # fmt: skip


def parse_xml(text: str, what: str) -> Element:
    """The root element of `text`; `what` names the text in the error.

    Raises FormatError when it is not well-formed, carries a document type (the door to entities that grow without
    bound; libvirt writes none), or is larger than anything libvirt can send.
    """
    if len(text) > LONGEST_TEXT:
        raise FormatError(f"{what} has {len(text)} characters, more than libvirt can send; it is not read")
    if text.count("<") > 2 * MOST_ELEMENTS:
        raise FormatError(f"{what} has more than {MOST_ELEMENTS} elements; it is not read")
    try:
        if "<!DOCTYPE" in text:
            _refuse_document_type(text, what)
        return ElementTree.fromstring(text)  # noqa: S314 - no document type, no entities; the sizes are bounded above
    except UnicodeError as error:
        raise FormatError(f"{what} is no text: it holds half a character ({error.__class__.__name__})") from error
    except (ElementTree.ParseError, ValueError) as error:
        raise FormatError(f"{what} is not well-formed XML: {error}") from error


def _refuse_document_type(text: str, what: str) -> None:
    # The same letters in a comment or CDATA of somebody's metadata are harmless: only the parser can tell.
    ElementTree.XMLParser(target=_NoDocumentType(what)).feed(text)  # noqa: S314 - it stops at the document type


class _NoDocumentType:
    """Target of a parser that builds nothing and refuses a document type before any entity of it is read."""

    def __init__(self, what: str) -> None:
        self._what = what

    def doctype(self, name: str, *_: str | None) -> None:
        """Called by the parser where the document type begins."""
        raise FormatError(f"{self._what} carries a document type ({quote(name)}), which libvirt never writes; not read")


def quote(text: str | None) -> str:
    """The text as it can stand in a sentence, cut when it is long."""
    if text is None:
        return "nothing"
    return repr(text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}...")


def text_of(parent: Element | None, path: str) -> str | None:
    """Text of the child at `path`, stripped; None when there is no such child or it is empty."""
    text = None if parent is None else parent.findtext(path)
    return text.strip() or None if text else None


class Reader:
    """Turns texts into values; what cannot be read is None and one sentence in `problems`."""

    __slots__ = ("problems",)

    def __init__(self) -> None:
        self.problems: list[str] = []

    def number(self, text: str | None, where: str, highest: int | None = None) -> int | None:
        """A decimal number of at least 0; None without a problem when `text` is None."""
        if text is None:
            return None
        number = _decimal(text)
        if number is None or (highest is not None and number > highest):
            limit = "" if highest is None else f" up to {highest}"
            self.problems.append(f"{where} is {quote(text)}, not a number{limit}")
            return None
        return number

    def cpus(self, text: str | None, where: str) -> CpuSet | None:
        """A list of CPU or cell numbers; None without a problem when `text` is None. Empty is one too."""
        if text is None:
            return None
        try:
            cpus = parse_cpus(text)
        except ValueError:
            cpus = CpuSet()
        if not cpus:
            self.problems.append(f"{where} is {quote(text)}, not a list of numbers")
        return cpus or None

    def kib(self, element: Element | None, where: str) -> int | None:
        """The text of `element` in its unit, as KiB rounded up; None without a problem when `element` is None."""
        return None if element is None else self.size_kib(element.text, element.get("unit"), where)

    def kib_of(self, element: Element, attribute: str, where: str) -> int | None:
        """An attribute of `element` in the unit that its attribute "unit" names, as KiB rounded up."""
        return self.size_kib(element.get(attribute), element.get("unit"), where)

    def hexadecimal(self, text: str, where: str, digits: int) -> str | None:
        """ "0x1b36" as "1b36", with leading zeros up to `digits`."""
        match = _HEXADECIMAL.fullmatch(text.strip())
        if match is None or len(match[1]) > digits:
            self.problems.append(f"{where} is {quote(text)}, not a hexadecimal number of up to {digits} digits")
            return None
        return match[1].lower().zfill(digits)

    def size_kib(self, text: str | None, unit: str | None, where: str) -> int | None:
        """A number and libvirt's name of a unit (KiB when None) as KiB, rounded up."""
        number = _decimal(text or "")
        scale = _BYTES.get((unit or "").lower())
        if number is None or scale is None:
            named = f"{quote(text)} {unit or 'KiB'}" if text else "empty"
            self.problems.append(f"{where} is {named}, not a size")
            return None
        return number if scale == 1 << 10 else -(-number * scale >> 10)

    def pci_address(self, element: Element | None, where: str) -> PciAddress | None:
        """The attributes domain, bus, slot and function of an <address>, as libvirt writes them ("0x3b")."""
        if element is None:
            self.problems.append(f"{where} is missing")
            return None
        parts = [_any_number(element.get(name, "0")) for name in ("domain", "bus", "slot", "function")]
        limits = (_HIGHEST_PCI_DOMAIN, _HIGHEST_BUS, HIGHEST_SLOT, 7)
        numbers = [part for part, limit in zip(parts, limits, strict=True) if part is not None and part <= limit]
        if len(numbers) < len(limits):
            said = " ".join(f"{name}={text}" for name, text in element.attrib.items())
            self.problems.append(f"{where} is {quote(said)}, not a PCI address")
            return None
        return PciAddress(*numbers)


@functools.lru_cache(maxsize=1024)
def parse_cpus(text: str) -> CpuSet:
    """`CpuSet.parse`, remembering what it read: the guests of a host share their lists. Raises ValueError."""
    return CpuSet.parse(text)


def _decimal(text: str) -> int | None:
    digits = text.strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS else None


def _any_number(text: str) -> int | None:
    match = _HEXADECIMAL.fullmatch(text.strip())
    return int(match[1], 16) if match else _decimal(text)
