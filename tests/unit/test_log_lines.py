"""What outside text becomes in the daemon's log, whoever logs it; in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.hostile import POISON, unsafe

CHECKOUT = Path(__file__).parents[2]
START = "import logging, sys; from agent import conf; conf.setup_logging(conf.read([]).own); text = sys.argv[1]\n"


def log(code: str) -> str:
    """What goes to standard error."""
    command = [sys.executable, "-c", START + code, POISON]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=CHECKOUT).stderr


def test_a_message_is_safe_and_what_follows_a_line_end_in_it_is_indented() -> None:
    text = log("logging.getLogger('agent.x').warning('guest %s is gone', text)")
    assert unsafe(text) == ""
    assert text.splitlines()[0].endswith("WARNING agent.x guest \\x1b]0;owned\\x07\\x9b31m\\u202e\\u2028")
    assert text.splitlines()[1] == "  agentctl: forged is gone"


def test_a_traceback_is_safe_too() -> None:
    text = log(
        "try: raise ValueError(text)\nexcept ValueError: logging.getLogger('agent.x').exception('a pass failed')"
    )
    assert unsafe(text) == ""
    assert "Traceback (most recent call last):" in text
    assert [line for line in text.splitlines() if line.startswith("agentctl")] == []
