"""Commands to paste: a shell reads each as the words that were meant, whatever an id holds."""

from __future__ import annotations

import argparse
import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.commands import command, option

PRINTABLE = st.text(st.characters(exclude_categories=("C", "Z"), include_characters=" "), min_size=1)


def _read(text: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("verb")
    parser.add_argument("id")
    parser.add_argument("--moved-to")
    parser.add_argument("--wide", action="store_true")
    return parser.parse_args(shlex.split(text)[1:])


@given(PRINTABLE, PRINTABLE)
def test_a_proposed_command_is_read_as_it_was_meant(claim_id: str, host: str) -> None:
    read = _read(command("agentctl show", claim_id, options=("--wide", option("--moved-to", host))))
    assert (read.verb, read.id, read.moved_to, read.wide) == ("show", claim_id, host, True)


@pytest.mark.parametrize(
    ("claim_id", "line"),
    [
        ("web-1", "agentctl claim abort web-1"),
        ("a b; touch x $(id)", "agentctl claim abort 'a b; touch x $(id)'"),
        ("-x", "agentctl claim abort -- -x"),
        ("--reason=`id`", "agentctl claim abort -- '--reason=`id`'"),
        ("it's", "agentctl claim abort 'it'\"'\"'s'"),
    ],
)
def test_what_a_shell_would_act_upon_is_quoted(claim_id: str, line: str) -> None:
    assert command("agentctl claim abort", claim_id) == line
    said = subprocess.run(["/bin/sh", "-c", f"agentctl() {{ printf '%s\\n' \"$@\"; }}; {line}"], check=True, text=True,
                          capture_output=True).stdout  # fmt: skip
    assert [word for word in said.splitlines() if word != "--"] == ["claim", "abort", claim_id]


def test_options_stand_before_what_may_look_like_one() -> None:
    assert command("agentctl claim show", "c1", options=("--domain-xml",)) == "agentctl claim show c1 --domain-xml"
    assert command("agentctl claim show", "-c1", options=("--domain-xml",)) == "agentctl claim show --domain-xml -- -c1"
    assert option("--moved-to", "host b") == "--moved-to 'host b'"
    assert option("--moved-to", "-b") == "--moved-to=-b"
