"""The digest that names what a claim asks for: made once, where flavor, image and ports become a request.

It is stored by whoever claims and travels with the request; the receiver makes it again of what it has read, and a
difference shows that a field was lost or changed on the way.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from agent.core.instance import Group, InstanceRequest
from agent.formats.wire import fields, to_builtins


def digest_of(kind: str, instance: str, binding: InstanceRequest, group: Group | None = None) -> str:
    """sha256 in 64 hexadecimal digits over kind, the instance's uuid, binding, and the group's id and policy.

    Fields at their default are left out at every depth, so that a field which is new in one release changes no digest
    of a request that does not use it. A default must therefore never change.
    """
    asked: dict[str, object] = {"kind": kind, "instance": instance, "binding": _without_defaults(binding)}
    if group is not None:
        asked["group"] = {"id": group.id, **({} if group.policy is None else {"policy": group.policy})}
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def agrees(digest: str, kind: str, instance: str, binding: InstanceRequest, group: Group | None = None) -> bool:
    """True when the digest was made of the same request."""
    return digest == digest_of(kind, instance, binding, group)


def _without_defaults(value: object) -> Any:
    if isinstance(value, msgspec.Struct):
        found = ((field, getattr(value, field.name)) for field in fields(type(value)))
        said = {field.encode_name: _without_defaults(own) for field, own in found if own != _default(field)}
        config = value.__struct_config__
        return said if config.tag is None else {str(config.tag_field): config.tag, **said}
    if isinstance(value, tuple | list):
        return [_without_defaults(one) for one in value]
    if isinstance(value, Mapping | MappingProxyType):
        return {str(key): _without_defaults(one) for key, one in value.items()}
    return to_builtins(value)


def _default(field: msgspec.structs.FieldInfo) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default
