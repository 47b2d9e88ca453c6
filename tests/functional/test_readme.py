"""The README's lines for monitors, run as they stand, on a host where guests conflict."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.functional.lab import Guest, Libvirtd

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60


def line_of_readme(beginning: str) -> str:
    """The one line to copy that begins so."""
    text = (ROOT / "README.md").read_text().partition("\n## Alert on it\n")[2].partition("\n## ")[0]
    (line,) = [line.strip() for line in text.splitlines() if line.startswith(f"    {beginning}")]
    return line


def test_the_line_for_prometheus_updates_the_file_although_there_is_a_conflict(
    libvirtd: Libvirtd, guest: Callable[..., Guest], tmp_path: Path
) -> None:
    guest("one", vcpus=1, pin={0: "0"})
    guest("two", vcpus=1, pin={0: "0"})
    program = tmp_path / "bin" / "agentctl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m agent.cli.main "$@" --connect "{libvirtd.ro_uri}"\n')
    program.chmod(0o755)
    textfiles = tmp_path / "textfiles"
    textfiles.mkdir()
    (textfiles / "compute_agent.prom").write_text("old\n")
    environ = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    line = line_of_readme("agentctl check -f prometheus")
    checked = subprocess.run(
        ["agentctl", "check"], check=False, capture_output=True, cwd=textfiles, env=environ, timeout=TIMEOUT_S
    )
    assert checked.returncode == 1, checked
    subprocess.run(["sh", "-c", line], check=True, cwd=textfiles, env=environ, timeout=TIMEOUT_S)
    assert [path.name for path in textfiles.iterdir()] == ["compute_agent.prom"]
    families = {f.name: f for f in text_string_to_metric_families((textfiles / "compute_agent.prom").read_text())}
    infos = [sample.labels for sample in families["compute_agent_conflict_info"].samples]
    assert [(info["id"], info["owners"]) for info in infos if info["kind"] == "cpu-pinned-twice"] == [
        ("cpu-pinned-twice:cpu:0", "one,two")
    ]
