"""`make run` and `make demo`, as a person starts them: what they show, and that they leave nothing behind."""

from __future__ import annotations

import itertools
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.client import LocalClient
from agent.core.report import Report
from agent.render.welcome import NEXT
from tests.functional.lab import Guest, Libvirtd, wait_until
from tests.functional.test_readme_claim import blocks_of_readme

CHECKOUT = Path(__file__).resolve().parents[2]
RUN = CHECKOUT / "tests/lab/run"
STARTED = " started agent_id="
ENOUGH_S = 10
"""For a run that ends by itself: five times as long as the daemon's start may take."""

needs_venv = pytest.mark.skipif(
    not (CHECKOUT / ".venv/bin/compute-agent").exists(), reason="make would have to build .venv first: make test"
)

WITH_SYSTEMD = (
    "No libvirtd is running on this host: nothing answers on /run/libvirt/libvirt-sock-ro. "
    "Start it: systemctl start libvirtd (with modular daemons: systemctl start virtqemud.socket)"
)
WITHOUT_ROOT = "No libvirtd is running on this host, and only root can start a private one. Use: sudo make run"

NO_LIBVIRTD = ["unshare", "--mount", "sh", "-ec", 'mount -t tmpfs -o mode=755 none /run; exec "$@"', "sh"]
"""Words before a command, for which this is a machine without systemd where no libvirtd runs."""


SYSTEM_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"


def with_libvirtd(libvirtd: Libvirtd) -> list[str]:
    """Words before a command, for which this libvirtd is the machine's own."""
    return [*NO_LIBVIRTD[:4], 'mount --bind "$1" /run/libvirt; shift; exec "$@"', "sh", f"{libvirtd.dir}/run/libvirt"]


def sh(text: str, folder: str | Path = "/") -> subprocess.CompletedProcess[str]:
    """What a person gets who pastes these lines."""
    return subprocess.run(["sh", "-c", text], check=False, capture_output=True, text=True, timeout=60, cwd=folder)


def exports(output: str) -> str:
    """The lines to paste before any other."""
    lines = [line.strip() for line in output.replace("\r", "").partition(f"{NEXT} ")[2].splitlines()]
    return "".join(f"{line}\n" for line in lines if line.startswith("export "))


class Checkout:
    """One state folder, and commands that run on it."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.terminals: list[Terminal] = []

    def run(self, *command: str, **environ: str) -> Terminal:
        """Start a command on a terminal; but for make, the daemon is run by the Python that runs these tests."""
        python = {} if "make" in command else {"LAB_PYTHON": sys.executable}
        self.terminals.append(Terminal({**os.environ, **python, **environ, "LAB_STATE": str(self.state)}, *command))
        return self.terminals[-1]

    def processes(self) -> list[str]:
        """Command lines of daemons on this state, and of processes on its private libvirtd."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            command, inside = "", False
            try:
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                for folder in self.state.glob("*libvirt/run/libvirt"):
                    inside |= (process / "root/run/libvirt").samefile(folder)
            except OSError:
                pass
            if inside or f"--state-path {self.state}/" in command:
                found.append(command)
        return found

    def leftovers(self) -> set[str]:
        """Names of what is left in the state folder, without what is kept for the next run."""
        return {path.name for path in self.state.iterdir()} - {"demo.conf", "demo.lock", "run.lock", "agent", "demo"}

    def ends(self) -> None:
        """Wait until nothing runs and no libvirtd's folder is left."""
        wait_until(lambda: self.processes() == [], "all processes to end")
        wait_until(lambda: not list(self.state.glob("*libvirt")), "the private libvirtd to be removed")


class Terminal:
    """A command on a terminal of its own, as a person starts it."""

    def __init__(self, environ: dict[str, str], *command: str) -> None:
        self.output = ""
        self.has_ended = False
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.chdir(CHECKOUT)
            os.execvpe(command[0], command, environ)

    def press_ctrl_c(self) -> None:
        os.write(self._terminal, b"\x03")

    def read_until(self, text: str, within_s: float = 60) -> None:
        deadline = time.monotonic() + within_s
        while text not in self.output:
            assert time.monotonic() < deadline, f"{text!r} did not come: {self.output}"
            self._read(0.2)

    def exit_code(self) -> int:
        while self._read(0.2):
            pass
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._terminal)
        self.has_ended = True
        return code

    def _read(self, timeout_s: float) -> bool:
        """False when nobody has the terminal open any more."""
        if select.select([self._terminal], [], [], timeout_s)[0]:
            try:
                self.output += os.read(self._terminal, 65536).decode(errors="replace")
            except OSError:
                return False
        return True


@pytest.fixture
def checkout() -> Iterator[Checkout]:
    """With a short path: those of UNIX sockets are limited."""
    with tempfile.TemporaryDirectory(prefix="run-", dir="/tmp") as folder:
        made = Checkout(Path(folder))
        yield made
        for terminal in made.terminals:
            if not terminal.has_ended:
                os.kill(terminal.pid, signal.SIGTERM)
                terminal.exit_code()
        made.ends()


# --- make run ------------------------------------------------------------------------------------


def test_run_shows_this_hosts_guests_and_their_conflict_and_ends_when_its_time_is_over(
    checkout: Checkout, libvirtd: Libvirtd, guest: Callable[..., Guest]
) -> None:
    guests = [guest(name, pin={0: "0"}) for name in ("first", "second")]
    run = checkout.run(*with_libvirtd(libvirtd), str(RUN), RUN_SECONDS=str(ENOUGH_S))
    run.read_until(STARTED)
    assert "cpu-pinned-twice" in run.output
    assert f"{checkout.state}/agent-run/agent-ro.sock" in run.output
    report = LocalClient(checkout.state / "agent-run/agent-ro.sock").value("/v1/report", Report)
    assert sorted(one.sighting.name for one in report.guests) == ["first", "second"]
    assert run.exit_code() == 0, run.output
    assert f"{ENOUGH_S} s are over" in run.output
    checkout.ends()
    assert libvirtd.virsh("list", "--name").split() == ["first", "second"], "they are none of its business"
    assert [libvirtd.pid_of(one.name) for one in guests] == [one.pid for one in guests]


def test_run_starts_a_libvirtd_of_its_own_where_none_runs_and_removes_it_at_ctrl_c(checkout: Checkout) -> None:
    run = checkout.run(*NO_LIBVIRTD, str(RUN))
    run.read_until(STARTED)
    assert any("libvirtd" in command for command in checkout.processes())
    report = LocalClient(checkout.state / "agent-run/agent-ro.sock").value("/v1/report", Report)
    assert (report.guests, report.health.status, report.health.ready) == ((), "ok", True)
    run.press_ctrl_c()
    assert run.exit_code() == 0, run.output
    checkout.ends()
    assert checkout.leftovers() == {"agent-run"}


@needs_venv
def test_the_lines_that_run_prints_are_all_that_the_readmes_promise_needs(checkout: Checkout, tmp_path: Path) -> None:
    run = checkout.run(*NO_LIBVIRTD, "make", "run", "YES=1", PATH=SYSTEM_PATH)
    run.read_until(STARTED)
    lines = exports(run.output)
    variables = [line.partition("=")[0].removeprefix("export ") for line in lines.splitlines()]
    assert variables == ["PATH", "COMPUTE_AGENT_SOCKET", "LIBVIRT_DEFAULT_URI"]
    build, definition, start, end = blocks_of_readme()
    for block in (build, definition, start):
        done = sh(f"set -e\n{lines}{block}", tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), done
    state = f"{lines}agentctl claim show web-1 -f value -c state"
    wait_until(lambda: sh(state).stdout == "resident\n", "the claim to be resident", 60)
    done = sh(f"set -e\n{lines}{end}", tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done
    run.press_ctrl_c()
    assert run.exit_code() == 0, run.output


@needs_venv
def test_make_run_ends_by_itself_and_with_zero(checkout: Checkout) -> None:
    run = checkout.run(*NO_LIBVIRTD, "make", "run", "YES=1", RUN_SECONDS=str(ENOUGH_S))
    run.read_until(STARTED)
    assert run.exit_code() == 0, run.output
    checkout.ends()


@pytest.mark.parametrize(
    ("machine", "sentence"),
    [
        ("mkdir -p /run/systemd/system; exec", WITH_SYSTEMD),
        ("exec setpriv --reuid=65534 --regid=65534 --clear-groups", WITHOUT_ROOT),
    ],
)
def test_run_says_what_to_do_where_it_may_not_start_a_libvirtd_and_changes_nothing(
    machine: str, sentence: str, checkout: Checkout
) -> None:
    script = checkout.state / "tests/lab/run"  # where nobody may read it, whatever folder the checkout is in
    script.parent.mkdir(parents=True)
    shutil.copy(RUN, script)
    checkout.state.chmod(0o755)
    command = [*NO_LIBVIRTD[:4], f'mount -t tmpfs -o mode=755 none /run; {machine} "$@"', "sh", str(script)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (1, "", sentence)
    assert [path.name for path in checkout.state.iterdir()] == ["tests"]


# --- make demo -----------------------------------------------------------------------------------


@needs_venv
def test_ctrl_c_ends_make_demo_cleanly_and_with_zero(checkout: Checkout) -> None:
    demo = checkout.run("make", "demo", "YES=1")
    demo.read_until(STARTED)
    assert checkout.processes() != []
    demo.press_ctrl_c()
    assert demo.exit_code() == 0, demo.output
    assert "cpu-pinned-twice" in demo.output
    checkout.ends()


@needs_venv
def test_each_line_that_the_demo_says_to_type_next_works_as_it_stands_while_it_runs(checkout: Checkout) -> None:
    demo = checkout.run("make", "demo", "YES=1")
    demo.read_until(STARTED)
    said = demo.output.replace("\r", "").partition(f"{NEXT} ")[2].splitlines()[1:]
    lines = [line.strip() for line in itertools.takewhile(lambda line: line.startswith("  "), said)]
    typed = {line: sh("\n".join(one for one in lines if one.startswith("export ")) + f"\n{line}") for line in lines}
    (check,) = [line for line in lines if " check " in line]
    (curl,) = [line for line in lines if line.startswith("curl ")]
    assert f" --config-file {checkout.state}/demo.conf" in check
    assert " --connect " in check
    assert typed[check].returncode == 1, typed[check]
    assert "instance-0000002a" in typed[check].stdout
    assert "emulator-on-dedicated" in typed[check].stdout, "the configuration of the demo has CPU sets"
    assert "cpu-pinned-twice" in typed[curl].stdout
    assert {line: done for line, done in typed.items() if done.returncode not in (0, 1) or done.stderr} == {}
    demo.press_ctrl_c()
    assert demo.exit_code() == 0, demo.output


def test_a_second_demo_of_the_checkout_is_refused_and_does_not_touch_the_first(checkout: Checkout) -> None:
    first = checkout.run(str(RUN), "--demo")
    first.read_until(STARTED)
    second = checkout.run(str(RUN), "--demo")
    assert second.exit_code() == 1
    assert "is running already in this checkout" in second.output
    assert checkout.processes() != []
    first.press_ctrl_c()
    assert first.exit_code() == 0
    checkout.ends()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_demo_takes_its_guests_and_its_libvirtd_with_it(number: signal.Signals, checkout: Checkout) -> None:
    demo = checkout.run(str(RUN), "--demo")
    demo.read_until(STARTED)
    os.kill(demo.pid, number)
    demo.exit_code()
    checkout.ends()
