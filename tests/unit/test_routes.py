"""The table of what is served: each request finds its row, and what is told of the rows is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.formats.route import Route, Table
from agent.handlers import STATUS_OF, TABLE
from agent.handlers.statuses import retry_of, status_of

DOCS = Path(__file__).parents[2] / "docs/api.md"


def found(method: str, path: str) -> tuple[str, dict[str, str]] | None:
    row = TABLE.find(method, path.split("/"))
    return None if row is None else (row.route.call, dict(row.parameters))


@pytest.mark.parametrize("route", TABLE.routes, ids=lambda route: f"{route.method} {route.path}")
def test_each_row_is_found_by_its_method_and_path_with_its_parameters(route: Route) -> None:
    parts = [f"a {part[1:-1]}/?" if part.startswith("{") else part for part in route.path.split("/")]
    row = TABLE.find(route.method, parts)
    assert row is not None
    assert (row.route, dict(row.parameters)) == (route, {name: f"a {name}/?" for name in route.parameters})


def test_head_is_found_as_get() -> None:
    assert found("HEAD", "/v1/claims/x") == found("GET", "/v1/claims/x") == ("get_claim", {"claim_id": "x"})


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/topology"),
        ("DELETE", "/v1/claims/x"),
        ("GET", "/v1/claims/"),
        ("GET", "/v1/claims/x/"),
        ("GET", "v1/claims"),
        ("POST", "/v1/claims//renew"),
        ("POST", "/v1/claims/x/renew/y"),
        ("POST", "/v1/claims/x/destroy"),
        ("GET", ""),
    ],
)
def test_what_is_in_no_row_is_not_found(method: str, path: str) -> None:
    assert found(method, path) is None


def test_the_methods_of_a_path_are_told() -> None:
    told = {path: TABLE.methods(path.split("/")) for path in ("/v1/claims", "/v1/fit", "/v1/groups/x", "/v1/x")}
    assert told == {
        "/v1/claims": ("GET", "HEAD", "POST"),
        "/v1/fit": ("POST",),
        "/v1/groups/x": ("GET", "HEAD", "PUT"),
        "/v1/x": (),
    }


def test_no_two_rows_take_one_request() -> None:
    shapes = [(route.method, re.sub(r"\{\w+\}", "{}", route.path)) for route in TABLE.routes]
    assert len(set(shapes)) == len(shapes)
    assert Table(()).find("GET", ["", "v1", "claims"]) is None


def test_only_what_changes_something_needs_the_socket_that_may() -> None:
    assert {route.method for route in TABLE.routes if route.work == "read"} == {"GET"}
    assert [route.path for route in TABLE.routes if route.work == "question"] == ["/v1/fit"]
    assert all(route.asks is not None and route.longest_body for route in TABLE.routes if route.work == "change")


def test_each_code_is_documented_with_its_status() -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (\d{3}) \|", DOCS.read_text(), re.MULTILINE)
    told = {code.strip("`"): int(status) for codes, status in rows for code in codes.split(", ")}
    assert told == {code: int(status) for code, status in STATUS_OF.items()}


def test_what_may_be_asked_again_is_said_so() -> None:
    assert [retry_of(code) for code in ("AgentNotReady", "JournalUnavailable", "InvalidRequest")] == [
        "later",
        "later",
        "never",
    ]
    assert (status_of("ClaimEnded"), status_of("NeverHeardOf")) == (410, 400)
