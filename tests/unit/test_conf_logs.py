"""Where the log goes, and that a bad place for it is a fault of the configuration; each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
START = "import logging, sys; from agent import conf; from agent.errors import ConfigError\n"


def run(code: str, *arguments: str) -> list[str]:
    """What it logs to standard error, without times."""
    command = [sys.executable, "-W", "error", "-c", START + code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=CHECKOUT)
    return [line.split(maxsplit=2)[2] for line in done.stderr.splitlines()]


def test_a_line_about_an_expected_error_says_it_once() -> None:
    code = (
        "conf.setup_logging(conf.read(sys.argv[1:]).own)\n"
        "try: raise ConfigError('the disk is full')\n"
        "except ConfigError as error: logging.getLogger('x').error('stopped: %s', error)\n"
    )
    assert run(code) == ["ERROR x stopped: the disk is full"]


def test_a_line_with_a_traceback_keeps_the_error_beside_its_words() -> None:
    code = (
        "conf.setup_logging(conf.read(sys.argv[1:]).own)\n"
        "try: 1 / 0\n"
        "except ZeroDivisionError: logging.getLogger('x').exception('a pass failed')\n"
    )
    lines = run(code)
    assert lines[0] == "ERROR x a pass failed: ZeroDivisionError: division by zero"
    assert "ERROR x |Traceback (most recent call last):" in lines


HANDLER = (
    "[loggers]\nkeys=root\n[handlers]\nkeys=it\n[formatters]\nkeys=\n"
    "[logger_root]\nhandlers=it\n[handler_it]\nclass={}\nargs={}\n"
)


@pytest.mark.parametrize(
    ("options", "ini"),
    [
        ("log_file={}/sub/x.log", ""),
        ("log_config_append={}/sub/log.ini", ""),
        ("log_config_append={}/log.ini", HANDLER.format("NoSuchHandler", "()")),
        ("log_config_append={}/log.ini", HANDLER.format("StreamHandler", "(1 / 0,)")),
        ("log_config_append={}/log.ini", HANDLER.format("StreamHandler", "(]")),
    ],
)
def test_a_log_that_cannot_be_opened_after_all_is_a_fault_and_the_log_goes_on_where_it_went(
    tmp_path: Path, options: str, ini: str
) -> None:
    bad = tmp_path / "bad.conf"
    bad.write_text(f"[DEFAULT]\n{options.format(tmp_path)}\n")
    (tmp_path / "log.ini").write_text(ini)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/log.ini").write_text(HANDLER.format("StreamHandler", "()"))
    code = (
        "import pathlib, shutil\n"
        "conf.setup_logging(conf.read([]).own)\n"
        "read = conf.read(sys.argv[1:])\n"
        "shutil.rmtree(pathlib.Path(sys.argv[2]).parent / 'sub')\n"
        "try: conf.setup_logging(read.own)\n"
        "except ConfigError as error: logging.getLogger('x').error('%s', error)\n"
    )
    (line,) = run(code, "--config-file", str(bad))
    assert line.startswith("ERROR x [DEFAULT] the log cannot be set up: ")
    assert line.endswith(". See log_file, log_dir, log_config_append.")


def test_a_limit_on_lines_is_set_up_anew_by_a_reload(tmp_path: Path) -> None:
    own = tmp_path / "own.conf"
    own.write_text("[DEFAULT]\nrate_limit_burst=100\nrate_limit_interval=1\n")
    code = "for _ in range(2): conf.setup_logging(conf.read(sys.argv[1:]).own)\nlogging.getLogger('x').info('well')\n"
    assert run(code, "--config-file", str(own)) == ["INFO x well"]


def test_the_log_is_set_up_from_what_was_read_though_the_files_have_changed_since(tmp_path: Path) -> None:
    own = tmp_path / "own.conf"
    own.write_text(f"[DEFAULT]\nlog_file={tmp_path}/x.log\n")
    code = (
        "import pathlib\n"
        "read = conf.read(sys.argv[1:])\n"
        "pathlib.Path(sys.argv[2]).unlink()\n"
        "conf.setup_logging(read.own)\n"
        "logging.getLogger('x').info('well')\n"
    )
    assert run(code, "--config-file", str(own)) == ["INFO x well"]
    assert (tmp_path / "x.log").read_text().endswith(" INFO x well\n")
