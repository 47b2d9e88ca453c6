"""The README's way from a promise to a guest that lives here, line by line as it stands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.client import LocalClient
from agent.core.ledger import Holds
from agent.formats import wire
from agent.formats.domain_xml import read_domain
from tests.functional.daemon import Daemon
from tests.functional.lab import Libvirtd, wait_until

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120
INDENT = "    "


def blocks_of_readme() -> list[str]:
    """The section's pieces to copy, in order."""
    text = (ROOT / "README.md").read_text()
    section = text.partition("\n## Promise a place, start the guest, watch it become resident\n")[2].partition("\n## ")[
        0
    ]
    blocks: list[list[str]] = []
    before = ""
    for line in section.splitlines():
        if line.startswith(INDENT):
            if not before.startswith(INDENT):
                blocks.append([])
            blocks[-1].append(line.removeprefix(INDENT))
        before = line
    return ["\n".join(block) + "\n" for block in blocks]


class Shell:
    """A shell of somebody who has the agent and this libvirtd, in a folder of its own."""

    def __init__(self, folder: Path, libvirtd: Libvirtd, socket: Path) -> None:
        self.folder = folder / "work"
        programs = folder / "bin"
        for made in (self.folder, programs):
            made.mkdir()
        commands = {
            "agentctl": f'exec {sys.executable} -m agent.cli.main "$@"',
            "virsh": f'exec {shutil.which("virsh")} -q -c "{libvirtd.uri}" "$@"',
        }
        for name, command in commands.items():
            (programs / name).write_text(f"#!/bin/sh\n{command}\n")
            (programs / name).chmod(0o755)
        self.environ = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "COMPUTE_AGENT_SOCKET": str(socket),
        }

    def run(self, script: str) -> str:
        """What it prints; asserts that each of its commands succeeds."""
        done = subprocess.run(
            ["sh", "-e", "-c", script],
            check=False, capture_output=True, text=True, cwd=self.folder, env=self.environ, timeout=TIMEOUT_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def claim(self) -> Any:
        """The claim as JSON."""
        return json.loads(self.run("agentctl claim show web-1 -f json"))


@pytest.fixture
def daemon(libvirtd: Libvirtd) -> Iterator[Daemon]:
    made = Daemon(libvirtd.ro_uri)
    yield made
    made.clean()


def test_the_guest_that_was_promised_a_place_becomes_resident_in_it_by_itself(
    libvirtd: Libvirtd, daemon: Daemon, tmp_path: Path
) -> None:
    build, definition, start, end = blocks_of_readme()
    daemon.start()
    # the README's reader has the read-only socket in the environment, as `make run` prints it
    shell = Shell(tmp_path, libvirtd, daemon.dir / "sock/agent-ro.sock")

    text = shell.run(build)
    assert text.startswith("claim web-1\nreserved: ")
    promised = shell.claim()
    (cell,) = promised["placement"]["cells"]
    (cpu,) = cell["pins"].values()
    assert (promised["state"], promised["holds"]["cpus"]) == ("reserved", str(cpu))

    shell.run(definition)
    assert shell.run(start).startswith("claim web-1\n")
    read = read_domain(libvirtd.virsh("dumpxml", "web"))
    assert (read.domain.uuid, str(read.domain.vcpu_pins[0].cpus)) == (promised["instance"]["uuid"], str(cpu))

    client = LocalClient(daemon.dir / "sock/agent-ro.sock", timeout_s=TIMEOUT_S)
    wait_until(lambda: client.get_claim("web-1").claim.state == "resident", "the claim to be resident", TIMEOUT_S)
    resident = shell.claim()
    assert (resident["holds"], resident["deadline_at"]) == (promised["holds"], None)
    report = daemon.report()
    (seen,) = report.guests
    assert seen.holds == wire.from_builtins(promised["holds"], Holds)
    assert [row.id for row in report.conflicts] == []

    shell.run(end)
    assert json.loads(shell.run("agentctl claim list -f json")) == []
    assert shell.claim()["ended"]["how"] == "released"
