"""The one codec: values to JSON and back, for the journal, the local API and the commands.

CPU sets travel as cpulist text, PCI addresses as "0000:3b:00.1", read-only maps as objects. A field that is unknown to
the receiver is refused by name, never dropped.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import GenericAlias, MappingProxyType
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from agent.core.cpuset import CpuSet
from agent.core.pci import PciAddress
from agent.core.words import brief
from agent.errors import WireError

T = TypeVar("T")

_SHORT = 64
"""Characters of a text that is worth remembering: a journal repeats few, and no sender fills the memory."""


_TEXT_TYPES: dict[Any, tuple[Callable[[str], object], Callable[[str], object]]] = {
    kind: (functools.lru_cache(maxsize=4096)(kind.parse), kind.parse) for kind in (CpuSet, PciAddress)
}
"""How a text of such a type is read: a short one, and any."""


@functools.cache
def fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Of a struct type; msgspec reads the annotations anew each time, which costs more than all else of a request."""
    return msgspec.structs.fields(kind)


def to_builtins(value: object) -> Any:
    """Dicts, lists, strings and numbers that json can write; key order as declared."""
    return msgspec.to_builtins(value, enc_hook=_encode, str_keys=True)


def from_builtins(data: object, kind: type[T]) -> T:
    """The inverse of `to_builtins`. Raises WireError that names the field at fault."""
    try:
        return msgspec.convert(data, kind, dec_hook=_decode, str_keys=True)
    except (msgspec.ValidationError, ValueError, RecursionError, OverflowError) as error:
        raise _fault(kind, error) from error


def to_json(value: object) -> bytes:
    """Compact JSON of a value."""
    return msgspec.json.encode(value, enc_hook=_encode)


def from_json(data: bytes | str, kind: type[T]) -> T:
    """The inverse of `to_json`. Raises WireError that names the field at fault."""
    try:
        return msgspec.json.decode(data, type=kind, dec_hook=_decode)
    except (msgspec.DecodeError, ValueError, RecursionError, OverflowError) as error:
        raise _fault(kind, error) from error


def _fault(kind: object, error: Exception) -> WireError:
    """In words that are safe to show: the sender chose names of unknown fields and texts that are no values."""
    found = "nested too deeply" if isinstance(error, RecursionError) else brief(str(error))
    return WireError(f"not a {getattr(kind, '__name__', kind)}: {found}")


def _encode(value: object) -> object:
    if isinstance(value, CpuSet | PciAddress):
        return str(value)
    if isinstance(value, MappingProxyType):
        return dict(value)
    raise TypeError(f"no JSON form is known for {type(value).__name__}")


def _decode(kind: Any, data: object) -> object:
    readers = _TEXT_TYPES.get(kind)
    if readers is not None:
        if not isinstance(data, str):
            raise ValueError(f"{data!r} is not text")
        return readers[len(data) > _SHORT](data)
    plain = _plain_map(kind)
    if plain is not None:
        return MappingProxyType(msgspec.convert(data, plain, dec_hook=_decode, str_keys=True, strict=False))
    raise TypeError(f"no value is known for {kind}")


@functools.cache
def _plain_map(kind: Any) -> GenericAlias | None:
    """The dict of the same keys and values as a read-only map; None: it is no map."""
    return GenericAlias(dict, get_args(kind)) if get_origin(kind) is MappingProxyType else None
