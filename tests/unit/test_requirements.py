"""What setup.cfg requires is what the package imports, and every list of libraries agrees."""

from __future__ import annotations

import ast
import configparser
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

TOP = Path(__file__).parents[2]
NOT_IMPORTED_YET = {"oslo.messaging"}
"""Required from the start, for RPC."""


def setup_cfg() -> configparser.ConfigParser:
    config = configparser.ConfigParser()
    config.read(TOP / "setup.cfg", encoding="utf-8")
    return config


def canonical(distribution: str) -> str:
    """One spelling of the many that a package index takes for the same, but with the dots of oslo's names."""
    return re.sub(r"[-_]+", "-", distribution).lower()


def requirements(text: str) -> set[str]:
    return {canonical(re.split(r"[<>=~!;\[ ]", line)[0]) for line in text.split("\n") if line and line[0] not in "#-"}


def required() -> set[str]:
    return requirements(setup_cfg()["options"]["install_requires"])


def imports(folder: Path) -> Iterator[str]:
    """Top-level name of each import of another's package, also of those inside functions."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            else:
                continue
            yield from {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"agent"}


def distributions(packages: set[str]) -> set[str]:
    """Who brings these packages, by what is installed here; a package that nobody brings stays under its own name."""
    known = packages_distributions()
    return {canonical(name) for package in packages for name in known.get(package, [package])}


def test_every_required_library_is_imported_and_every_imported_one_required() -> None:
    assert distributions(set(imports(TOP / "agent"))) | NOT_IMPORTED_YET == required()


def test_a_library_is_an_exception_only_until_it_is_imported() -> None:
    assert not distributions(set(imports(TOP / "agent"))) & NOT_IMPORTED_YET


def test_the_import_table_lets_in_no_library_that_nobody_imports() -> None:
    rows = setup_cfg()["importlinter:contract:table"]["rows"].split("\n")
    listed = {name.partition(".")[0] for row in rows for name in row.partition(":")[2].split()}
    libraries = listed - sys.stdlib_module_names - {"agent", "stdlib"}
    assert libraries == set(imports(TOP / "agent"))


def test_every_required_library_has_an_exact_version_among_the_constraints() -> None:
    lines = (TOP / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert required() <= requirements("\n".join(line for line in lines if "==" in line))


def test_the_decision_on_libraries_names_them_all() -> None:
    text = (TOP / "docs/decisions/0004-libraries-beyond-the-given.md").read_text(encoding="utf-8")
    given = re.search(r"^Given: (.+?)\. Added", text, re.MULTILINE)
    assert given is not None
    added = re.findall(r"^\| (\S+) \|", text, re.MULTILINE)
    assert {canonical(name) for name in [*given[1].split(", "), *added]} - {"library"} == required()
