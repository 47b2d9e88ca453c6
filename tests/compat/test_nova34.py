"""nova 34 itself still answers what is recorded in nova_cases. Needs root."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent.core.cpuset import CpuSet
from tests.compat.nova_cases import CASES, DEVICES, PHYSICAL_FUNCTIONS, Answer
from tests.compat.nova_python import nova_python

SCRIPT = Path(__file__).with_name("nova_answers.py")
IN_OWN_SYSFS = 'mount --bind "$1" /sys/bus/pci/devices && shift && exec "$@"'
"""nova looks up in /sys whether an address is a physical function."""


@pytest.fixture(scope="module")
def nova_says(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer | None]:
    devices = tmp_path_factory.mktemp("devices")
    for address in PHYSICAL_FUNCTIONS:
        (devices / address).mkdir()
        (devices / address / "sriov_totalvfs").write_text("64\n")
    command = [str(nova_python()), "-W", "ignore", str(SCRIPT), json.dumps(DEVICES)]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", IN_OWN_SYSFS, "sh", devices, *command],
        input=json.dumps({name: text for name, (text, _) in CASES.items()}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return {name: None if said is None else _answer(said) for name, said in json.loads(done.stdout).items()}


def _answer(said: dict[str, Any]) -> Answer:
    return Answer(
        dedicated=str(CpuSet(said["dedicated"])),
        shared=str(CpuSet(said["shared"])),
        memory_mb=said["memory_mb"],
        pages=tuple((cell, size, count) for cell, size, count in said["pages"]),
        cpu_ratio=said["cpu_ratio"],
        ram_ratio=said["ram_ratio"],
        devices=tuple(said["devices"]),
    )


@pytest.mark.parametrize("name", CASES)
def test_nova_answers_as_recorded(name: str, nova_says: dict[str, Answer | None]) -> None:
    assert nova_says[name] == CASES[name][1]
