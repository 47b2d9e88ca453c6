"""An import-linter contract that is a table: who may import whom; whatever is not in it is forbidden.

    [importlinter]
    contract_types = may_import: tests.gates.may_import.MayImport

    [importlinter:contract:table]
    type = may_import
    rows =
        agent.core: agent.core msgspec
        agent.adapters.udev: agent.core stdlib pyudev

A row governs a module and all below it, unless a longer row names them. A name to the right stands for itself and all
below it; `stdlib` for the standard library. import-linter's own contracts say what is forbidden, so that a new library
or a new module would be allowed everywhere until somebody remembers to forbid it.
"""

import sys
from collections.abc import Iterator
from typing import cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


def row_of(module: str, table: dict[str, frozenset[str]]) -> str | None:
    """The most special row that governs this module."""
    return max((name for name in table if is_within(module, name)), key=len, default=None)


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def is_allowed(imported: str, allowed: frozenset[str]) -> bool:
    if "stdlib" in allowed and imported.partition(".")[0] in sys.stdlib_module_names:
        return True
    return any(is_within(imported, name) for name in allowed)


def parse(rows: list[str]) -> dict[str, frozenset[str]]:
    table: dict[str, frozenset[str]] = {}
    for row in rows:
        name, colon, allowed = row.partition(":")
        if not colon:
            raise ValueError(f"row {row!r} has no colon. Write: MODULE: ALLOWED ALLOWED ...")
        if name.strip() in table:
            raise ValueError(f"{name.strip()} has two rows. Put them together.")
        table[name.strip()] = frozenset(allowed.split())
    return table


def faults(graph: ImportGraph, table: dict[str, frozenset[str]], root: str) -> Iterator[str]:
    """One sentence per import that the table does not have, per module without a row, per row without a module."""
    modules = sorted(module for module in graph.modules if is_within(module, root))
    for name in sorted(table):
        if name not in modules:
            yield f"the row {name} names no module. Remove it or correct its name."
    for module in modules:
        row = row_of(module, table)
        imports = sorted(graph.find_modules_directly_imported_by(module))
        if row is None:
            if imports:  # the empty __init__ of a package needs no row
                yield f"{module} has no row in the table. Add one that says what it may import."
            continue
        for imported in imports:
            # the parts of what one row governs belong together
            if is_within(imported, row) or is_allowed(imported, table[row]):
                continue
            lines = [str(d["line_number"]) for d in graph.get_import_details(importer=module, imported=imported)]
            yield f"{module} line {', '.join(lines)} imports {imported}; {row} may import: {allowed_text(table[row])}"


def allowed_text(allowed: frozenset[str]) -> str:
    return " ".join(sorted(allowed)) or "nothing"


class MayImport(Contract):
    rows = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        root = self.session_options["root_packages"][0]
        found = list(faults(graph, parse(cast("list[str]", self.rows)), root))
        return ContractCheck(kept=not found, metadata={"faults": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for fault in check.metadata["faults"]:
            output.print_error(fault)
