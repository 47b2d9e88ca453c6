"""JSON that people write, into values: every fault at once, each by the path of its field."""

from __future__ import annotations

import codecs
import difflib
import json
import re
import types
import typing
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from agent.core.words import brief
from agent.errors import FaultyInput, WireError
from agent.formats import wire

T = TypeVar("T")

MOST_FAULTS = 20
"""More tell nobody anything."""

LONGEST_TEXT = 4096
"""Characters of one text; nova's properties have at most 255."""

_WORDS: Mapping[Any, str] = MappingProxyType(
    {dict: "an object", list: "a list", str: "a text", bool: "true or false", int: "a whole number", float: "a number"}
)

_PATH = re.compile(r" - at `[^`]*`")


def decoded(text: bytes | str, what: str) -> object:
    """JSON text as plain dicts and lists. what: names it in the sentence. Raises FaultyInput, also for a name that is
    twice in one object: nobody could tell which of the two counts."""
    text = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    text = text.removeprefix(codecs.BOM_UTF8)
    if not text.strip():
        raise FaultyInput(f"{what} is empty")
    if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise FaultyInput(f"{what} is UTF-16; save it as UTF-8")
    try:
        data: object = msgspec.json.decode(text)
        doubles = _doubles(text)
    except RecursionError as error:
        raise FaultyInput(f"{what} is nested too deeply") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise FaultyInput(f"{what} is not JSON: {brief(without_path(str(error)))}") from error
    if doubles:
        raise FaultyInput(*_some(f'{what} has "{brief(name, 80)}" twice in one object' for name in doubles))
    return data


def _doubles(text: bytes) -> Iterable[str]:
    """Names that are more than once in one object, which msgspec does not tell."""
    found: dict[str, None] = {}

    def look(pairs: list[tuple[str, object]]) -> None:
        if len({name for name, _ in pairs}) < len(pairs):
            counted = Counter(name for name, _ in pairs)
            found.update(dict.fromkeys(name for name, number in counted.items() if number > 1))

    # numbers are read already, and Python refuses to read long ones
    json.loads(text, object_pairs_hook=look, parse_int=len, parse_float=len)
    return found


def validated(data: object, kind: type[T]) -> T:
    """The value that plain data stands for. Raises FaultyInput with a sentence for each fault, the first 20."""
    faults = _some(_faults(data, kind, ""))
    if faults:
        raise FaultyInput(*faults)
    try:
        return wire.from_builtins(data, kind)
    except WireError as error:
        raise FaultyInput(without_path(str(error))) from error


def without_path(text: str) -> str:
    """What msgspec says, without the place: it names that in a way of its own, and leaves out the names of fields."""
    return _PATH.sub("", text)


def field_path(path: str, name: str) -> str:
    """The path of a field: "flavor.vcpus"."""
    return f"{path}.{name}" if path else name


def entry_path(path: str, key: str) -> str:
    """The path of an entry of a map, whose keys may hold dots: 'extra_specs["hw:cpu_policy"]'."""
    return f'{path}["{brief(key, 80)}"]'


def number_text(number: int) -> str:
    """The number for a sentence; "it" for one so long that Python may refuse to write it."""
    return str(number) if abs(number) < 10**20 else "it"


def _some(faults: Iterable[str]) -> list[str]:
    found: list[str] = []
    for fault in faults:
        if len(found) == MOST_FAULTS:
            return [*found, "and more"]
        found.append(fault)
    return found


def _faults(data: object, kind: Any, path: str) -> Iterator[str]:
    origin = get_origin(kind)
    if origin in {typing.Union, types.UnionType}:
        yield from _union_faults(data, get_args(kind), path)
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield from _struct_faults(data, kind, path)
    elif origin is tuple:
        yield from _tuple_faults(data, get_args(kind)[0], path)
    elif origin in {MappingProxyType, dict}:
        yield from _map_faults(data, get_args(kind), path)
    elif kind is not Any:
        yield from _leaf_faults(data, kind, path)


def _struct_faults(data: object, kind: type[msgspec.Struct], path: str) -> Iterator[str]:
    if not isinstance(data, dict):
        yield _told(path, f"an object is expected, not {shown(data)}")
        return
    fields = {field.encode_name: field for field in wire.fields(kind)}
    for name in data:
        if name not in fields:
            yield _told(field_path(path, brief(str(name), 80)), f"unknown. {_known(str(name), list(fields))}")
    for name, field in fields.items():
        if name in data:
            yield from _faults(data[name], field.type, field_path(path, name))
        elif field.required:
            yield _told(field_path(path, name), "missing")


def _known(name: str, fields: list[str]) -> str:
    near = difflib.get_close_matches(name[:80], fields, 1)
    return f"Is {near[0]} meant?" if near else f"Known are {', '.join(fields)}"


def _union_faults(data: object, kinds: tuple[Any, ...], path: str) -> Iterator[str]:
    """None and one kind, or kinds that JSON tells apart."""
    if data is None and types.NoneType in kinds:
        return
    others = [kind for kind in kinds if kind is not types.NoneType]
    chosen = [kind for kind in others if isinstance(data, _plain_type(kind)) and not isinstance(data, bool)]
    if chosen or len(others) == 1:
        yield from _faults(data, (chosen or others)[0], path)
    else:
        words = " or ".join(_WORDS[_plain_type(kind)] for kind in others)
        yield _told(path, f"{words} is expected, not {shown(data)}")


def _tuple_faults(data: object, kind: Any, path: str) -> Iterator[str]:
    if not isinstance(data, list | tuple):
        yield _told(path, f"a list is expected, not {shown(data)}")
        return
    for place, item in enumerate(data):
        yield from _faults(item, kind, f"{path}[{place}]")


def _map_faults(data: object, kinds: tuple[Any, ...], path: str) -> Iterator[str]:
    key_kind, kind = kinds
    if not isinstance(data, dict):
        yield _told(path, f"an object is expected, not {shown(data)}")
        return
    for key, item in data.items():
        where = entry_path(path, str(key))
        if key_kind is int and not str(key).isdecimal():
            yield _told(where, "a number is expected as the name")
        elif not str(key).isprintable():
            yield _told(where, "the name has characters that cannot be printed")
        else:
            yield from _faults(item, kind, where)


def _leaf_faults(data: object, kind: Any, path: str) -> Iterator[str]:
    plain = _plain_type(kind)
    if not _is_plain(data, plain):
        yield _told(path, f"{_WORDS[plain]} is expected, not {shown(data)}")
    elif isinstance(data, str) and len(data) > LONGEST_TEXT:
        yield _told(path, f"longer than {LONGEST_TEXT} characters")
    elif isinstance(data, str) and not data.isprintable():
        yield _told(path, f"{shown(data)} has characters that cannot be printed")
    elif get_origin(kind) is Literal and data not in get_args(kind):
        yield _told(path, f"{shown(data)} is none of {', '.join(map(str, get_args(kind)))}")
    else:
        yield from _conversion_faults(data, kind, path)


def _is_plain(data: object, plain: type) -> bool:
    if isinstance(data, bool):
        return plain is bool
    return isinstance(data, (int, float) if plain is float else plain)


def _conversion_faults(data: object, kind: Any, path: str) -> Iterator[str]:
    """CPU sets and PCI addresses, which are texts of a form of their own."""
    if plain_text_kind(kind):
        try:
            kind.parse(data)
        except ValueError as error:
            yield _told(path, brief(str(error)))


def plain_text_kind(kind: Any) -> bool:
    """Kinds that are texts in JSON and have a parser: CpuSet, PciAddress."""
    return isinstance(kind, type) and hasattr(kind, "parse")


def _plain_type(kind: Any) -> type:
    """What JSON's reader makes of a value of this kind."""
    origin = get_origin(kind)
    if origin is Literal:
        return type(get_args(kind)[0])
    if origin is tuple:
        return list
    if origin in {MappingProxyType, dict} or (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return dict
    return kind if kind in {str, int, float, bool} else str


def shown(data: object) -> str:
    """What was found, for a sentence: in JSON where it is short."""
    if data is None:
        return "null"
    if isinstance(data, Mapping):
        return "an object"
    if isinstance(data, Sequence) and not isinstance(data, str):
        return "a list"
    if isinstance(data, int) and abs(data) >= 10**20:
        return "a number with more than 20 digits"
    return brief(msgspec.json.encode(data).decode(), 80) if not isinstance(data, str) else f'"{brief(data, 80)}"'


def _told(path: str, what: str) -> str:
    return f"{path}: {what}" if path else what[:1].upper() + what[1:]
