"""What the agent tells an operator to do, done: each command it proposes, copied to a shell, ends its conflict."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from agent.core.conflicts import Conflict
from agent.core.cpuset import CpuSet
from agent.core.guest import ObservedDomain
from agent.formats.domain_xml import read_domain
from tests.functional.daemon import Daemon
from tests.functional.lab import Libvirtd

SPLIT = "cpu_dedicated_set = 1\ncpu_shared_set = 0\n"
ALL_DEDICATED = "cpu_dedicated_set = 0-1\n"
FIRST_UUID = "00000000-0000-4000-8000-000000000001"
ROUTER = "old-router$1"
"""A name that means something else to a shell unless it is quoted."""
TWICE = "cpu-pinned-twice:cpu:1"


@pytest.fixture
def daemon(libvirtd: Libvirtd) -> Iterator[Daemon]:
    made = Daemon(libvirtd.ro_uri)
    yield made
    made.clean()


def commands(row: Conflict) -> list[str]:
    return re.findall("`([^`]*)`", row.action)


def in_a_shell(command: str, libvirtd: Libvirtd) -> None:
    environ = {**os.environ, "LIBVIRT_DEFAULT_URI": libvirtd.uri}
    done = subprocess.run(command, shell=True, check=False, capture_output=True, text=True, env=environ, timeout=60)
    assert done.returncode == 0, f"{command}: {done.stderr}"


def definition(libvirtd: Libvirtd, name: str, *options: str) -> ObservedDomain:
    return read_domain(libvirtd.virsh("dumpxml", name, *options)).domain


def pins(domain: ObservedDomain) -> tuple[Any, ...]:
    return (domain.vcpu_pins, domain.emulator_pin, domain.iothread_pins)


class Case(NamedTuple):
    """other: options of a guest that is in the way, None: nobody is. threads: options of the guest that is to move."""

    sets: str
    other: Mapping[str, Any] | None
    threads: Mapping[str, Any]
    verbs: tuple[str, ...]


PINNED = {"pin": {0: "1"}}
ALL_THREADS = {"uuid": FIRST_UUID, "pin": {0: "1"}, "emulatorpin": "1", "iothread": ["1"]}
CASES = {
    "emulator beside a vCPU": Case(SPLIT, PINNED, {"emulatorpin": "1"}, ("emulatorpin",)),
    "iothread beside a vCPU": Case(SPLIT, PINNED, {"iothread": ["0", "1"]}, ("iothreadpin",)),
    "emulator and iothreads beside a vCPU": Case(
        SPLIT, PINNED, {"emulatorpin": "1", "iothread": ["1", "1"]}, ("emulatorpin", "iothreadpin", "iothreadpin")
    ),
    "all threads beside a vCPU": Case(ALL_DEDICATED, PINNED, ALL_THREADS, ("vcpupin", "emulatorpin", "iothreadpin")),
    "emulator and iothread alone": Case(
        SPLIT, None, {"emulatorpin": "1", "iothread": ["1"]}, ("emulatorpin", "iothreadpin")
    ),
    "iothread alone": Case(SPLIT, None, {"iothread": ["1"]}, ("iothreadpin",)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "transient"])
def test_the_proposed_commands_end_the_conflict(
    daemon: Daemon, libvirtd: Libvirtd, case: Case, persistent: bool
) -> None:
    if case.other is not None:
        libvirtd.guest("other", **case.other)
    moved = libvirtd.guest(ROUTER, **case.threads)
    if not persistent:
        libvirtd.virsh("undefine", ROUTER)
    daemon.configure(f"[tracker]\ninterval = 300\ndeep_interval = 3600\n[compute]\n{case.sets}")
    daemon.start()
    conflict = TWICE if case.other is not None else f"emulator-on-dedicated:guest:{moved.uuid}"
    proposed = commands(daemon.conflicts()[conflict])
    assert tuple(command.split()[1] for command in proposed) == case.verbs
    assert all(command.endswith(" --live --config" if persistent else " --live") for command in proposed)

    for command in proposed:
        in_a_shell(command, libvirtd)

    daemon.wait_for(lambda told: not told.conflicts, "the conflict to go")
    assert daemon.agentctl_json("conflicts", code=0) == []
    if persistent:
        assert pins(definition(libvirtd, ROUTER, "--inactive")) == pins(definition(libvirtd, ROUTER))


def test_a_proposed_emulator_pin_is_in_force_in_the_kernel(daemon: Daemon, libvirtd: Libvirtd) -> None:
    router = libvirtd.guest(ROUTER, emulatorpin="1")
    assert router.pid is not None
    daemon.configure(f"[compute]\n{SPLIT}")
    daemon.start()
    before = CpuSet(os.sched_getaffinity(router.pid))

    (command,) = commands(daemon.conflicts()[f"emulator-on-dedicated:guest:{router.uuid}"])
    in_a_shell(command, libvirtd)

    assert (before, CpuSet(os.sched_getaffinity(router.pid))) == (CpuSet([1]), CpuSet([0]))
