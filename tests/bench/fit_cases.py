"""Guests of k cells for hosts of n, such that a search has little to do, much, or all."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import MappingProxyType

from agent.core.pci_request import PciNumaPolicy
from tests.compat.fit_cases import (
    Case,
    CaseCell,
    CaseDevice,
    CaseGuest,
    CaseGuestCell,
    CaseHost,
    CaseRequest,
    CaseUsed,
    request_id,
)

CPUS, MIB = 16, 64
"""CPUs of a host cell, two threads a core; what a guest asks for in steps of."""

KINDS = ("aaaa", "bbbb", "cccc", "dddd", "eeee")


def empty(guest_cells: int, host_cells: int) -> Case:
    """The first choice fits."""
    return Case(host=_host(host_cells), guest=_guest([(2, MIB)] * guest_cells))


def only_last(guest_cells: int, host_cells: int) -> Case:
    """One assignment fits, which nova comes to last: host cell j has j + 1 free CPUs and n - j units of memory."""
    return _stepped(host_cells, [(size, host_cells + 1 - size) for size in _sizes(guest_cells, host_cells)])


def nothing(guest_cells: int, host_cells: int) -> Case:
    """Two guest cells fit on the same host cell alone; of one cell: it does not fit anywhere."""
    asked = [(size, host_cells + 1 - size) for size in _sizes(guest_cells, host_cells)]
    return _stepped(host_cells, [*asked[:-1], asked[-2] if guest_cells > 1 else (1, host_cells + 1)])


def _sizes(guest_cells: int, host_cells: int) -> list[int]:
    """Free CPUs of the host cells that are left when nova has tried all others; it sorts them only if it may choose."""
    sizes = list(range(1, guest_cells + 1))
    return sizes if guest_cells < host_cells else sizes[::-1]


def _stepped(host_cells: int, asked: list[tuple[int, int]]) -> Case:
    used = tuple(
        CaseUsed(cell=cell, pins=tuple(range(cell * CPUS + cell + 1, (cell + 1) * CPUS)), memory_mib=cell * MIB)
        for cell in range(host_cells)
    )
    return Case(
        host=_host(host_cells, memory_mib=host_cells * MIB),
        guest=_guest([(vcpus, units * MIB) for vcpus, units in asked]),
        used=used,
    )


def empty_with_devices(guest_cells: int, host_cells: int) -> Case:
    """Four devices on each cell, all alike, and one asked for by each guest cell."""
    devices = [_device(cell, number, KINDS[0]) for cell in range(host_cells) for number in range(4)]
    return _asking(empty(guest_cells, host_cells), devices, _request(0, KINDS[0], guest_cells))


def only_last_with_devices(guest_cells: int, host_cells: int) -> Case:
    """Only the last of all sets of host cells has the devices; of all cells: only one assignment has the CPUs."""
    first = host_cells - guest_cells
    devices = [_device(cell, number, KINDS[cell < first]) for cell in range(host_cells) for number in range(4)]
    case = only_last(guest_cells, host_cells) if first == 0 else empty(guest_cells, host_cells)
    return _asking(case, devices, _request(0, KINDS[0], 4 * guest_cells))


def nothing_with_devices(guest_cells: int, host_cells: int) -> Case:
    """One device more asked for than any set of host cells has, though as many are free on the host."""
    devices = [_device(cell, number, KINDS[0]) for cell in range(host_cells) for number in range(3)]
    devices += [_device(None, number, KINDS[0]) for number in range(host_cells)]
    return _asking(empty(guest_cells, host_cells), devices, _request(0, KINDS[0], 3 * guest_cells + 1))


def crowded(seed: int) -> Case:
    """16 host cells, 8 guest cells and 64 devices of several kinds by chance, with requests that are coupled by where
    they may be served from."""
    chance = Random(seed)
    kinds = KINDS[: chance.choice((2, 3, 4, 5))]
    places = [chance.randrange(16) for _ in range(64)]
    devices = [_device(cell, number, chance.choice(kinds)) for number, cell in enumerate(places)]
    policies: tuple[PciNumaPolicy, ...] = ("required", "required", "required", "socket", "preferred", "legacy")
    requests = [
        _request(number, kind, chance.choice((4, 8, 9, 10, 12, 14)), chance.choice(policies))
        for number, kind in enumerate(kinds)
    ]
    case = chance.choice((empty, only_last, nothing))(8, 16)
    if chance.random() < 0.5:
        pins = tuple(CaseUsed(cell=cell, pins=tuple(range(cell * CPUS, cell * CPUS + 14))) for cell in range(0, 16, 3))
        guest = _guest([(chance.choice((2, 3, 8, 16)), MIB) for _ in range(8)])
        case = Case(host=_host(16), guest=guest, used=pins)
    return _asking(case, devices, *requests)


def virtual_functions(count: int, *, near: bool) -> Case:
    """64 of each physical function, on four cells by turns. near: some are on the one cell that has CPUs for it, and
    the policy is legacy; else none is, and it is required."""
    devices = []
    for bus in range(count // 64):
        cell = bus % 4 if near else bus % 3
        parent = CaseDevice(address=f"0000:{bus:02x}:00.0", product_id="10fb", type="type-PF", cell=cell)
        devices.append(parent)
        devices += [
            CaseDevice(
                address=f"0000:{bus:02x}:{2 + n // 8:02x}.{n % 8}", type="type-VF", cell=cell, parent=parent.address
            )
            for n in range(64)
        ]
    case = Case(
        host=_host(4),
        guest=_guest([(4, MIB)]),
        used=tuple(CaseUsed(cell=cell, pins=tuple(range(cell * CPUS, (cell + 1) * CPUS))) for cell in range(3)),
    )
    return _asking(case, devices, _request(0, "10ed", 2, "legacy" if near else "required"))


def _asking(case: Case, devices: list[CaseDevice], *requests: CaseRequest) -> Case:
    return Case(host=case.host, guest=case.guest, used=case.used, devices=tuple(devices), requests=requests)


def _host(cells: int, memory_mib: int = 16 * MIB) -> CaseHost:
    made = tuple(
        CaseCell(id=cell, cpus=tuple(range(cell * CPUS, (cell + 1) * CPUS)), memory_mib=memory_mib, socket=cell // 2)
        for cell in range(cells)
    )
    cpus = tuple(cpu for cell in made for cpu in cell.cpus)
    return CaseHost(cells=made, siblings=tuple((cpu, cpu + 1) for cpu in cpus[::2]), dedicated=cpus)


def _guest(asked: list[tuple[int, int]]) -> CaseGuest:
    """asked: pinned vCPUs and MiB of each cell."""
    cells = []
    first = 0
    for number, (count, memory_mib) in enumerate(asked):
        vcpus = tuple(range(first, first + count))
        cells.append(CaseGuestCell(id=number, vcpus=vcpus, pinned=vcpus, memory_mib=memory_mib))
        first += count
    return CaseGuest(cells=tuple(cells), policy="dedicated")


def _device(cell: int | None, number: int, kind: str) -> CaseDevice:
    bus = 0xFF if cell is None else cell
    return CaseDevice(address=f"0000:{bus:02x}:{number // 8:02x}.{number % 8}", product_id=kind, cell=cell)


def _request(number: int, kind: str, count: int, policy: PciNumaPolicy = "required") -> CaseRequest:
    spec: dict[str, str | None] = {"vendor_id": "8086", "product_id": kind}
    return CaseRequest(id=request_id(number), specs=(MappingProxyType(spec),), count=count, policy=policy)


SITUATIONS: dict[str, Callable[[int, int], Case]] = {
    "empty host": empty,
    "only the last assignment fits": only_last,
    "nothing fits": nothing,
    "empty host, devices": empty_with_devices,
    "only the last fits, devices": only_last_with_devices,
    "nothing fits, devices": nothing_with_devices,
}
