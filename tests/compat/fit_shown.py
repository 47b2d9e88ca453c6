"""A case by hand for each difference from nova."""

from __future__ import annotations

from types import MappingProxyType

from agent.core.pci_request import PciNumaPolicy
from tests.compat.fit_cases import (
    Case,
    CaseCell,
    CaseDevice,
    CaseGuest,
    CaseGuestCell,
    CaseHost,
    CasePages,
    CaseRequest,
    CaseUsed,
    request_id,
)

Cpus = tuple[int, ...] | None

ONE_PIN = CaseGuest(cells=(CaseGuestCell(id=0, vcpus=(0,), pinned=(0,)),), policy="dedicated")
FLOATING = CaseGuest(cells=(CaseGuestCell(id=0, vcpus=(0,)),))
TWO_CORES = ((0, 1), (2, 3))


def _one_cell(siblings: tuple[tuple[int, ...], ...], dedicated: Cpus = None, shared: Cpus = None) -> CaseHost:
    cpus = tuple(cpu for group in siblings for cpu in group)
    return CaseHost(cells=(CaseCell(id=0, cpus=cpus),), siblings=siblings, dedicated=dedicated, shared=shared)


def _cells(count: int, dedicated: Cpus = None, shared: Cpus = None) -> CaseHost:
    """Of two cores each, without threads."""
    cells = tuple(CaseCell(id=n, cpus=(2 * n, 2 * n + 1), socket=n) for n in range(count))
    return CaseHost(cells=cells, siblings=tuple((cpu,) for cpu in range(2 * count)), dedicated=dedicated, shared=shared)


def _request(
    *specs: dict[str, str | None], number: int = 0, count: int = 1, policy: PciNumaPolicy = "legacy"
) -> CaseRequest:
    said = tuple(MappingProxyType(spec) for spec in specs)
    return CaseRequest(id=request_id(number), specs=said, count=count, policy=policy)


def _two_cells(first: int, second: int) -> CaseGuest:
    """So many pinned vCPUs in each."""
    cells = tuple(
        CaseGuestCell(id=n, vcpus=vcpus, pinned=vcpus)
        for n, vcpus in enumerate((tuple(range(first)), tuple(range(first, first + second))))
    )
    return CaseGuest(cells=cells, policy="dedicated")


PF = CaseDevice(address="0000:01:00.0", product_id="10fb", type="type-PF")
VF = CaseDevice(address="0000:01:02.0", type="type-VF", parent=PF.address)
CARD = CaseDevice(address="0000:03:00.0", product_id="1111")
OTHER_CARD = CaseDevice(address="0000:04:00.0", product_id="2222")

SHOWN: dict[str, Case] = {
    "pairs kept between orders": Case(
        host=_cells(3),
        guest=_two_cells(1, 2),
        used=(CaseUsed(cell=1, pins=(2,)),),
        devices=tuple(CaseDevice(address=f"0000:0{cell}:00.0", product_id="1111", cell=cell) for cell in (1, 2)),
        requests=(_request({"product_id": "1111"}, count=2, policy="required"),),
    ),
    "page word kept between cells": Case(
        host=CaseHost(
            cells=(
                CaseCell(id=0, cpus=(0, 1, 2, 3, 4, 5), pages=(CasePages(size_kib=1048576, total=1),)),
                CaseCell(id=1, cpus=(6, 7), pages=(CasePages(size_kib=2048, total=512),)),
            ),
            siblings=((0, 1), (2, 3), (4, 5), (6, 7)),
        ),
        guest=CaseGuest(
            cells=(CaseGuestCell(id=0, vcpus=(0, 1), pinned=(0, 1), memory_mib=1024),),
            policy="dedicated",
            threads="require",
            page="large",
        ),
        used=(CaseUsed(cell=0, pins=(1, 3, 5)),),
    ),
    "requests one after another": Case(
        host=_cells(1),
        guest=FLOATING,
        devices=(CARD, OTHER_CARD),
        requests=(
            _request({"product_id": "1111"}, {"product_id": "2222"}),
            _request({"product_id": "1111"}, number=1),
        ),
    ),
    "relatives in the dry run": Case(
        host=_cells(1),
        guest=FLOATING,
        devices=(PF, VF),
        requests=(
            _request({"product_id": "10fb", "dev_type": "type-PF"}),
            _request({"product_id": "10ed"}, number=1),
        ),
    ),
    "near before kind": Case(
        host=_cells(2, dedicated=(0, 1), shared=(2, 3)),
        guest=ONE_PIN,
        devices=(
            PF,
            CaseDevice(address="0000:02:00.0", product_id="1572", type="type-PF", cell=1),
            CaseDevice(address="0000:02:02.0", product_id="10fb", type="type-VF", cell=1, parent="0000:02:00.0"),
        ),
        requests=(_request({"product_id": "10fb"}, policy="preferred"),),
    ),
    "no cell on a host of one cell": Case(
        host=_cells(1),
        guest=FLOATING,
        devices=(CaseDevice(address="0000:03:00.0", cell=None),),
        requests=(_request({"product_id": "10ed"}, policy="required"),),
    ),
    "isolate beside shared CPUs": Case(
        host=_one_cell(TWO_CORES, dedicated=(2, 3), shared=(0, 1)),
        guest=CaseGuest(cells=ONE_PIN.cells, policy="dedicated", threads="isolate"),
    ),
    "isolate on smaller cores": Case(
        host=_one_cell(((0, 1), (2,))),
        guest=CaseGuest(cells=ONE_PIN.cells, policy="dedicated", threads="isolate"),
        used=(CaseUsed(cell=0, pins=(0,)),),
    ),
    "cell without a pin": Case(
        host=_cells(2),
        guest=CaseGuest(
            cells=(CaseGuestCell(id=0, vcpus=(0,), pinned=(0,)), CaseGuestCell(id=1, vcpus=(1,))),
            policy="mixed",
            threads="isolate",
        ),
    ),
    "isolate with an isolated emulator": Case(
        host=_one_cell(TWO_CORES),
        guest=CaseGuest(cells=ONE_PIN.cells, policy="dedicated", threads="isolate", emulator="isolate"),
        used=(CaseUsed(cell=0, pins=(2,)),),
    ),
    "ratio of huge pages": Case(
        host=CaseHost(
            cells=(CaseCell(id=0, cpus=(0, 1), memory_mib=1024, pages=(CasePages(size_kib=2048, total=256),)),),
            siblings=((0,), (1,)),
        ),
        guest=CaseGuest(cells=(CaseGuestCell(id=0, vcpus=(0,), memory_mib=200),)),
        used=(CaseUsed(cell=0, floating=1, memory_mib=400),),
    ),
}


def _on_the_other_cell(policy: PciNumaPolicy, *, is_pinned: bool) -> Case:
    """Bug 1805891: the device on cell 0, all CPUs for guests on cell 1, by vcpu_pin_set where nothing is pinned."""
    return Case(
        host=_cells(2, dedicated=(2, 3), shared=None if is_pinned else (2, 3)),
        guest=ONE_PIN if is_pinned else FLOATING,
        devices=(PF,),
        requests=(_request({"product_id": "10fb", "dev_type": "type-PF"}, policy=policy),),
    )


POLICIES: dict[PciNumaPolicy, bool] = {"required": False, "socket": False, "legacy": False, "preferred": True}


def _on_both_sockets() -> Case:
    """Two of its host cells on one socket would reach only half of the devices."""
    cells = tuple(CaseCell(id=n, cpus=(2 * n, 2 * n + 1), socket=n // 2) for n in range(4))
    return Case(
        host=CaseHost(cells=cells, siblings=tuple((cpu,) for cpu in range(8))),
        guest=_two_cells(1, 1),
        devices=tuple(CaseDevice(address=f"0000:0{n + 1}:00.0", cell=n) for n in range(4)),
        requests=(_request({"product_id": "10ed"}, count=4, policy="socket"),),
    )


AGREED: dict[str, tuple[Case, bool]] = {
    f"a device of the other cell, policy {policy}, {'pinned' if is_pinned else 'floating'}": (
        _on_the_other_cell(policy, is_pinned=is_pinned),
        fits,
    )
    for policy, fits in POLICIES.items()
    for is_pinned in (True, False)
} | {"devices of both sockets for a guest with a cell on each": (_on_both_sockets(), True)}
"""Questions that must be answered alike, and the answer."""
