"""agentctl fit --group: what the policy of a server group means on one host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.cli.main import main

HOST = {"format": "short", "cells": [{"id": 0, "cpus": "0-3", "memory_mb": 4096}]}


def ask(capsys: pytest.CaptureFixture[str], folder: Path, policy: str, *more: str) -> tuple[int, str, str]:
    """Exit code, output and what is said beside it, for a small guest of such a group."""
    (folder / "host.json").write_text(json.dumps(HOST))
    group = json.dumps({"id": "web", "policy": policy})
    where = ("--snapshot", str(folder / "host.json"), "--group", group)
    code = main(("fit", "--vcpus", "1", "--memory-mb", "64", *where, *more))
    return (code, *capsys.readouterr())


def test_members_that_are_kept_apart_do_not_fit_beside_each_other(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, _ = ask(capsys, tmp_path, "anti-affinity", "--count", "3", "-f", "json")
    told = json.loads(out)
    assert (code, told["fits"], told["count"]) == (1, False, 1)
    (reason,) = told["reasons"]
    assert (reason["type"], reason["group"], reason["limit"], len(reason["members"])) == ("group-violated", "web", 1, 1)


def test_affinity_is_said_to_be_unchecked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, beside = ask(capsys, tmp_path, "affinity")
    assert (code, out.splitlines()[0]) == (0, "It fits: 1 vCPU and 64 MiB of memory")
    assert "Policy affinity of server group web is not checked" in beside
