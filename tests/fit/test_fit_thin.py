"""Hosts that as a whole are short of small pages: which guest cells, with pages of any size, have huge ones."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import msgspec
import pytest

from agent.core import reasons as why
from agent.core.cpuset import CpuSet
from agent.core.fit.decide import fit
from agent.core.fit.rules import FitRules, NoFit
from agent.core.fit.take import PlacementBroken, check
from agent.core.instance import CellRequest, InstanceRequest
from agent.core.pci import PciDevice
from agent.core.pci_request import PciRequest
from agent.core.placement import Placement
from agent.core.topology import PagePool
from tests import builders
from tests.builders import Node, function
from tests.fit.hosts import Host
from tests.fit.requests import wants
from tests.fit.test_fit_by_hand import checked
from tests.fit.test_fit_large import ON_THE_BEST, asking, crowded
from tests.fit.violations import violations

MIB, SIZE = 1024, 2048
GIB_SIZE = 1 << 20


def thin(*pages: Mapping[int, int], free_mib: int, pci: Sequence[PciDevice] = ()) -> Host:
    """Cells of four CPUs, two threads a core, with these huge pages, and 4 GiB beside them; all but so much small-page
    memory is kept back."""
    nodes = {
        n: Node(f"{4 * n}-{4 * n + 3}", 4096 + sum(size * count for size, count in pool.items()) // MIB, pool)
        for n, pool in enumerate(pages)
    }
    made = builders.host(
        nodes,
        dedicated=f"0-{4 * len(pages) - 1}",
        shared="",
        smt=[f"{cpu},{cpu + 1}" for cpu in range(0, 4 * len(pages), 2)],
        reserve_mem=4096 * len(pages) - free_mib,
        pci=pci,
        pci_filter=["*:*:*.*"],
    )
    return Host(made.topology, made.config)


def any_pages(*sizes: tuple[int, int], devices: tuple[PciRequest, ...] = ()) -> InstanceRequest:
    """A pinned guest with a cell for each (vCPUs, MiB)."""
    starts = itertools.accumulate((vcpus for vcpus, _ in sizes), initial=0)
    cells = tuple(
        CellRequest(id=n, vcpus=own, memory_kib=mib * MIB, pinned=own)
        for n, (own, mib) in enumerate(
            (CpuSet(range(start, start + vcpus)), mib) for start, (vcpus, mib) in zip(starts, sizes, strict=False)
        )
    )
    return InstanceRequest(
        vcpus=sum(vcpus for vcpus, _ in sizes),
        memory_kib=sum(mib for _, mib in sizes) * MIB,
        cells=cells,
        cpu_policy="dedicated",
        page_size="any",
        devices=devices,
    )


def busy(on: Host, *cpus: int) -> Host:
    """The host with a guest on these CPUs."""
    return on._replace(guests=(builders.guest("a", dict(enumerate(cpus)), mem=0),))


def where(answer: Placement | NoFit) -> list[tuple[int, int]]:
    """Of each guest cell the host cell and the page size."""
    assert isinstance(answer, Placement), answer
    return [(cell.host_cell, cell.page_size_kib) for cell in answer.cells]


def memory_short(asked_mib: int, free_mib: int) -> NoFit:
    """The whole reason."""
    short = why.MemoryShort(guest_cell=None, cell=None, asked_kib=asked_mib * MIB, free_kib=free_mib * MIB)
    return NoFit(reasons=(short,))


@pytest.mark.parametrize("sizes", list(itertools.permutations(((1, 256), (1, 512)))))
def test_the_guest_cell_that_the_host_has_no_small_pages_for_has_the_huge_ones(
    sizes: tuple[tuple[int, int], ...],
) -> None:
    answer = checked(any_pages(*sizes), thin({SIZE: 512}, {}, free_mib=300))
    assert sorted(where(answer)) == [(0, SIZE), (1, 4)]
    assert where(answer)[sizes.index((1, 512))] == (0, SIZE)


def test_one_mib_less_and_the_reason_says_the_least_that_is_needed() -> None:
    on, request = thin({SIZE: 512}, {}, free_mib=255), any_pages((1, 256), (1, 512))
    assert checked(request, on) == memory_short(256, 255)


def test_a_placement_whose_small_pages_the_host_has_not_is_not_given_out() -> None:
    request = any_pages((1, 256), (1, 512))
    found = fit(request, thin({SIZE: 512}, {}, free_mib=256).offer())
    assert isinstance(found, Placement)
    check(request, found, thin({SIZE: 512}, {}, free_mib=256).offer())
    with pytest.raises(PlacementBroken, match="too much memory on the host"):
        check(request, found, thin({SIZE: 512}, {}, free_mib=255).offer())


def test_several_guest_cells_may_fall_back_beside_each_other_if_not_every_pair_of_them() -> None:
    pages: tuple[dict[int, int], ...] = ({SIZE: 1024}, {SIZE: 1024}, {}, {})
    request = any_pages((1, 512), (1, 256), (1, 384), (1, 128))
    assert sorted(where(checked(request, thin(*pages, free_mib=384)))) == [(0, SIZE), (1, SIZE), (2, 4), (3, 4)]
    assert checked(request, thin(*pages, free_mib=383)) == memory_short(384, 383)


def test_guest_cells_of_uneven_memory_have_small_pages_whatever_else_that_takes() -> None:
    request = any_pages((1, 256), (1, 257), (1, 128))
    assert [size for _, size in where(checked(request, thin({SIZE: 512}, {}, {}, free_mib=385)))] == [SIZE, 4, 4]
    assert checked(request, thin({SIZE: 512}, {}, {}, free_mib=384)) == memory_short(385, 384)


def test_huge_pages_of_several_sizes_are_all_the_same_to_the_host() -> None:
    on = thin({GIB_SIZE: 1}, {SIZE: 256, GIB_SIZE: 0}, {}, free_mib=256)
    answer = checked(any_pages((1, 256), (1, 1024), (1, 512)), on)
    assert where(answer) == [(2, 4), (0, GIB_SIZE), (1, SIZE)]


@pytest.mark.parametrize(("free_mib", "fits"), [(255, False), (256, True)])
def test_the_guest_cell_that_has_cpus_there_alone_keeps_another_from_the_huge_pages(
    free_mib: int, *, fits: bool
) -> None:
    request = any_pages((2, 128), (1, 256))
    assert where(checked(request, thin({SIZE: 512}, {}, free_mib=128))) == [(1, 4), (0, SIZE)]
    answer = checked(request, busy(thin({SIZE: 512}, {}, free_mib=free_mib), 4, 5, 6))
    assert isinstance(answer, Placement) is fits


@pytest.mark.parametrize(("free_mib", "fits"), [(128, False), (256, True)])
def test_the_emulators_own_cpu_keeps_the_first_guest_cell_from_the_huge_pages(free_mib: int, *, fits: bool) -> None:
    request = msgspec.structs.replace(any_pages((1, 256), (1, 128)), emulator_policy="isolate")
    answer = checked(request, busy(thin({SIZE: 512}, {}, free_mib=free_mib), 0, 1, 2))
    assert isinstance(answer, Placement) is fits


def nics(*cells: int) -> Sequence[PciDevice]:
    """One on each of these cells."""
    return [function(f"0000:{n + 1:02x}:00.0", numa=cell) for n, cell in enumerate(cells)]


def test_a_device_that_must_be_near_takes_a_guest_cell_from_the_huge_pages() -> None:
    nic = (wants(policy="required"),)
    pages: tuple[dict[int, int], ...] = ({SIZE: 512}, {SIZE: 512}, {})
    request = any_pages((1, 256), (1, 512), devices=nic)
    answer = checked(request, thin(*pages, free_mib=256, pci=nics(2)))
    assert [cell for cell in where(answer) if cell[0] == 2] == where(answer)[:1] == [(2, 4)]
    assert checked(request, thin(*pages, free_mib=255, pci=nics(2))) == memory_short(256, 255)
    assert {size for _, size in where(checked(request, thin(*pages, free_mib=0, pci=nics(1))))} == {SIZE}


def test_the_set_of_host_cells_that_has_devices_and_huge_pages_is_found_among_many() -> None:
    """A device is near one cell without huge pages and one that has some for the smallest guest cell alone."""
    pages: tuple[dict[int, int], ...] = ({}, {}, {SIZE: 64}, {SIZE: 64}, {SIZE: 256}, {SIZE: 256})
    two = (wants(count=2, policy="required"),)
    request = any_pages((1, 512), (1, 256), (1, 128), devices=two)
    answer = checked(request, thin(*pages, free_mib=256, pci=nics(2, 1)))
    assert where(answer) == [(4, SIZE), (1, 4), (2, SIZE)]
    assert checked(request, thin(*pages, free_mib=255, pci=nics(2, 1))) == memory_short(256, 255)


UNIT_MIB = 64


def stairs(cells: int, free_mib: int, *, beside: int = 0) -> Host:
    """Cell n of so many has n units in huge pages; those beside them have none, and a device each."""
    pages = [{SIZE: 32 * n} for n in range(cells)] + [{}] * beside
    return thin(*pages, free_mib=free_mib, pci=nics(*range(cells, cells + beside)))


def climbing(cells: int, devices: int = 0) -> InstanceRequest:
    """Guest cell n has n + 1 units: the huge pages of the next host cell, and none does for the last."""
    near = (wants(count=devices, policy="required"),) if devices else ()
    return any_pages(*((1, UNIT_MIB * (n + 1)) for n in range(cells)), devices=near)


def test_the_one_way_for_sixteen_guest_cells_is_found_in_few_steps() -> None:
    few, least_mib = FitRules(most_steps=1000), 16 * UNIT_MIB
    answer = fit(climbing(16), stairs(16, least_mib).offer(), few)
    assert where(answer) == [*((n + 1, SIZE) for n in range(15)), (0, 4)]
    assert fit(climbing(16), stairs(16, least_mib - 1).offer(), few) == memory_short(least_mib, least_mib - 1)


@pytest.mark.parametrize(("cells", "devices"), [(8, 4), (16, 6), (16, 8)])
def test_guest_cells_that_fall_back_beside_devices_are_found_in_few_steps(cells: int, devices: int) -> None:
    """The largest has to be beside a device, and the smallest that there are as well."""
    least_mib = (cells + sum(range(devices))) * UNIT_MIB
    on, request = stairs(cells, least_mib, beside=cells), climbing(cells, devices)
    answer = fit(request, on.offer(), FitRules(most_steps=1500))
    assert isinstance(answer, Placement)
    assert violations(answer, request, on.room()) == []
    small = [cell.guest_cell for cell in answer.cells if cell.page_size_kib == 4]
    assert small == [*range(devices - 1), cells - 1]


def test_that_no_set_of_guest_cells_falls_back_beside_the_devices_is_known_in_few_steps() -> None:
    least_mib = (8 + 1 + 2 + 3) * UNIT_MIB
    on, request = stairs(8, least_mib - 1, beside=8), climbing(8, 4)
    answer = fit(request, on.offer(), FitRules(most_steps=2500))
    assert isinstance(answer, NoFit)
    (short,) = answer.reasons
    assert isinstance(short, why.MemoryShort)
    assert short.asked_kib >= least_mib * MIB


def pulled_apart(free_mib: int) -> Host:
    """The host whose only eight cells with enough of both kinds of devices are 0-3 and 8-11; two of these, and all
    others, are without huge pages."""
    made = crowded()
    pool = PagePool(size_kib=SIZE, total=512, free=512)
    cells = tuple(
        msgspec.structs.replace(cell, memory_kib=cell.memory_kib + (1 << 20), pages=(pool,))
        if cell.id in {0, 1, 2, 8, 9, 10}
        else cell
        for cell in made.topology.cells
    )
    topology = msgspec.structs.replace(made.topology, cells=cells, memory_kib=sum(cell.memory_kib for cell in cells))
    reserved_mib = 16 * 4096 - free_mib
    return Host(topology, msgspec.structs.replace(made.config, reserved_memory_mb=reserved_mib))


def test_host_cells_for_both_kinds_of_devices_are_found_beside_the_huge_pages() -> None:
    devices = asking(ON_THE_BEST, ON_THE_BEST).devices
    request = any_pages(*((1, 128 * (8 - n)) for n in range(8)), devices=devices)
    on = pulled_apart(384)
    answer = fit(request, on.offer())
    assert isinstance(answer, Placement)
    assert violations(answer, request, on.room()) == []
    assert CpuSet(cell.host_cell for cell in answer.cells) == CpuSet.parse("0-3,8-11")
    assert [cell.guest_cell for cell in answer.cells if cell.page_size_kib == 4] == [6, 7]
    assert fit(request, pulled_apart(383).offer()) == memory_short(384, 383)


def test_a_search_for_the_guest_cells_that_fall_back_which_meets_its_bound_says_so() -> None:
    answer = fit(climbing(16), stairs(16, 16 * UNIT_MIB).offer(), FitRules(most_steps=100))
    assert answer == NoFit(reasons=(why.SearchStopped(steps=150),))
