"""The private libvirtd, `make run` and `make demo`: they must leave nothing behind, whatever ends them."""

import os
import pty
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
LIBVIRTD = CHECKOUT / "tests/lab/libvirtd"
GUEST = CHECKOUT / "tests/lab/guest"
RUN = CHECKOUT / "tests/lab/run"

needs_daemon = pytest.mark.skipif(
    not (CHECKOUT / ".venv/bin/compute-agent").exists(), reason="tests/lab/run starts .venv/bin/compute-agent: make run"
)


def lab(command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LIBVIRTD, command, directory], check=False, capture_output=True, text=True, timeout=60)


@pytest.fixture
def directory() -> Iterator[Path]:
    """A folder with a short path: those of UNIX sockets are limited."""
    with tempfile.TemporaryDirectory(prefix="lab-", dir="/tmp") as folder:
        yield Path(folder) / "a"
        for name in ("a", "b"):
            lab("down", Path(folder) / name)


def started_guest(directory: Path, name: str) -> int:
    """The process id of the guest's QEMU."""
    subprocess.run([GUEST, "start", directory, name], check=True, timeout=60)
    return int((directory / f"run/libvirt/qemu/{name}.pid").read_text())


def cgroups(pid: int) -> set[str]:
    return {line.split(":", 2)[2] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if "qemu-" in line}


def is_running(pid: int) -> bool:
    """A zombie does not count: it waits for the machine's init and holds nothing."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def comes_true(fact: Callable[[], bool], within_s: float = 20) -> bool:
    deadline = time.monotonic() + within_s
    while not fact() and time.monotonic() < deadline:
        time.sleep(0.05)
    return fact()


def test_down_ends_guests_that_libvirt_has_lost_too_and_removes_all_files(directory: Path) -> None:
    assert lab("up", directory).returncode == 0
    qemu = started_guest(directory, "one")
    groups = [Path(line) for line in (directory / "cgroups").read_text().splitlines()]
    lab("kill", directory)
    for file in (directory / "run/libvirt/qemu").glob("one.*"):
        file.unlink()
    assert lab("down", directory).returncode == 0
    assert not is_running(qemu)
    assert not directory.exists()
    assert [group for group in groups if group.exists()] == []
    assert lab("down", directory).returncode == 0, "twice is fine"


def test_guests_of_one_name_on_two_private_libvirtds_do_not_share_a_cgroup(directory: Path) -> None:
    other = directory.with_name("b")
    for each in (directory, other):
        assert lab("up", each).returncode == 0
    first, second = started_guest(directory, "same"), started_guest(other, "same")
    assert cgroups(first).isdisjoint(cgroups(second))
    lab("down", directory)
    assert is_running(second), "the end of one is none of the other's business"


def test_a_guest_outlives_a_killed_libvirtd_and_is_known_again_after_its_start(directory: Path) -> None:
    lab("up", directory)
    qemu = started_guest(directory, "one")
    for command in ("kill", "start"):
        assert lab(command, directory).returncode == 0
    uri = lab("ro-uri", directory).stdout.strip()
    assert subprocess.check_output(["virsh", "-q", "-c", uri, "list", "--name"], text=True).split() == ["one"]
    assert is_running(qemu)


def test_a_folder_whose_socket_path_would_be_too_long_is_refused_with_its_length() -> None:
    folder = Path("/tmp") / ("x" * 100)
    done = lab("up", folder)
    assert done.returncode == 1
    assert "is 133 characters long; the path of a UNIX socket may have 107" in done.stderr
    assert not folder.exists()


def test_a_folder_that_is_no_lab_is_never_deleted(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    done = lab("down", tmp_path)
    assert done.returncode == 1
    assert "is no folder of a private libvirtd" in done.stderr
    assert (tmp_path / "precious").exists()


class Terminal:
    """A command on a terminal of its own, as a person starts it."""

    def __init__(self, *command: str) -> None:
        self.output = ""
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.chdir(CHECKOUT)
            os.execvp(command[0], command)

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
        return code

    def _read(self, timeout_s: float) -> bool:
        """False when nobody has the terminal open any more."""
        if select.select([self._terminal], [], [], timeout_s)[0]:
            try:
                self.output += os.read(self._terminal, 65536).decode(errors="replace")
            except OSError:
                return False
        return True


def processes_of_the_demo() -> list[str]:
    """Command lines of daemons of this checkout's demo, and of processes on its private libvirtd."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        command = ""
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            inside = (process / "root/run/libvirt").samefile(CHECKOUT / ".state/demo-libvirt/run/libvirt")
        except OSError:
            inside = False
        if inside or f"--state-path {CHECKOUT}/.state/demo " in command:
            found.append(command)
    return found


@needs_daemon
def test_ctrl_c_ends_the_demo_cleanly_and_make_ends_with_zero() -> None:
    demo = Terminal("make", "demo", "YES=1")
    demo.read_until("INFO agent.service started")
    assert processes_of_the_demo() != []
    demo.press_ctrl_c()
    assert demo.exit_code() == 0, demo.output
    assert "cpu-pinned-twice" in demo.output
    assert processes_of_the_demo() == []
    assert not (CHECKOUT / ".state/demo-libvirt").exists()


@needs_daemon
def test_a_second_demo_of_the_checkout_is_refused_and_does_not_touch_the_first() -> None:
    first = Terminal(str(RUN), "--demo")
    first.read_until("INFO agent.service started")
    second = Terminal(str(RUN), "--demo")
    assert second.exit_code() == 1
    assert "is running already in this checkout" in second.output
    assert processes_of_the_demo() != []
    first.press_ctrl_c()
    assert first.exit_code() == 0


@needs_daemon
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_demo_takes_its_guests_and_its_libvirtd_with_it(number: signal.Signals) -> None:
    demo = Terminal(str(RUN), "--demo")
    demo.read_until("INFO agent.service started")
    os.kill(demo.pid, number)
    demo.exit_code()
    assert comes_true(lambda: processes_of_the_demo() == [])
    assert comes_true(lambda: not (CHECKOUT / ".state/demo-libvirt").exists())
