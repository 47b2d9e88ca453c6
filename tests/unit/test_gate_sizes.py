"""The size gate itself: it must see what it forbids, and nothing else."""

from pathlib import Path

import pytest

from tests.gates import sizes


def function_of(lines: int) -> str:
    return "def long() -> None:\n" + "    pass\n" * (lines - 1)


def test_a_function_of_fifty_lines_passes(tmp_path: Path) -> None:
    (tmp_path / "fine.py").write_text(function_of(50))
    assert sizes.main([str(tmp_path)]) == 0


def test_a_function_of_fifty_one_lines_is_named_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "long.py"
    file.write_text("import os\n" + function_of(51))
    assert sizes.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out == (
        f"{file}:2: function long has 51 lines, at most 50 are allowed. Give its steps names of their own.\n"
    )


def test_a_method_and_a_coroutine_count_as_functions(tmp_path: Path) -> None:
    body = "        pass\n" * 50
    (tmp_path / "a.py").write_text(f"class A:\n    def method(self) -> None:\n{body}")
    (tmp_path / "b.py").write_text(f"class B:\n    async def method(self) -> None:\n{body}")
    found = [fault for path in sorted(tmp_path.iterdir()) for fault in sizes.faults(path)]
    assert [fault.split(" has ")[0].rsplit(" ", 1)[1] for fault in found] == ["method", "method"]


def test_a_module_of_501_lines_is_a_fault_even_without_functions(tmp_path: Path) -> None:
    file = tmp_path / "long.py"
    file.write_text("x = 1\n" * 501)
    assert list(sizes.faults(file)) == [
        f"{file}:1: module has 501 lines, at most 500 are allowed. Split it by what it is about."
    ]


def test_a_folder_that_does_not_exist_is_an_error_and_not_a_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sizes.main([str(tmp_path / "nowhere")]) == 2
    assert "no such folder" in capsys.readouterr().err
