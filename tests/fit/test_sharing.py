"""Several cells of one guest on one host cell: the answer is that of somebody who tries everything, and a search that
stops says so."""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest
from msgspec.structs import replace

from agent.core.cpuset import CpuSet
from agent.core.fit.decide import fit
from agent.core.fit.rules import FitRules, NoFit
from agent.core.fit.siblings import siblings_for
from agent.core.instance import CellRequest, InstanceRequest, PageWord, ThreadPolicy
from agent.core.placement import Placement
from agent.core.reasons import NoRoomTogether, SearchStopped
from tests import builders
from tests.builders import Node, guest, host
from tests.fit import oracle
from tests.fit.crowds import SHARING, crowded
from tests.fit.guests import Case
from tests.fit.hosts import Host
from tests.fit.requests import wants
from tests.fit.test_fit_properties import faults

MORE = int(os.environ.get("FIT_EXAMPLES", "1"))
SEEDS = range(400 * MORE)
MIB = 1024


def a_guest(
    *cells: tuple[int, int],
    threads: ThreadPolicy | None = None,
    page: int | PageWord | None = None,
    with_emulator: bool = False,
) -> InstanceRequest:
    """A pinned guest with a cell for each (vCPUs, MiB)."""
    made: list[CellRequest] = []
    for vcpus, mem in cells:
        first = sum(len(cell.vcpus) for cell in made)
        own = CpuSet(range(first, first + vcpus))
        made.append(CellRequest(id=len(made), vcpus=own, memory_kib=mem * MIB, pinned=own))
    return InstanceRequest(
        vcpus=sum(len(cell.vcpus) for cell in made),
        memory_kib=sum(cell.memory_kib for cell in made),
        cells=tuple(made),
        cpu_policy="dedicated",
        thread_policy=threads,
        emulator_policy="isolate" if with_emulator else None,
        page_size=page,
    )


def checked(request: InstanceRequest, on: builders.Host, taken: str = "") -> Placement | NoFit:
    """The answer, which breaks no rule, is true, and is the oracle's."""
    held = dict(enumerate(CpuSet.parse(taken)))
    made = Host(on.topology, on.config, (guest("r1", held, mem=1),) if held else ())
    assert faults(Case(made, request, SHARING)) == []
    return fit(request, made.offer(), SHARING)


def where(found: Placement | NoFit) -> list[int]:
    """The host cell of each guest cell."""
    assert isinstance(found, Placement), found
    return [cell.host_cell for cell in found.cells]


def one_cell(*cores: str, mem: int = 8192, **pages: int) -> builders.Host:
    """Cell 0 with these cores, all dedicated; pages as p2048=5."""
    last = max(CpuSet.parse(",".join(cores)))
    node = Node(f"0-{last}", mem, {int(size[1:]): count for size, count in pages.items()})
    return host({0: node}, dedicated=f"0-{last}", shared="", smt=cores, reserve_mem=0)


def test_a_guest_whose_cells_may_be_together_fits_exactly_when_somebody_who_tries_everything_finds_a_way() -> None:
    found = {seed: faults(crowded(seed)) for seed in SEEDS}
    assert {seed: wrong for seed, wrong in found.items() if wrong} == {}


def test_crowds_are_placed_apart_and_together_and_refused() -> None:
    said: Counter[str] = Counter()
    for seed in range(400):
        host_, request, how = crowded(seed)
        answer = fit(request, host_.offer(), how)
        is_no = isinstance(answer, NoFit)
        said["no" if is_no else "apart" if len(set(where(answer))) == len(request.cells) else "together"] += 1
    assert min(said["no"], said["apart"], said["together"]) > 40


def test_a_search_that_stops_says_so_and_never_says_no() -> None:
    stopped = 0
    for seed in range(400):
        host_, request, how = crowded(seed)
        answer = fit(request, host_.offer(), replace(how, most_steps=12))
        if isinstance(answer, NoFit) and any(isinstance(reason, SearchStopped) for reason in answer.reasons):
            stopped += 1
        else:
            assert isinstance(answer, Placement) == oracle.possible(request, host_.room(), how), seed
    assert stopped > 10


def test_the_bound_on_steps_is_met_by_many_odd_guest_cells_on_fragmented_cores_of_many_threads() -> None:
    cores = [f"{n}-{n + 3}" for n in range(0, 128, 4)]
    made = host(
        {0: Node("0-63", 8192), 1: Node("64-127", 8192)}, dedicated="0-127", shared="", smt=cores, reserve_mem=0
    )
    offer = Host(made.topology, made.config, (guest("r1", dict(enumerate(range(0, 128, 5))), mem=1),)).offer()
    answer = fit(a_guest(*[(5, 64)] * 17, threads="require"), offer, SHARING)
    assert isinstance(answer, NoFit)
    assert answer.reasons[-1] == SearchStopped(steps=SHARING.most_steps + 1)


def test_halves_of_a_core_that_two_guest_cells_leave_make_room_for_each_other() -> None:
    assert where(checked(a_guest((3, 64), (3, 64), threads="require"), one_cell("0-1", "2-3", "4-5"))) == [0, 0]


def test_the_emulators_cpu_is_taken_from_what_all_guest_cells_leave() -> None:
    made = one_cell("0-1", "2-3", "4-5")
    answer = checked(a_guest((2, 64), (1, 64), threads="isolate", with_emulator=True), made, taken="5")
    assert isinstance(answer, NoFit)
    wider = one_cell("0-1", "2-3", "4-5", "6")
    found = checked(a_guest((2, 64), (1, 64), threads="isolate", with_emulator=True), wider, taken="5")
    assert isinstance(found, Placement)
    assert found.emulator_own == 4


def test_one_guest_cell_takes_other_pages_for_the_sake_of_the_next() -> None:
    made = one_cell("0", "1", mem=1024 + 256, p1048576=1, p2048=128)
    found = checked(a_guest((1, 256), (1, 1024), page="large"), made)
    assert isinstance(found, Placement)
    assert [cell.page_size_kib for cell in found.cells] == [2048, 1048576]


def test_guest_cells_that_no_way_of_filling_the_host_cells_holds_are_refused_for_sure() -> None:
    made = host({n: Node(f"{4 * n}-{4 * n + 3}", 8192) for n in range(2)}, dedicated="0-7", shared="", reserve_mem=0)
    sizes = (3, 3, 2)
    answer = checked(a_guest(*((vcpus, 64) for vcpus in sizes)), made)
    assert answer == NoFit(reasons=(NoRoomTogether(guest_cells=CpuSet(range(3)), cells=CpuSet(range(2))),))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_guest_cells_go_to_as_many_host_cells_as_their_devices_are_near(count: int) -> None:
    functions = [builders.function(f"0000:0{n + 1}:00.0", numa=n) for n in range(3)]
    made = host(
        {n: Node(f"{4 * n}-{4 * n + 3}", 8192) for n in range(3)},
        dedicated="0-11", shared="", reserve_mem=0, pci=functions, pci_filter=("*:*:*.*",),
    )  # fmt: skip
    request = replace(a_guest(*[(1, 64)] * 4), devices=(wants(count=count, policy="required"),))
    assert len(set(where(checked(request, made)))) == count


def test_numbers_of_siblings_are_exact() -> None:
    chance = random.Random(1)
    for _ in range(300):
        cores = [chance.randint(1, 4) for _ in range(chance.randint(1, 3))]
        counts = [chance.randint(1, 4) for _ in range(chance.randint(1, 3))]
        starts = [sum(cores[:n]) for n in range(len(cores))]
        smt = [f"{start}-{start + size - 1}" for start, size in zip(starts, cores, strict=True)]
        made = one_cell(*smt)
        room = Host(made.topology, made.config).offer().cells[0]
        request = a_guest(*((count, 64) for count in counts), threads="require")
        expected = oracle.cpus_possible((room, request.cells), request)
        assert (siblings_for(counts, cores, lambda: None) is not None) == expected, (cores, counts)


def test_whether_cells_may_be_together_changes_nothing_for_a_guest_that_fits_apart() -> None:
    for seed in range(200):
        host_, request, _ = crowded(seed)
        apart = fit(request, host_.offer(), FitRules())
        if isinstance(apart, Placement):
            assert fit(request, host_.offer(), SHARING) == apart
