"""The digest of what was asked for: made where flavor, image and ports become a request, and it names no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.cli.main import main
from agent.core.instance import Group, InstanceRequest
from agent.formats import wire
from agent.formats.digest import agrees

UUID = "6b0e7d9c-6d55-4bd4-9d3c-6f6c3f9b9d31"
HOST = {"format": "short", "cells": [{"id": 0, "cpus": "0-3", "memory_mb": 4096}]}


def told(capsys: pytest.CaptureFixture[str], folder: Path, vcpus: int) -> Any:
    """The JSON of a small guest of a group; with more vCPUs than CPUs it does not fit."""
    group = {"id": "web", "policy": "anti-affinity", "members": []}
    flavor = {"vcpus": vcpus, "memory_mb": 64, "extra_specs": {"hw:cpu_policy": "dedicated"}}
    request = {"instance": {"uuid": UUID, "name": "db"}, "flavor": flavor, "group": group}
    (folder / "host.json").write_text(json.dumps(HOST))
    (folder / "request.json").write_text(json.dumps(request))
    where = ("--snapshot", str(folder / "host.json"), "--request", str(folder / "request.json"))
    main(("fit", *where, "-f", "json"))
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("vcpus", "fits"), [(2, True), (9, False)])
def test_yes_and_no_tell_what_was_asked_for_and_its_digest(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, *, vcpus: int, fits: bool
) -> None:
    answer = told(capsys, tmp_path, vcpus)
    binding = wire.from_builtins(answer["binding"], InstanceRequest)
    assert (answer["fits"], binding.vcpus, binding.cpu_policy) == (fits, vcpus, "dedicated")
    group = Group(id="web", policy="anti-affinity")
    assert agrees(answer["digest"], "build", UUID, binding, group)
    assert not agrees(answer["digest"], "build", UUID, binding)
