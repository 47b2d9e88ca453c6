"""Cells, CPUs, caches, distances and devices of a machine with several cells, beside lstopo and numactl run in it."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
import pytest

from agent.core.cpuset import CpuSet
from tests.contract import lstopo
from tests.contract import test_sysfs_against_hwloc as against_hwloc
from tests.contract.test_sysfs_against_hwloc import Pair
from tests.numahost.machine import Agent, Machine

CHECKS = (
    against_hwloc.test_the_same_cpus_are_present_online_and_allowed,
    against_hwloc.test_the_same_cells_with_the_same_memory_and_pages_are_there,
    against_hwloc.test_the_cpus_of_a_cell_are_the_same,
    against_hwloc.test_the_same_distances_lie_between_cells,
    against_hwloc.test_the_same_cpus_share_a_socket_and_a_die,
    against_hwloc.test_the_same_cpus_are_threads_of_a_core,
    against_hwloc.test_the_same_cpus_share_each_cache,
    against_hwloc.test_the_same_pci_functions_are_in_the_same_cells,
)


def named(check: Callable[[Pair], None]) -> str:
    return check.__name__.removeprefix("test_")


@pytest.fixture(scope="module")
def pair(machine: Machine, agent: Agent) -> Pair:
    """The machine as the daemon and lstopo see it."""
    host, hwloc = agent.topology(), lstopo.read(machine.run(*lstopo.COMMAND))
    without_cpus = CpuSet(cell.id for cell in host.cells if not cell.cpus)
    pci = {address: _beside_cpus(function, without_cpus) for address, function in hwloc.pci.items()}
    return Pair(name="numahost", host=host, hwloc=msgspec.structs.replace(hwloc, pci=pci))


def _beside_cpus(function: lstopo.Function, without_cpus: CpuSet) -> lstopo.Function:
    """To lstopo what is near a cell is near the cells without CPUs beside it too; a host bridge of no cell is near all
    of the machine."""
    if function.cells == CpuSet.parse("0-3"):
        return function
    return msgspec.structs.replace(function, cells=function.cells - without_cpus)


@pytest.mark.parametrize("check", CHECKS, ids=named)
def test_lstopo_sees_the_same_machine(check: Callable[[Pair], None], pair: Pair) -> None:
    check(pair)


def test_numactl_sees_the_same_cells(machine: Machine, agent: Agent) -> None:
    text = machine.run("numactl", "--hardware")
    cells = agent.topology().cells
    cpus = re.findall(r"^node (\d+) cpus:(.*)$", text, re.MULTILINE)
    sizes = re.findall(r"^node (\d+) size: (\d+) MB$", text, re.MULTILINE)
    rows = re.findall(r"^ +(\d+): ([\d ]+)$", text, re.MULTILINE)
    assert {cell.id: cell.cpus for cell in cells} == {int(n): CpuSet(map(int, row.split())) for n, row in cpus}
    assert {cell.id: cell.memory_kib // 1024 for cell in cells} == {int(n): int(mib) for n, mib in sizes}
    assert {cell.id: list(cell.distances.values()) for cell in cells} == {
        int(n): list(map(int, row.split())) for n, row in rows
    }


def test_the_cell_without_cpus_and_the_distances_are_those_that_the_machine_was_given(agent: Agent) -> None:
    told = agent.topology()
    assert [bool(cell.cpus) for cell in told.cells] == [True, True, True, False]
    assert [list(cell.distances.values()) for cell in told.cells] == [
        [10, 12, 32, 17],
        [12, 10, 32, 17],
        [32, 32, 10, 28],
        [17, 17, 28, 10],
    ]
    assert {str(device.address): device.cell for device in told.pci if device.netdevs} == {"0000:21:00.0": 0}
