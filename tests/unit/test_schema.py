"""The JSON Schemas below docs/ are made of the types, and say of real documents what the agent says of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent.core.dry_run import FitAnswer, try_fit
from agent.core.fit.host import host_facts
from agent.errors import FaultyInput
from agent.formats import request, snapshot_file, wire
from agent.formats.fit_answer import fit_document
from agent.formats.schema import schemas, text_of
from tests.gates.schemas import main
from tests.unit.test_handlers import looked
from tests.unit.test_snapshot_file import CELL, PF, device

DOCS = Path(__file__).parents[2] / "docs"
TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (type(None),),
    "array": (list,), "object": (dict,),
}  # fmt: skip
KNOWN = {
    "$schema", "$defs", "title", "description", "default", "$ref", "type", "enum", "const", "anyOf", "items",
    "properties", "required", "additionalProperties", "propertyNames", "minimum", "maximum",
}  # fmt: skip


class Schema:
    """What the words of JSON Schema that ours use mean; another word fails the test."""

    def __init__(self, name: str) -> None:
        self.top = json.loads((DOCS / f"{name}.schema.json").read_text())

    def takes(self, data: object) -> bool:
        return self._takes(data, self.top)

    def _takes(self, data: object, schema: dict[str, Any]) -> bool:
        assert set(schema) <= KNOWN
        reference = schema.get("$ref")
        if reference is not None and not self._takes(data, self.top["$defs"][reference.removeprefix("#/$defs/")]):
            return False
        if "anyOf" in schema and not any(self._takes(data, part) for part in schema["anyOf"]):
            return False
        if "enum" in schema and data not in schema["enum"]:
            return False
        return self._is_of_type(data, schema) and self._is_whole(data, schema)

    def _is_of_type(self, data: object, schema: dict[str, Any]) -> bool:
        names = schema.get("type", list(TYPES))
        kinds = tuple(kind for name in ([names] if isinstance(names, str) else names) for kind in TYPES[name])
        return isinstance(data, kinds) and not (isinstance(data, bool) and bool not in kinds)

    def _is_whole(self, data: object, schema: dict[str, Any]) -> bool:
        if "const" in schema and data != schema["const"]:
            return False
        if isinstance(data, int | float) and not schema.get("minimum", data) <= data <= schema.get("maximum", data):
            return False
        if isinstance(data, list):
            return all(self._takes(item, schema.get("items", {})) for item in data)
        if not isinstance(data, dict):
            return True
        known, more = schema.get("properties", {}), schema.get("additionalProperties", {})
        names = schema.get("propertyNames", {"pattern": ""})["pattern"]
        return set(schema.get("required", ())) <= set(data) and all(
            re.search(names, key) is not None
            and (self._takes(value, known[key]) if key in known else more is not False and self._takes(value, more))
            for key, value in data.items()
        )


def test_the_kept_schemas_are_current() -> None:
    kept = {path.name: path.read_text() for path in DOCS.glob("*.schema.json")}
    assert kept == {name: text_of(schema) for name, schema in schemas().items()}, (
        "make them anew: make sample"
    )


def test_a_script_writes_them_into_the_folder_that_is_named(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 0
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        name: text_of(schema) for name, schema in schemas().items()
    }
    assert main([str(tmp_path / "missing")]) == 2


FLAVOR = {"vcpus": 2, "memory_mb": 64, "extra_specs": {"hw:numa_nodes": 1, "hw:cpu_policy": "dedicated"}}
REQUEST: dict[str, Any] = {
    "flavor": FLAVOR,
    "image": {"properties": {"os_type": "linux"}},
    "ports": [{}, {"vnic_type": "direct", "physical_network": None, "numa_affinity_policy": "socket"}],
    "group": None,
}


@pytest.mark.parametrize(
    ("change", "is_right"),
    [
        ({}, True),
        ({"group": {"id": "g", "policy": "affinity", "members": []}}, True),
        ({"flavor": {"vcpus": 1, "memory_mb": 1}}, True),
        ({"flavor": {"vcpus": 0, "memory_mb": 1}}, False),
        ({"flavor": {"vcpus": "1", "memory_mb": 1}}, False),
        ({"flavor": {"vcpus": 1, "memory_mb": 1, "extra_specs": {"a": 1.5}}}, False),
        ({"flavor": {"vcpus": 1}}, False),
        ({"ports": [{"vnic_type": "odd"}]}, False),
        ({"group": {"policy": "affinity"}}, False),
        ({"color": "red"}, False),
        ({"instance": {"uuid": 5}}, False),
    ],
)
def test_the_schema_of_a_request_takes_what_the_door_takes(change: dict[str, Any], is_right: bool) -> None:
    document = REQUEST | change
    assert Schema("request").takes(document) == is_right
    if is_right:
        request.from_plain(document)
    else:
        with pytest.raises(FaultyInput, match=r"flavor|ports|group|color|instance"):
            request.from_plain(document)


def test_the_schema_of_a_saved_snapshot_takes_one_and_no_unknown_field() -> None:
    document = json.loads(wire.to_json(snapshot_file.saved(looked())))
    schema = Schema("snapshot")
    assert document["domains"]
    assert schema.takes(document)
    document["domains"][0]["domain"]["mood"] = "good"
    assert not schema.takes(document)
    assert not schema.takes({"format": "full"})


def test_the_schema_of_the_short_form_takes_what_people_write() -> None:
    document = {
        "format": "short",
        "cells": [{**CELL, "siblings": [[0, 1], "2-3"], "pages": {"2048": 5}}],
        "pinned": [0],
        "used_memory_mb": {"0": 5},
        "pci": [device(PF, tags={"physical_network": None})],
        "device_spec": [{"address": PF}],
    }
    schema = Schema("short-snapshot")
    assert schema.takes(document)
    snapshot_file.from_plain(document)
    assert not schema.takes(document | {"cells": [{"id": 0, "cpu": ""}]})
    assert not schema.takes(document | {"cells": [{**CELL, "pages": {"2M": 1}}]})


@pytest.mark.parametrize("vcpus", [2, 50])
def test_the_schema_of_the_answer_takes_a_yes_and_a_no(vcpus: int) -> None:
    host = looked()
    asked = request.from_plain(REQUEST | {"flavor": FLAVOR | {"vcpus": vcpus}, "ports": []})
    answer = try_fit(asked, host, host_facts(host.topology, host.config))
    assert isinstance(answer, FitAnswer)
    document = fit_document(answer)
    assert document["fits"] == (vcpus == 2)
    assert Schema("fit-answer").takes(json.loads(json.dumps(document)))
    assert not Schema("fit-answer").takes({**document, "fits": "yes"})
