"""The examples of docs/fit.md are what the agent reads and writes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import msgspec

from agent.core.dry_run import FitAnswer
from agent.core.flavor import FaultKind
from agent.core.reasons import Reason
from agent.core.relax.values import Relaxation
from agent.formats import request, snapshot_file, wire
from agent.formats.request import LIMITS
from agent.formats.request_spelling import FLAVOR_NAMES, PORT_NAMES
from agent.formats.short_form import ShortCell, ShortSnapshot
from agent.formats.short_spelling import COMMENT, PIN_SET, RATIOS, TOP_NAMES
from tests.compat import fit_differences, flavor_cases

TEXT = (Path(__file__).parents[2] / "docs/fit.md").read_text()


def examples() -> list[dict[str, Any]]:
    """Every JSON object that stands in a block of its own."""
    blocks = re.findall(r"(?:^    .*\n)+", TEXT, re.MULTILINE)
    return [json.loads(block) for block in blocks if block.startswith("    {")]


def test_the_examples_are_read_as_they_stand() -> None:
    hosts = [snapshot_file.from_plain(one) for one in examples() if "format" in one]
    asked = [request.from_plain(one) for one in examples() if "flavor" in one]
    answers = [wire.from_builtins(one, FitAnswer).fits for one in examples() if "fits" in one]
    assert len(hosts) + len(asked) + len(answers) == len(examples())
    assert [host.conflicts for host in hosts] == [()] * 3
    assert [str(host.usage.host.dedicated.used) for host in hosts] == ["1-3,9,12", "1-2,9", "1"]
    assert [(spec.flavor.vcpus, spec.ports[0].physical_network) for spec in asked] == [(4, "physnet0")]
    assert answers == [True, False]


def test_every_kind_of_fault_of_reason_and_of_help_is_named() -> None:
    tagged = (*get_args(Reason), *get_args(Relaxation))
    kinds = [*get_args(FaultKind), *(kind.__struct_config__.tag for kind in tagged)]
    assert [kind for kind in kinds if f"`{kind}`" not in TEXT] == []


def test_every_difference_to_nova_that_the_comparison_accepts_has_a_row() -> None:
    section = TEXT.partition("## Where nova answers otherwise")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in section.splitlines() if line.startswith("| ")]
    of_flavor, of_fit = rows[1 : rows.index("difference")], rows[rows.index("difference") + 1 :]
    assert len(of_flavor) == len(flavor_cases.DIFFERENCES)
    assert of_fit == [one.name for one in fit_differences.DIFFERENCES]


def test_every_field_of_the_forms_is_described() -> None:
    fields = [field.encode_name for kind in (ShortSnapshot, ShortCell) for field in msgspec.structs.fields(kind)]
    assert [name for name in (*fields, *LIMITS) if f"`{name}`" not in TEXT and f'"{name}"' not in TEXT] == []


def test_every_other_name_of_a_field_is_listed() -> None:
    names = (*TOP_NAMES, *RATIOS, PIN_SET, COMMENT, *FLAVOR_NAMES, *PORT_NAMES)
    assert [name for name in names if f"`{name}`" not in TEXT and f'"{name}"' not in TEXT] == []
