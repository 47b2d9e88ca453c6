"""What the README shows is what the program prints."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import msgspec

from agent.render.conflict_text import conflict_block
from tests.builders import Node, guest, host
from tests.cli_reports import host_report

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def indented_block(title: str) -> str:
    """The first indented block below a heading."""
    below = README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    match = re.search(r"(?:^    .*\n)+", below, re.MULTILINE)
    assert match, title
    return textwrap.dedent(match[0])


def test_the_conflict_of_the_readme_is_the_one_of_the_demo_as_it_is_printed() -> None:
    """The guests and the configuration are those of tests/lab/run --demo on a machine of two CPUs."""
    shown = indented_block("One conflict, line by line")
    since = re.search(r"^  since  (\S+)$", shown, re.MULTILINE)
    assert since
    machine = host({0: Node("0-1", 4096)}, dedicated="1", shared="0")
    report = host_report(
        machine.topology,
        guest("instance-0000002a", {0: 1}, vcpus=1, maker="nova", at=100),
        guest("build-runner", {0: 1}, vcpus=1, at=100),
        guest("old-router", vcpus=1, emu="1", at=100),
        config=machine.config,
    )
    (row,) = [one for one in report.conflicts if one.kind == "cpu-pinned-twice"]
    assert shown == conflict_block(msgspec.structs.replace(row, since=since[1]))
