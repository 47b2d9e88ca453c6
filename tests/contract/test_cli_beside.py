"""What goes wrong beside the output, on standard error, costs neither the answer nor its exit code."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.cli.main import main
from agent.core.guest import RunIdentity
from agent.core.report import Report
from tests.builders import guest, unread
from tests.cli_reports import conflict, host_report, served, smt_topology, with_conflicts
from tests.contract.test_cli_process import COMMAND, TIMEOUT_S, environment
from tests.hostile import POISON, unsafe

HALF_BLIND = host_report(smt_topology(), unread("dark", kernel_cpus="3"), guest("web", {0: 2}, at=100))
IN_CONFLICT = with_conflicts(HALF_BLIND, conflict())


def run(arguments: list[str], stderr: int) -> tuple[int, str]:
    done = subprocess.run(
        [*COMMAND, *arguments], check=False, stdout=subprocess.PIPE, stderr=stderr, text=True, timeout=TIMEOUT_S,
        env=environment(),
    )  # fmt: skip
    return done.returncode, done.stdout


def nobody_reads() -> int:
    """The end of a pipe that is written to, whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def full() -> int:
    return os.open("/dev/full", os.O_WRONLY)


@pytest.mark.parametrize("stderr", [full, nobody_reads])
@pytest.mark.parametrize(
    ("report", "arguments", "code", "answer"),
    [
        (HALF_BLIND, ["guests"], 0, "dark "),
        (HALF_BLIND, ["guests", "--verbose"], 0, "dark "),
        (HALF_BLIND, ["conflicts"], 0, "no conflicts"),
        (IN_CONFLICT, ["conflicts"], 1, "CPU 2: pinned twice"),
        (HALF_BLIND, ["show", "nobody"], 2, ""),
        (HALF_BLIND, ["usage", "--nonsense"], 2, ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_warning_that_cannot_be_written_leaves_answer_and_code_alone(
    stderr: Callable[[], int], report: Report, arguments: list[str], code: int, answer: str
) -> None:
    descriptor = stderr()
    try:
        with served(report) as socket:
            told = run([*arguments, "--socket", str(socket)], descriptor)
    finally:
        os.close(descriptor)
    assert told[0] == code, told
    assert (answer in told[1], bool(told[1])) == (True, bool(answer))


def test_a_failure_that_cannot_be_told_still_has_its_code(tmp_path: Path) -> None:
    descriptor = full()
    assert run(["usage", "--socket", str(tmp_path / "gone")], descriptor) == (3, "")
    os.close(descriptor)


def test_a_name_among_several_that_fit_begins_no_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    report = host_report(smt_topology(), guest(f"web{POISON}", at=100), guest(f"web{POISON}2", at=100))
    with served(report) as socket:
        assert main(["show", "web", "--socket", str(socket)]) == 2
    err = capsys.readouterr().err
    assert unsafe(err) == ""
    assert len(err.splitlines()) == 3


def test_a_log_on_the_terminal_and_a_traceback_are_as_safe() -> None:
    code = (
        "import logging, sys; from agent.cli import app; app._log(True)\n"
        "try: raise ValueError(sys.argv[1])\n"
        "except ValueError: logging.getLogger('agent.look').exception('guest %s', sys.argv[1])"
    )
    done = subprocess.run(
        [COMMAND[0], "-c", code, POISON], check=True, capture_output=True, text=True, timeout=TIMEOUT_S,
        env=environment(),
    )  # fmt: skip
    assert (unsafe(done.stderr), "guest \\x1b]0;owned" in done.stderr) == ("", True)


def test_a_start_that_no_calendar_has_costs_its_own_fact(capsys: pytest.CaptureFixture[str]) -> None:
    report = host_report(smt_topology(), guest("web", {0: 2}, run=RunIdentity(pid=47, started_at_boot_s=1e18), at=100))
    with served(report) as socket:
        assert main(["show", "web", "--socket", str(socket)]) == 0
        out, err = capsys.readouterr()
        assert main(["why", "2", "--socket", str(socket)]) == 0
    assert ("QEMU 47" in out, "runs since" in out) == (True, False)
    assert err == "agentctl: web: its QEMU is said to run since 1e+18 s after boot, which is no date\n"
