"""agentctl beside a daemon: the real command, client and server, over a real UNIX socket."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import pytest
import yaml

from agent.cli.main import main
from agent.core.report import Report
from agent.render.conflict_text import conflicts_text
from agent.render.guest_text import GuestRow
from agent.render.topology_text import topology_text
from tests.builders import guest, unread
from tests.cli_reports import (
    VF,
    WEB,
    accepting,
    blind,
    calm,
    conflict,
    contended,
    devices,
    filtered,
    host_report,
    lost,
    served,
    smt_topology,
    with_conflicts,
)

CONFLICT_KEYS = {"id", "kind", "resource", "owners", "since", "cause", "severity", "action", "accepted"}
AMOUNT_KEYS = {"total", "used", "promised", "free"}


class Done(NamedTuple):
    code: int
    out: str
    err: str


Ask = Callable[..., Done]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """ask(report, *arguments): runs agentctl against a daemon that tells the report."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(report: Report, *arguments: str) -> Done:
        with served(report) as socket:
            code = main([*arguments, "--socket", str(socket)])
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_text_for_people_is_what_the_pictures_draw(ask: Ask) -> None:
    report = contended()
    assert ask(report, "topology") == Done(0, topology_text(report.topology, report.usage, report.conflicts), "")
    assert ask(report, "conflicts") == Done(1, conflicts_text(report.conflicts), "")


def test_topology_json_has_the_promised_keys(ask: Ask) -> None:
    data = json.loads(ask(contended(), "topology", "-f", "json").out)
    assert (data["cells"][0] | {"distances": {}}).items() >= {
        "id": 0, "cpus": "0-3,8-11", "memory_kib": 16777216, "distances": {},
        "pages": [{"size_kib": 2048, "total": 512, "free": 64, "surplus": 0, "reserved": None}],
    }.items()  # fmt: skip
    assert data["cells"][0]["distances"] == {"0": 10, "1": 21}
    assert data["cpus"][9].items() >= {
        "id": 9, "online": True, "isolated": False, "allowed": True, "cell": 0, "socket": 0, "die": 0, "core": 1,
        "siblings": "1,9",
    }.items()  # fmt: skip
    assert data["caches"][0] == {"level": 3, "type": "unified", "size_kib": 16384, "cpus": "0-3,8-11"}
    assert data["pci"][3].items() >= {
        "address": VF, "vendor_id": "8086", "product_id": "154c", "class": "0200", "cell": 1, "type": "type-VF",
        "parent": "0000:3b:00.0", "driver": "vfio-pci",
    }.items()  # fmt: skip
    assert (data["pci"][0]["cell"], data["pci"][0]["driver"]) == (None, None)
    assert data["problems"] == [
        {
            "source": "sys/devices/system/cpu/cpu9/cache",
            "what": "the L3 cache could not be read, so it is missing here",
            "values": {"sysfs": "EIO"},
            "is_transient": False,
        }
    ]


def test_conflicts_json_is_a_list_of_rows_with_the_promised_keys(ask: Ask) -> None:
    done = ask(contended(), "conflicts", "-f", "json")
    rows = json.loads(done.out)
    assert done.code == 1
    assert [set(row) for row in rows] == [CONFLICT_KEYS] * 2
    assert rows[0]["resource"] == {"kind": "cpu", "id": "2", "cell": 0}
    assert [owner["name"] for owner in rows[0]["owners"]] == ["database", "web"]
    assert rows[0]["owners"][1] == {"type": "domain", "uuid": WEB.uuid, "name": "web", "maker": "libvirt"}
    assert (rows[0]["severity"], rows[0]["accepted"]) == ("error", False)


def test_usage_json_has_the_promised_keys_and_sets_as_lists(ask: Ask) -> None:
    data = json.loads(ask(contended(), "usage", "-f", "json").out)
    assert {"epoch", "generation", "cells", "host", "pci"} <= set(data)
    assert (data["epoch"], data["generation"]) == (7, 1)
    cell = data["cells"][0]
    assert {"id", "dedicated", "shared", "memory_kib", "pages"} <= set(cell)
    assert cell["dedicated"] == {"total": "2-3,10-11", "used": "2-3,10", "promised": "", "free": "11"}
    assert all(set(cell[name]) >= AMOUNT_KEYS for name in ("shared", "memory_kib"))
    assert {"size_kib", *AMOUNT_KEYS} <= set(cell["pages"][0])
    assert cell["pages"][0]["free"] == -512
    assert {"dedicated", "shared", "memory_kib"} <= set(data["host"])
    assert [device["owners"][0]["name"] for device in data["pci"] if device["owners"]] == ["web"]


def test_domains_and_guests_are_the_same_command(ask: Ask) -> None:
    assert ask(contended(), "domains") == ask(contended(), "guests")


def test_domains_json_has_a_row_for_each_guest(ask: Ask) -> None:
    rows = {row["name"]: row for row in json.loads(ask(contended(), "domains", "-f", "json").out)}
    assert sorted(rows) == ["database", "old", "web"]
    assert rows["web"] == {
        "name": "web", "uuid": WEB.uuid, "state": "running", "maker": "libvirt", "vcpus": 2, "cpus": "2-3",
        "confined": "", "cells": "0", "memory_kib": 2097152,
        "devices": [VF], "conflicts": 2, "age_s": 4, "problem": None,
    }  # fmt: skip


def test_show_json_has_the_sighting_what_it_holds_and_its_conflicts(ask: Ask) -> None:
    data = json.loads(ask(contended(), "show", "web", "-f", "json").out)
    assert set(data) == {"sighting", "holds", "age_s", "claims", "conflicts"}
    assert data["sighting"]["domain"]["vcpu_pins"] == [{"thread": 0, "cpus": "2"}, {"thread": 1, "cpus": "3"}]
    assert data["holds"]["devices"] == [VF]
    assert len(data["conflicts"]) == 2


def test_why_json_names_the_holders(ask: Ask) -> None:
    data = json.loads(ask(contended(), "why", "2", "-f", "json").out)
    assert data["thing"] == "CPU 2"
    assert [(row["name"], row["how"]) for row in data["holders"]] == [("database", "vCPU 1"), ("web", "vCPU 0")]
    assert data["holders"][1]["since"] is not None
    assert [row["kind"] for row in data["conflicts"]] == ["cpu-pinned-twice"]


def test_status_json_has_health_and_identity(ask: Ask) -> None:
    data = json.loads(ask(contended(), "status", "-f", "json").out)
    assert data.items() >= {"status": "degraded", "ready": True, "epoch": 7, "conflicts": 2, "guests_active": 2}.items()
    assert [source["name"] for source in data["sources"]] == ["domains", "libvirt", "processes", "sysfs"]


@pytest.mark.parametrize(
    "command", [["topology"], ["usage"], ["domains"], ["conflicts"], ["status"], ["show", "web"], ["why", "2"]]
)
def test_yaml_says_what_json_says(ask: Ask, command: list[str]) -> None:
    report = contended()
    assert yaml.safe_load(ask(report, *command, "-f", "yaml").out) == json.loads(
        ask(report, *command, "-f", "json").out
    )


def test_csv_has_a_header_and_a_row_for_each_thing(ask: Ask) -> None:
    report = contended()
    assert [row["name"] for row in rows_of(ask(report, "domains", "-f", "csv").out)] == ["database", "old", "web"]
    assert [row["state"] for row in rows_of(ask(report, "topology", "-f", "csv").out)][:4] == [
        "shared", "shared", "conflict", "pinned"
    ]  # fmt: skip
    assert rows_of(ask(report, "usage", "-f", "csv").out)[0]["free"] == "11"
    rows = rows_of(ask(report, "conflicts", "-f", "csv").out)
    assert [(row["severity"], row["resource"], row["accepted"]) for row in rows] == [
        ("error", "cpu 2", "false"), ("error", "pages 2048", "false")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("part", "first"),
    [
        ("cells", "0"),
        ("caches", "3"),
        ("pci", "0000:00:1f.0"),
        ("problems", "sys/devices/system/cpu/cpu9/cache"),
        ("cpus", "0"),
    ],
)
def test_topology_lists_the_part_that_was_asked_for(ask: Ask, part: str, first: str) -> None:
    rows = rows_of(ask(contended(), "topology", "--rows", part, "-f", "csv").out)
    assert next(iter(rows[0].values())) == first


def test_value_keeps_its_columns_when_one_is_empty(ask: Ask) -> None:
    out = ask(contended(), "domains", "-f", "value", "-c", "name", "-c", "cpus", "-c", "devices").out
    assert out == f"database 2,10 -\nold - -\nweb 2-3 {VF}\n"


@pytest.mark.parametrize("command", [["usage"], ["domains"], ["topology"], ["topology", "--rows", "pci"]], ids=" ".join)
def test_each_line_of_value_has_as_many_words_as_there_are_columns(ask: Ask, command: list[str]) -> None:
    topology = msgspec.structs.replace(smt_topology(), pci=devices())
    report = host_report(topology, guest("two", {0: 2}, dev=(VF, VF.replace(".0", ".1"))))
    columns = ask(report, *command, "-f", "csv").out.splitlines()[0].split(",")
    words = {len(line.split(" ")) for line in ask(report, *command, "-f", "value").out.splitlines()}
    assert words == {len(columns)}


def test_columns_are_chosen_in_the_order_given_in_every_format(ask: Ask) -> None:
    report = contended()
    chosen = ["-c", "UUID", "-c", "name"]
    assert list(json.loads(ask(report, "domains", "-f", "json", *chosen).out)[0]) == ["uuid", "name"]
    assert ask(report, "domains", "-f", "csv", *chosen).out.splitlines()[0] == '"uuid","name"'
    assert list(json.loads(ask(report, "usage", "-f", "json", "-c", "host").out)) == ["host"]


def test_a_column_that_there_is_none_of_is_a_bad_argument(ask: Ask) -> None:
    done = ask(contended(), "domains", "-f", "csv", "-c", "colour")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("agentctl: there is no column colour; there are: name, uuid, state, ")


def test_json_on_one_line_when_asked(ask: Ask) -> None:
    assert ask(contended(), "usage", "-f", "json", "--noindent").out.count("\n") == 1


def test_a_conflict_table_is_narrow_unless_asked_for_all(ask: Ask) -> None:
    assert "cause" in ask(contended(), "conflicts", "-f", "table").out
    assert "action" not in ask(contended(), "conflicts", "-f", "table").out
    assert "action" in ask(contended(), "conflicts", "-f", "table", "--long").out


@pytest.mark.parametrize(
    ("report", "arguments", "code"),
    [
        (calm(), ["conflicts"], 0),
        (contended(), ["conflicts"], 1),
        (accepting(), ["conflicts"], 0),
        (with_conflicts(calm(), conflict("info")), ["conflicts"], 1),
        (with_conflicts(blind(), conflict()), ["conflicts"], 1),
        (blind(), ["conflicts"], 3),
        (calm(), ["status"], 0),
        (contended(), ["status"], 0),
        (blind(), ["status"], 0),
        (calm(), ["status", "--exit-code"], 0),
        (contended(), ["status", "--exit-code"], 1),
        (blind(), ["status", "--exit-code"], 3),
        (contended(), ["topology"], 0),
        (contended(), ["usage"], 0),
        (contended(), ["domains"], 0),
        (contended(), ["show", "web"], 0),
        (contended(), ["why", "2"], 0),
        (contended(), ["why", "15"], 0),
        (contended(), ["show", "nobody"], 2),
        (contended(), ["why", "77"], 2),
        (contended(), ["usage", "-f", "xml"], 2),
        (contended(), ["status", "-f", "csv"], 2),
        (contended(), ["topology", "extra"], 2),
        (contended(), ["nonsense"], 2),
        (contended(), ["topology", "--nonsense"], 2),
        (contended(), ["--nonsense"], 2),
        (contended(), ["status", "--direct"], 2),
        (contended(), ["status", "--sysfs-root", "/"], 2),
        (contended(), ["status", "--connect", "qemu:///system"], 2),
        (contended(), ["status", "--config-file", "/dev/null"], 2),
        (contended(), ["show"], 2),
        (contended(), ["help", "topology"], 0),
        (contended(), ["help"], 0),
        (contended(), ["help", "nonsense"], 2),
        (contended(), ["topology", "--help"], 0),
        (contended(), ["--help"], 0),
        (contended(), ["complete"], 0),
        (contended(), ["--version"], 0),
    ],
)
def test_every_end_has_its_exit_code(ask: Ask, report: Report, arguments: list[str], code: int) -> None:
    done = ask(report, *arguments)
    assert done.code == code, done
    assert "Traceback" not in done.err
    assert bool(done.err) == (code == 2 or (report.health.status == "down" and "conflicts" in arguments))


def test_no_conflicts_on_a_host_that_cannot_be_seen_is_told_apart_from_none(ask: Ask) -> None:
    done = ask(blind(), "conflicts")
    assert done.out == "no conflicts\n"
    assert done.err.splitlines() == [
        "agentctl: domains: not reached (never read)",
        "agentctl: libvirt: libvirt is not running. Start it (never read)",
    ]


@pytest.mark.parametrize(
    "command", [["usage"], ["domains"], ["topology"], ["conflicts"], ["show", "calm"], ["why", "4"]]
)
def test_what_was_last_known_is_marked_when_libvirt_is_lost(ask: Ask, command: list[str]) -> None:
    done = ask(lost(), *command)
    assert done.err == "agentctl: libvirt: libvirt is not running. Start it (last read 1 min 4 s ago)\n"
    assert done.code == (3 if command == ["conflicts"] else 0)


def test_a_guest_that_cannot_be_read_is_named_beside_every_list(ask: Ask) -> None:
    done = ask(host_report(smt_topology(), unread("dark", kernel_cpus="3")), "conflicts")
    assert (done.code, done.err) == (0, "agentctl: cannot be read now, last known is shown: dark\n")


def test_an_empty_list_is_an_empty_list_in_every_format(ask: Ask) -> None:
    outputs = {form: ask(calm(), "conflicts", "-f", form).out for form in ("json", "yaml", "value", "csv")}
    assert json.loads(outputs["json"]) == []
    assert yaml.safe_load(outputs["yaml"]) == []
    assert outputs["value"] == ""
    assert outputs["csv"].startswith('"severity"')


EMPTY_LISTS = {
    "conflicts": ("severity", "resource", "kind", "owners", "since", "cause"),
    "domains": GuestRow._fields,
    "topology --rows problems": ("source", "what", "values", "is_transient"),
    "topology --rows pci": ("address", "vendor_id", "product_id", "class"),
}
"""Commands that list nothing on a calm host, and their columns."""


@pytest.mark.parametrize("command", EMPTY_LISTS)
def test_a_table_without_rows_is_its_header(ask: Ask, command: str) -> None:
    done = ask(host_report(smt_topology()), *command.split(), "-f", "table")
    edge, header, *rest = done.out.splitlines()
    assert (done.code, done.err, rest) == (0, "", [edge, edge])
    columns = EMPTY_LISTS[command]
    assert tuple(header.replace("|", " ").split())[: len(columns)] == columns


@pytest.mark.parametrize("form", ["table", "value", "csv"])
def test_a_column_may_be_asked_for_where_no_row_has_it(ask: Ask, form: str) -> None:
    done = ask(host_report(smt_topology()), "topology", "--rows", "problems", "-c", "what", "-f", form)
    assert (done.code, done.err) == (0, "")


PYTHON_WORDS = (
    "None",
    "True",
    "False",
    "CpuSet(",
    "PciAddress",
    "mappingproxy",
    "frozenset",
    "Struct",
    "<agent",
    "Traceback",
)
COMMANDS = (
    ["status"], ["topology"], ["topology", "--rows", "cells"], ["topology", "--rows", "caches"],
    ["topology", "--rows", "pci"], ["topology", "--rows", "problems"], ["topology", "--all-devices"],
    ["usage"], ["domains"], ["conflicts"],
    ["conflicts", "--long"],
)  # fmt: skip


def various() -> dict[str, Report]:
    strange = host_report(
        smt_topology(),
        unread("dark", kernel_cpus="3"),
        guest("float", cpuset="0-1", persistent=None, at=100),
        guest("lost", {0: 6}, validity="lost-by-libvirt", problem="libvirt does not list it", at=100),
        guest("nova", {0: 7, 1: 15}, maker="nova", facts={"flavor": "m1"}, emu="7", iothreads={1: "7"}, at=100),
    )
    return {
        "contended": contended(),
        "accepting": accepting(),
        "filtered": filtered(),
        "calm": calm(),
        "blind": blind(),
        "lost": lost(),
        "strange": strange,
    }


@pytest.mark.parametrize("form", ["text", "table", "json", "yaml", "value", "csv"])
@pytest.mark.parametrize(("name", "report"), various().items())
def test_no_output_speaks_python(ask: Ask, name: str, report: Report, form: str) -> None:
    guests = [["show", seen.sighting.uuid] for seen in report.guests] + [
        ["why", seen.sighting.uuid] for seen in report.guests
    ]
    things = [["why", "2"], ["why", "7"]]
    for command in [*COMMANDS, *guests, *things]:
        if form == "csv" and command[0] in ("status", "show"):
            continue
        done = ask(report, *command, "-f", form)
        assert done.code in (0, 1, 3), (command, done)
        assert not [word for word in PYTHON_WORDS if word in done.out + done.err], (name, command, done.out)
