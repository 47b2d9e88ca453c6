"""The documents name what there is: links, conflict kinds, paths of the API, commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from agent.cli.app import COMMANDS
from agent.core.conflicts import ConflictKind
from agent.formats.claim_view import MoveView
from agent.formats.envelope import Refusal
from agent.handlers import PROBES, TABLE
from agent.render.guest_text import GuestRow

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?:)(?P<target>[^)#]+)\)")
LEDGER = re.compile(r"LEDGER (R?\d)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file(document: Path) -> None:
    targets = [match["target"] for match in LINK.finditer(document.read_text())]
    assert [target for target in targets if not (document.parent / target).exists()] == []


def test_each_kind_of_conflict_has_its_row_and_no_row_is_of_another() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", section("docs/operations.md", "## Conflicts"), re.MULTILINE)
    assert sorted(rows) == sorted(get_args(ConflictKind))


def test_each_path_of_the_api_is_described() -> None:
    text = (ROOT / "docs/api.md").read_text()
    rows = [f"`{route.path}`" if route.method == "GET" else f"{route.method} `{route.path}`" for route in TABLE.routes]
    assert [row for row in (*rows, *(f"`{path}`" for path in PROBES)) if row not in text] == []


def test_each_command_of_the_readme_is_there() -> None:
    named = re.findall(r"^    (?:\.venv/bin/)?agentctl ([a-z]+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert named
    assert set(named) - {name.partition(" ")[0] for name in COMMANDS} == set()


def test_what_the_code_cites_of_the_ledger_is_in_its_document() -> None:
    text = (ROOT / "docs/ledger.md").read_text()
    cited = {number for path in (ROOT / "agent").rglob("*.py") for number in LEDGER.findall(path.read_text())}
    missing = [n for n in sorted(cited) if f"**{n}," not in text and f"## {n}. " not in text]
    assert (bool(cited), missing) == (True, [])


def test_each_key_of_the_rows_that_agentctl_prints_is_in_the_manual() -> None:
    told = section("docs/api.md", "## What agentctl prints")
    keys = {*GuestRow._fields, *MoveView.__struct_fields__, *Refusal.__struct_fields__}
    assert [key for key in sorted(keys) if f"`{key}`" not in told] == []
    assert [name for name in COMMANDS if " " not in name and f"`{name}`" not in told] == []


def section(name: str, title: str) -> str:
    return (ROOT / name).read_text().partition(f"{title}\n")[2].partition("\n## ")[0]
