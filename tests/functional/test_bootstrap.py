"""What a make goal does about packages that are missing: it names them, asks, or installs, and else changes nothing.

The machine must have what `make test` installs. Programs of the machine are replaced in PATH alone: an `id` that says
who one is, a `pkg-config` that does not find libvirt's header until an `apt-get`, which writes down what it is asked
for, has "installed" it.
"""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
FILES = (".ci/bootstrap", "Makefile", "setup.cfg", "pyproject.toml", "constraints.txt", "tests/lab/run")

PROGRAMS = {
    "id": 'if [ "$*" = -u ]; then echo "$FAKE_UID"; else exec /usr/bin/id "$@"; fi',
    "pkg-config": '[ -e "$FAKES/installed" ]',
    "apt-get": """
        echo "$*" >> "$FAKES/asked"
        case $* in
            *update*) exit "$UPDATE_EXIT" ;;
            *install*) echo "E: no room on the disk"; if [ "$INSTALL_EXIT" = 0 ]; then touch "$FAKES/installed"; fi
                exit "$INSTALL_EXIT" ;;
        esac""",
}

INSTALL = "apt-get install --no-install-recommends libvirt-dev"
ASKED = ["-qq update", "-qq install -y --no-install-recommends libvirt-dev"]


class Machine:
    """A checkout of its own, and a PATH that begins with the fakes."""

    def __init__(self, folder: Path) -> None:
        self.checkout, self.fakes = folder / "checkout", folder / "fakes"
        for name in FILES:
            (self.checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, self.checkout / name)
        self.fakes.mkdir()
        for name, script in PROGRAMS.items():
            (self.fakes / name).write_text(f"#!/bin/sh\n{script}\n")
            (self.fakes / name).chmod(0o755)
        self.environ = {name: value for name, value in os.environ.items() if name not in {"YES", "CI", "PYTHON"}}
        self.environ |= {"FAKES": str(self.fakes), "PATH": f"{self.fakes}:{os.environ['PATH']}"}
        self.environ |= {"FAKE_UID": "0", "UPDATE_EXIT": "0", "INSTALL_EXIT": "0"}
        self.before = self.files()

    def files(self) -> dict[str, bytes]:
        """Everything in the checkout."""
        paths = (path for path in self.checkout.rglob("*") if path.is_file())
        return {str(path.relative_to(self.checkout)): path.read_bytes() for path in paths}

    @property
    def asked(self) -> list[str]:
        """What apt-get was asked for, call by call."""
        file = self.fakes / "asked"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def is_untouched(self) -> bool:
        return self.asked == [] and self.files() == self.before

    def install(self) -> None:
        """As if the package had always been there."""
        (self.fakes / "installed").touch()

    def bootstrap(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run the script with nobody at the other end of its input."""
        return subprocess.run(
            [self.checkout / ".ci/bootstrap", *words],
            env=self.environ | environ,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def bootstrap_with_somebody(self, answer: str) -> tuple[int, str]:
        """The exit code and what stands on the terminal of somebody who types this answer."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(self.checkout / ".ci/bootstrap", ["bootstrap", "packages", "test"], self.environ)
        os.write(terminal, f"{answer}\n".encode())
        shown = b""
        try:
            while data := os.read(terminal, 65536):
                shown += data
        except OSError:
            pass  # the other side is closed
        os.close(terminal)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# --- nothing is missing --------------------------------------------------------------------------


@pytest.mark.parametrize("goal", ["run", "demo", "test", "build"])
def test_nothing_missing_asks_nothing_and_says_nothing(goal: str, machine: Machine) -> None:
    machine.install()
    done = machine.bootstrap("packages", goal)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert machine.is_untouched


@pytest.mark.parametrize("goal", ["demo", "test"])
def test_a_private_libvirtd_needs_root_also_where_nothing_is_missing(goal: str, machine: Machine) -> None:
    machine.install()
    done = machine.bootstrap("packages", goal, FAKE_UID="1000")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"`make {goal}` starts a private libvirtd, and only root can do that. Nothing was changed. "
        f"Use: sudo make {goal}\n"
    )
    assert machine.is_untouched


def test_lint_and_types_need_no_root_where_nothing_is_missing(machine: Machine) -> None:
    machine.install()
    done = machine.bootstrap("packages", "build", "lint", FAKE_UID="1000")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --- without root --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "name"), [(("run",), "run"), (("demo",), "demo"), (("test",), "test"), (("build", "lint"), "lint")]
)
@pytest.mark.parametrize("yes", ["", "1"])
def test_without_root_both_ways_to_go_on_are_named_and_nothing_is_changed(
    words: tuple[str, ...], name: str, yes: str, machine: Machine
) -> None:
    done = machine.bootstrap("packages", *words, FAKE_UID="1000", YES=yes)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        f"`make {name}` needs packages that this machine lacks, and you are not root. Nothing was changed. Either",
        f"    sudo {INSTALL}",
        f"and `make {name}` again, or all at once:",
        f"    sudo make {name}",
    ]
    assert machine.is_untouched


def test_make_stops_there(machine: Machine) -> None:
    done = subprocess.run(
        ["make", "-C", machine.checkout, "demo"],
        env=machine.environ | {"FAKE_UID": "1000"},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "    sudo make demo\n" in done.stderr
    assert machine.is_untouched


# --- beside an existing libvirt ------------------------------------------------------------------


def test_beside_an_existing_libvirt_nobody_at_a_terminal_is_told_the_apt_line_and_asked_nothing(
    machine: Machine,
) -> None:
    done = machine.bootstrap("packages", "run")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        "This machine already has libvirt or QEMU. For `make run` these packages would be added:",
        f"    {INSTALL}",
        "Nobody is there to ask. Install them, or say `make run YES=1`. Nothing was changed.",
    ]
    assert machine.is_untouched


@pytest.mark.parametrize("answer", ["", "n", "what?"])
def test_somebody_who_does_not_say_yes_gets_nothing_installed(answer: str, machine: Machine) -> None:
    code, shown = machine.bootstrap_with_somebody(answer)
    assert code == 1
    assert f"    {INSTALL}" in shown
    assert "Install them now? [y/N]" in shown
    assert "Nothing was changed." in shown
    assert machine.is_untouched


@pytest.mark.parametrize("answer", ["y", "Yes"])
def test_somebody_who_says_yes_gets_them_installed(answer: str, machine: Machine) -> None:
    code, shown = machine.bootstrap_with_somebody(answer)
    assert (code, machine.asked) == (0, ASKED)
    assert "installing: libvirt-dev" in shown


@pytest.mark.parametrize("consent", ["YES", "CI"])
def test_yes_and_ci_install_without_a_question(consent: str, machine: Machine) -> None:
    done = machine.bootstrap("packages", "test", **{consent: "1"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "installing: libvirt-dev\n")
    assert machine.asked == ASKED
    assert machine.files() == machine.before | {".state/installed": b"libvirt-dev\n"}
    assert machine.bootstrap("packages", "test").returncode == 0
    assert machine.asked == ASKED, "the second run finds all there"


def test_where_an_earlier_run_has_installed_libvirt_nobody_is_asked(machine: Machine) -> None:
    state = machine.checkout / ".state/installed"
    state.parent.mkdir()
    state.write_text("libvirt-daemon-system\n")
    assert machine.bootstrap("packages", "test").returncode == 0
    assert machine.asked == ASKED
    assert state.read_text() == "libvirt-daemon-system\nlibvirt-dev\n"


# --- what can go wrong ---------------------------------------------------------------------------


def test_package_lists_that_cannot_be_updated_are_told_and_used_as_they_are(machine: Machine) -> None:
    done = machine.bootstrap("packages", "test", YES="1", UPDATE_EXIT="100")
    assert done.returncode == 0
    assert "apt-get update failed; going on with the package lists that are here\n" in done.stderr
    assert machine.asked == ASKED


def test_an_installation_that_fails_shows_what_apt_said(machine: Machine, tmp_path: Path) -> None:
    done = machine.bootstrap("packages", "test", YES="1", INSTALL_EXIT="100", TMPDIR=str(tmp_path))
    assert done.returncode == 1
    said, told = done.stderr.splitlines()[-2:]
    assert said == "E: no room on the disk"
    assert told.startswith(f"apt-get could not install: libvirt-dev. All that it said is in {tmp_path}/")
    assert machine.files() == machine.before


def test_a_package_that_is_still_missing_after_its_installation_is_an_error(machine: Machine) -> None:
    (machine.fakes / "apt-get").write_text("#!/bin/sh\n")
    done = machine.bootstrap("packages", "test", YES="1")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "installed, and yet still missing: libvirt-dev. Is another program of that name in PATH?"
    )


def test_without_apt_get_the_missing_packages_are_named(machine: Machine, tmp_path: Path) -> None:
    rest = tmp_path / "rest"
    rest.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for program in Path(folder).iterdir():
            if program.name != "apt-get" and not (rest / program.name).is_symlink():
                (rest / program.name).symlink_to(program)
    (machine.fakes / "apt-get").unlink()
    done = machine.bootstrap("packages", "test", YES="1", PATH=f"{machine.fakes}:{rest}")
    assert done.returncode == 1
    assert done.stderr == (
        "`make test` needs what Debian calls: libvirt-dev. There is no apt-get here: install them with "
        "this system's package manager, then run it again.\n"
    )
    assert machine.is_untouched


def test_a_python_that_is_too_old_is_named_with_its_version_before_anything_is_made(machine: Machine) -> None:
    old = machine.fakes / "python3"
    old.write_text('#!/bin/sh\nif [ "$1" = -V ]; then echo Python 3.9.2; else exit 1; fi\n')
    old.chmod(0o755)
    done = machine.bootstrap("venv", "run", PYTHON=str(old))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"{old} is Python 3.9.2; Python 3.11 or newer is needed. Name one: make run PYTHON=/path/to/python3\n"
    )
    assert machine.is_untouched


@pytest.mark.parametrize("words", [(), ("packages",), ("packages", "nonsense"), ("venv", "demo"), ("remove", "run")])
def test_other_words_show_the_usage(words: tuple[str, ...], machine: Machine) -> None:
    done = machine.bootstrap(*words)
    assert done.returncode == 2
    assert done.stderr.startswith("  .ci/bootstrap packages run|demo|test|build [NAME]")
    assert machine.is_untouched
