"""The stage that daemons are killed on. It needs root, loop devices, and the packages of `make test`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.stage import Stage
from tests.functional.conftest import lab
from tests.functional.lab import Libvirtd

__all__ = ["lab", "stage"]


@pytest.fixture(scope="session")
def stage(lab: Libvirtd) -> Iterator[Stage]:
    """One for all tests."""
    made = Stage(lab)
    yield made
    made.close()
