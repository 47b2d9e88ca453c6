"""The OpenAPI document against a real daemon: whatever it lets be sent is answered as it says, never with 500."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from requests.adapters import HTTPAdapter
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from urllib3 import HTTPConnectionPool
from urllib3.connection import HTTPConnection

from agent.client import LocalClient
from agent.formats import wire
from agent.formats.envelope import Envelope
from tests.functional.daemon import START_S, Daemon
from tests.functional.lab import Libvirtd

DOCUMENT = json.loads((Path(__file__).parents[2] / "docs/openapi.json").read_text())
API = schemathesis.openapi.from_dict(DOCUMENT)
CHECKS = [content_type_conformance, response_schema_conformance, status_code_conformance]
UUID = "6b0e7d9c-6d55-4bd4-9d3c-6f6c3f9b9d31"
KNOWN = {"claim_id": "known", "move_id": "known-move", "id": "known-group", "uuid": UUID, "address": "0000:3b:00.0"}
BUILD: dict[str, Any] = {
    "claim_id": "known",
    "kind": "build",
    "instance": {"uuid": UUID, "name": "web"},
    "spec": {"flavor": {"vcpus": 1, "memory_mb": 16}},
    "context": {"group": {"id": "known-group", "policy": "anti-affinity", "members": [UUID], "generation": 1}},
}


class _Connection(HTTPConnection):
    """To a socket file, which has the place of the host's name."""

    path: Path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(START_S)
        self.sock.connect(str(self.path))


class _Unix(HTTPAdapter):
    """How requests gets to a socket file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        kind = type("Connection", (_Connection,), {"path": path})
        self._pool = type("Pool", (HTTPConnectionPool,), {"ConnectionCls": kind})("agent")

    def get_connection_with_tls_context(self, *_: Any, **__: Any) -> Any:
        """The one pool."""
        return self._pool


@pytest.fixture(scope="module")
def daemon(lab: Libvirtd) -> Iterator[Daemon]:
    """With a claim, a group and a move that cases may name."""
    lab.make_good()
    made = Daemon(lab.ro_uri)
    made.start()
    client = LocalClient(made.dir / "sock/agent.sock", timeout_s=START_S)
    assert client.claim(BUILD).is_new
    yield made
    assert made.stop() == 0
    assert "Traceback" not in made.log()
    made.clean()


@pytest.fixture(scope="module")
def session(daemon: Daemon) -> requests.Session:
    made = requests.Session()
    made.mount("http://agent", _Unix(daemon.dir / "sock/agent.sock"))
    return made


@API.parametrize()
@settings(max_examples=15, phases=[Phase.generate], deadline=None, suppress_health_check=list(HealthCheck))
def test_what_the_document_says_is_so(case: schemathesis.Case[Any], daemon: Daemon, session: requests.Session) -> None:
    for name, value in case.path_parameters.items():
        if len(str(value)) % 2:
            case.path_parameters[name] = KNOWN[name]
    answer = case.call(session=session, base_url="http://agent", timeout=START_S)
    case.validate_response(answer, checks=CHECKS)
    assert answer.status_code < HTTPStatus.INTERNAL_SERVER_ERROR or answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE
    if case.path.startswith("/v1/"):
        told = wire.from_json(answer.content, Envelope)
        assert told.ok == (answer.status_code == HTTPStatus.OK) == (told.refusal is None)
    assert daemon.process.poll() is None
