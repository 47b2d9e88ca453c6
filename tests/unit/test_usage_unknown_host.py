"""Before the host was seen, guests contradict one another and never a host without CPUs, memory, pages and devices."""

from __future__ import annotations

import pytest

from agent.core.conflicts import ConflictKind
from agent.core.host_config import HostConfig
from agent.core.topology import EMPTY, HostCell, HostTopology
from agent.core.usage import fold
from tests.builders import guest

MDEV = "4b20d080-1b54-4048-85b3-a6a62d165c01"
NO_CPU = HostTopology(cells=(HostCell(id=0, cpus=EMPTY.online, memory_kib=0),), cpus=(), has_cells=False)
"""What discovery makes of a folder where nothing can be read."""


@pytest.mark.parametrize("host", [EMPTY, NO_CPU], ids=["never looked at", "nothing readable"])
def test_a_host_of_which_no_cpu_is_known_has_not_too_little_of_anything(host: HostTopology) -> None:
    guests = (
        guest("pinned", {0: 2}, node=0),
        guest("paged", page=2048),
        guest("graphics", dev=("0000:3b:02.0",), mdev=MDEV),
    )
    assert fold(host, HostConfig(), guests).conflicts == ()


@pytest.mark.parametrize("host", [EMPTY, NO_CPU], ids=["never looked at", "nothing readable"])
def test_guests_that_contradict_one_another_do_so_on_any_host(host: HostTopology) -> None:
    both = (guest("one", {0: 2}, mdev=MDEV), guest("two", {0: 2}, mdev=MDEV))
    kinds: list[ConflictKind] = [row.kind for row in fold(host, HostConfig(), both).conflicts]
    assert sorted(kinds) == ["cpu-pinned-twice", "device-twice"]
