"""Fixtures of the field cases."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.core.guest import Sighting
from tests.builders import Host
from tests.field.claims import Claims

ClaimsOn = Callable[..., Claims]


@pytest.fixture
def claims_on(tmp_path: Path) -> Iterator[ClaimsOn]:
    """Makes `Claims` on a host with guests that are there already, each with a journal of its own."""
    with contextlib.ExitStack() as undo:
        made: list[Claims] = []

        def claims_on(on: Host, *guests: Sighting) -> Claims:
            folder = tmp_path / f"state-{len(made)}"
            folder.mkdir()
            made.append(Claims(folder, on, *guests))
            undo.callback(made[-1].at_work.stop)
            return made[-1]

        yield claims_on
