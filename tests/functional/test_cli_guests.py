"""agentctl against a real libvirtd with real guests: no daemon, one look."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.cli.main import main
from tests.functional.lab import Guest, Libvirtd

Start = Callable[..., Guest]


def look(capsys: pytest.CaptureFixture[str], libvirtd: Libvirtd, *arguments: str) -> tuple[int, str, str]:
    code = main([*arguments, "--connect", libvirtd.ro_uri])
    out, err = capsys.readouterr()
    return code, out, err


def test_check_names_two_guests_on_one_cpu_and_who_holds_it_since_when(
    libvirtd: Libvirtd, guest: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    first = guest("check-a", vcpus=1, pin={0: "0"})
    second = guest("check-b", vcpus=1, pin={0: "0"})
    code, out, err = look(capsys, libvirtd, "check", "-f", "json")
    rows = [row for row in json.loads(out) if row["kind"] == "cpu-pinned-twice"]
    assert (code, err) == (1, "")
    assert [(row["resource"]["id"], row["severity"], row["since"]) for row in rows] == [("0", "error", None)]
    assert [owner["uuid"] for owner in rows[0]["owners"]] == [first.uuid, second.uuid]

    code, out, _ = look(capsys, libvirtd, "check", "--one-line")
    assert code == 2
    assert out.startswith("COMPUTE-AGENT CRITICAL - ")
    assert "CPU 0: pinned twice (check-a, check-b)" in out

    code, out, _ = look(capsys, libvirtd, "why", "0", "--direct", "-f", "json")
    assert code == 0
    holders = {holder["name"]: holder for holder in json.loads(out)["holders"]}
    assert {name: holder["how"] for name, holder in holders.items()} == {"check-a": "vCPU 0", "check-b": "vCPU 0"}
    assert holders["check-a"]["since"] <= holders["check-b"]["since"]


def test_show_tells_what_virsh_knows_of_a_guest(
    libvirtd: Libvirtd, guest: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    made = guest("shown", vcpus=2, pin={0: "0", 1: "1"}, emulatorpin="0", mem=16)
    code, out, err = look(capsys, libvirtd, "show", made.uuid[:13], "--direct")
    assert (code, err) == (0, "")
    assert out.startswith(f"shown  {made.uuid}\n  state     running, persistent; read ")
    assert f"\n  process   QEMU {made.pid}, runs since 20" in out
    assert "\n  vCPUs     2: vCPU 0 on CPU 0; vCPU 1 on CPU 1\n  emulator  on CPU 0\n  memory    16 MiB\n" in out


def test_a_libvirt_that_was_stopped_or_killed_is_told_apart_and_found_again(
    libvirtd: Libvirtd, guest: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    guest("stays", vcpus=1, pin={0: "0"})
    socket = Path(libvirtd.ro_uri.partition("socket=")[2])
    libvirtd.kill()
    assert socket.exists()
    code, out, killed = look(capsys, libvirtd, "domains", "--direct")
    assert (code, out) == (3, "")
    libvirtd.start()
    libvirtd.stop()
    code, out, stopped = look(capsys, libvirtd, "domains", "--direct")
    assert (code, out) == (3, "")
    assert killed != stopped
    for text in (killed, stopped):
        assert text.startswith("agentctl: ")
        assert str(socket) in text
        assert len(text.splitlines()) == 1
    libvirtd.start()
    code, out, _ = look(capsys, libvirtd, "domains", "--direct", "-f", "value", "-c", "name", "-c", "state")
    assert (code, out) == (0, "stays running\n")
