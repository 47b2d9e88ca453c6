"""agentctl group, maintenance, instance, journal, and help of commands of two words, beside a real agent and a liar."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.adapters.http import FULL_SOCKET, LocalApi
from agent.adapters.journal import FILE, StateLock, Store
from agent.cli.app import COMMANDS
from agent.cli.main import main
from agent.core.claim.values import Maintenance
from agent.core.instance import Instance
from agent.core.pci import PciAddress
from agent.formats.claim_forms import GroupRules
from agent.formats.claim_view import (
    Accepted,
    ClaimAnswer,
    ClaimList,
    ClaimView,
    DepartureView,
    GroupInfo,
    MaintenanceView,
    MemberView,
    MoveView,
    OfferedView,
)
from agent.formats.envelope import ApiRequest, ApiResponse, Refusal, refused, respond, success
from agent.handlers import TABLE
from tests.agentctl_runs import Run, runs_beside
from tests.builders import guest, uuid_of
from tests.builders_http import IDENTITY, NOW, refuse
from tests.hostile import POISON, unsafe
from tests.promising_agent import PromisingAgent


@pytest.fixture
def agent() -> Iterator[PromisingAgent]:
    with PromisingAgent() as made:
        made.look()
        yield made


@pytest.fixture
def run(agent: PromisingAgent, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runs_beside(agent, capsys, monkeypatch)


def build(name: str, *more: str) -> tuple[str, ...]:
    words = ("--vcpus", "1", "--memory-mb", "64", "--instance", uuid_of(name), "--name", name)
    return ("claim", "build", "--claim-id", f"of-{name}", *words, *more)


def test_a_group_is_told_shown_and_kept_to(run: Run) -> None:
    a, b = uuid_of("a"), uuid_of("b")
    words = (
        "--policy",
        "anti-affinity",
        "--max-server-per-host",
        "1",
        "--generation",
        "3",
        "--member",
        a,
        "--member",
        b,
    )
    told = run("group", "set", "g1", *words)
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith("group g1\n  policy     anti-affinity, at most 1 on a host\n  generation 3\n")
    group = '{"id": "g1", "policy": "anti-affinity"}'
    assert run(*build("a", "--group", group)).code == 0
    shown = run("group", "show", "g1", "-f", "json").json
    assert (shown["policy"], shown["rules"], shown["seated"]) == ("anti-affinity", {"max_server_per_host": 1}, [a])
    assert f"{a}, has a seat here" in run("group", "show", "g1").line
    refused = run(*build("b", "--group", group), "-f", "json")
    assert (refused.code, refused.json["code"], refused.json["retry"]) == (1, "GroupAffinityViolation", "elsewhere")
    shown_refusal = run(*build("b", "--group", group)).out
    assert shown_refusal.startswith("Refused: Server group g1 allows 1 member on one host (policy anti-affinity); a")
    assert "what callers are told: Build of instance" in shown_refusal
    assert run("group", "show", "g1", "-f", "value", "-c", "id", "-c", "seated").out == f"g1\n{a}\n"


def test_a_list_takes_out_whom_a_lower_generation_named_and_says_who_stays_and_how_to_take_them_out(run: Run) -> None:
    a, b = uuid_of("a"), uuid_of("b")

    def told(*words: str) -> tuple[list[str], str]:
        """The members after that, and what is said of it."""
        done = run("group", "set", "g1", *words, "-f", "json")
        return [one["instance"] for one in done.json["members"]], done.err

    both, only_a = ("--member", a, "--member", b), ("--member", a)
    assert told(*both, "--generation", "2") == (sorted([a, b]), "")
    members, said = told(*only_a)
    assert (members, f"{b} stays a member of group g1: without a generation" in said) == (sorted([a, b]), True)
    assert "`--generation 3` takes out who is left out" in said
    assert told(*only_a, "--generation", "3") == ([a], "")
    members, said = told(*both, "--generation", "2")
    assert (members, said) == (
        [a],
        "agentctl: nothing has changed: what is known of group g1 is of generation 3, newer than 2\n",
    )
    members, said = told("--member", b, "--generation", "4")
    assert members == sorted([a, b])
    assert f"{a} stays a member of group g1: named without a generation, which no list takes back" in said


def test_a_group_that_nobody_told_of_and_one_that_is_told_wrongly_end_with_two(run: Run) -> None:
    unknown = run("group", "show", "nix")
    assert (unknown.code, "nix" in unknown.err) == (2, True)
    wrong = run("group", "set", "g1", "--member", "web")
    assert (wrong.code, "members[0]: no uuid" in wrong.err) == (2, True)


def test_maintenance_refuses_new_guests_with_its_reason_until_it_is_off(run: Run) -> None:
    assert run("maintenance", "show").out == "no maintenance: new guests are taken\n"
    on = run("maintenance", "on", "--reason", "new power supply")
    assert on.line.startswith("in maintenance since 20")
    assert on.line.endswith("new guests are refused: new power supply")
    refused = run(*build("a"))
    assert (refused.code, "new power supply" in refused.line) == (1, True)
    assert run("maintenance", "show", "-f", "json").json["maintenance"]["reason"] == "new power supply"
    assert run("maintenance", "off", "-f", "json").json == {"maintenance": None}
    assert run(*build("b")).code == 0
    assert run("maintenance", "on").code == 2


def test_an_instance_that_lives_elsewhere_now_is_forgotten_with_its_claims(agent: PromisingAgent, run: Run) -> None:
    agent.look(guest("a", {0: 2}, state="shut-off"))
    run(*build("b"))
    left = run("instance", "forget", uuid_of("a"), "--moved-to", "host-b")
    assert (left.code, left.err) == (0, "")
    assert left.line.startswith(f"instance {uuid_of('a')} has left, to host host-b at 20")
    told = run("instance", "forget", uuid_of("b"), "-f", "json")
    assert (told.json["instance"], told.json["moved_to"]) == (uuid_of("b"), None)
    assert run("claim", "list").out == "no claims\n"
    wrong = run("instance", "forget", "web")
    assert (wrong.code, "uuid: no uuid" in wrong.err) == (2, True)


def test_accepting_a_journal_that_is_whole_changes_nothing(run: Run) -> None:
    assert run("journal", "accept").line.startswith("nothing was damaged, so nothing has changed")
    assert run("journal", "accept", "-f", "json").json == {"accepted": True, "was_damaged": False}


def test_after_a_damaged_journal_guests_are_admitted_once_that_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(prefix="ca-", dir="/tmp") as folder:
        damage(Path(folder))
        with PromisingAgent(state=Path(folder)) as agent:
            agent.look()
            monkeypatch.setenv("COMPUTE_AGENT_SOCKET", str(agent.socket))
            assert main(build("a")) == 3
            assert "agentctl journal accept" in capsys.readouterr().err
            assert main(["journal", "accept"]) == 0
            assert capsys.readouterr().out == "the journal is taken as it is; guests are admitted again\n"
            assert main(build("a")) == 0


def damage(folder: Path) -> None:
    """A journal whose file holds no database any more."""
    lock = StateLock(folder)
    Store.open(folder, lock=lock).close()
    lock.release()
    (folder / FILE).write_bytes(b"\xff" * 8192)


# --- help ------------------------------------------------------------------------------------------

FAMILIES = sorted({name.partition(" ")[0] for name in COMMANDS if " " in name})


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("order", [("help", ""), ("", "--help")])
def test_the_first_word_of_two_lists_what_may_follow(run: Run, family: str, order: tuple[str, str]) -> None:
    done = run(*filter(None, (order[0], family, order[1])))
    listed = [line.strip() for line in done.out.splitlines()]
    assert done.code == 0
    assert [
        name for name in COMMANDS if name.startswith(f"{family} ") and not any(name in line for line in listed)
    ] == []
    assert max(map(len, done.out.splitlines())) <= 80


@pytest.mark.parametrize("name", [name for name in COMMANDS if " " in name])
def test_each_command_of_two_words_has_its_help(run: Run, name: str) -> None:
    done = run(*name.split(), "--help")
    assert (done.code, done.out.startswith(f"usage: agentctl {name} ")) == (0, True)
    assert "--sysfs-root" not in done.out
    changes = name not in {"claim list", "claim show", "group show", "maintenance show", "migration show"}
    assert ("/agent.sock" in done.line.replace("- ", "-")) is changes


# --- a liar ----------------------------------------------------------------------------------------

VIEW = ClaimView(
    claim_id="c1" + POISON,
    kind="build",
    role="owner",
    state="reserved",
    state_since=POISON,
    instance=Instance(uuid="u" + POISON, name="web" + POISON),
    move_id="m" + POISON,
    peer="h" + POISON,
    group="g" + POISON,
    made_at=POISON,
    deadline_at=POISON,
    reason=POISON,
)
GROUP = GroupInfo(
    id="g" + POISON,
    policy=None,
    rules=GroupRules(),
    generation=None,
    members=(MemberView(instance="u" + POISON, generation=None, seated=True),),
    seated=("u" + POISON,),
)
MOVE = MoveView(
    move_id="m" + POISON,
    kind="resize",
    instance="u" + POISON,
    source="c" + POISON,
    destination="d" + POISON,
    peer="h" + POISON,
    outcome=None,
    opened_at=POISON,
    finished_at=POISON,
)
ANSWER = ClaimAnswer(claim=VIEW, remarks=(POISON,), guarantee=POISON, ignored=(POISON,))
LIES: dict[str, object] = {
    "list_claims": ClaimList(claims=(VIEW,)),
    "get_group": GROUP,
    "set_group": GROUP,
    "get_maintenance": MaintenanceView(maintenance=Maintenance(reason=POISON, since=POISON)),
    "set_maintenance": MaintenanceView(maintenance=Maintenance(reason=POISON, since=POISON)),
    "forget_instance": DepartureView(instance="u" + POISON, at=POISON, moved_to=POISON),
    "offer_again": OfferedView(
        address=PciAddress.parse("3b:00.0"), instance="u" + POISON, name="web" + POISON, at=POISON
    ),
    "accept_journal": Accepted(was_damaged=True),
    "get_move": MOVE,
    "finish_move": MOVE,
}
ASKED = (
    ("claim", "list"), ("claim", "show", "c"), ("claim", "show", "c", "--domain-xml"), ("claim", "confirm", "c"),
    ("claim", "renew", "c"), ("claim", "abort", "c"), ("claim", "release", "c"), ("claim", "accept-observed", "c"),
    ("claim", "recheck", "c"), ("migration", "show", "m"), ("migration", "finish", "m", "--outcome", "failed"),
    ("migration", "hold", "m", "--kind", "resize", "--instance", uuid_of("a")),
    build("a"), ("group", "show", "g"), ("group", "set", "g"), ("maintenance", "show"), ("maintenance", "off"),
    ("instance", "forget", "u"), ("device", "offer-again", "3b:00.0"), ("journal", "accept"),
)  # fmt: skip
NO = Refusal(code="InstanceBusy" + POISON, message=POISON, retry="later", reasons=(POISON, POISON + "2"))


@pytest.fixture(params=[False, True], ids=["lies", "refusals"])
def liar(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A socket whose agent steers terminals, in answers or in refusals."""

    def answer(asked: ApiRequest) -> ApiResponse:
        found = TABLE.find(asked.method, tuple(asked.path.split("/")))
        if request.param or found is None:
            return respond(refused(IDENTITY, 1, NOW, NO), 409)
        return respond(success(IDENTITY, 1, NOW, LIES.get(found.route.call, ANSWER)))

    with tempfile.TemporaryDirectory(prefix="cli-", dir="/tmp") as folder:
        api = LocalApi(answer, refuse, Path(folder), table=TABLE)
        api.start()
        try:
            yield Path(folder, FULL_SOCKET)
        finally:
            api.stop()


@pytest.mark.parametrize("form", ["text", "table", "json", "yaml", "value", "csv"])
def test_no_command_lets_an_agent_steer_the_terminal(liar: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ASKED:
        if form == "csv" and command[1] != "list":
            continue
        code = main([*command, "-f", form, "--socket", str(liar)])
        out, err = capsys.readouterr()
        assert code in (0, 1, 2), (command, err)
        assert (unsafe(out), unsafe(err)) == ("", ""), command
        assert [line for line in (out + err).splitlines() if line.startswith("agentctl: forged")] == [], command
