"""A guest whose memory does not lie where it is bound to, on a machine that has another cell to hold it."""

from __future__ import annotations

import re

from tests.functional.lab import wait_until
from tests.numahost.conftest import Guest
from tests.numahost.machine import BOUND_S, Agent, Machine

AWAY = 2


def mib_in_cell(machine: Machine, pid: int, cell: int) -> int:
    """Of private memory, by the kernel's page tables."""
    pages = re.findall(rf" N{cell}=(\d+)", machine.run("grep", "anon=", f"/proc/{pid}/numa_maps"))
    return sum(map(int, pages)) * 4 // 1024


def look_again(machine: Machine, guest: Guest) -> None:
    """Moved memory is no event; a guest that is paused is one."""
    machine.run("virsh", "-q", "suspend", guest.name)
    machine.run("virsh", "-q", "resume", guest.name)


def test_memory_that_was_moved_away_is_told_and_comes_home_by_the_advice(
    machine: Machine, agent: Agent, guest: Guest
) -> None:
    wanted = f"memory-elsewhere:guest:{guest.uuid}"
    wait_until(lambda: mib_in_cell(machine, guest.pid, guest.cell) >= 160, "the guest to have its memory", BOUND_S)
    agent.tells(agent.conflicts, {})
    machine.run("migratepages", str(guest.pid), str(guest.cell), str(AWAY))
    assert mib_in_cell(machine, guest.pid, AWAY) >= 160
    look_again(machine, guest)
    agent.tells(lambda: list(agent.conflicts()), [wanted])
    row = agent.conflicts()[wanted]
    assert (row.resource.cell, [owner.name for owner in row.owners]) == (AWAY, [guest.name])
    command = f"migratepages {guest.pid} {AWAY} {guest.cell}"
    assert f"`{command}`" in row.action
    machine.run(*command.split())
    look_again(machine, guest)
    agent.tells(agent.conflicts, {})
