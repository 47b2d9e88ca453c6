"""agentctl on recorded machines: what other people's hosts look like through the real command."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from agent.cli.main import main
from tests.builders_sysfs import Node, Pci, build_tree, remove
from tests.recorded_hosts import NAMES, recorded_host

WIDTH = 80
ODD = ("16amd64-8n2c-cpusets", "20em64t-hybrid-1p6c2t+2ca4co1t", "emulated-16cpu-4n-sriov")
"""Hosts with withheld cells, cores of two kinds, and devices: enough to see every field in every format."""


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))


def output(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_a_small_host_is_drawn_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build_tree(
        tmp_path,
        nodes={
            0: Node(cpus="0-3", mem_mib=4096, pages={2048: 16}, free_pages={2048: 4}),
            1: Node(cpus="4-7", mem_mib=2048),
        },
        smt=["0+1", "2+3", "4+5", "6+7"],
        online="0-6",
        isolated="2-3",
        caches=[(3, "unified", 8192, "0-3"), (3, "unified", 8192, "4-7")],
        pci=[
            Pci(address="0000:3b:00.0", numa=1, driver="i40e", net={"ens1f0": "3c:fd:fe:00:00:01"}, totalvfs=8),
            Pci(address="0000:3b:02.0", numa=1, pf="0000:3b:00.0", product="154c"),
            Pci(address="0000:00:1f.0", class_code="060100"),
        ],
    )
    assert (
        output(capsys, "topology", "--sysfs-root", str(tmp_path))
        == """\
2 cells, 2 sockets, 4 cores, 8 CPUs (1 offline, 2 isolated), 6 GiB
caches: 2 x L3 8 MiB

cell 0: 4 GiB, CPUs 0-3, 2 MiB pages 16 (4 free), socket 0
  core 0-1  CPU 0-3  .. ii
cell 1: 2 GiB, CPUs 4-6, socket 1
  core 0-1  CPU 4-6  .. .
without a known cell
            CPU 7    x

x = offline: 1 (CPU 7)
i = isolated by the kernel, held by no guest: 2 (CPUs 2-3)
. = free for pinned guests: 5 (CPUs 0-1,4-6)

CELL  ADDRESS       DEVICE                 DRIVER  NAME    STATE
   1  0000:3b:00.0  Ethernet PF 8086:10fb  i40e    ens1f0  1 VF, 0 used
1 bridge or system function not shown (--all-devices)
"""
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_machine_fits_the_width_and_draws_each_cpu_once(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with recorded_host(name) as root:
        page = output(capsys, "topology", "--sysfs-root", str(root))
        cpus = json.loads(output(capsys, "topology", "-f", "json", "--sysfs-root", str(root)))["cpus"]
    assert [line for line in page.splitlines() if len(line) > WIDTH] == []
    picture = page.split("\n\n")[1]
    drawn = [line.rpartition("  ")[2] for line in picture.splitlines() if line.startswith("  ") and "CPU" in line]
    letters = "".join(drawn).replace(" ", "")
    assert len(letters) == len(cpus), picture
    assert letters.count("x") == sum(cpu["online"] is False for cpu in cpus)
    assert letters.count("w") == sum(not cpu["allowed"] for cpu in cpus if cpu["online"])


@pytest.mark.parametrize("name", ODD)
def test_an_odd_machine_is_told_in_every_format_without_a_word_of_python(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with recorded_host(name) as root:
        for command in ("topology", "usage", "check"):
            for form in ("text", "table", "json", "yaml", "value", "csv"):
                out = output(capsys, command, "-f", form, "--sysfs-root", str(root))
                assert not [word for word in ("None", "True", "False", "CpuSet(") if word in out], (command, form)


def test_csv_of_a_recorded_machine_has_a_row_for_each_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    with recorded_host("16em64t-4s2c2t-offlines") as root:
        rows = list(csv.DictReader(io.StringIO(output(capsys, "topology", "-f", "csv", "--sysfs-root", str(root)))))
    assert [row["id"] for row in rows] == [str(number) for number in range(16)]
    assert {row["id"]: row["state"] for row in rows if row["online"] == "false"} == dict.fromkeys(
        ("2", "5", "13", "14"), "offline"
    )


def test_a_recorded_machine_has_no_guests_and_check_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with recorded_host("48amd64-4pa2n6c-sparse") as root:
        options = ("--sysfs-root", str(root))
        text = output(capsys, "check", *options)
        guests = output(capsys, "domains", *options)
        line = output(capsys, "check", "--one-line", *options)
    assert (
        text
        == """\
no conflicts

looked at 8 cells, 4 sockets, 48 cores, 48 CPUs, 94.6 GiB; no guests, since a
  recorded host has none
"""
    )
    assert guests == "no guests\n"
    assert line.startswith("COMPUTE-AGENT OK - no conflicts | conflicts=0;;;0 ")


def test_the_configuration_divides_the_cpus_of_a_recorded_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "agent.conf"
    config.write_text("[compute]\ncpu_dedicated_set = 2-7\ncpu_shared_set = 0-1\n")
    with recorded_host("8em64t-2s2ca2c") as root:
        options = ("--sysfs-root", str(root), "--config-file", str(config))
        page = output(capsys, "topology", *options)
        usage = json.loads(output(capsys, "usage", "-f", "json", *options))
    assert "s = shared by floating guests: 2 (CPUs 0-1)\n" in page
    assert usage["cells"][0]["dedicated"]["total"] == "2-7"
    assert (usage["epoch"], usage["host"]["shared_cpus"]) == (0, "0-1")


@pytest.fixture
def empty_host(tmp_path: Path) -> Path:
    (tmp_path / "sys").mkdir()
    return tmp_path


@pytest.mark.parametrize("command", ["topology", "usage", "check"])
def test_a_tree_without_any_cpu_could_not_be_looked_at(
    command: str, empty_host: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--sysfs-root", str(empty_host)]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"agentctl: {empty_host}/sys/devices/system/cpu shows no CPU (is sysfs mounted or recorded there?); "
        "the host is not known\n"
    )


def test_a_monitor_is_told_that_a_tree_without_any_cpu_could_not_be_looked_at(
    empty_host: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = output(capsys, "check", "--one-line", "--sysfs-root", str(empty_host), code=3)
    assert line.startswith(f"COMPUTE-AGENT UNKNOWN - {empty_host}/sys/devices/system/cpu shows no CPU ")
    assert main(["check", "-f", "prometheus", "--sysfs-root", str(empty_host)]) == 3
    assert capsys.readouterr().out.endswith("\ncompute_agent_look_success 0.0\n")


def test_a_tree_whose_memory_cannot_be_read_is_shown_and_vouched_for_by_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build_tree(tmp_path, nodes={0: Node(cpus="0-3", mem_mib=4096)})
    remove(tmp_path, "proc/meminfo")
    (tmp_path / "proc/meminfo").mkdir()
    options = ("--sysfs-root", str(tmp_path))
    assert main(["check", *options]) == 3
    out, err = capsys.readouterr()
    assert "4 CPUs" in out
    assert err.startswith(f"agentctl: sysfs: {tmp_path}/proc/meminfo could not be read: Is a directory (EISDIR); ")
    assert output(capsys, "check", "--one-line", *options, code=3).startswith("COMPUTE-AGENT UNKNOWN - no conflicts; ")
    assert main(["check", "-f", "prometheus", *options]) == 3
    assert "\ncompute_agent_look_success 0.0\n" in capsys.readouterr().out
    assert main(["topology", *options]) == 0
