"""The import table: what it allows, and that nothing slips past it."""

import grimp
import pytest

from tests.gates import may_import


def graph(*imports: tuple[str, str]) -> grimp.ImportGraph:
    built = grimp.ImportGraph()
    for module in sorted({module for pair in imports for module in pair}):
        built.add_module(module, is_squashed=not module.startswith("agent"))
    for line, (importer, imported) in enumerate(imports, start=1):
        built.add_import(importer=importer, imported=imported, line_number=line, line_contents="import")
    return built


def faults(rows: list[str], *imports: tuple[str, str]) -> list[str]:
    return list(may_import.faults(graph(*imports), may_import.parse(rows), "agent"))


def test_what_the_table_has_passes() -> None:
    rows = ["agent.core: msgspec re", "agent.watch: agent.core stdlib"]
    imports = [
        ("agent.core.pci", "re"),
        ("agent.core.pci", "agent.core.cpuset"),
        ("agent.core", "msgspec"),
        ("agent.watch", "threading"),
        ("agent.watch", "agent.core.pci"),
    ]
    assert faults(rows, *imports) == []


def test_an_import_that_the_table_lacks_is_named_with_line_and_row() -> None:
    assert faults(["agent.core: msgspec re"], ("agent.core", "re"), ("agent.core.pci", "logging")) == [
        "agent.core.pci line 2 imports logging; agent.core may import: msgspec re"
    ]


def test_a_new_library_is_forbidden_until_a_row_has_it() -> None:
    assert faults(["agent.core: stdlib"], ("agent.core", "requests")) == [
        "agent.core line 1 imports requests; agent.core may import: stdlib"
    ]


def test_one_adapter_may_not_import_another() -> None:
    rows = ["agent.adapters.udev: pyudev", "agent.adapters.journal: stdlib"]
    imports = [("agent.adapters.udev", "pyudev"), ("agent.adapters.journal", "agent.adapters.udev")]
    assert faults(rows, *imports) == [
        "agent.adapters.journal line 2 imports agent.adapters.udev; agent.adapters.journal may import: stdlib"
    ]


def test_a_row_of_a_module_that_is_gone_is_a_fault() -> None:
    assert faults(["agent.core: re", "agent.rpc: oslo_messaging"], ("agent.core", "re")) == [
        "the row agent.rpc names no module. Remove it or correct its name."
    ]


def test_a_module_without_a_row_is_a_fault() -> None:
    assert faults(["agent.core: re"], ("agent.core", "re"), ("agent.surprise", "os")) == [
        "agent.surprise has no row in the table. Add one that says what it may import."
    ]


def test_two_rows_for_one_module_are_refused() -> None:
    with pytest.raises(ValueError, match=r"agent\.core has two rows"):
        may_import.parse(["agent.core: re", "agent.core: os"])
