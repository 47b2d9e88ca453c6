"""`machine`: an emulated one for all tests. `agent`: the daemon in it. `guest`: pinned and bound there, and running."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.functional.lab import LAB
from tests.numahost.machine import Agent, Machine


class Guest(NamedTuple):
    """A running guest with one vCPU. pid: of its QEMU, in the machine."""

    name: str
    uuid: str
    pid: int
    cpu: int
    cell: int


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    """Of this test run."""
    # pytest's tmp_path is too long for the path of a UNIX socket
    made = Machine(Path(tempfile.mkdtemp(prefix="nh-", dir="/tmp")))
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.fixture(scope="session")
def agent(machine: Machine) -> Iterator[Agent]:
    """Ready, on events alone: the next timed pass is an hour away."""
    made = Agent(machine)
    made.start()
    yield made
    assert "Traceback" not in made.log()


@pytest.fixture(scope="session")
def guest(machine: Machine, agent: Agent) -> Guest:
    """Its 160 MiB are allocated when it starts, all in its cell."""
    words = ["xml", "pinned", "--mem=160", "--pin=0=3", "--numa=strict:1"]
    done = subprocess.run([sys.executable, LAB / "guest", *words], check=True, capture_output=True, text=True)
    xml = done.stdout.replace("<os>", "<memoryBacking><allocation mode='immediate'/></memoryBacking><os>")
    machine.shell('printf %s "$1" > /tmp/guest.xml && virsh -q define /tmp/guest.xml && virsh -q start pinned', xml)
    uuid = machine.run("virsh", "-q", "domuuid", "pinned").strip()
    pid = int(machine.run("cat", "/run/libvirt/qemu/pinned.pid"))
    return Guest(name="pinned", uuid=uuid, pid=pid, cpu=3, cell=1)
