"""What a flavor says in Placement's words about its CPUs: resources:PCPU, resources:VCPU, and hyper-threading."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from agent.core.flavor.reading import UNREAD, Reading, Unread, whole
from agent.core.instance import LARGEST_NUMBER, ThreadPolicy
from agent.core.request_faults import Property
from agent.core.values import Value

_RESOURCE = re.compile(r"resources(?:[1-9]\d*)?:(?P<name>.+)", re.ASCII)
_TRAIT = re.compile(r"trait(?:[1-9]\d*)?:(?P<name>.+)", re.ASCII)
_HYPERTHREADING = "HW_CPU_HYPERTHREADING"
_THREADS: Mapping[str, ThreadPolicy] = {"required": "require", "forbidden": "isolate"}
_ELSEWHERE = re.compile(r"(resources|trait)[A-Za-z0-9_-]*:|accel:|capabilities:|aggregate_instance_extra_specs:")


class Counted(Value, frozen=True, kw_only=True):
    """How many CPUs the entries of one resource class ask for together."""

    count: int
    said: tuple[Property, ...]


def counted(reading: Reading, name: str) -> Counted | Unread | None:
    """The sum of resources:NAME of all groups; None when nothing asks for any."""
    said = tuple(_named(reading.flavor_words, _RESOURCE, name))
    counts = [whole(one.value, 0, LARGEST_NUMBER) for one in said]
    for one, count in zip(said, counts, strict=True):
        if count is None:
            reading.refuse(
                "resources-number",
                one,
                found=f"{one} is not a number of CPUs.",
                change=f"Set {one.name} to a whole number, or take it off.",
            )
    if None in counts:
        return UNREAD
    total = sum(count or 0 for count in counts)
    return Counted(count=total, said=said) if total else None


def hyperthreading(reading: Reading) -> tuple[Property, ThreadPolicy] | Unread | None:
    """The thread policy that the trait stands for, and where it is said."""
    found: dict[ThreadPolicy, Property] = {}
    for said in _traits(reading):
        policy = _THREADS.get((said.value or "").strip())
        if policy is None:
            return reading.refuse(
                "hyperthreading-unknown",
                said,
                found=f"{said} is neither required nor forbidden.",
                change=f"Set {said.name} to required or forbidden, or take it off.",
            )
        found.setdefault(policy, said)
    if len(found) > 1:
        one, other = found.values()
        return reading.refuse(
            "hyperthreading-conflict",
            one,
            other,
            found=f"{one} and {other} cannot both be met.",
            change=f"Take {one.name} off the {one.where}, or {other.name} off the {other.where}.",
        )
    return next(((said, policy) for policy, said in found.items()), None)


def _traits(reading: Reading) -> Iterator[Property]:
    yield from _named(reading.flavor_words, _TRAIT, _HYPERTHREADING)
    value = reading.image_words.get(f"trait:{_HYPERTHREADING}")
    if value == "required":
        yield Property(name=f"trait:{_HYPERTHREADING}", value=value, where="image")
    elif value:
        reading.note(f"trait:{_HYPERTHREADING} has no effect in an image unless it is required.")


def _named(words: Mapping[str, str], pattern: re.Pattern[str], name: str) -> Iterator[Property]:
    for key, value in words.items():
        match = pattern.fullmatch(key)
        if match is not None and match["name"] == name and value.strip():
            yield Property(name=key, value=value, where="flavor")


def left_to_others(reading: Reading) -> list[str]:
    """The flavor's properties about resources and traits that nothing here looks at."""
    return [key for key in reading.flavor_words if _ELSEWHERE.match(key) is not None and not _is_ours(key)]


def _is_ours(key: str) -> bool:
    resource, trait = _RESOURCE.fullmatch(key), _TRAIT.fullmatch(key)
    if resource is not None:
        return resource["name"] in {"VCPU", "PCPU"}
    return trait is not None and trait["name"] == _HYPERTHREADING
