"""The README's lines to copy, used as they stand, on a host where guests conflict."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.functional.daemon import Daemon
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


def test_the_lines_that_accept_the_conflict_of_the_demo_are_taken_by_a_reload_and_name_all_guests_that_they_must(
    libvirtd: Libvirtd, guest: Callable[..., Guest]
) -> None:
    text = (ROOT / "README.md").read_text()
    lines = [line.strip() for line in text.splitlines() if line.startswith("    accept = ")]
    names = ("instance-0000002a", "build-runner", "old-router")
    for name in names:
        guest(name, vcpus=1, pin={0: "0"})
    daemon = Daemon(libvirtd.ro_uri)
    try:
        daemon.start()
        daemon.wait_for(lambda told: [row.accepted for row in told.conflicts] == [False], "the conflict")
        daemon.configure("[conflicts]\n" + "\n".join(lines[:1]))
        daemon.reload()
        daemon.wait_for(lambda _: "reloaded the configuration" in daemon.log(), "the reload")
        assert [row.accepted for row in daemon.report().conflicts] == [False], "one line is not enough"
        daemon.configure("[conflicts]\n" + "\n".join(lines))
        checked = subprocess.run(
            [*daemon.command, "--check-config"], check=False, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert (checked.returncode, checked.stderr) == (0, "")
        assert "intended: cpu-pinned-twice with old-router" in checked.stdout
        daemon.reload()
        (row,) = daemon.wait_for(lambda told: told.conflicts[0].accepted, "its acceptance").conflicts
        assert {owner.name for owner in row.owners} == set(names)
        assert daemon.agentctl_json("conflicts")[0]["accepted"] is True
    finally:
        daemon.clean()
