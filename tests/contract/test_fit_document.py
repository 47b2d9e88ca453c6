"""What docs/fit.md shows of agentctl is what agentctl prints."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "fit.md").read_text()
BLOCKS = [re.sub(r"(?m)^ {4}", "", block) for block in re.findall(r"(?m)(?:^ {4}.*\n|^\n(?= {4}))+", DOCUMENT)]
HOST = next(block for block in BLOCKS if '"format": "short"' in block and "1eb8" in block and "1-3,9,12" in block)
SHOWN = [block.lstrip("\n") for block in BLOCKS if block.lstrip("\n").startswith("$ agentctl")]


def test_there_are_examples() -> None:
    assert len(SHOWN) == 2


@pytest.mark.parametrize("shown", SHOWN, ids=["fits", "does not"])
def test_an_example_prints_what_the_document_shows(shown: str, tmp_path: Path) -> None:
    command, _, expected = re.sub(r"\\\n *", "", shown).removeprefix("$ agentctl ").partition("\n")
    (tmp_path / "host.json").write_text(json.dumps(json.loads(HOST)))
    done = subprocess.run(
        [sys.executable, "-m", "agent.cli.main", *shlex.split(command)],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "80", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == expected.strip()
    assert done.stderr == ""
