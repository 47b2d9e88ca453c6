"""A disk of its own for a state folder: one that loses what was not synced, that hangs, that is full or read-only."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

DISK_BYTES = 16 << 20


def why_no_disks() -> str | None:
    """What this machine lacks for them; None: nothing."""
    if Path("/dev/loop-control").exists() and shutil.which("mkfs.ext4") is not None:
        return None
    return "a disk of one's own needs loop devices and e2fsprogs"


class Disk:
    """A file system in a file, mounted on a folder. The image has what the kernel has been made to write, and no more:
    its copy is what a host finds after a power cut."""

    def __init__(self, image: Path, folder: Path, *, is_new: bool = True) -> None:
        self.image, self.folder = image, folder
        if is_new:
            with image.open("wb") as file:
                file.truncate(DISK_BYTES)
            # its own commits, each 5 s, would store what nobody has synced
            _run("mkfs.ext4", "-q", image)
        folder.mkdir()
        _run("mount", "-o", "loop,commit=600", image, folder)
        self._hangs = False

    def after_power_cut(self, image: Path, folder: Path) -> Disk:
        """What is found when the power fails now."""
        shutil.copyfile(self.image, image)
        return Disk(image, folder, is_new=False)

    def hang(self) -> None:
        """From now on whoever writes waits."""
        _run("fsfreeze", "--freeze", self.folder)
        self._hangs = True

    def go_on(self) -> None:
        """All writes that wait are made."""
        if self._hangs:
            _run("fsfreeze", "--unfreeze", self.folder)
        self._hangs = False

    def abort(self) -> None:
        """Read-only from now on, also for files that are open, as the kernel makes it after a fault of the device."""
        # it says itself that the file system is read-only then
        subprocess.run(["mount", "-o", "remount,abort", self.folder], check=False, capture_output=True)

    def mount_anew(self) -> None:
        """After its check; nobody may have a file open."""
        _run("umount", self.folder)
        subprocess.run(["fsck.ext4", "-p", self.image], check=False, capture_output=True)
        _run("mount", "-o", "loop,commit=600", self.image, self.folder)

    def remove(self) -> None:
        """Fine in any state."""
        self.go_on()
        _run("umount", "--lazy", self.folder)
        self.image.unlink()


@contextlib.contextmanager
def memory_disk(folder: Path, size_kib: int) -> Iterator[Path]:
    """A small file system in memory, mounted on the folder."""
    folder.mkdir()
    _run("mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "tmpfs", folder)
    try:
        yield folder
    finally:
        _run("umount", "--lazy", folder)


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True)
