"""Rows for guests whose memory lies on cells that they are not bound to."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent.core.conflicts import Conflict, Owner, Resource
from agent.core.cpuset import CpuSet
from agent.core.guest import DomainState, GuestCell, RunIdentity, Sighting
from tests.builders import guest, h2x4, uuid_of

RUN = RunIdentity(libvirt_id=1, pid=4711)


def conflicts(*guests: Sighting) -> list[Conflict]:
    """What a host of two cells says of where their memory lies."""
    return [row for row in h2x4().conflicts(*guests) if row.kind == "memory-elsewhere"]


def astray(
    name: str, lies_in: str = "1", *, state: DomainState = "running", dev: tuple[str, ...] = (), **of: Any
) -> Sighting:
    """A guest bound to cell 0 with memory on these."""
    seen = guest(name, mem=2048, node=0, run=RUN, state=state, dev=dev)
    assert seen.domain is not None
    domain = msgspec.structs.replace(seen.domain, **of)
    return msgspec.structs.replace(seen, domain=domain, memory_elsewhere=CpuSet.parse(lies_in))


def test_a_guest_with_memory_elsewhere_is_a_row_with_the_command_that_moves_it() -> None:
    assert conflicts(astray("a"), guest("b", node=1)) == [
        Conflict(
            id=f"memory-elsewhere:guest:{uuid_of('a')}",
            kind="memory-elsewhere",
            resource=Resource(kind="guest", id=uuid_of("a"), cell=1),
            owners=(Owner(type="domain", uuid=uuid_of("a"), name="a", maker="libvirt"),),
            cause="The memory of a is bound to cell 0, but much of it lies in cell 1",
            severity="warning",
            action="Move it with `migratepages 4711 1 0` (package numactl), or stop and start the guest, as soon as "
            "cell 0 has room; left alone nothing breaks, but the guest waits longer for this memory, and cell 1 has "
            "less room than the books say",
        )
    ]


def test_two_guests_on_one_wrong_cell_are_two_rows_so_that_none_hides_the_other() -> None:
    rows = conflicts(astray("a"), astray("b"))
    assert {row.resource.id for row in rows} == {uuid_of("a"), uuid_of("b")}


def test_a_guest_on_several_wrong_cells_is_one_row() -> None:
    (row,) = conflicts(astray("a", "1-2"))
    assert (row.resource.cell, row.cause.split(", ")[1]) == (None, "but much of it lies in cells 1-2")
    assert "`migratepages 4711 1-2 0`" in row.action
    assert "cells 1-2 have less room" in row.action


@pytest.mark.parametrize(
    "of",
    [
        {"dev": ("0000:3b:02.0",)},
        {
            "cells": tuple(
                GuestCell(id=at, vcpus=CpuSet([at]), memory_kib=1 << 20, mode="strict", nodeset=CpuSet([2 * at]))
                for at in (0, 1)
            )
        },
    ],
    ids=["host devices pin it", "its parts are bound apart"],
)
def test_where_pages_cannot_be_moved_to_one_place_no_command_is_proposed(of: dict[str, Any]) -> None:
    (row,) = conflicts(astray("a", **of))
    assert "`" not in row.action
    assert row.action.startswith("Stop and start a as soon as cell")


def test_a_guest_that_is_off_or_no_longer_bound_has_no_row() -> None:
    assert conflicts(astray("a", state="shut-off")) == []
    assert conflicts(astray("a", mode="preferred")) == []
    assert conflicts(astray("a", "0")) == []
