"""What curl and the daemon's own start print for people is as safe to show as what agentctl prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from agent.core.snapshot import SourceState, with_sources
from tests.hostile import POISON, unsafe
from tests.unit.test_handlers import Api, looked

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", ["/readyz", "/livez", "/healthz"])
def test_a_probe_tells_each_reason_on_one_safe_line(path: str) -> None:
    failed = SourceState(name="libvirt", problem=f"no domain {POISON}")
    api = Api(with_sources(msgspec.structs.replace(looked(), complete=False), failed))
    body = api.get(path).body.decode()
    assert unsafe(body) == ""
    assert [line for line in body.splitlines() if line.startswith("agentctl")] == []


def test_a_fault_of_the_configuration_is_safe_to_show(tmp_path: Path) -> None:
    own = tmp_path / "own.conf"
    own.write_text("[tracker]\ninterval = \x1b]0;owned\x07\x9b31m\n")
    done = subprocess.run(
        [sys.executable, "-m", "agent.service", "--config-file", str(own), "--check-config"],
        check=False, capture_output=True, text=True, timeout=60, cwd=CHECKOUT,
    )  # fmt: skip
    assert (done.returncode, "interval" in done.stderr) == (2, True), done
    assert unsafe(done.stdout + done.stderr) == ""
