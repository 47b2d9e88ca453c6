"""agentctl fit and agentctl snapshot: files in, files out, and beside a daemon over real sockets."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml

from agent.adapters.http import READ_ONLY_SOCKET, LocalApi
from agent.cli.main import main
from agent.core.snapshot import Identity, Snapshot, SourceState
from agent.formats import snapshot_file, wire
from agent.formats.request import LONGEST_REQUEST
from agent.handlers import TABLE, Handlers
from tests.builders_sysfs import Node, build_tree
from tests.hostile import POISON, unsafe

ENVIRON = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
PF = "0000:3b:00.0"
ODD = ("--extra-spec", "hw:cpu_policy=nix")
PINNED = ("--extra-spec", "hw:cpu_policy=dedicated")
SEED: dict[str, Any] = {
    "format": "short",
    "cells": [
        {"id": 0, "cpus": "0-3", "memory_mb": 4096},
        {"id": 1, "cpus": "4-7", "memory_mb": 4096},
    ],
    "dedicated": "4-7",
    "shared": "0-3",
    "pci": [{"address": PF, "vendor_id": "8086", "product_id": "1572", "type": "type-PF", "cell": 0}],
    "device_spec": [{"vendor_id": "8086", "product_id": "1572"}],
}
"""A physical function on cell 0, dedicated CPUs only on cell 1."""


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: str) -> Done:
        code = main(arguments)
        return Done(code, *capsys.readouterr())

    return run


@pytest.fixture
def host(tmp_path: Path) -> Callable[..., str]:
    """host(**parts): a file with the short form of SEED, changed so."""

    def write(**parts: Any) -> str:
        path = tmp_path / "host.json"
        path.write_text(json.dumps(SEED | parts))
        return str(path)

    return write


def alias(policy: str) -> list[dict[str, str]]:
    return [{
        "name": "nic", "vendor_id": "8086", "product_id": "1572", "device_type": "type-PF", "numa_policy": policy,
    }]  # fmt: skip


def guest(vcpus: int = 2, *more: str) -> tuple[str, ...]:
    return ("fit", "--vcpus", str(vcpus), "--memory-mb", "512", *more)


@contextlib.contextmanager
def served(snapshot: Snapshot) -> Iterator[Path]:
    """The read-only socket of an agent that has this picture."""
    handlers = Handlers(
        snapshot=lambda: snapshot,
        clock=lambda: 100.0,
        now=lambda: "2026-11-30T12:00:00Z",
        interval_s=lambda: 10.0,
        alive=lambda: None,
    )
    with tempfile.TemporaryDirectory(prefix="cli-", dir="/tmp") as folder:  # pytest's paths are too long for a socket
        api = LocalApi(handlers.answer, handlers.refuse, Path(folder), table=TABLE)
        api.start()
        try:
            yield Path(folder, READ_ONLY_SOCKET)
        finally:
            api.stop()


def known(data: dict[str, Any]) -> Snapshot:
    """As a daemon knows it whose passes are of now."""
    sources = tuple(SourceState(name=name, read_at=99.0) for name in ("domains", "libvirt", "processes", "sysfs"))
    identity = Identity(agent_id="agent-1", boot_id="boot-1", epoch=3)
    return msgspec.structs.replace(snapshot_file.from_plain(data), identity=identity, generation=7, sources=sources)


# --- the answer ------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["preferred", "legacy", "required"])
def test_the_policy_of_a_device_is_followed(run: Run, host: Callable[..., str], policy: str) -> None:
    request = ("--extra-spec", "pci_passthrough:alias=nic:1", "--extra-spec", "hw:numa_nodes=1")
    done = run(*guest(2, *PINNED, *request, "--snapshot", host(alias=alias(policy)), "-f", "json"))
    told = done.json
    if policy == "preferred":
        placement = told["placement"]
        assert (done.code, told["fits"], placement["cells"][0]["host_cell"]) == (0, True, 1)
        assert placement["devices"] == [{"request": "alias:nic", "devices": [PF]}]
    else:
        assert (done.code, told["fits"], "placement" in told) == (1, False, False)
        (far,) = [reason for reason in told["reasons"] if reason["type"] == "devices-far"]
        assert (far["policy"], far["by_cell"]) == (policy, {"0": 1})
        softer = {"requests": ["alias:nic"], "policy": "preferred", "sources": ["alias"]}
        assert {"type": "other-device-policy", **softer} in told["relaxations"]


def test_text_says_where_everything_goes_and_what_means_nothing(run: Run, host: Callable[..., str]) -> None:
    request = ("--extra-spec", "pci_passthrough:alias=nic:1", "--extra-spec", "hw:nonsense=1")
    done = run(*guest(2, *PINNED, *request, "--snapshot", host(alias=alias("preferred"))))
    assert (done.code, done.err) == (0, "agentctl: hw:nonsense of the request means nothing here\n")
    assert [" ".join(line.split()) for line in done.out.splitlines()] == [
        "It fits: 2 vCPUs and 512 MiB of memory in 1 cell",
        "guest cell 0 on cell 1",
        "pinned vCPUs 0-1 on CPUs 4-5",
        "memory 512 MiB in 4 KiB pages",
        "emulator CPUs 4-5",
        f"devices {PF} (cell 0, far from the guest) for alias:nic",
    ]


def test_text_says_every_reason_and_what_would_help(run: Run, host: Callable[..., str]) -> None:
    done = run(*guest(3, *PINNED, "--snapshot", host(pinned="4-5")))
    assert (done.code, done.err) == (1, "")
    assert done.out.startswith("It does not fit, for ")
    assert "4-5 are" in done.out.replace("\n   ", "")
    assert "It would fit\n" in done.out
    assert "with 2 vCPUs" in done.out


@pytest.mark.parametrize("form", ["table", "value", "csv", "yaml", "json", "text"])
@pytest.mark.parametrize("vcpus", [2, 9])
def test_every_format_says_yes_and_no(run: Run, host: Callable[..., str], form: str, vcpus: int) -> None:
    done = run(*guest(vcpus, *PINNED, "--snapshot", host(), "-f", form))
    assert (done.code, done.err) == (0 if vcpus == 2 else 1, "")
    if form == "yaml":
        assert yaml.safe_load(done.out) == run(*guest(vcpus, *PINNED, "--snapshot", host(), "-f", "json")).json
    elif form in {"value", "csv", "table"}:
        rows = [line for line in done.out.splitlines() if "guest cell 0" in line]
        assert rows
        assert all(("true" if vcpus == 2 else "false") in row for row in rows)


def test_that_nothing_would_help_is_told_where_it_was_looked_for(run: Run, host: Callable[..., str]) -> None:
    nothing = "No single change that was tried would make it fit.\n"
    done = run(*guest(1, *PINNED), "--snapshot", host(dedicated="", device_spec=[]))
    assert (done.code, done.out.endswith(nothing)) == (1, True)
    done = run(*guest(2, *PINNED), "--count", "3", "--snapshot", host())
    assert (done.code, "There is room for 2 of 3" in done.out, nothing in done.out) == (1, True, False)


def test_a_reason_in_a_table_is_about_the_part_that_a_placement_would_have(run: Run, host: Callable[..., str]) -> None:
    asked = guest(2, *PINNED, "--extra-spec", "pci_passthrough:alias=nic:2", "-f", "value", "-c", "part", "-c", "cell")
    done = run(*asked, "--snapshot", host(alias=alias("preferred")))
    assert done.out.splitlines() == ["alias:nic -", "guest cell 0 0"]


def test_a_column_of_choice(run: Run, host: Callable[..., str]) -> None:
    assert run(*guest(2, *PINNED, "--snapshot", host(), "-f", "json", "-c", "fits")).json == {"fits": True}


def test_how_many_fit_one_beside_the_other(run: Run, host: Callable[..., str]) -> None:
    done = run(*guest(1, *PINNED, "--snapshot", host(pinned="4"), "--count", "5", "-f", "json"))
    told = done.json
    assert (done.code, told["fits"], told["asked"], told["count"]) == (1, False, 5, 3)
    assert [cell["pins"] for one in told["placements"] for cell in one["cells"]] == [{"0": 5}, {"0": 6}, {"0": 7}]
    assert [reason["type"] for reason in told["reasons"] if reason["cell"] == 1] == ["cpus-short"]
    assert run(*guest(1, *PINNED, "--snapshot", host(pinned="4"), "--count", "3")) == Done(
        0,
        "There is room for 3 such guests, one beside the other:\n"
        "  guest 1: cell 1: CPU 5\n  guest 2: cell 1: CPU 6\n  guest 3: cell 1: CPU 7\n",
        "",
    )
    text = run(*guest(1, *PINNED, "--snapshot", host(pinned="4"), "--count", "4")).out
    assert text.startswith("There is room for 3 of 4 such guests:\n  guest 1: cell 1: CPU 5\n")
    assert "  guest 3: cell 1: CPU 7\nThe next:\nIt does not fit" in text
    assert "guest-1" in text
    assert "It would fit" not in text


def test_a_count_tells_the_place_of_each_guest_in_a_line(run: Run, host: Callable[..., str]) -> None:
    asked = ("--extra-spec", "pci_passthrough:alias=nic:1", "--extra-spec", "hw:numa_nodes=2")
    where = host(alias=alias("preferred"), share_cells=True, shared="0-3", dedicated="4-7")
    table = run(
        *guest(2, *PINNED, *asked, "--count", "1", "--snapshot", where, "-f", "value", "-c", "part", "-c", "what")
    )
    assert table.out == f"count 1 of 1\nguest 1 cell 1: CPUs 4-5; device {PF}\n"
    none = run(*guest(9, *PINNED, "--count", "3", "--snapshot", host())).out
    assert none.startswith("There is room for none of 3 such guests. The first:\nIt does not fit, for ")
    assert "It would fit\n" in none
    floating = run(*guest(1, "--count", "1", "--snapshot", host())).out.splitlines()
    assert floating[1] == "  guest 1: floating over CPUs 0-3"
    lines = run(*guest(1, "--memory-mb", "1", "--count", "1", "--snapshot", host()))
    assert (lines.code, "--memory-mb is given twice" in lines.err) == (2, True)


def test_of_many_guests_the_first_are_told_and_where_all_are(run: Run, host: Callable[..., str]) -> None:
    lines = run("fit", "--vcpus", "1", "--memory-mb", "1", "--count", "23", "--snapshot", host(cpu_allocation_ratio=16))
    assert (lines.code, len(lines.out.splitlines())) == (0, 22)
    assert lines.out.endswith("  and 3 more, all of which -f json has\n")


@pytest.mark.parametrize("option", ["--request", "--vcpus", "--memory-mb", "--group", "--count", "--snapshot"])
def test_an_option_that_is_given_twice_is_refused(run: Run, host: Callable[..., str], option: str) -> None:
    done = run("fit", option, "1", option, "1")
    assert (done.code, done.out) == (2, "")
    assert f"{option} is given twice" in done.err


@pytest.mark.parametrize(
    "other", [("--direct",), ("--sysfs-root", "/x"), ("--socket", "/x"), ("--connect", "x"), ("--config-file", "x")]
)
def test_a_host_in_a_file_beside_another_is_refused(run: Run, host: Callable[..., str], other: tuple[str, ...]) -> None:
    said = f"agentctl: the host is that of --snapshot or that of {other[0]}, not both\n"
    assert run(*guest(1, "--snapshot", host(), *other)) == Done(2, "", said)
    assert run(*other, *guest(1, "--snapshot", host())) == Done(2, "", said)


@pytest.mark.parametrize("option", ["--snapshot", "--request"])
def test_a_file_without_a_name_is_refused(run: Run, option: str) -> None:
    done = run("fit", *(("--vcpus", "1", "--memory-mb", "1") if option == "--snapshot" else ()), option, "")
    assert (done.code, done.err) == (
        3 if option == "--snapshot" else 2,
        f"agentctl: {option}: the name of the file is empty\n",
    )


def test_a_column_of_the_other_answer_is_empty(run: Run, host: Callable[..., str]) -> None:
    def column(name: str, *asked: str) -> Done:
        return run(*asked, "--snapshot", host(), "-f", "json", "-c", name)

    fits, does_not = guest(2, *PINNED), guest(9, *PINNED)
    assert [column("reasons", *fits).json, column("placement", *does_not).json] == [
        {"reasons": []},
        {"placement": None},
    ]
    assert [column("reasons", *fits).code, column("placement", *does_not).code] == [0, 1]
    assert column("reasons", *fits, "--count", "1").json == {"reasons": []}
    assert column("count", *fits).code == 2
    faulty = column("fits", *guest(1, *ODD))
    assert (faulty.code, faulty.json, "is none of" in faulty.err) == (2, {"fits": None}, True)


def test_the_faults_of_a_request_in_a_file_name_the_file(run: Run, host: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    for flavor, said in (
        ({"vcpus": 0, "memory_mb": 1}, "flavor.vcpus: 0 is not between 1 and 4096"),
        ({"vcpus": 2, "memory_mb": 1, "extra_specs": {"hw:cpu_policy": "nix"}}, "hw:cpu_policy=nix of the flavor is"),
    ):
        path.write_text(json.dumps({"flavor": flavor}))
        done = run("fit", "--request", str(path), "--snapshot", host())
        assert (done.code, done.err.startswith(f"agentctl: {path}: {said}")) == (2, True)


@pytest.mark.parametrize("number", ["0", "-1", "10001", "x"])
def test_a_count_of_none_or_of_too_many_is_refused(run: Run, host: Callable[..., str], number: str) -> None:
    assert run(*guest(1, "--snapshot", host(), "--count", number)).code == 2


# --- the request -----------------------------------------------------------------------------------


def test_a_file_and_standard_input_ask_the_same_as_options(run: Run, host: Callable[..., str], tmp_path: Path) -> None:
    request = {"flavor": {"vcpus": 2, "memory_mb": 512, "extra_specs": {"hw:cpu_policy": "dedicated"}}}
    text = json.dumps(request)
    (tmp_path / "request.json").write_text(text)
    where = ("--snapshot", host(), "-f", "json")
    answers = [run(*guest(2, *PINNED, *where)), run("fit", "--request", str(tmp_path / "request.json"), *where)]
    command = [sys.executable, "-m", "agent.cli.main", "fit", "--request", "-", *where]
    piped = subprocess.run(command, check=False, input=text, capture_output=True, text=True, timeout=60, env=ENVIRON)
    answers.append(Done(piped.returncode, piped.stdout, piped.stderr))
    assert answers[0].code == 0
    assert answers == [answers[0]] * 3


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "The request is not JSON"),
        (b"\0\0\0", "The request is not JSON"),
        (b"[" * 200_000, "The request is nested too deeply"),
        (b" " * LONGEST_REQUEST + b"1", "it is longer than 256 KiB"),
        (b'{"flavor": {"vcpus": 1.5, "memory_mb": "1"}}', "flavor.vcpus: a whole number is expected"),
        (b'{"flavor": {"vcpus": 1' + b"0" * 3000 + b', "memory_mb": 1}}', "flavor.vcpus: it is not between 1 and"),
        (b'{"flavor": {"vcpus": 4, "memory_mb": 1, "extra_specs": {"hw:numa_nodes": "3"}}}', "hw:numa_nodes=3"),
        (b'{"flavor": {"vcpus": 1, "memory_mb": 1, "extra_specs": {"hw:cpu_policy": "\\u001b]0;x"}}}', "\\x1b]0;x"),
        (
            b'{"flavor": {"vcpus": 1, "memory_mb": 1, "extra_specs": {"hw:numa_nodes": 99999999999}}}',
            "hw:numa_nodes=99999999999",
        ),
    ],
)
def test_a_request_with_faults_ends_with_2_and_says_each(
    run: Run, host: Callable[..., str], tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "request.json"
    path.write_bytes(content)
    done = run("fit", "--request", str(path), "--snapshot", host())
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert unsafe(done.err) == ""
    assert len(done.err) < 2000


@pytest.mark.parametrize(
    "arguments",
    [
        ("fit",),
        ("fit", "--vcpus", "1"),
        ("fit", "--vcpus", "x", "--memory-mb", "1"),
        ("fit", "--request", "/no/such/file"),
        ("fit", "--request", "/tmp"),
        ("fit", "--request", "-", "--vcpus", "1"),
        guest(1, "--extra-spec", "nothing"),
        guest(1, "--port", "{"),
        guest(1, "--group", "[]"),
        guest(1, "--extra-spec", "hw:cpu_policy=nix"),
    ],
)
def test_arguments_that_describe_no_guest_end_with_2(run: Run, host: Callable[..., str], arguments: Any) -> None:
    done = run(*arguments, "--snapshot", host())
    assert (done.code, done.out) == (2, "")
    assert done.err


# --- the place -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "it cannot be read: No such file or directory"),
        (b"", "The snapshot is empty"),
        (b'{"format": "short", "format": "full"}', 'The snapshot has "format" twice in one object'),
        (b'{"format": "short", "cells": [{"id": 0, "cpu": "0"}]}', "cells[0].cpu: unknown. Is cpus meant?"),
        (
            b'{"format": "short", "cells": [{"id": 99999999999999999999, "cpus": "0"}]}',
            "cells[0].id: 99999999999999999999 is not",
        ),
        (b'{"format": "full", "v": 1}', "missing required field"),
    ],
)
def test_without_a_host_to_ask_it_ends_with_3(run: Run, tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "host.json"
    if content is not None:
        path.write_bytes(content)
    done = run(*guest(1, "--snapshot", str(path)))
    assert (done.code, done.out) == (3, "")
    assert said in done.err
    assert str(path) in done.err.replace("\n", "")


def test_the_agent_is_asked_and_its_faults_and_refusals_are_told(run: Run, host: Callable[..., str]) -> None:
    with served(known(SEED)) as socket:
        yes = run(*guest(2, *PINNED, "--socket", str(socket), "-f", "json"))
        no = run(*guest(5, *PINNED, "--socket", str(socket), "-f", "json"))
        bad = run(*guest(2, *ODD, "--socket", str(socket)))
        many = run(*guest(2, *PINNED, "--socket", str(socket), "--count", "9", "-f", "json"))
    assert (yes.code, yes.json["epoch"], yes.json["generation"]) == (0, 3, 7)
    assert (no.code, no.json["fits"], bool(no.json["relaxations"])) == (1, False, True)
    assert (bad.code, bad.out) == (2, "")
    assert "hw:cpu_policy=nix of the flavor is none of" in bad.err
    with served(known(SEED)) as socket:
        by_agent = run(*guest(2, *ODD, "-f", "json", "--socket", str(socket)))
    alone = run(*guest(2, *ODD, "-f", "json"), "--snapshot", host())
    assert (by_agent, alone.code) == (alone, 2)
    assert (alone.json["code"], [fault["kind"] for fault in alone.json["faults"]]) == (
        "InvalidRequest",
        ["cpu-policy-unknown"],
    )
    assert alone.json["faults"][0]["properties"] == [{"name": "hw:cpu_policy", "value": "nix", "where": "flavor"}]
    assert alone.json["reasons"][0] in alone.err
    assert (many.code, many.json["count"], many.json["generation"]) == (1, 2, 7)


def test_devices_far_from_the_guest_are_marked_by_the_agents_host_too(run: Run) -> None:
    with served(known(SEED | {"alias": alias("preferred")})) as socket:
        done = run(*guest(2, *PINNED, "--extra-spec", "pci_passthrough:alias=nic:1", "--socket", str(socket)))
    assert f"{PF} (cell 0, far from the guest)" in done.out


def test_an_agent_that_has_not_looked_yet_could_not_be_asked(run: Run, tmp_path: Path) -> None:
    early = msgspec.structs.replace(known(SEED), complete=False)
    with served(early) as socket:
        asked = run(*guest(2, "--socket", str(socket)))
        saved = run("snapshot", "--socket", str(socket), "--output", str(tmp_path / "kept.json"))
    assert [(done.code, done.out) for done in (asked, saved)] == [(3, "")] * 2
    assert "ask again soon" in asked.err
    assert list(tmp_path.iterdir()) == []
    assert run(*guest(2, "--socket", "/no/such/socket")).code == 3


def test_a_snapshot_of_the_agent_gives_its_answers_elsewhere(run: Run, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    with served(known(SEED | {"pinned": "4"})) as socket:
        assert run("snapshot", "--socket", str(socket), "--output", str(kept)) == Done(0, "", "")
        printed = run("snapshot", "--socket", str(socket))
        there = [run(*guest(n, *PINNED, "--socket", str(socket), "-f", "json")) for n in (3, 4)]
    here = [run(*guest(n, *PINNED, "--snapshot", str(kept), "-f", "json")) for n in (3, 4)]
    assert here == there
    assert [done.code for done in here] == [0, 1]
    assert printed.out == kept.read_text()
    assert json.loads(printed.out)["format"] == "full"


def test_a_recorded_host_can_be_asked_and_saved(run: Run, tmp_path: Path) -> None:
    build_tree(tmp_path / "root", nodes={0: Node(cpus="0-3", mem_mib=4096)}, smt=["0+1", "2+3"])
    recorded = ("--sysfs-root", str(tmp_path / "root"))
    kept = tmp_path / "kept.json"
    assert run("snapshot", *recorded, "--output", str(kept)).code == 0
    require = (*PINNED, "--extra-spec", "hw:cpu_thread_policy=require")
    told = [run(*guest(2, *require, *where, "-f", "json")) for where in (recorded, ("--snapshot", str(kept)))]
    assert told[0].json["placement"]["cells"][0]["pins"] == {"0": 0, "1": 1}
    assert told[0] == told[1]
    assert run(*guest(5, *require, *recorded)).code == 1
    assert run(*guest(1, "--sysfs-root", str(tmp_path / "nothing"))).code == 3


# --- writing ---------------------------------------------------------------------------------------


def test_a_snapshot_replaces_the_file_in_one_step_and_leaves_nothing_beside_it(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    (folder / "host.json").write_text("old")
    (folder / "link.json").symlink_to("host.json")
    with served(known(SEED)) as socket:
        assert run("snapshot", "--socket", str(socket), "--output", str(folder / "link.json")).code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["host.json", "link.json"]
    assert (folder / "link.json").is_symlink()
    assert json.loads((folder / "host.json").read_text())["v"] == 1


def test_a_snapshot_may_go_into_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with served(known(SEED)) as socket, subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE) as reader:
        assert main(("snapshot", "--socket", str(socket), "--output", str(tmp_path / "pipe"))) == 0
        out, _ = reader.communicate(timeout=60)
    assert json.loads(out)["format"] == "full"
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.parametrize("name", ["", "no/such/folder/x", "a\0b"])
def test_a_place_that_cannot_be_written_is_named(run: Run, tmp_path: Path, name: str) -> None:
    target = str(tmp_path / name) if name else str(tmp_path)
    with served(known(SEED)) as socket:
        done = run("snapshot", "--socket", str(socket), "--output", target)
    assert (done.code, done.out) == (2, "")
    assert "it cannot be written" in done.err
    assert unsafe(done.err) == ""


@pytest.mark.parametrize("form", ["text", "table", "value", "csv", "yaml", "json"])
def test_names_of_guests_steer_no_terminal(run: Run, tmp_path: Path, form: str) -> None:
    path = tmp_path / "host.json"
    path.write_text(json.dumps(_saved_with_name(POISON)))
    done = run(*guest(4, *PINNED, "--snapshot", str(path), "-f", form))
    assert done.code == 1
    assert unsafe(done.out) == ""


def _saved_with_name(name: str) -> Any:
    document = wire.to_builtins(snapshot_file.saved(known(SEED | {"pinned": "4"})))
    for domain in document["domains"]:
        domain["name"] = domain["domain"]["name"] = name
    return document
