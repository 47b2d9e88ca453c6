"""agentctl as a process of its own: what it imports, how it ends, what a terminal gets."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from agent.cli.app import COMMANDS
from agent.cli.main import main
from agent.cli.summary import SUMMARY
from tests.cli_reports import contended, served

COMMAND = (sys.executable, "-m", "agent.cli.main")
TOP = Path(__file__).parents[2]
TIMEOUT_S = 60


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS"}}
    return {**kept, "PYTHONPATH": str(TOP), **more}


def agentctl(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], check=False, capture_output=True, text=True, timeout=TIMEOUT_S, env=env or environment()
    )


@contextlib.contextmanager
def listener(answer: bytes | None) -> Iterator[Path]:
    """A UNIX socket of somebody else: takes one connection and says `answer`; None: nothing, and stays."""
    with tempfile.TemporaryDirectory(prefix="cli-", dir="/tmp") as folder:
        path = Path(folder, "s")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            server.listen()
            done = threading.Event()

            def serve() -> None:
                peer, _ = server.accept()
                with peer:
                    peer.recv(4096)
                    if answer is None:
                        done.wait(TIMEOUT_S)
                    else:
                        peer.sendall(answer)

            thread = threading.Thread(target=serve)
            thread.start()
            try:
                yield path
            finally:
                done.set()
                thread.join()


def test_alone_it_prints_ten_lines_of_help_and_no_shell() -> None:
    done = agentctl()
    assert (done.returncode, done.stdout, done.stderr) == (0, SUMMARY, "")
    assert len(SUMMARY.splitlines()) == 10
    assert max(len(line) for line in SUMMARY.splitlines()) <= 80


def test_the_whole_help_has_the_table_of_exit_codes() -> None:
    text = agentctl("--help").stdout
    assert "exit codes, the same for all commands:" in text
    assert "the agent refuses (claim, migration, group," in text
    assert all(f"\n  {code} " in text for code in ("0", "1", "2", "3", "130"))


def test_a_commands_help_names_its_own_options_and_where_to_look() -> None:
    text = agentctl("check", "--help").stdout
    assert text.startswith("usage: agentctl check ")
    assert all(word in text for word in ("--one-line", "prometheus", "--sysfs-root", "--connect", "node_exporter"))


@pytest.mark.parametrize("name", [(), *(tuple(name.split()) for name in COMMANDS)])
def test_every_help_has_room_on_a_terminal_of_eighty_columns(
    name: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*name, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: agentctl ")
    assert [line for line in text.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize(
    ("command", "offered"),
    [
        ("status", {"--socket"}),
        ("check", {"--sysfs-root", "--connect", "--config-file"}),
        ("usage", {"--socket", "--direct", "--sysfs-root", "--connect", "--config-file"}),
    ],
)
def test_a_commands_help_offers_only_places_where_it_can_look(command: str, offered: set[str]) -> None:
    text = agentctl(command, "--help").stdout
    places = {"--socket", "--direct", "--sysfs-root", "--connect", "--config-file"}
    assert {word for word in places if f"\n  {word} " in text} == offered


def loaded_by(*arguments: str) -> set[str]:
    """Packages that a command has imported by its end."""
    probe = (
        "import sys; from agent.cli.main import main; main(sys.argv[1:]);"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, *arguments],
        check=True, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment(),
    )  # fmt: skip
    return set(done.stderr.splitlines()[-1].split())


def test_what_a_question_to_the_daemon_does_not_need_is_not_imported() -> None:
    with served(contended()) as path:
        loaded = loaded_by("status", "--socket", str(path))
    assert "agent" in loaded
    assert "cliff" in loaded
    assert not loaded & {
        "rich",
        "oslo_config",
        "oslo_messaging",
        "libvirt",
        "prometheus_client",
        "psutil",
        "pyudev",
        "prettytable",
        "yaml",
        "cmd2",
    }


@pytest.mark.parametrize("uri", ["test:///default", "qemu:///system?socket=/nonexistent"], ids=["seen", "not seen"])
def test_only_the_exposition_format_costs_its_library(uri: str) -> None:
    loaded = {form: loaded_by("check", "-f", form, "--connect", uri) for form in ("json", "prometheus")}
    assert {form for form, packages in loaded.items() if "prometheus_client" in packages} == {"prometheus"}


def test_no_plugin_registry_is_written_below_home(tmp_path: Path) -> None:
    with served(contended()) as path:
        done = agentctl("conflicts", "-f", "table", "--socket", str(path), env=environment(HOME=str(tmp_path)))
    assert done.returncode == 1
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_goes_away_is_no_reason_to_complain() -> None:
    with served(contended()) as path:
        command = f"{sys.executable} -m agent.cli.main topology -f json --socket {path}; echo $? >&2"
        done = subprocess.run(
            ["sh", "-c", f"( {command} ) | true"],
            check=True, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment(PYTHONUNBUFFERED="1"),
        )  # fmt: skip
    assert done.stderr == "141\n"


def test_a_full_disk_is_told_in_one_line() -> None:
    with served(contended()) as path, Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "conflicts", "--socket", str(path)],
            check=False, stdout=full, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S, env=environment(),
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (3, "agentctl: the output could not be written: No space left on device\n")


def test_closed_output_is_no_fault() -> None:
    with served(contended()) as path:
        command = f"{sys.executable} -m agent.cli.main conflicts --socket {path} >&-"
        done = subprocess.run(
            ["sh", "-c", command], check=False, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment()
        )
    assert (done.returncode, done.stderr) == (1, "")


def test_the_completion_is_a_script_that_bash_takes() -> None:
    script = agentctl("complete").stdout
    assert "cmds_check=" in script
    assert subprocess.run(["bash", "-n"], input=script, check=False, text=True, timeout=TIMEOUT_S).returncode == 0


def test_ctrl_c_ends_it_with_130_and_no_traceback() -> None:
    with listener(None) as path:
        process = subprocess.Popen(
            [*COMMAND, "conflicts", "--socket", str(path)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
        )  # fmt: skip
        _wait_until_it_reads(process.pid)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out, err) == (130, "", "")


def _wait_until_it_reads(pid: int) -> None:
    """The process has connected: it holds a socket and sleeps in a system call."""
    for _ in range(TIMEOUT_S * 50):
        fds = Path(f"/proc/{pid}/fd")
        links = [os.readlink(fd) for fd in fds.iterdir() if fd.is_symlink()]  # noqa: PTH115
        if any(link.startswith("socket:") for link in links) and _state(pid) == "S":
            return
        threading.Event().wait(0.02)
    raise AssertionError(f"process {pid} never connected")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def on_terminal(arguments: Sequence[str], env: Mapping[str, str]) -> str:
    """What the command writes when all that it writes to is a terminal."""
    leader, follower = pty.openpty()
    process = subprocess.Popen([*COMMAND, *arguments], stdout=follower, stderr=follower, stdin=follower, env=env)
    os.close(follower)
    parts = []
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # Linux says EIO when the last writer has closed
            break
        if not part:
            break
        parts.append(part)
    process.wait(TIMEOUT_S)
    os.close(leader)
    return b"".join(parts).decode().replace("\r\n", "\n")


def test_colours_are_for_terminals_that_want_them() -> None:
    with served(contended()) as path:
        command = ["conflicts", "--socket", str(path)]
        colourful = on_terminal(command, environment(TERM="xterm"))
        plain = on_terminal(command, environment(TERM="xterm", NO_COLOR="1"))
        dumb = on_terminal(command, environment(TERM="dumb"))
        piped = agentctl(*command, env=environment(TERM="xterm")).stdout
    assert colourful.startswith("\x1b[31mERROR\x1b[0m  CPU 2: pinned twice\n")
    assert plain == dumb == piped == re.sub(r"\x1b\[[0-9;]*m", "", colourful)


def test_the_width_of_the_terminal_is_used() -> None:
    with served(contended()) as path:
        wide = agentctl("conflicts", "--socket", str(path), env=environment(COLUMNS="200")).stdout
        narrow = agentctl("conflicts", "--socket", str(path)).stdout
    assert max(len(line) for line in narrow.splitlines()) <= 80 < max(len(line) for line in wide.splitlines())


def test_a_complaint_is_broken_between_words_on_a_terminal_and_on_one_line_for_whoever_keeps_it(tmp_path: Path) -> None:
    longer_than_a_line = tmp_path / ("long" * 10) / "agent.sock"
    command = ["claim", "list", "--socket", str(longer_than_a_line)]
    shown, kept = on_terminal(command, environment(COLUMNS="60")), agentctl(*command).stderr
    assert len(kept.splitlines()) == 1 < len(shown.splitlines())
    assert " ".join(shown.split()) == " ".join(kept.split())
    assert max(len(line) for line in shown.splitlines() if str(tmp_path) not in line) <= 60


def test_a_name_that_the_locale_cannot_write_is_escaped() -> None:
    with served(contended()) as path:
        env = environment(PYTHONIOENCODING="ascii", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
        done = agentctl("show", "gäst", "--socket", str(path), env=env)
    assert done.returncode == 2
    assert done.stderr.startswith("agentctl: there is no guest 'g")


def refusal(*arguments: str, env: Mapping[str, str] | None = None) -> str:
    """The one-line reason of a command that could not look."""
    done = agentctl(*arguments, env=env)
    assert (done.returncode, done.stdout) == (3, ""), done
    assert all(line.startswith("agentctl: ") for line in done.stderr.splitlines()), done.stderr
    return done.stderr


def test_an_agent_that_was_named_and_is_not_there_is_not_replaced_by_a_look(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone.sock")
    for text in (refusal("usage", "--socket", gone), refusal("usage", env=environment(COMPUTE_AGENT_SOCKET=gone))):
        assert f"there is no socket {gone}" in text
        assert "systemctl start compute-agent" in text


def test_a_socket_that_a_dead_agent_left_has_a_sentence_of_its_own() -> None:
    with tempfile.TemporaryDirectory(prefix="cli-", dir="/tmp") as folder:
        path = Path(folder, "dead.sock")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
        assert f"nobody listens at {path}" in refusal("conflicts", "--socket", str(path))


def test_a_foreign_socket_has_a_sentence_of_its_own() -> None:
    with listener(b'HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{"hello": 1}\n') as path:
        assert f"What answers at {path} is no compute-agent" in refusal("conflicts", "--socket", str(path))


def test_status_says_what_to_do_without_an_agent(tmp_path: Path) -> None:
    text = refusal("status", "--socket", str(tmp_path / "gone.sock"))
    assert "systemctl start compute-agent" in text
    assert "status needs it; `agentctl check` looks at the host without." in text


def test_a_libvirt_that_is_not_there_is_told_with_its_socket(tmp_path: Path) -> None:
    gone = tmp_path / "libvirt-sock-ro"
    text = refusal("domains", "--direct", "--connect", f"qemu:///system?socket={gone}")
    assert str(gone) in text


def test_a_monitor_hears_on_standard_output_that_nothing_could_be_seen(tmp_path: Path) -> None:
    uri = f"qemu:///system?socket={tmp_path}/gone"
    line = agentctl("check", "--one-line", "--connect", uri)
    assert line.returncode == 3
    assert re.fullmatch(r"COMPUTE-AGENT UNKNOWN - [^|\n]*gone[^|\n]*\n", line.stdout)
    assert line.stderr == ""
    metrics = agentctl("check", "-f", "prometheus", "--connect", uri)
    assert metrics.returncode == 3
    assert metrics.stdout.endswith("\ncompute_agent_look_success 0.0\n")


def test_nagios_hears_unknown_rather_than_critical_of_a_typing_error() -> None:
    done = agentctl("check", "--one-line", "--nonsense")
    assert done.returncode == 3
    assert "unrecognized arguments: --nonsense" in done.stderr


def test_a_folder_without_sys_is_told(tmp_path: Path) -> None:
    assert f"--sysfs-root {tmp_path}: it has no folder sys" in refusal("topology", "--sysfs-root", str(tmp_path))


def test_without_an_agent_it_looks_itself_and_says_so(tmp_path: Path) -> None:
    uri = f"qemu:///system?socket={tmp_path}/gone"
    default = Path("/run/compute-agent/agent-ro.sock")
    if default.exists():
        pytest.skip(f"an agent runs on this machine ({default}), so agentctl asks it")
    text = refusal("usage", "--connect", uri)
    said = f"agentctl: no compute-agent answers at {default}: looking at the host directly"
    assert text.startswith(f"{said}, 'since' is not known\n")
    for command in (("fit", "--vcpus", "1", "--memory-mb", "1"), ("snapshot",)):
        text = refusal(*command, "--connect", uri)
        assert text.startswith(f"{said}\n")
        assert text.count("no compute-agent") == 1


def test_a_fault_is_one_line_and_debug_shows_where(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "agent.conf"
    config.write_text("[tracker]\ninterval = soon\n")
    (tmp_path / "sys").mkdir()
    arguments = ["usage", "--sysfs-root", str(tmp_path), "--config-file", str(config)]
    assert main(arguments) == 3
    out, err = capsys.readouterr()
    assert (out, "Traceback" in err) == ("", False)
    assert "interval" in err
    assert main(["--debug", *arguments]) == 3
    assert "Traceback" in capsys.readouterr().err


def test_a_wrong_configuration_is_two_for_the_daemon_and_three_for_agentctl_as_their_helps_and_the_manual_say(
    tmp_path: Path,
) -> None:
    config = tmp_path / "agent.conf"
    config.write_text("[conflicts]\naccept = cpu-pinned-twice:cpu:1\n")
    daemon = (sys.executable, "-m", "agent.service")
    checks = {
        "daemon": [*daemon, "--check-config", "--config-file", str(config)],
        "agentctl": [*COMMAND, "check", "--config-file", str(config)],
        "monitor": [*COMMAND, "check", "--one-line", "--config-file", str(config)],
    }
    helps = {"daemon": [*daemon, "--help"], "agentctl": [*COMMAND, "--help"], "check": [*COMMAND, "check", "--help"]}

    def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment()
        )

    done = {name: run(command) for name, command in checks.items()}
    assert {name: one.returncode for name, one in done.items()} == {"daemon": 2, "agentctl": 3, "monitor": 3}
    assert all('"cpu:1" names what is contended' in one.stdout + one.stderr for one in done.values())
    said = {name: " ".join(run(command).stdout.split()) for name, command in helps.items()}
    assert "2 the configuration or an argument is wrong" in said["daemon"]
    assert "3 could not look: no libvirt, no permission, no agent, a wrong configuration" in said["agentctl"]
    assert "3 cannot see, or a wrong configuration" in said["check"]
    rows = re.findall(r"^\| `(.*?)` \|(.*)$", (TOP / "docs/operations.md").read_text(), re.MULTILINE)
    codes = [(name, n) for name, cells in rows for n, cell in enumerate(cells.split("|")) if "**configur" in cell]
    assert codes == [
        ("compute-agent", 2), ("compute-agent --check-config", 2), ("agentctl", 3), ("agentctl check --one-line", 3),
    ]  # fmt: skip
