"""agentctl migration, claim recheck: the halves of a move, told to a real agent."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.agentctl_runs import Run, runs_beside
from tests.builders import guest, uuid_of
from tests.promising_agent import PromisingAgent

WEB = uuid_of("web")


@pytest.fixture
def agent() -> Iterator[PromisingAgent]:
    """One cell, CPUs 0-7; the guest web runs here, and no claim made it."""
    with PromisingAgent() as made:
        made.look(guest("web", {0: 2}, node=0))
        yield made


@pytest.fixture
def run(agent: PromisingAgent, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runs_beside(agent, capsys, monkeypatch)


def hold(move: str = "m1", *more: str) -> tuple[str, ...]:
    return ("migration", "hold", "--instance", WEB, "--kind", "live_migration", *more, "--", move)


def build(name: str, claim: str, *more: str) -> tuple[str, ...]:
    words = ("--vcpus", "1", "--memory-mb", "64", "--instance", uuid_of(name), "--name", name)
    return ("claim", "build", "--claim-id", claim, *words, *more)


def test_a_move_is_held_shown_and_finished_by_the_commands_that_each_names(run: Run) -> None:
    held = run(*hold("m1", "--peer", "host-b", "--name", "web"))
    assert (held.code, held.err, ": leaving, guest web, which no claim made" in held.line) == (0, "", True)
    open_yet = run("migration", "show", "m1")
    assert open_yet.out.startswith("move m1\n  kind       live migration\n")
    assert f"  guest      {WEB}\n  with host  host-b\n  source     claim " in open_yet.out
    assert "  ended      not yet\n" in open_yet.out
    assert open_yet.out.endswith(f"{'':15}agentctl migration finish m1 --outcome HOW\n")
    done = run("migration", "finish", "m1", "--outcome", "failed")
    assert (done.code, "  ended      failed at 20" in done.out, "next" in done.out) == (0, True, False)
    assert run("migration", "finish", "m1", "--outcome", "failed", "-f", "json").json["outcome"] == "failed"
    assert run("migration", "show", "m1", "-f", "value", "-c", "outcome").out == "failed\n"


def test_a_move_that_ended_otherwise_is_not_finished_again(run: Run) -> None:
    run(*hold())
    run("migration", "finish", "m1", "--outcome", "reverted")
    again = run("migration", "finish", "m1", "--outcome", "confirmed")
    assert (again.code, again.out.startswith("Refused: ")) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("migration", "show", "nix"), "There is no move nix on this host"),
        (("migration", "finish", "nix", "--outcome", "failed"), "There is no move nix on this host"),
        (("migration", "finish", "nix", "--outcome", "HOW"), "invalid choice: 'HOW'"),
        (("migration", "finish", "nix"), "--outcome"),
        (("migration", "hold", "m1", "--instance", "web", "--kind", "resize"), "--instance web: no uuid"),
        (("migration", "hold", "m1", "--instance", WEB, "--kind", "build"), "invalid choice: 'build'"),
        (("claim", "recheck", "c1", "--group", "{"), "--group: not a GroupForm"),
        (("claim", "abort", ""), "argument ID: it is empty"),
        (("group", "show", " "), "argument ID: it is empty"),
        (("migration", "show", ""), "argument MOVE: it is empty"),
        (("instance", "forget", ""), "argument UUID: it is empty"),
        (("claim", "recheck", "nix"), "There is no claim nix on this host"),
    ],
)
def test_what_cannot_be_asked_ends_with_two(run: Run, arguments: tuple[str, ...], said: str) -> None:
    done = run(*arguments)
    assert (done.code, said in done.line) == (2, True), done


@pytest.mark.parametrize("move", ["-m1", "m 1; touch x $(id)", "--debug"])
def test_a_move_and_a_claim_of_any_id_can_be_told_of(run: Run, move: str) -> None:
    assert run(*hold(move)).code == 0
    assert run("migration", "finish", "--outcome", "failed", "--", move, "-f").code == 2
    assert run("migration", "finish", "--outcome", "failed", "--", move).code == 0
    assert run(*build("db", move)[:2], f"--claim-id={move}", *build("db", move)[4:]).code == 0
    assert run("claim", "abort", "--", move).code == 0


def test_a_recheck_says_whether_the_group_still_agrees(run: Run) -> None:
    group = {"id": "g", "policy": "anti-affinity"}
    assert run(*build("db", "c1", "--group", json.dumps(group))).code == 0
    assert run("claim", "recheck", "c1").out.startswith("claim c1: reserved, build of db")
    assert run("claim", "recheck", "c1", "--group", json.dumps(group)).code == 0
    refused = run("claim", "recheck", "c1", "--group", json.dumps({**group, "members": [WEB]}), "-f", "json")
    assert (refused.code, refused.json["code"]) == (1, "GroupAffinityViolation")
