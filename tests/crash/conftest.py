"""The stage that daemons are killed on. It needs root, loop devices, and the packages of `make test`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.crash.disk import Disk, why_no_disks
from tests.crash.stage import Stage
from tests.functional.conftest import lab
from tests.functional.lab import Libvirtd

__all__ = ["disks", "lab", "stage"]

Mounted = Callable[[Disk], Disk]


@pytest.fixture(scope="module")
def stage(lab: Libvirtd) -> Iterator[Stage]:
    """One for all tests of a module: those of others may end this libvirtd."""
    made = Stage(lab)
    yield made
    made.close()


@pytest.fixture
def disks() -> Iterator[Mounted]:
    """Disks are removed at the end; without any the test is skipped."""
    why = why_no_disks()
    if why is not None:
        pytest.skip(why)
    with contextlib.ExitStack() as undo:

        def made(disk: Disk) -> Disk:
            undo.callback(disk.remove)
            return disk

        yield made
