"""agentctl beside a server that lies: nothing it tells may steer the terminal or begin a line of its own."""

from __future__ import annotations

import json

import pytest
import yaml

from agent.cli.main import main
from agent.core.report import Report
from agent.formats import wire
from agent.render.nagios import nagios_failure, nagios_line
from agent.render.prometheus import prometheus_text
from agent.render.welcome import welcome
from tests.builders import guest, unread
from tests.cli_reports import contended, host_report, served, smt_topology, with_cpu
from tests.hostile import POISON, poisoned, unsafe

COMMANDS = (
    ["status"], ["topology"], ["topology", "--rows", "cells"], ["topology", "--rows", "pci"],
    ["topology", "--rows", "problems"], ["topology", "--all-devices"], ["usage"], ["domains"], ["conflicts"],
    ["why", "2"], ["why", "0000:3b:02.0"], ["show", "web"], ["why", "web"], ["show", "dark"], ["why", "dark"],
    ["show", "nova"], ["why", "nova"],
)  # fmt: skip


def strange() -> Report:
    """What the contended report lacks."""
    return host_report(
        with_cpu(smt_topology(), 0, kind="small"),
        unread("dark", kernel_cpus="3"),
        guest("web", {0: 2, 1: 3}, dev=("0000:3b:02.0",), at=100),
        guest("lost", {0: 6}, validity="lost-by-libvirt", problem="libvirt does not list it", at=100),
        guest("nova", {0: 2, 1: 15}, maker="nova", facts={"flavor": "m1"}, emu="7", iothreads={1: "7"}, at=100),
        problems={"libvirt": "libvirt is not running."},
    )


REPORTS = {"contended": poisoned(contended()), "strange": poisoned(strange())}


def test_the_poison_is_where_a_server_may_write() -> None:
    told = b"".join(wire.to_json(report) for report in REPORTS.values())
    assert told.count(wire.to_json(POISON)[1:-1]) > 50


@pytest.mark.parametrize("form", ["text", "table", "json", "yaml", "value", "csv"])
@pytest.mark.parametrize("name", REPORTS)
def test_no_command_lets_a_server_steer_the_terminal(name: str, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    with served(REPORTS[name]) as socket:
        for command in COMMANDS:
            if form == "csv" and command[0] in ("status", "show"):
                continue
            code = main([*command, "-f", form, "--socket", str(socket)])
            out, err = capsys.readouterr()
            assert code in (0, 1, 2, 3), (command, err)
            assert "unexpected" not in err, (command, err)
            assert (unsafe(out), unsafe(err)) == ("", ""), command
            forged = [line for line in (out + err).splitlines() if line.startswith("agentctl: forged")]
            assert forged == [], command


def test_what_yaml_shows_escaped_is_read_as_it_was_told(capsys: pytest.CaptureFixture[str]) -> None:
    with served(REPORTS["contended"]) as socket:
        main(["domains", "-f", "yaml", "--socket", str(socket)])
        told = yaml.safe_load(capsys.readouterr().out)
        main(["domains", "-f", "json", "--socket", str(socket)])
        assert told == json.loads(capsys.readouterr().out)
        main(["show", "web", "-f", "yaml", "--socket", str(socket)])
        told = yaml.safe_load(capsys.readouterr().out)
    assert told["sighting"]["name"] == f"web{POISON}"


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_what_monitors_and_the_foreground_print_is_safe_too(report: Report) -> None:
    assert unsafe(nagios_line(report).text + nagios_failure(POISON).text) == ""
    assert "\n" not in nagios_line(report).text
    assert unsafe(prometheus_text(report)) == ""
    assert unsafe(welcome(report, sockets="/run", commands=())) == ""
