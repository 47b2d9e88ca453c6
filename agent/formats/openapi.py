"""The OpenAPI document of the local API, made from the table of what is served. `make sample` writes it to docs/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import msgspec

from agent.core.claim.values import ClaimRules
from agent.core.instance import MOST_MEMBERS
from agent.formats.claim_forms import LONGEST_ID, LONGEST_REASON, MOST_GENERATION, NIL
from agent.formats.claim_request import MOST_FACTS
from agent.formats.envelope import INVALID, VERSION, Refusal
from agent.formats.route import Route
from agent.formats.schema import DIALECT, definitions_of, relaxed

OPENAPI = "3.1.0"

UUID = {
    "type": "string",
    "pattern": "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
    "not": {"const": NIL},
}
ID = {"type": "string", "minLength": 1, "maxLength": LONGEST_ID}
ADDRESS = {"type": "string", "pattern": "^([0-9a-fA-F]{1,8}:)?[0-9a-fA-F]{1,2}:[01]?[0-9a-fA-F]\\.[0-7]$"}
_PARAMETERS: Mapping[str, Mapping[str, Any]] = MappingProxyType({"uuid": UUID, "address": ADDRESS})
_TTL = {"minimum": ClaimRules().least_ttl_s, "maximum": ClaimRules().most_ttl_s}
_LONG = {"maxLength": LONGEST_ID}
_ANY_CHANGE = ("AgentNotReady",)

_LIMITS: Mapping[str, Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "ClaimForm": {"claim_id": ID, "digest": {"pattern": "^[0-9a-f]{64}$"}},
        "ContextForm": {
            "ttl_s": _TTL,
            "replaces": _LONG,
            "move_id": _LONG,
            "peer": _LONG,
            "not_after": {"format": "date-time"},
            "source_facts": {"maxProperties": MOST_FACTS},
        },
        "FitForm": {"replaces": _LONG},
        "GroupForm": {
            "id": ID,
            "members": {"items": UUID, "maxItems": MOST_MEMBERS},
            "hosts": {"items": ID, "maxItems": MOST_MEMBERS},
            "generation": {"minimum": 0, "maximum": MOST_GENERATION},
        },
        "GroupRules": {"max_server_per_host": {"minimum": 1, "maximum": MOST_MEMBERS}},
        "Renewal": {"ttl_s": _TTL},
        "End": {"reason": {"maxLength": LONGEST_REASON}},
        "MaintenanceForm": {"reason": {"minLength": 1, "maxLength": LONGEST_REASON}},
        "Hold": {"peer": _LONG},
        "Forget": {"moved_to": _LONG},
    }
)
"""What a form's types do not tell, by form and field."""


def openapi_document(routes: Sequence[Route], probes: Sequence[str], statuses: Mapping[str, int]) -> dict[str, Any]:
    """The document. statuses: by the code of a refusal."""
    kinds = [kind for route in routes for kind in (route.gives, route.asks) if kind is not None]
    shapes, definitions = definitions_of([*kinds, Refusal])
    relaxed(definitions)
    _limit(definitions)
    shape_of = dict(zip([*map(_key, kinds), _key(Refusal)], shapes, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, shape_of, definitions, statuses)
    for path in probes:
        paths[path] = {"get": _probe(path)}
    definitions["Refused"] = _envelope({"type": "null"}, shape_of[_key(Refusal)], is_ok=False)
    document = {
        "openapi": OPENAPI,
        "jsonSchemaDialect": DIALECT,
        "info": {
            "title": "compute-agent: local API",
            "version": str(VERSION),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "description": "HTTP over UNIX sockets; docs/api.md says what the fields mean.",
        },
        "servers": [{"url": "http://agent", "description": "agent.sock or agent-ro.sock in /run/compute-agent"}],
        "paths": paths,
        "components": {"schemas": dict(sorted(definitions.items()))},
    }
    moved: dict[str, Any] = _below_components(document)
    return moved


def _key(kind: Any) -> str:
    return repr(kind)


def _operation(
    route: Route, shape_of: Mapping[str, Any], definitions: Mapping[str, Any], statuses: Mapping[str, int]
) -> dict[str, Any]:
    sockets = "agent.sock" if route.work == "change" else "agent.sock or agent-ro.sock"
    operation: dict[str, Any] = {
        "operationId": route.call,
        "summary": route.summary,
        "description": f"Over {sockets}.",
        "responses": _responses(route, shape_of[_key(route.gives)], statuses),
    }
    if route.parameters:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": _PARAMETERS.get(name, ID)}
            for name in route.parameters
        ]
    if route.asks is not None:
        content = {"application/json": {"schema": _body(route, definitions)}}
        operation["requestBody"] = {"required": route.needs_body, "content": content}
    return operation


def _body(route: Route, definitions: Mapping[str, Any]) -> dict[str, Any]:
    """The form without what the path says of it, and with what any request may have."""
    assert route.asks is not None
    form = definitions[route.asks.__name__]
    fields = {name: shape for name, shape in form["properties"].items() if name not in route.parameters}
    required = [name for name in form.get("required", ()) if name in fields]
    shape = {
        "type": "object",
        "properties": {**fields, "v": {"const": VERSION}, "expected_agent_id": {"type": "string"}},
        "additionalProperties": False,
    }
    return {**shape, "required": required} if required else shape


def _responses(route: Route, result: Any, statuses: Mapping[str, int]) -> dict[str, Any]:
    yes = _json(_envelope(result, {"type": "null"}, is_ok=True))
    said = {str(int(HTTPStatus.OK)): {"description": "Yes", "content": yes}}
    codes = (INVALID, "UnsupportedVersion", *route.refuses, *(_ANY_CHANGE if route.work == "change" else ()))
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys((*codes, "InternalError")):
        by_status.setdefault(statuses[code], []).append(code)
    if route.asks is not None:
        for sent in (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE):
            by_status.setdefault(sent, []).append(INVALID)
    by_status.setdefault(HTTPStatus.METHOD_NOT_ALLOWED, []).append(INVALID)
    refused = _json({"$ref": "#/$defs/Refused"})
    for status, names in sorted(by_status.items()):
        said[str(int(status))] = {"description": ", ".join(names), "content": refused}
    return said


def _probe(path: str) -> dict[str, Any]:
    text = {"text/plain": {"schema": {"type": "string"}}}
    said = {"200": "ok", "503": "A reason a line"}
    answers = {status: {"description": words, "content": text} for status, words in said.items()}
    return {"operationId": path.strip("/"), "summary": "Probe", "responses": answers}


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _envelope(result: Any, refusal: Any, *, is_ok: bool) -> dict[str, Any]:
    text, number = {"type": "string"}, {"type": "integer"}
    fields = {
        "v": {"const": VERSION},
        "agent_id": text,
        "boot_id": text,
        "epoch": number,
        "generation": number,
        "now": text,
        "ok": {"const": is_ok},
        "result": result,
        "refusal": refusal,
    }
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def _limit(definitions: dict[str, Any]) -> None:
    definitions["Instance"]["properties"]["uuid"] = UUID
    definitions["Instance"]["properties"]["name"]["maxLength"] = LONGEST_ID
    definitions["ContextForm"]["additionalProperties"] = True
    for name, fields in _LIMITS.items():
        for field, limits in fields.items():
            definitions[name]["properties"][field] |= limits


def _below_components(data: Any) -> Any:
    """With references to where OpenAPI keeps schemas."""
    if isinstance(data, dict):
        return {
            name: value.replace("#/$defs/", "#/components/schemas/") if name == "$ref" else _below_components(value)
            for name, value in data.items()
        }
    return [_below_components(one) for one in data] if isinstance(data, list) else data


def text_of(document: Mapping[str, Any]) -> str:
    """As it is kept in a file."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"
