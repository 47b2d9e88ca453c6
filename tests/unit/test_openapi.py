"""The OpenAPI document below docs/ is made of the table of what is served, and is one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate

from agent.formats.openapi import text_of
from agent.handlers import PROBES, STATUS_OF, TABLE
from tests.gates.openapi import document, main

KEPT = Path(__file__).parents[2] / "docs/openapi.json"


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    told: dict[str, Any] = json.loads(KEPT.read_text())
    return told


def test_the_kept_document_is_current() -> None:
    assert KEPT.read_text() == text_of(document()), "make it anew: make sample"


def test_a_script_writes_it_into_the_folder_that_is_named(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 0
    assert (tmp_path / "openapi.json").read_text() == text_of(document())
    assert main([str(tmp_path / "missing")]) == 2


def test_it_is_an_openapi_document(kept: dict[str, Any]) -> None:
    validate(kept)


def test_it_has_every_path_that_is_served_and_no_other(kept: dict[str, Any]) -> None:
    served = {(route.method.lower(), route.path) for route in TABLE.routes} | {("get", path) for path in PROBES}
    assert {(method, path) for path, methods in kept["paths"].items() for method in methods} == served


def test_each_method_has_its_name_once(kept: dict[str, Any]) -> None:
    names = [operation["operationId"] for methods in kept["paths"].values() for operation in methods.values()]
    assert len(set(names)) == len(names)


def test_each_code_that_a_path_may_refuse_with_stands_at_its_status(kept: dict[str, Any]) -> None:
    for route in TABLE.routes:
        said = kept["paths"][route.path][route.method.lower()]["responses"]
        assert [code for code in route.refuses if code not in said[str(int(STATUS_OF[code]))]["description"]] == []


def test_what_the_path_says_is_not_asked_for_in_the_body(kept: dict[str, Any]) -> None:
    shape = kept["paths"]["/v1/claims/{claim_id}/renew"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert sorted(shape["properties"]) == ["expected_agent_id", "ttl_s", "v"]
    assert "required" not in shape
