"""A disk below the state folder that hangs: it costs what would be kept on it, and nothing else."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.adapters.journal import HANGS
from agent.core.report import Report
from tests.functional.daemon import START_S, Daemon
from tests.functional.lab import Guest, Libvirtd, wait_until

MakeGuest = Callable[..., Guest]
DISK_BYTES = 16 << 20
TWICE = "cpu-pinned-twice:cpu:1"


class Disk:
    """A file system of its own on the state folder, all writes to which can be held up."""

    def __init__(self, image: Path, folder: Path) -> None:
        self.image, self.folder = image, folder
        with image.open("wb") as file:
            file.truncate(DISK_BYTES)
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
        folder.mkdir()
        subprocess.run(["mount", "-o", "loop", image, folder], check=True)
        self._hangs = False

    def hang(self) -> None:
        """From now on whoever writes waits."""
        subprocess.run(["fsfreeze", "--freeze", self.folder], check=True)
        self._hangs = True

    def go_on(self) -> None:
        """All writes that wait are made."""
        if self._hangs:
            subprocess.run(["fsfreeze", "--unfreeze", self.folder], check=True)
        self._hangs = False

    def remove(self) -> None:
        """Fine in any state."""
        self.go_on()
        subprocess.run(["umount", "--lazy", self.folder], check=True)


@pytest.fixture
def daemon(libvirtd: Libvirtd) -> Iterator[Daemon]:
    made = Daemon(libvirtd.ro_uri, config="[tracker]\ninterval=1\n")
    yield made
    made.clean()


@pytest.fixture
def disk(daemon: Daemon) -> Iterator[Disk]:
    """The daemon's state folder."""
    if not Path("/dev/loop-control").exists() or shutil.which("mkfs.ext4") is None:
        pytest.skip("a disk that can hang needs loop devices and e2fsprogs")
    made = Disk(daemon.dir / "image", daemon.dir / "state")
    yield made
    made.remove()


def journal_problem(told: Report) -> str | None:
    return next(one.problem for one in told.health.sources if one.name == "journal")


def ids(told: Report) -> list[str]:
    return [row.id for row in told.conflicts]


def test_passes_go_on_while_the_disk_hangs_which_is_named_and_dates_are_kept_once_it_goes_on(
    daemon: Daemon, guest: MakeGuest, disk: Disk
) -> None:
    guest("one", pin={0: "1"})
    daemon.start()
    disk.hang()
    guest("two", pin={0: "1"})
    told = daemon.wait_for(lambda told: ids(told) == [TWICE], "the conflict")
    hung = daemon.wait_for(lambda told: journal_problem(told) == HANGS, "the disk to be named")
    assert hung.generation > told.generation
    disk.go_on()
    daemon.wait_for(lambda told: journal_problem(told) is None, "the journal to be well")
    assert daemon.stop() == 0
    daemon.start()
    assert [(row.id, row.since) for row in daemon.report().conflicts] == [(TWICE, told.conflicts[0].since)]


def test_a_disk_that_hangs_does_not_hold_up_the_stop(daemon: Daemon, guest: MakeGuest, disk: Disk) -> None:
    """What the kernel does not let go of is the thread in the middle of a write; all else has ended by then."""
    guest("one", pin={0: "1"})
    daemon.start()
    disk.hang()
    guest("two", pin={0: "1"})
    daemon.wait_for(lambda told: ids(told) == [TWICE], "the conflict")
    daemon.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "the journal is left as it is" in daemon.log(), "the stop to go on", START_S)
    assert list((daemon.dir / "sock").iterdir()) == []
    disk.go_on()
    assert daemon.process.wait(START_S) == 0
