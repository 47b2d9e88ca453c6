"""File systems of their own for a state folder, which run full, become read-only, fail or hang as real ones do."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest


def need_mounts(*commands: str) -> None:
    """Skip, saying why, where such file systems cannot be made."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    missing = [command for command in commands if shutil.which(command) is None]
    if missing or not Path("/dev/loop-control").exists():
        pytest.skip(f"a disk of its own needs loop devices and {' '.join(commands)}")


def fill(folder: Path, leave_bytes: int = 0) -> Path:
    """Leave no more than so many bytes free; the file that does it."""
    path = folder / "guest.log"
    with path.open("wb", buffering=0) as file:
        for size in (4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)
        file.truncate(max(0, file.tell() - leave_bytes))
    return path


class Tmpfs:
    """A small file system in memory."""

    def __init__(self, folder: Path, size_kib: int) -> None:
        folder.mkdir()
        self.folder = folder
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "tmpfs", folder], check=True)

    def remove(self) -> None:
        """Fine in any state."""
        subprocess.run(["umount", "--lazy", self.folder], check=True)


class Loop:
    """An ext4 file system in a file, which may itself lie on a disk that runs full: then writes end in I/O errors."""

    def __init__(self, image: Path, folder: Path, size_bytes: int, *, journaled: bool = True) -> None:
        """Not journaled: one fault does not make the whole file system read-only, and it goes on after that."""
        with image.open("wb") as file:
            file.truncate(size_bytes)
        features = [] if journaled else ["-O", "^has_journal"]
        # nothing is left to be written later on: lazily made tables would fail at any moment
        lazy = ["-E", "lazy_itable_init=0,lazy_journal_init=0"]
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", *lazy, *features, image], check=True)
        folder.mkdir()
        subprocess.run(["mount", "-o", "loop,errors=continue", image, folder], check=True)
        self.folder = folder
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

    def abort(self) -> None:
        """Read-only from now on, also for files that are open, as the kernel makes it after a fault of the device."""
        subprocess.run(["mount", "-o", "remount,abort", self.folder], check=False)  # says itself that it is read-only

    def remove(self) -> None:
        """Fine in any state."""
        self.go_on()
        subprocess.run(["umount", "--lazy", self.folder], check=True)
