"""Disks that are full, read-only or hang for long, below a daemon at work."""

from __future__ import annotations

from tests.crash.conftest import Mounted
from tests.crash.disk import Disk
from tests.crash.faults import hang_under_claims, watched
from tests.crash.stage import Stage, agent_on


def test_a_disk_that_hangs_for_long_is_told_of_and_costs_who_waits_alone(stage: Stage, disks: Mounted) -> None:
    with agent_on(stage) as agent, watched(agent, 4.0) as manager:
        disk = disks(Disk(agent.dir / "disk", agent.state))
        hang_under_claims(agent, disk, manager, 45.0)
