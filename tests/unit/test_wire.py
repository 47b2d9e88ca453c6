"""The codec: every field of every value survives the way out and back, and nothing unknown is dropped."""

from __future__ import annotations

import functools
import importlib
import json
import pkgutil
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import agent.core
import agent.formats
from agent.core.claim.values import Record
from agent.core.conflicts import Owner
from agent.core.cpuset import CpuMask, CpuSet
from agent.core.guest import GuestCell, MemoryDevice
from agent.core.pci import PciAddress, PciDevice
from agent.core.snapshot import Snapshot
from agent.core.topology import HostCell, PagePool
from agent.core.usage import Folded
from agent.core.usage.rows import CpuHolder
from agent.core.values import Value
from agent.errors import WireError
from agent.formats import wire
from agent.formats.envelope import ApiRequest, ApiResponse


def all_values(kind: type[Value] = Value) -> list[type[Value]]:
    """Every Value that the core and the formats declare."""
    if kind is Value:
        for package in (agent.core, agent.formats):
            for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
                importlib.import_module(module.name)
    found = {kind.__qualname__: kind for kind in kind.__subclasses__()}
    return [each for name in sorted(found) for each in (found[name], *all_values(found[name]))]


NEVER_WRITTEN = {ApiRequest, ApiResponse, Record, Folded, Snapshot}
"""The first two carry a body that the codec has written already, as bytes; of a record the journal writes the value.
The last two are folded anew from what is written in their place (`FullSnapshot`)."""

MOST = 1
"""Of a collection: what matters is that each field is drawn, and these values nest six deep."""

INTEGERS = st.integers(min_value=-(1 << 62), max_value=1 << 62)
LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(),
    int: INTEGERS,
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    NoneType: st.none(),
    Any: st.recursive(st.none() | st.booleans() | st.text() | INTEGERS, st.lists, max_leaves=3),
    object: st.none() | st.text(),
    CpuSet: st.frozensets(st.integers(min_value=0, max_value=1023)).map(CpuSet),
    CpuMask: st.integers(min_value=0, max_value=1 << 62).map(CpuMask),
    PciAddress: st.builds(
        PciAddress,
        st.integers(min_value=0, max_value=0xFFFFFFFF),
        st.integers(min_value=0, max_value=0xFF),
        st.integers(min_value=0, max_value=0x1F),
        st.integers(min_value=0, max_value=7),
    ),
}


def fields_of(kind: type) -> tuple[str, ...] | None:
    """Of a value, or of a named tuple within one; None for other types."""
    return kind.__struct_fields__ if issubclass(kind, msgspec.Struct) else getattr(kind, "_fields", None)


@functools.cache
def anything(kind: Any) -> st.SearchStrategy[Any]:
    """Instances of a declared type, each field of a value drawn on its own."""
    if kind in LEAVES:
        return LEAVES[kind]
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(parts)
    if origin in {Union, UnionType}:
        return st.one_of([anything(part) for part in parts])
    if origin is MappingProxyType:
        return st.dictionaries(anything(parts[0]), anything(parts[1]), max_size=MOST).map(MappingProxyType)
    if origin is dict:
        return st.dictionaries(anything(parts[0]), anything(parts[1]), max_size=MOST)
    if origin is tuple and parts[-1] is Ellipsis:
        return st.lists(anything(parts[0]), max_size=MOST).map(tuple)
    if origin is tuple:
        return st.tuples(*map(anything, parts))
    if origin is frozenset:
        return st.frozensets(anything(parts[0]), max_size=MOST)
    if isinstance(kind, type) and (names := fields_of(kind)) is not None:
        hints = get_type_hints(kind)
        return st.builds(kind, **{name: anything(hints[name]) for name in names})
    raise AssertionError(f"no way to draw a {kind}: add it to LEAVES")


LEAVES[CpuHolder] = st.builds(CpuHolder, cpu=st.integers(0, 1023), owners=anything(tuple[Owner, ...]))

VALUES = [kind for kind in all_values() if kind not in NEVER_WRITTEN]


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_every_field_of_every_value_survives_the_way_out_and_back(kind: type[Value], data: st.DataObject) -> None:
    value = data.draw(anything(kind))
    assert wire.from_json(wire.to_json(value), kind) == value
    assert wire.from_builtins(wire.to_builtins(value), kind) == value
    assert json.loads(wire.to_json(value)) == json.loads(json.dumps(wire.to_builtins(value)))


def test_the_values_of_all_modules_are_walked() -> None:
    names = {kind.__name__ for kind in VALUES}
    assert {"HostTopology", "ReadDomain", "ObservedDomain", "Sighting", "Usage", "Report", "NodeDevice"} <= names


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_a_field_that_the_receiver_does_not_know_is_refused_by_name(kind: type[Value]) -> None:
    with pytest.raises(WireError, match="unknown field `from_the_future`"):
        wire.from_builtins({"from_the_future": 1}, kind)


def test_sets_addresses_and_maps_travel_as_people_write_them() -> None:
    cell = HostCell(
        id=33,
        cpus=CpuSet((0, 1, 2, 3, 8)),
        memory_kib=1 << 20,
        pages=(PagePool(size_kib=2048, total=4, free=1),),
        distances=MappingProxyType({0: 20, 33: 10}),
    )
    assert json.loads(wire.to_json(cell)) == {
        "id": 33,
        "cpus": "0-3,8",
        "memory_kib": 1 << 20,
        "pages": [{"size_kib": 2048, "total": 4, "free": 1, "surplus": 0, "reserved": None}],
        "distances": {"0": 20, "33": 10},
        "allowed": True,
    }
    device = PciDevice(
        address=PciAddress.parse("10000:01:1f.7"), vendor_id="8086", product_id="10fb", class_code="0200"
    )
    assert wire.from_json(wire.to_json(device), PciDevice) == device
    assert wire.to_builtins(device)["address"] == "10000:01:1f.7"
    assert wire.to_builtins(device)["class"] == "0200"


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"id": 0, "vcpus": "3-1", "memory_kib": 1}, "'3-1' in '3-1' runs backwards or beyond 16383"),
        ({"id": 0, "vcpus": 7, "memory_kib": 1}, "7 is not text"),
        ({"id": 0, "vcpus": "0"}, "missing required field `memory_kib`"),
        ({"id": "0", "vcpus": "0", "memory_kib": 1}, "Expected `int`, got `str` - at `$.id`"),
    ],
)
def test_a_payload_that_does_not_fit_says_where(payload: dict[str, object], message: str) -> None:
    with pytest.raises(WireError) as refused:
        wire.from_builtins(payload, GuestCell)
    assert message in str(refused.value)
    with pytest.raises(WireError) as refused_json:
        wire.from_json(json.dumps(payload), GuestCell)
    assert message in str(refused_json.value)


@given(st.binary() | st.text())
def test_random_bytes_are_a_wire_error(data: bytes | str) -> None:
    with pytest.raises(WireError):
        wire.from_json(data, MemoryDevice)


def test_an_object_without_a_json_form_is_named() -> None:
    with pytest.raises(TypeError, match="no JSON form is known for object"):
        wire.to_json({"a": object()})
