"""The codec at every depth: an unknown field and an unknown word are refused by name, and null is not absence."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from types import MappingProxyType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.core.host_config import HostConfig
from agent.core.instance import InstanceRequest, RequestSpec
from agent.core.pci_request import PciNumaPolicy, PciRequest, PciSpec
from agent.core.placement import Placement
from agent.core.reasons import Reason
from agent.core.relax.values import Relaxation
from agent.core.values import Value
from agent.errors import WireError
from agent.formats import wire
from tests.unit.test_wire import VALUES, anything

look = settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
every_value = pytest.mark.parametrize("kind", VALUES, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
ASKED_AND_ANSWERED = (InstanceRequest, RequestSpec, Placement, Reason, Relaxation, HostConfig)
"""What travels between those who ask for room and those who have it; unions among them."""


class Spot(NamedTuple):
    """A place in a value: the way there through its written form, what is declared for it, and what is there."""

    way: tuple[str | int, ...]
    kind: Any
    found: Any


def spots(found: Any, kind: Any, way: tuple[str | int, ...] = ()) -> Iterator[Spot]:
    """Every value, collection and leaf in a value."""
    yield Spot(way, kind, found)
    parts = get_args(kind)
    if isinstance(found, msgspec.Struct):
        hints = get_type_hints(type(found))
        written = dict(zip(found.__struct_fields__, found.__struct_encode_fields__, strict=True))
        for name, key in written.items():
            yield from spots(getattr(found, name), hints[name], (*way, key))
    elif get_origin(kind) in {Union, UnionType}:
        for part in parts:
            yield from spots(found, part, way)
    elif isinstance(found, tuple) and get_origin(kind) is tuple:
        for n, one in enumerate(found):
            yield from spots(one, parts[0] if parts[-1] is Ellipsis else parts[n], (*way, n))
    elif isinstance(found, MappingProxyType) and get_origin(kind) is MappingProxyType:
        for key, one in found.items():
            yield from spots(one, parts[1], (*way, str(key)))


def changed(data: Any, way: tuple[str | int, ...], change: Mapping[str, object]) -> Any:
    """A copy of written data in which the object at the end of this way has these fields."""
    whole = copy.deepcopy(data)
    at = whole
    for step in way:
        at = at[step]
    at.update(change)
    return whole


@every_value
@look
@given(data=st.data())
def test_a_field_too_many_is_refused_by_name_at_every_depth(kind: type[Value], data: st.DataObject) -> None:
    value = data.draw(anything(kind))
    written = wire.to_builtins(value)
    for way in {spot.way for spot in spots(value, kind) if isinstance(spot.found, msgspec.Struct)}:
        with pytest.raises(WireError, match="unknown field `from_the_future`"):
            wire.from_builtins(changed(written, way, {"from_the_future": 1}), kind)


@every_value
@look
@given(data=st.data())
def test_a_word_that_is_not_known_is_refused_and_where_it_stands_is_said(
    kind: type[Value], data: st.DataObject
) -> None:
    value = data.draw(anything(kind))
    written = wire.to_builtins(value)
    for spot in spots(value, kind):
        if get_origin(spot.kind) is Literal and isinstance(spot.found, str) and isinstance(spot.way[-1], str):
            with pytest.raises(WireError) as refused:
                wire.from_builtins(changed(written, spot.way[:-1], {spot.way[-1]: "prefered"}), kind)
            assert spot.way[-1] in str(refused.value)


@pytest.mark.parametrize("kind", ASKED_AND_ANSWERED, ids=lambda kind: getattr(kind, "__name__", "union"))
@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_questions_and_answers_survive_the_way_there_the_journal_and_back(kind: Any, data: st.DataObject) -> None:
    value = data.draw(anything(kind))
    stored = wire.to_json(value)
    again = wire.from_json(wire.to_json(wire.from_json(stored, kind)), kind)
    assert (again, type(again)) == (value, type(value))
    assert wire.to_json(again) == stored


def test_an_answer_of_an_unknown_kind_is_refused_by_name() -> None:
    kinds: tuple[tuple[Any, str], ...] = ((Reason, "no-such-reason"), (Relaxation, "perhaps"))
    for kind, word in kinds:
        with pytest.raises(WireError, match=f"'{word}'"):
            wire.from_builtins({"type": word}, kind)


@pytest.mark.parametrize("policy", [*get_args(PciNumaPolicy), None])
def test_each_policy_reads_back_as_itself_and_its_absence_as_the_default(policy: PciNumaPolicy | None) -> None:
    asked = PciRequest(id="a", specs=(PciSpec(),))
    asked = asked if policy is None else msgspec.structs.replace(asked, numa_policy=policy)
    written = wire.to_builtins(asked)
    assert written["numa_policy"] == (policy or "legacy")
    if policy is None:
        del written["numa_policy"]
    assert wire.from_builtins(written, PciRequest) == asked


@pytest.mark.parametrize("word", ["prefered", "Required", "", "none", "legacy "])
def test_a_policy_that_is_none_of_the_four_is_refused_and_no_default(word: str) -> None:
    written = wire.to_builtins(PciRequest(id="a", specs=(PciSpec(),)))
    for data in (wire.from_builtins, lambda whole, kind: wire.from_json(msgspec.json.encode(whole), kind)):
        with pytest.raises(WireError, match="numa_policy") as refused:
            data({**written, "numa_policy": word}, PciRequest)
        assert repr(word) in str(refused.value)
    with pytest.raises(WireError, match="numa_policy"):
        wire.from_builtins({**written, "numa_policy": None}, PciRequest)


def test_a_tag_of_null_is_not_the_absence_of_the_tag() -> None:
    overlay, unsaid = PciSpec(tags=MappingProxyType({"physical_network": None})), PciSpec()
    assert wire.to_builtins(overlay)["tags"] == {"physical_network": None}
    assert wire.from_json(wire.to_json(overlay), PciSpec) == overlay != unsaid
    assert wire.from_json(wire.to_json(unsaid), PciSpec) == unsaid
