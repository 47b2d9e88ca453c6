"""Eight guest cells on sixteen host cells with sixty-four devices, whose kinds pull the guest apart."""

from __future__ import annotations

import msgspec

from agent.core import reasons as why
from agent.core.cpuset import CpuSet
from agent.core.fit.decide import fit
from agent.core.fit.rules import FitRules, NoFit
from agent.core.instance import InstanceRequest
from agent.core.pci import PciAddress, PciDevice
from agent.core.pci_request import PciRequest, PciSpec
from agent.core.placement import Placement
from tests.builders import Node, host
from tests.fit.hosts import Host
from tests.fit.test_fit_by_hand import with_cells
from tests.fit.violations import violations

KIND_A, KIND_B, OTHER = "000a", "000b", "000c"
STAIRS = (7, 6, 5, 4, 3, 2, 1, 0)
"""Devices of kind A on cells 0 to 7, and of kind B on cells 8 to 15."""

ON_THE_BEST = sum(STAIRS[:4])
"""Of each kind; only the four best cells of each together have as many."""


def crowded() -> Host:
    """The host; the eight devices that are of neither kind make it sixty-four."""
    kinds = [(KIND_A, cell, count) for cell, count in enumerate(STAIRS)]
    kinds += [(KIND_B, 8 + cell, count) for cell, count in enumerate(STAIRS)]
    kinds += [(OTHER, cell, 1) for cell in range(8)]
    places = [(product, cell) for product, cell, count in kinds for _ in range(count)]
    devices = [
        PciDevice(
            address=PciAddress(0, 1 + n, 0, 0), vendor_id="8086", product_id=product, class_code="0200", cell=cell
        )
        for n, (product, cell) in enumerate(places)
    ]
    nodes = {cell: Node(f"{cell * 8}-{cell * 8 + 7}", 4096) for cell in range(16)}
    made = host(nodes, dedicated="0-127", shared="", pci=devices, pci_filter=["*:*:*.*"], reserve_mem=0)
    assert len(made.topology.pci) == 64
    return Host(made.topology, made.config, ())


def asking(of_a: int, of_b: int) -> InstanceRequest:
    """A guest of eight cells that wants so many devices of each kind on its own host cells."""
    wanted = tuple(
        PciRequest(id=product, specs=(PciSpec(product_id=product),), count=count, numa_policy="required")
        for product, count in ((KIND_A, of_a), (KIND_B, of_b))
    )
    return msgspec.structs.replace(with_cells(*[4] * 8), devices=wanted)


def cells_of(answer: Placement | NoFit) -> CpuSet:
    """The host cells of a guest that fits."""
    assert isinstance(answer, Placement), answer
    return CpuSet(cell.host_cell for cell in answer.cells)


def test_a_guest_with_room_to_choose_has_both_kinds_near() -> None:
    made, request = crowded(), asking(4, 4)
    answer = fit(request, made.offer())
    assert violations(answer, request, made.room()) == [] if isinstance(answer, Placement) else answer


def test_the_only_set_of_host_cells_that_has_enough_of_both_kinds_is_found() -> None:
    made, request = crowded(), asking(ON_THE_BEST, ON_THE_BEST)
    answer = fit(request, made.offer())
    assert cells_of(answer) == CpuSet.parse("0-3,8-11")
    assert isinstance(answer, Placement)
    assert violations(answer, request, made.room()) == []


def test_one_device_more_fits_nowhere_and_the_two_requests_are_named() -> None:
    answer = fit(asking(ON_THE_BEST + 1, ON_THE_BEST), crowded().offer())
    assert isinstance(answer, NoFit)
    (apart,) = answer.reasons
    assert isinstance(apart, why.DevicesApart)
    assert [one.request for one in apart.requests] == [KIND_A, KIND_B]


def test_a_search_that_meets_its_bound_says_so_and_never_yes() -> None:
    made, request = crowded(), asking(ON_THE_BEST, 3)
    assert CpuSet.parse("0-3") <= cells_of(fit(request, made.offer()))
    stopped = fit(request, made.offer(), FitRules(most_steps=3))
    assert stopped == NoFit(reasons=(why.SearchStopped(steps=4),))
