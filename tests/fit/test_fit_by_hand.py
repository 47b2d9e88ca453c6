"""Hosts on which one way alone is left for a guest, or none by a hair."""

from __future__ import annotations

import pytest

from agent.core import reasons as why
from agent.core.cpuset import CpuSet
from agent.core.fit.decide import fit
from agent.core.fit.rules import NoFit
from agent.core.guest import Sighting
from agent.core.instance import CellRequest, InstanceRequest, ThreadPolicy
from agent.core.pci_request import PciNumaPolicy, PciRequest, PciSpec
from agent.core.placement import Placement
from tests import builders
from tests.builders import Node, function, guest, host
from tests.fit import oracle
from tests.fit.hosts import Host
from tests.fit.requests import asks, wants
from tests.fit.truth import untrue
from tests.fit.violations import violations

GUEST_SIZES = (4, 3, 2, 1)


def beside(made: builders.Host, *guests: Sighting) -> Host:
    """The host with these guests on it."""
    return Host(made.topology, made.config, guests)


def checked(request: InstanceRequest, on: Host) -> Placement | NoFit:
    """The answer, which the oracle shares."""
    answer = fit(request, on.offer())
    assert isinstance(answer, Placement) == oracle.possible(request, on.room())
    if isinstance(answer, Placement):
        assert violations(answer, request, on.room()) == []
    return answer


def stairs(least: int) -> Host:
    """Cells 0-3 of eight CPUs, of which `least`, and one more each, are free."""
    nodes = {n: Node(f"{n * 8}-{n * 8 + 7}", 4096) for n in range(4)}
    held = {n * 8 + cpu for n in range(4) for cpu in range(8 - least - n)}
    return beside(host(nodes, dedicated="0-31", shared=""), guest("a", dict(enumerate(sorted(held)))))


def with_cells(*sizes: int) -> InstanceRequest:
    """A pinned guest whose cells have so many vCPUs."""
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    cells = tuple(
        CellRequest(id=n, vcpus=vcpus, memory_kib=1 << 18, pinned=vcpus)
        for n, vcpus in enumerate(CpuSet(range(start, start + size)) for start, size in zip(starts, sizes, strict=True))
    )
    return InstanceRequest(vcpus=sum(sizes), memory_kib=len(sizes) << 18, cells=cells, cpu_policy="dedicated")


def test_the_one_assignment_that_fits_is_found() -> None:
    answer = checked(with_cells(*GUEST_SIZES), stairs(1))
    assert isinstance(answer, Placement)
    assert [cell.host_cell for cell in answer.cells] == [3, 2, 1, 0]


def test_one_cpu_less_and_the_cells_contend() -> None:
    answer = checked(with_cells(5, 4, 4, 1), stairs(2))
    assert isinstance(answer, NoFit)
    assert why.CellsContended(guest_cells=CpuSet([0, 1, 2]), cells=CpuSet([2, 3])) in answer.reasons


def test_the_one_pair_of_cells_that_has_both_kinds_of_devices_is_found() -> None:
    nodes = {n: Node(f"{n * 4}-{n * 4 + 3}", 4096) for n in range(4)}
    pci = (
        function("0000:01:00.0", "type-PCI", numa=3),
        function("0000:02:01.0", "type-VF", numa=1, pf="0000:02:00.0"),
    )
    on = beside(host(nodes, dedicated="0-15", shared="", pci=pci, pci_filter=["*:*:*.*"]))
    both = (wants("a1", policy="required", type="type-PCI"), wants("a2", policy="required", type="type-VF"))
    answer = checked(asks(4, nodes=2, pci=both), on)
    assert isinstance(answer, Placement)
    assert {cell.host_cell for cell in answer.cells} == {1, 3}
    assert isinstance(checked(asks(4, nodes=1, pci=both), on), NoFit)


@pytest.mark.parametrize("policy", [None, "prefer", "require", "isolate"])
def test_a_first_guest_cell_that_only_floats_still_brings_the_emulators_cpu(policy: ThreadPolicy | None) -> None:
    made = host({0: Node("0-2", 4096), 1: Node("3-6", 4096)}, dedicated="1-6", shared="0", smt=("1,2", "3,4", "5,6"))
    mixed = asks(2, nodes=2, cpu="mixed", pinned="1", threads=policy, emulator="isolate")
    answer = checked(mixed, beside(made))
    assert isinstance(answer, Placement)
    assert answer.emulator_own == 1
    full = checked(mixed, beside(made, guest("a", {0: 1, 1: 2})))
    assert isinstance(full, NoFit)
    (short,) = (reason for reason in full.reasons if isinstance(reason, why.EmulatorCpuShort) and reason.cell == 0)
    assert (short.asked, short.free, [holder.cpu for holder in short.holders]) == (1, CpuSet(), [1, 2])


def test_a_refusal_counts_no_physical_function_beside_its_virtual_one() -> None:
    pci = (
        function("0000:01:00.0", "type-PF", numa=1),
        function("0000:01:00.1", "type-VF", numa=1, pf="0000:01:00.0"),
        function("0000:02:00.1", "type-VF", numa=None, pf="0000:02:00.0"),
    )
    nodes = {0: Node("0-3", 4096), 1: Node("4-7", 4096)}
    on = beside(host(nodes, dedicated="0-7", shared="", pci=pci, pci_filter=["*:*:*.*"]))
    either = PciRequest(
        id="alias:a1",
        specs=(PciSpec(device_type="type-PF"), PciSpec(device_type="type-VF")),
        count=2,
        numa_policy="required",
    )
    answer = checked(asks(1, pci=(either,)), on)
    assert isinstance(answer, NoFit)
    (far,) = answer.reasons
    assert isinstance(far, why.DevicesFar)
    assert (far.near, dict(far.by_cell), far.elsewhere) == (1, {1: 1}, 1)


def two_cards() -> Host:
    """A card of its own kind on cell 0 and on cell 1 of three."""
    pci = (
        function("0000:01:00.0", "type-PF", numa=0),
        function("0000:02:00.0", "type-PCI", numa=1),
        function("0000:02:00.1", "type-PCI", numa=2),
    )
    nodes = {n: Node(f"{4 * n}-{4 * n + 3}", 4096) for n in range(3)}
    return beside(host(nodes, dedicated="0-11", shared="", pci=pci, pci_filter=["*:*:*.*"]))


@pytest.mark.parametrize("policy", ["required", "legacy"])
def test_requests_whose_devices_are_on_different_cells_are_not_said_to_compete(policy: PciNumaPolicy) -> None:
    on = two_cards()
    left = PciRequest(id="left", specs=(PciSpec(device_type="type-PF"),), numa_policy=policy)
    right = PciRequest(id="right", specs=(PciSpec(device_type="type-PCI"),), numa_policy=policy)
    easy = PciRequest(id="easy", specs=(PciSpec(device_type="type-PCI"),), numa_policy="preferred")
    request = asks(1, pci=(left, easy, right))
    answer = checked(request, on)
    apart = why.DevicesApart(
        requests=(
            why.ServedFrom(request="left", cells=CpuSet((0,))),
            why.ServedFrom(request="right", cells=CpuSet((1, 2))),
        ),
        guest_cells=1,
    )
    assert answer == NoFit(reasons=(apart,))
    assert untrue(apart, request, on.room()) == []


def test_a_guest_of_one_cell_is_told_every_cell_that_it_could_have() -> None:
    on = two_cards()
    one = PciRequest(id="nic", specs=(PciSpec(device_type="type-PCI"),), count=2, numa_policy="required")
    request = asks(1, pci=(one,))
    answer = checked(request, on)
    assert isinstance(answer, NoFit)
    (far,) = answer.reasons
    assert isinstance(far, why.DevicesFar)
    assert (far.cells, far.near, far.guest_cells) == (CpuSet((0, 1, 2)), 1, 1)
    assert untrue(far, request, on.room()) == []


def test_a_mixed_guest_is_told_once_for_each_cell_that_the_host_has_no_shared_cpus() -> None:
    on = two_cards()
    cell = CellRequest(id=0, vcpus=CpuSet((0, 1)), memory_kib=1 << 18, pinned=CpuSet((0,)))
    request = InstanceRequest(vcpus=2, memory_kib=1 << 18, cells=(cell,), cpu_policy="mixed")
    expected = tuple(why.SharedCpusShort(guest_cell=0, cell=where, asked=1, shared=CpuSet()) for where in range(3))
    assert checked(request, on) == NoFit(reasons=expected)
