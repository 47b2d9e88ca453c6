"""Field cases of the kinds pin-conflict, cpu-offline, dedicated-set-change, smt-siblings and big-ids."""

from __future__ import annotations

from agent.core.conflicts import Conflict
from agent.core.cpuset import CpuSet
from agent.core.reason_text import sentence
from agent.core.reasons import CpusShort, NoSiblings
from agent.core.usage import Usage
from tests.builders import Node, guest, h8, host, ht8
from tests.field.claims import only_cell, reasons
from tests.field.conftest import ClaimsOn
from tests.fit.requests import asks


def _held(usage: Usage) -> str:
    return str(CpuSet(row.cpu for row in usage.holders))


def _free(usage: Usage) -> str:
    return str(usage.host.dedicated.free)


def _kinds(conflicts: tuple[Conflict, ...]) -> list[str]:
    return [row.kind for row in conflicts]


def _owner_names(row: Conflict) -> list[str | None]:
    return sorted((owner.name for owner in row.owners), key=str)


def test_pin_two_domains_one_cpu(claims_on: ClaimsOn) -> None:
    """LP#1829349."""
    a, b, c = guest("a", {0: 2, 1: 3}, mem=1024), guest("b", {0: 3, 1: 4}, mem=1024), guest("c", mem=512)
    made = h8().folded(a, b, c)
    (only,) = made.conflicts
    assert (only.id, _owner_names(only)) == ("cpu-pinned-twice:cpu:3", ["a", "b"])
    assert _held(made.usage) == "2-4"
    assert str(made.usage.host.dedicated.used) == "2-4"
    assert _free(made.usage) == "5-7"
    assert made.usage.host.memory_kib.used == 2560 * 1024
    claims = claims_on(h8(), a, b, c)
    (short,) = reasons(claims.claim("x", asks(4)))
    assert isinstance(short, CpusShort)
    assert (short.asked, str(short.free)) == (4, "5-7")
    assert str(only_cell(claims.claim("y", asks(3))).cpus) == "5-7"
    assert [row.id for row in claims.conflicts] == ["cpu-pinned-twice:cpu:3"]


def test_pin_emulator_cpus_count(claims_on: ClaimsOn) -> None:
    """LP#1614054."""
    a = guest("a", {0: 2, 1: 3}, emu="6", mem=1024)
    made = h8().folded(a)
    assert _held(made.usage) == "2-3,6"
    assert _free(made.usage) == "4-5,7"
    assert made.conflicts == ()
    claims = claims_on(h8(), a)
    (short,) = reasons(claims.claim("x", asks(4)))
    assert isinstance(short, CpusShort)
    assert (short.asked, str(short.free)) == (4, "4-5,7")
    assert str(only_cell(claims.claim("y", asks(3))).cpus) == "4-5,7"
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


def test_smt_isolate_without_smt(claims_on: ClaimsOn) -> None:
    """LP#1550317. Where cores have one thread, isolate takes its own CPUs and no other; require cannot be."""
    host_claims = claims_on(h8())
    cell = only_cell(host_claims.claim("x", asks(3, threads="isolate")))
    assert (str(cell.cpus), str(cell.idle_cpus)) == ("2-4", "")
    assert _held(host_claims.usage) == "2-4"
    assert _free(host_claims.usage) == "5-7"
    refused = reasons(claims_on(h8()).claim("y", asks(3, threads="require")))
    assert refused == (NoSiblings(guest_cell=0, cell=0),)
    assert "one thread each; guest cell 0 asks for siblings" in sentence(refused[0])


def test_smt_odd_vcpus(claims_on: ClaimsOn) -> None:
    """LP#1467927. Two whole cores and a half leave three CPUs, one whole core among them."""
    host_claims = claims_on(ht8())
    cell = only_cell(host_claims.claim("x", asks(5, threads="prefer")))
    assert str(cell.cpus) == "0-2,4-5"
    assert _free(host_claims.usage) == "3,6-7"


def test_ids_beyond_63() -> None:
    """giampaolo/psutil#443."""
    wide = host({0: Node("0-63", 65536), 1: Node("64-127", 65536)}, dedicated="4-127", shared="0-3")
    usage = wide.usage(guest("a", {0: 63, 1: 64, 2: 127}))
    assert _held(usage) == "63-64,127"
    assert [len(cell.dedicated.free) for cell in usage.cells] == [59, 62]
    assert _free(usage) == "4-62,65-126"
    assert CpuSet.parse(_free(usage)) == usage.host.dedicated.free


def test_ids_with_gaps_above_count(claims_on: ClaimsOn) -> None:
    """LP#1442546."""
    power = host({0: Node("0-31", 16384)}, online="0,8,16,24", dedicated="8-31", shared="0")
    assert _free(power.usage()) == "8,16,24"
    assert str(only_cell(claims_on(power).claim("x", asks(3))).cpus) == "8,16,24"
    assert str(CpuSet.parse("0,3-5,7-22,25")) == "0,3-5,7-22,25"
