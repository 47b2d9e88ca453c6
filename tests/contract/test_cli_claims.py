"""agentctl claim over real sockets, to an agent with a real journal: what it prints, how it ends, by which socket."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from agent.cli.main import main
from agent.core.guest import RunIdentity, Sighting
from agent.formats.domain_xml import read_domain
from tests.agentctl_runs import Done, Run, runs_beside
from tests.builders import guest, uuid_of
from tests.promising_agent import PromisingAgent

ROOT = Path(__file__).parents[2]
CLAIM_KEYS = {
    "claim_id", "kind", "role", "state", "instance", "move_id", "peer", "placement", "group", "made_at", "deadline_at",
    "holds", "reason",
}  # fmt: skip
PINNED = ("--extra-spec", "hw:cpu_policy=dedicated")
NOBODY = 65534


@pytest.fixture
def agent() -> Iterator[PromisingAgent]:
    """One cell, CPUs 0-7, of which 2-7 are dedicated; nobody is here."""
    with PromisingAgent() as made:
        made.look()
        yield made


@pytest.fixture
def run(agent: PromisingAgent, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runs_beside(agent, capsys, monkeypatch)


def build(vcpus: int = 2, *more: str, claim: str = "c1", name: str = "web") -> tuple[str, ...]:
    words = ("--vcpus", str(vcpus), "--memory-mb", "512", *PINNED, "--instance", uuid_of(name), "--name", name)
    return ("claim", "build", "--claim-id", claim, *words, *more)


def web() -> Sighting:
    """The guest where it was promised a place."""
    run = RunIdentity(libvirt_id=1, pid=100, started_at_boot_s=1.0)
    return guest("web", {0: 2, 1: 3}, emu="2-3", node=0, run=run)


# --- build, list, show -----------------------------------------------------------------------------


def test_a_promise_is_told_as_a_page_and_again_when_it_is_shown(run: Run) -> None:
    built = run(*build())
    assert (built.code, built.err) == (0, "")
    assert built.out.startswith("claim c1\nreserved: its place is kept until its domain comes\n")
    assert f"  guest      web  {uuid_of('web')}\n  kind       build\n" in built.out
    assert "      pinned     vCPUs 0-1 on CPUs 2-3\n" in built.out
    shown = run("claim", "show", "c1")
    ages = ("since", "deadline")
    kept = [[line for line in one.out.splitlines() if line.split()[0] not in ages] for one in (built, shown)]
    assert kept[0] == kept[1]


def test_json_has_the_claim_and_every_form_the_same(run: Run) -> None:
    run(*build())
    shown = run("claim", "show", "c1", "-f", "json").json
    assert shown.keys() >= CLAIM_KEYS
    assert (shown["state"], shown["kind"], shown["role"]) == ("reserved", "build", "owner")
    assert shown["instance"] == {"uuid": uuid_of("web"), "name": "web"}
    assert shown["placement"]["cells"][0]["pins"] == {"0": 2, "1": 3}
    assert shown["holds"]["cpus"] == "2-3"
    as_yaml = yaml.safe_load(run("claim", "show", "c1", "-f", "yaml").out)
    assert {**as_yaml, "deadline_at": None} == {**shown, "deadline_at": None}
    assert run("claim", "show", "c1", "-f", "value", "-c", "claim_id", "-c", "cpus").out == "c1\n2-3\n"
    assert "| cpus        | 2-3" in run("claim", "show", "c1", "-f", "table").out
    (listed,) = run("claim", "list", "-f", "json").json
    assert {**listed, "deadline_at": None} == {key: {**shown, "deadline_at": None}[key] for key in listed}
    assert run("claim", "list").out.startswith("c1  reserved  build of web; CPUs 2-3; until ")
    assert (
        run("claim", "list", "-f", "csv", "-c", "claim_id", "-c", "state").out
        == '"claim_id","state"\n"c1","reserved"\n'
    )


def test_a_table_of_claims_has_room_on_a_terminal_and_all_columns_when_that_is_asked_for(run: Run) -> None:
    run(*build(claim="6b0e7d9c-6d55-4bd4-9d3c-6f6c3f9b9d31"))
    lines = run("claim", "list", "-f", "table").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].split()[1::2] == ["claim_id", "state", "kind", "name", "cpus"]
    whole = run("claim", "list", "-f", "table", "--long").out.splitlines()[1]
    assert {"instance", "deadline_at", "ending", "reason"} <= set(whole.split())


def test_without_ids_both_are_made_and_printed(run: Run) -> None:
    words = ("claim", "build", "--vcpus", "1", "--memory-mb", "64")
    made = [run(*words, "-f", "json").json for _ in range(2)]
    assert len({one["claim_id"] for one in made} | {one["instance"]["uuid"] for one in made}) == 4
    assert sorted(one["claim_id"] for one in run("claim", "list", "-f", "json").json) == sorted(
        one["claim_id"] for one in made
    )
    assert run("claim", "show", made[0]["claim_id"]).code == 0


def test_the_same_call_again_gets_the_same_claim_and_says_so(run: Run) -> None:
    first, again = run(*build(), "-f", "json"), run(*build(), "-f", "json")
    assert (first.json["is_new"], again.json["is_new"]) == (True, False)
    assert again.json["placement"] == first.json["placement"]
    assert again.err == "agentctl: claim c1 was made before; this is what it is now\n"


def test_the_same_command_without_an_instance_gets_the_same_claim_again(run: Run) -> None:
    words = ("claim", "build", "--claim-id", "web-1", "--name", "web", "--vcpus", "1", "--memory-mb", "64")
    first, again = run(*words, "-f", "json").json, run(*words, "-f", "json")
    assert (again.code, again.json["is_new"]) == (0, False)
    assert again.json["instance"] == first["instance"]
    other = run("claim", "build", "--claim-id", "web-2", *words[4:], "-f", "json").json
    assert other["instance"]["uuid"] != first["instance"]["uuid"]
    too_large = (*words[:3], "web-3", "--vcpus", "99", "--memory-mb", "64", *PINNED)
    assert run(*too_large, "-f", "json").json == run(*too_large, "-f", "json").json


def test_a_request_in_a_file_may_name_the_guest_or_leave_that_to_the_command(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    flavor = {"vcpus": 1, "memory_mb": 64}
    file.write_text(json.dumps({"instance": {"uuid": uuid_of("a"), "name": "a"}, "flavor": flavor}))
    named = run("claim", "build", "--request", str(file), "-f", "json").json
    assert named["instance"] == {"uuid": uuid_of("a"), "name": "a"}
    other = run("claim", "build", "--request", str(file), "--instance", uuid_of("b"))
    assert (other.code, "leave one of them out" in other.err) == (2, True)
    file.write_text(json.dumps({"flavor": flavor}))
    asked = run(
        "claim", "build", "--request", str(file), "--instance", uuid_of("b").upper(), "--name", "b", "-f", "json"
    )
    assert asked.json["instance"] == {"uuid": uuid_of("b"), "name": "b"}


def test_what_a_claim_is_told_beside_the_guest_arrives(run: Run) -> None:
    group = '{"id": "g", "policy": "soft-anti-affinity", "members": []}'
    move = ("--kind", "live_migration", "--move-id", "m1", "--peer", "host-b", "--ttl", "60", "--group", group)
    told = run(*build(2, *move), "-f", "json").json
    assert (told["kind"], told["role"], told["move_id"], told["peer"], told["group"]) == (
        "live_migration", "incoming", "m1", "host-b", "g",
    )  # fmt: skip
    text = run("claim", "show", "c1").out
    assert "  kind       live migration, on its way here\n" in text
    assert "  move       m1, with host host-b\n" in text
    assert "(in 59 s)" in text or "(in 1 min)" in text or "(in 58 s)" in text


def test_a_claim_that_replaces_another_ends_it_in_the_same_step(run: Run) -> None:
    run(*build())
    busy = run(*build(3, claim="c2"), "-f", "json")
    assert (busy.code, busy.json["code"]) == (1, "InstanceBusy")
    assert run(*build(3, "--replaces", "c1", claim="c3")).code == 0
    assert run("claim", "show", "c1", "-f", "json").json["ended"]["how"] == "replaced"


# --- no --------------------------------------------------------------------------------------------


def test_a_refusal_ends_with_one_and_has_the_sentence_each_reason_and_what_to_do(run: Run) -> None:
    done = run(*build(7))
    assert (done.code, done.err) == (1, "")
    assert done.out.startswith("Refused: ")
    assert "6 of 6 dedicated CPUs free" in done.line
    assert done.out.endswith("Try another host, or this one later under a new --claim-id.\n")
    told = run(*build(7, claim="c2"), "-f", "json")
    assert (told.code, told.err) == (1, "")
    assert (told.json["code"], told.json["retry"]) == ("ComputeResourcesUnavailable", "elsewhere")
    assert told.json["reasons"]
    keys = {"code", "message", "retry", "reasons", "faults", "details", "claim_id"}
    assert (told.json.keys(), bool(told.json["details"])) == (keys, True)
    assert run("claim", "list").out == "no claims\n"
    assert run(*build(7, claim="c3"), "-f", "value", "-c", "code").out == "ComputeResourcesUnavailable\n"
    assert run(*build(7, claim="c4"), "-f", "json", "-c", "claim_id").code == 1


def test_another_request_under_the_same_id_is_refused(run: Run) -> None:
    run(*build())
    done = run(*build(3), "-f", "json")
    assert (done.code, done.json["code"]) == (1, "ClaimConflict")


def test_a_request_with_faults_ends_with_two_and_names_each(run: Run) -> None:
    done = run("claim", "build", "--vcpus", "1", "--memory-mb", "64", "--extra-spec", "hw:cpu_policy=nix")
    assert (done.code, done.out) == (2, "")
    assert "hw:cpu_policy" in done.err
    told = run("claim", "build", "--vcpus", "1", "--memory-mb", "64", "--extra-spec", "hw:cpu_policy=nix", "-f", "json")
    assert (told.code, told.json["code"]) == (2, "InvalidRequest")
    short = run(*build(2, "--ttl", "1"))
    assert (short.code, "ttl_s" in short.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("claim", "build"), "describe the guest"),
        (("claim", "build", "--vcpus", "1", "--memory-mb", "9", "--instance", "web"), "--instance web: no uuid"),
        (("claim", "build", "--vcpus", "1", "--memory-mb", "9", "--kind", "rebuild"), "--instance UUID is missing"),
        (("claim", "build", "--vcpus", "1", "--memory-mb", "9", "--kind", "resize"), "--move-id names it"),
        (("claim", "build", "--vcpus", "1", "--memory-mb", "9", "--kind", "nix"), "invalid choice: 'nix'"),
        (("--direct", "claim", "list"), "claim list is about the agent's own books"),
        (("claim", "show", "nix"), "There is no claim nix on this host"),
        (("claim", "renew", "nix"), "There is no claim nix on this host"),
        (("claim", "release", "nix"), "There is no claim nix on this host"),
        (("claim",), "claim is followed by one of build, list, show, confirm"),
        (("claim", "biuld"), "there is no claim biuld; claim is followed by one of build,"),
    ],
)
def test_what_cannot_be_asked_ends_with_two(run: Run, arguments: tuple[str, ...], said: str) -> None:
    done = run(*arguments)
    assert (done.code, said in done.line) == (2, True), done


def test_an_agent_that_does_not_know_its_host_yet_ends_it_with_three(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with PromisingAgent() as blind:
        monkeypatch.setenv("COMPUTE_AGENT_SOCKET", str(blind.socket))
        assert main(build()) == 3
        assert "Ask this host again later." in capsys.readouterr().err
        assert main([*build(), "-f", "json"]) == 3
        assert json.loads(capsys.readouterr().out)["code"] == "AgentNotReady"


def test_no_agent_and_no_permission_have_a_line_of_their_own_and_end_with_three(
    agent: PromisingAgent, run: Run, tmp_path: Path
) -> None:
    nobody_there = run(*build(), "--socket", str(tmp_path / "agent.sock"))
    assert (nobody_there.code, "compute-agent does not run here" in nobody_there.err) == (3, True)
    assert "Nobody knows" not in nobody_there.err
    agent.folder.chmod(0o711)
    agent.socket.chmod(0o660)
    # what is imported first need not be readable for nobody
    script = (
        "import os, sys; sys.modules['eventlet'] = None; import agent.cli.app, agent.cli.claim_build, agent.client\n"
        f"from agent.cli.main import main; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "sys.exit(main(sys.argv[1:]))"
    )

    def as_nobody(*arguments: str) -> Done:
        command = [sys.executable, "-c", script, *arguments, "--socket", str(agent.read_only_socket)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, timeout=60)
        return Done(done.returncode, done.stdout, done.stderr)

    refused = as_nobody(*build())
    assert refused.code == 3
    assert f"You may not use {agent.socket}, over which things are changed. Run this as root, or" in refused.err
    assert as_nobody("claim", "list").out == "no claims\n"


# --- what becomes of it ----------------------------------------------------------------------------


def test_a_claim_is_renewed_confirmed_and_released_as_its_guest_comes_and_goes(agent: PromisingAgent, run: Run) -> None:
    run(*build())
    assert run("claim", "renew", "c1", "--ttl", "3600").out.startswith(
        "claim c1: reserved, build of web; CPUs 2-3; until"
    )
    early = run("claim", "confirm", "c1", "-f", "json")
    assert (early.code, early.json["code"]) == (1, "IllegalTransition")
    agent.look(web())
    assert run("claim", "show", "c1", "-f", "json").json["state"] == "arriving"
    assert run("claim", "confirm", "c1").out == "claim c1: resident, build of web; CPUs 2-3\n"
    assert "agentctl claim accept-observed c1" in run("claim", "show", "c1").out
    assert run("claim", "accept-observed", "c1").code == 0
    renewed = run("claim", "renew", "c1")
    assert (renewed.code, "nothing has changed: claim c1 waits for nothing and has no deadline" in renewed.err) == (
        0,
        True,
    )
    refused = run("claim", "abort", "c1")
    assert (refused.code, refused.out.startswith("Refused: ")) == (1, True)
    assert run("claim", "release", "c1", "--reason", "it is over").out.startswith(
        "claim c1: ended (released), build of web"
    )
    assert run("claim", "release", "c1", "-f", "json").json["ended"]["how"] == "released"
    assert run("claim", "list").out == "no claims\n"


def test_an_abort_that_waits_for_the_domain_to_go_says_so_in_every_view(agent: PromisingAgent, run: Run) -> None:
    run(*build())
    agent.look(web())
    aborted = run("claim", "abort", "c1")
    assert (aborted.code, "arriving, build of web; ends (aborted) once its domain is gone" in aborted.line) == (0, True)
    assert "ends (aborted) once its domain is gone" in run("claim", "list").line
    assert "  ends       as aborted, by itself, once its domain is gone" in run("claim", "show", "c1").out
    assert run("claim", "show", "c1", "-f", "json").json["ending"] == "aborted"
    assert [one["ending"] for one in run("claim", "list", "-f", "json").json] == ["aborted"]
    assert run("claim", "list", "-f", "value", "-c", "ending").out == "aborted\n"
    agent.look()
    ended = run("claim", "show", "c1", "-f", "json").json
    assert (ended["state"], ended["ended"]["how"], ended["ending"]) == ("ended", "aborted", None)


def test_a_guest_that_no_claim_made_is_told_so(agent: PromisingAgent, run: Run) -> None:
    agent.look(web())
    assert run("migration", "hold", "m1", "--instance", uuid_of("web"), "--kind", "resize").code == 0
    assert run("migration", "finish", "m1", "--outcome", "failed").code == 0
    (claim,) = run("claim", "list", "-f", "json").json
    assert f"guest {uuid_of('web')}, which no claim made" in run("claim", "list").line
    shown = run("claim", "show", claim["claim_id"])
    assert "  kind       observed: no claim made this guest; it holds what is seen of it\n" in shown.out
    assert "build" not in shown.out


def test_an_abort_ends_a_claim_and_keeps_an_unknown_id_from_being_used(run: Run) -> None:
    run(*build())
    assert run("claim", "abort", "c1", "--reason", "changed my mind").out.startswith(
        "claim c1: ended (aborted), build of web"
    )
    assert "changed my mind" in run("claim", "show", "c1").out
    assert run("claim", "abort", "late").out == "claim late: ended (aborted), before there was a claim\n"
    done = run(*build(claim="late"), "-f", "json")
    assert (done.code, done.json["code"]) == (1, "ClaimEnded")


# --- the domain ------------------------------------------------------------------------------------


def test_what_else_was_asked_for_is_in_the_parts_too(run: Run) -> None:
    words = (
        "--extra-spec",
        "hw:cpu_threads=2",
        "--extra-spec",
        "hw:locked_memory=true",
        "--extra-spec",
        "hw:mem_page_size=small",
    )
    assert run(*build(2, *words)).code == 0
    text = run("claim", "show", "c1", "--domain-xml").out
    assert '<topology sockets="1" cores="1" threads="2" />' in text
    assert "<locked />" in text


def test_the_place_is_printed_as_parts_of_a_domain_or_put_into_one(run: Run, tmp_path: Path) -> None:
    run(*build())
    parts = run("claim", "show", "c1", "--domain-xml")
    assert (parts.code, parts.err) == (0, "")
    read = read_domain(parts.out).domain
    assert (read.uuid, [str(pin.cpus) for pin in read.vcpu_pins]) == (uuid_of("web"), ["2", "3"])
    file = tmp_path / "web.xml"
    file.write_text("<domain type='kvm'><name>other</name><vcpu>9</vcpu><os><type>hvm</type></os></domain>")
    whole = run("claim", "show", "c1", "--into", str(file))
    assert (read_domain(whole.out).domain.name, read_domain(whole.out).domain.vcpus) == ("other", 2)
    assert "<type>hvm</type>" in whole.out
    for text, said in (
        ("<x/>", "it is a <x>, not a <domain>"),
        ("<domain>", "not well-formed"),
        ("\x00", "not well-formed"),
    ):
        file.write_text(text)
        done = run("claim", "show", "c1", "--into", str(file))
        assert (done.code, said in done.line) == (2, True), done
    assert run("claim", "show", "c1", "--into", str(tmp_path / "none")).code == 3
    both = run("claim", "show", "c1", "--domain-xml", "-f", "json")
    assert (both.code, "-f does not go with" in both.err) == (2, True)
    run("claim", "abort", "c1")
    ended = run("claim", "show", "c1", "--domain-xml")
    assert (ended.code, "it promises no place any more" in ended.line) == (2, True)
