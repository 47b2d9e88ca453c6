"""Field cases of the kinds pin-conflict, cpu-offline, dedicated-set-change, smt-siblings and big-ids.

What a case says of a claim is asserted as the free CPUs that the claim would see.
"""

from __future__ import annotations

from agent.core.conflicts import Conflict
from agent.core.cpuset import CpuSet
from agent.core.usage import Usage
from tests.builders import Node, guest, h8, host, ht8


def _held(usage: Usage) -> str:
    return str(CpuSet(row.cpu for row in usage.holders))


def _free(usage: Usage) -> str:
    return str(usage.host.dedicated.free)


def _kinds(conflicts: tuple[Conflict, ...]) -> list[str]:
    return [row.kind for row in conflicts]


def _owner_names(row: Conflict) -> list[str | None]:
    return sorted((owner.name for owner in row.owners), key=str)


def test_pin_two_domains_one_cpu() -> None:
    """LP#1829349. Claims: four dedicated CPUs would be refused, three would get 5,6,7."""
    a, b, c = guest("a", {0: 2, 1: 3}, mem=1024), guest("b", {0: 3, 1: 4}, mem=1024), guest("c", mem=512)
    made = h8().folded(a, b, c)
    (only,) = made.conflicts
    assert (only.id, _owner_names(only)) == ("cpu-pinned-twice:cpu:3", ["a", "b"])
    assert _held(made.usage) == "2-4"
    assert str(made.usage.host.dedicated.used) == "2-4"
    assert _free(made.usage) == "5-7"
    assert made.usage.host.memory_kib.used == 2560 * 1024


def test_pin_emulator_cpus_count() -> None:
    """LP#1614054. Claims: three dedicated CPUs would get 4,5,7."""
    made = h8().folded(guest("a", {0: 2, 1: 3}, emu="6", mem=1024))
    assert _held(made.usage) == "2-3,6"
    assert _free(made.usage) == "4-5,7"
    assert made.conflicts == ()
    beside = guest("a", {0: 2, 1: 3}, emu="0-1,6")
    assert str(h8().folded(beside).holds[beside.uuid].cpus) == "2-3,6"


def test_cpu_offline_under_guest() -> None:
    """RHBZ#1264003."""
    guests = (guest("a", {0: 4, 1: 5}), guest("b", {0: 6}))
    assert h8().conflicts(*guests) == ()
    made = h8(online="0-4,6-7").folded(*guests)
    assert str(h8(online="0-4,6-7").topology.online) == "0-4,6-7"
    (only,) = made.conflicts
    assert (only.kind, only.resource.id, _owner_names(only)) == ("pinned-to-offline", "5", ["a"])
    assert _free(made.usage) == "2-3,7"
    back = h8().folded(*guests)
    assert back.conflicts == ()
    assert (_held(back.usage), _free(back.usage)) == ("4-6", "2-3,7")


def test_smt_isolate_without_smt() -> None:
    """LP#1550317. A guest with thread policy isolate holds its own CPUs and no other where cores have one thread."""
    isolated = guest("x", {0: 2, 1: 3, 2: 4}, facts={"extra:hw:cpu_thread_policy": "isolate"})
    usage = h8().usage(isolated)
    assert _held(usage) == "2-4"
    assert len(usage.host.dedicated.free) == 3
    assert usage.remarks == ()


def test_smt_odd_vcpus() -> None:
    """LP#1467927. Claims choose the CPUs; here: two cores and a half leave three CPUs, one whole core among them."""
    usage = ht8().usage(guest("x", {0: 0, 1: 4, 2: 1, 3: 5, 4: 2}))
    assert _free(usage) == "3,6-7"


def test_ids_beyond_63() -> None:
    """giampaolo/psutil#443."""
    wide = host({0: Node("0-63", 65536), 1: Node("64-127", 65536)}, dedicated="4-127", shared="0-3")
    usage = wide.usage(guest("a", {0: 63, 1: 64, 2: 127}))
    assert _held(usage) == "63-64,127"
    assert [len(cell.dedicated.free) for cell in usage.cells] == [59, 62]
    assert _free(usage) == "4-62,65-126"
    assert CpuSet.parse(_free(usage)) == usage.host.dedicated.free


def test_ids_with_gaps_above_count() -> None:
    """LP#1442546. Claims: three dedicated CPUs would get 8,16,24."""
    power = host({0: Node("0-31", 16384)}, online="0,8,16,24", dedicated="8-31", shared="0")
    assert _free(power.usage()) == "8,16,24"
    assert str(CpuSet.parse("0,3-5,7-22,25")) == "0,3-5,7-22,25"
