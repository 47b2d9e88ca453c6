"""What somebody orders, as JSON or as words of a command line, into a `RequestSpec`. docs/fit.md has the form."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from agent.core.instance import (
    LARGEST_GENERATION,
    MOST_DISK_GB,
    MOST_MEMBERS,
    MOST_MEMORY_MB,
    MOST_PORTS,
    MOST_SWAP_MB,
    MOST_VCPUS,
    Group,
    RequestSpec,
)
from agent.errors import FaultyInput
from agent.formats import request_spelling
from agent.formats.validate import decoded, entry_path, number_text, validated

Spec = TypeVar("Spec", bound=RequestSpec)

NOBODY = str(uuid.UUID(int=0))
"""Uuid of a guest that is only thought of."""

LONGEST_REQUEST = 256 * 1024
"""Bytes; the most ports and members that are taken have not half of that."""

LIMITS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "vcpus": (1, MOST_VCPUS),
        "memory_mb": (1, MOST_MEMORY_MB),
        "root_gb": (0, MOST_DISK_GB),
        "ephemeral_gb": (0, MOST_DISK_GB),
        "swap_mb": (0, MOST_SWAP_MB),
    }
)
"""The least and the most of a flavor's numbers."""


def from_json(text: bytes | str) -> RequestSpec:
    """The request that JSON text describes. Raises FaultyInput."""
    return from_plain(decoded(text, "The request"))


def from_plain(data: object) -> RequestSpec:
    """The same from plain dicts and lists.

    instance and its uuid may be left out (a guest that is only thought of), and a port's id ("port0", "port1" by its
    place). Whole numbers, true and false are taken as text in extra_specs and properties, where people write them so;
    docs/fit.md lists what else they may write.
    Raises FaultyInput with a sentence for each fault, by the path of the field: "flavor.memory_mb: ...".
    """
    return read(data, RequestSpec)


def from_words(
    *,
    vcpus: int,
    memory_mb: int,
    extra_specs: Sequence[str] = (),
    properties: Sequence[str] = (),
    ports: Sequence[str] = (),
    group: str | None = None,
) -> RequestSpec:
    """The request of a command line. extra_specs, properties: "KEY=VALUE"; ports, group: JSON objects.

    Raises FaultyInput as `from_plain`.
    """
    return from_plain(
        {
            "flavor": {"vcpus": vcpus, "memory_mb": memory_mb, "extra_specs": _pairs(extra_specs, "--extra-spec")},
            "image": {"properties": _pairs(properties, "--image-property")},
            "ports": [decoded(port, f"--port {place}") for place, port in enumerate(ports, 1)],
            "group": None if group is None else decoded(group, "--group"),
        }
    )


def read(data: object, kind: type[Spec]) -> Spec:
    """The same into a request that has further fields. Raises FaultyInput as `from_plain`."""
    spec = validated(_filled(request_spelling.spelled(data)), kind)
    faults = [*_beyond_limits(spec), *_bad_names(spec)]
    if faults:
        raise FaultyInput(*faults)
    return spec


def _filled(data: object) -> object:
    if not isinstance(data, dict):
        return data
    filled: dict[str, Any] = {"instance": {}, **data}
    if isinstance(instance := filled["instance"], dict):
        filled["instance"] = {"uuid": NOBODY, **instance}
    for part, name in (("flavor", "extra_specs"), ("image", "properties")):
        if isinstance(holder := filled.get(part), dict) and isinstance(words := holder.get(name), dict):
            filled[part] = {**holder, name: {key: _as_text(value) for key, value in words.items()}}
    if isinstance(ports := filled.get("ports"), list):
        filled["ports"] = [_with_id(port, place) for place, port in enumerate(ports)]
    return filled


def _as_text(value: object) -> object:
    is_number = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 64
    return str(value) if is_number else value


def _with_id(port: object, place: int) -> object:
    return {"id": f"port{place}", **port} if isinstance(port, dict) else port


def _beyond_limits(spec: RequestSpec) -> Iterator[str]:
    for name, (least, most) in LIMITS.items():
        if not least <= (number := getattr(spec.flavor, name)) <= most:
            yield f"flavor.{name}: {number_text(number)} is not between {least} and {most}"
    if len(spec.ports) > MOST_PORTS:
        yield f"ports: more than {MOST_PORTS}"
    if spec.group is not None:
        yield from group_faults(spec.group, "group")


def group_faults(group: Group, path: str) -> Iterator[str]:
    """What of a group's numbers and names cannot be, each by its path below `path`."""
    for name in ("members", "hosts"):
        if len(getattr(group, name)) > MOST_MEMBERS:
            yield f"{path}.{name}: more than {MOST_MEMBERS}"
    if not 1 <= (number := group.max_server_per_host) <= MOST_MEMBERS:
        yield f"{path}.max_server_per_host: {number_text(number)} is not between 1 and {MOST_MEMBERS}"
    if group.generation is not None and not 0 <= group.generation <= LARGEST_GENERATION:
        yield f"{path}.generation: {number_text(group.generation)} is not between 0 and {LARGEST_GENERATION}"
    if not group.id.strip():
        yield f"{path}.id: empty"
    yield from (f"{path}.hosts[{place}]: empty" for place, name in enumerate(group.hosts) if not name.strip())


def _bad_names(spec: RequestSpec) -> Iterator[str]:
    if not _is_uuid(spec.instance.uuid):
        yield "instance.uuid: no uuid, as in 6b0e7d9c-6d55-4bd4-9d3c-6f6c3f9b9d31"
    yield from (f"ports[{place}].id: empty" for place, port in enumerate(spec.ports) if not port.id)
    words = {"flavor.extra_specs": spec.flavor.extra_specs, "image.properties": spec.image.properties}
    for path, entries in words.items():
        yield from (f"{entry_path(path, key)}: the name is empty" for key in entries if not key)


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def _pairs(words: Sequence[str], option: str) -> dict[str, str]:
    """As they stand: blanks count here as they do in a file."""
    pairs: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise FaultyInput(f"{option} {word}: it must be KEY=VALUE")
        if key in pairs:
            raise FaultyInput(f"{option} {word}: {key} is given twice")
        pairs[key] = value
    return pairs
