"""JSON Schemas of what people and programs write for us and read of us, made from the types themselves.

`make sample` writes them to docs/; docs/fit.md links them.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin

import msgspec

from agent.core.cpuset import CpuSet
from agent.core.dry_run import FitAnswer
from agent.core.instance import RequestSpec
from agent.core.pci import PciAddress
from agent.formats import request
from agent.formats.short_form import ShortSnapshot
from agent.formats.snapshot_file import FullSnapshot

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_ALSO = "The names that fields have; docs/fit.md lists others that are read too."

_TEXTS: Mapping[Any, str] = MappingProxyType(
    {
        CpuSet: 'CPUs or cells in the kernel\'s list form: "0-3,8"; empty: ""',
        PciAddress: 'domain:bus:slot.function in hexadecimal: "0000:3b:00.1"',
    }
)
_PLAIN: Mapping[Any, str] = MappingProxyType(
    {str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null"}
)


def schemas() -> dict[str, dict[str, Any]]:
    """By file name."""
    return {
        "request.schema.json": _relaxed(_schema(RequestSpec, "A guest that somebody orders", _ALSO)),
        "snapshot.schema.json": _schema(FullSnapshot, "All that the agent knew of a host"),
        "short-snapshot.schema.json": _schema(ShortSnapshot, "A host as somebody wrote it", _ALSO),
        "fit-answer.schema.json": _schema(FitAnswer, "Whether the guest fits, and where or why not"),
    }


def text_of(schema: Mapping[str, Any]) -> str:
    """As it is kept in a file."""
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def _schema(kind: type[msgspec.Struct], title: str, description: str | None = None) -> dict[str, Any]:
    definitions: dict[str, Any] = {}
    top = _of(kind, definitions)
    ordered = dict(sorted(definitions.items()))
    words = {"title": title} if description is None else {"title": title, "description": description}
    return {"$schema": DIALECT, **words, **top, "$defs": ordered}


def definitions_of(kinds: Sequence[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A schema for each type, and by name the structs that these refer to below "#/$defs/"."""
    definitions: dict[str, Any] = {}
    return [_of(kind, definitions) for kind in kinds], definitions


def _relaxed(schema: dict[str, Any]) -> dict[str, Any]:
    relaxed(schema["$defs"])
    return schema


def relaxed(definitions: dict[str, Any]) -> None:
    """Say what a request may leave out, and the limits of its numbers, which its types do not tell."""
    for form in ("RequestSpec", "FitForm"):
        if form in definitions:
            definitions[form]["required"] = ["flavor"]
    definitions["Port"].pop("required")
    for name, (least, most) in request.LIMITS.items():
        definitions["Flavor"]["properties"][name] |= {"minimum": least, "maximum": most}
    for holder, name in (("Flavor", "extra_specs"), ("Image", "properties")):
        definitions[holder]["properties"][name]["additionalProperties"] = {"type": ["string", "integer"]}


def _of(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in {typing.Union, types.UnionType}:
        return _union(arguments, definitions)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple:
        return {"type": "array", "items": _of(arguments[0], definitions)}
    if origin in {MappingProxyType, dict}:
        return _map(arguments, definitions)
    if kind in _TEXTS:
        return {"type": "string", "description": _TEXTS[kind]}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _reference(kind, definitions)
    return {"type": _PLAIN[kind]} if kind in _PLAIN else {}


def _union(kinds: tuple[Any, ...], definitions: dict[str, Any]) -> dict[str, Any]:
    parts = [_of(kind, definitions) for kind in kinds]
    if all(set(part) == {"type"} for part in parts):
        return {"type": [part["type"] for part in parts]}
    return {"anyOf": parts}


def _map(arguments: tuple[Any, ...], definitions: dict[str, Any]) -> dict[str, Any]:
    names = {"propertyNames": {"pattern": "^[0-9]+$"}} if arguments[0] is int else {}
    return {"type": "object", **names, "additionalProperties": _of(arguments[1], definitions)}


def _reference(kind: type[msgspec.Struct], definitions: dict[str, Any]) -> dict[str, Any]:
    name = kind.__name__
    if name not in definitions:
        definitions[name] = {}  # a type may name itself
        definitions[name] = _object(kind, definitions)
    return {"$ref": f"#/$defs/{name}"}


def _object(kind: type[msgspec.Struct], definitions: dict[str, Any]) -> dict[str, Any]:
    fields = msgspec.structs.fields(kind)
    properties = {field.encode_name: _with_default(_of(field.type, definitions), field) for field in fields}
    required = [field.encode_name for field in fields if field.required]
    tag = kind.__struct_config__.tag
    if tag is not None:
        properties = {"type": {"const": tag}, **properties}
        required = ["type", *required]
    described: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        described["required"] = required
    return {**described, "additionalProperties": False}


def _with_default(schema: dict[str, Any], field: msgspec.structs.FieldInfo) -> dict[str, Any]:
    is_plain = isinstance(field.default, str | int | float | None)
    return {**schema, "default": field.default} if is_plain else schema
