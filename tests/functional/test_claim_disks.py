"""Claims on a disk that is full, fails, is read-only or hangs."""

from __future__ import annotations

from tests.crash.conftest import Mounted, disks, stage
from tests.crash.disk import Disk, memory_disk
from tests.crash.faults import (
    ask,
    begin,
    check_only_frees,
    check_takes_again,
    code,
    do,
    fill_up,
    hang_under_claims,
    start_again,
    state,
    wait_well,
    watched,
)
from tests.crash.play import Call
from tests.crash.scenarios import boots, group, move, spec
from tests.crash.stage import Stage, agent_on

__all__ = ["disks", "stage"]


def test_a_full_disk_refuses_who_takes_and_stores_who_frees(stage: Stage) -> None:
    stage.empty()
    with agent_on(stage) as agent, memory_disk(agent.state, 2048) as disk:
        begin(agent, "a", "b", "c")
        filler = fill_up(disk)
        check_only_frees(agent, frees="a")
        start_again(agent)
        assert state(agent, "a") == ("ended", "aborted")
        check_only_frees(agent, frees="b")
        filler.unlink()
        wait_well(agent)
        check_takes_again(agent)
        start_again(agent)
        assert state(agent, "b") == ("ended", "aborted")
        assert state(agent, "c") == ("reserved", None)
        assert state(agent, "taker") == ("reserved", None)


def test_a_disk_that_becomes_read_only_refuses_who_takes_until_it_is_mounted_anew(stage: Stage, disks: Mounted) -> None:
    stage.empty()
    with agent_on(stage) as agent:
        disk = disks(Disk(agent.dir / "disk", agent.state))
        begin(agent, "a", "b", "c")
        disk.abort()
        check_only_frees(agent, frees="a")
        start_again(agent)
        assert state(agent, "c") == ("reserved", None)
        check_only_frees(agent, frees="b")
        agent.kill()
        disk.mount_anew()
        begin(agent)
        assert state(agent, "c") == ("reserved", None)
        check_takes_again(agent)


def test_what_the_disk_does_not_take_is_not_told_to_whoever_asks_again(stage: Stage, disks: Mounted) -> None:
    stage.empty()
    body = {"kind": "live_migration", "instance": spec("a")["instance"], "peer": "other"}
    with agent_on(stage) as agent:
        disk = disks(Disk(agent.dir / "disk", agent.state))
        begin(agent, "a")
        do(agent, boots("a", "a"))
        disk.abort()
        for call in (move("m", "hold", body), Call("PUT", "/v1/groups/g", group("a", 1), ())):
            assert [code(ask(agent, call)) for _ in range(3)] == ["JournalUnavailable"] * 3
        agent.kill()
        disk.mount_anew()
        begin(agent)
        assert state(agent, "a") == ("resident", None)


def test_a_disk_that_hangs_costs_who_waits_for_it_alone(stage: Stage, disks: Mounted) -> None:
    stage.empty()
    with agent_on(stage) as agent, watched(agent, 2.0) as manager:
        disk = disks(Disk(agent.dir / "disk", agent.state))
        hang_under_claims(agent, disk, manager, 6.0)
