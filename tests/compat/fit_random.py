"""Cases by chance, small enough that every rule is met often: hosts of up to four cells, guests of up to three."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from types import MappingProxyType

from agent.core.instance import CpuPolicy
from agent.core.pci import DeviceType
from agent.core.values import ReadOnlyMap
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

MIB_2, GIB_1 = 2048, 1048576

SPECS: tuple[dict[str, str | None], ...] = (
    {"vendor_id": "8086", "product_id": "10ed"},
    {"vendor_id": "8086", "product_id": "10ed", "dev_type": "type-VF"},
    {"vendor_id": "8086", "product_id": "10fb", "dev_type": "type-PF"},
    {"vendor_id": "8086", "product_id": "10fb"},
    {"vendor_id": "8086"},
    {"vendor_id": "8086"},
    {"vendor_id": "15b3", "product_id": "101e"},
    {"vendor_id": "15b3", "product_id": "101e", "dev_type": "vdpa"},
    {"vendor_id": "10de", "product_id": "1eb8"},
    {"physical_network": "blue"},
    {"physical_network": None},
    {"physical_network": "blue", "dev_type": "type-PF"},
    {"vendor_id": "8086", "live_migratable": "true"},
    {"vendor_id": "8086", "live_migratable": "false"},
)

OFFERS: tuple[tuple[dict[str, str | None], ...], ...] = (
    ({},),
    ({"vendor_id": "8086", "physical_network": "blue"}, {"vendor_id": "15b3", "physical_network": None}, {}),
    ({"product_id": "10ed", "live_migratable": "true"}, {"vendor_id": "8086", "live_migratable": "false"}),
    ({"vendor_id": "8086", "product_id": "10ed"}, {"vendor_id": "10de"}),
    ({"product_id": "10ed", "remote_managed": "true"}, {}),
)

CHILDREN: dict[str, tuple[str, str, DeviceType]] = {
    "family": ("8086", "10ed", "type-VF"),
    "alike": ("8086", "10fb", "type-VF"),
    "vdpa": ("15b3", "101e", "vdpa"),
}
"""Vendor, product and type of the functions of a physical one."""


def random_case(seed: int) -> Case:
    """Always the same case for a seed."""
    chance = Random(seed)
    host = _host(chance)
    usable = _usable(host)
    used = tuple(one for cell in host.cells for one in _used(chance, host, cell, usable))
    devices = _devices(chance, [cell.id for cell in host.cells]) if chance.random() < 0.6 else ()
    offered = chance.choice(OFFERS)
    return Case(
        host=host,
        used=used,
        guest=_guest(chance, len(host.cells)),
        devices=devices,
        offered=tuple(MappingProxyType(dict(spec)) for spec in offered),
        requests=_requests(chance, devices) if devices else (),
    )


def random_device_case(seed: int) -> Case:
    """The same for devices: room for the guest everywhere, sockets of two cells, and many devices asked for."""
    chance = Random(seed)
    count = chance.choice((2, 3, 4, 4))
    cells = tuple(CaseCell(id=n, cpus=(2 * n, 2 * n + 1), socket=n // 2) for n in range(count))
    devices = _devices(chance, range(count), most=6)
    vcpus = range(chance.choice((1, 1, 2, 2, 3)) if count > 2 else 1)
    guest = tuple(CaseGuestCell(id=n, vcpus=(n,), pinned=(n,)) for n in vcpus)
    return Case(
        host=CaseHost(cells=cells, siblings=tuple((cpu,) for cell in cells for cpu in cell.cpus)),
        guest=CaseGuest(cells=guest, policy="dedicated"),
        devices=devices,
        offered=tuple(MappingProxyType(dict(spec)) for spec in chance.choice(OFFERS)),
        requests=_requests(chance, devices, most=5),
    )


def _host(chance: Random) -> CaseHost:
    count, threads = chance.choice((1, 2, 2, 3, 3, 4)), chance.choice((1, 2, 2))
    cores = chance.choice((2, 3, 4, 6))
    size = cores * threads
    cells = tuple(_cell(chance, number, tuple(range(number * size, (number + 1) * size))) for number in range(count))
    siblings = tuple(
        tuple(cell.cpus[core + thread * cores] for thread in range(threads)) for cell in cells for core in range(cores)
    )
    dedicated, shared = _sets(chance, [cpu for cell in cells for cpu in cell.cpus], siblings)
    return CaseHost(
        cells=cells,
        siblings=siblings,
        dedicated=dedicated,
        shared=shared,
        cpu_ratio=chance.choice((1.0, 1.5, 4.0)),
        ram_ratio=chance.choice((1.0, 1.5)),
        pack=chance.random() < 0.5,
    )


def _cell(chance: Random, number: int, cpus: tuple[int, ...]) -> CaseCell:
    pages = []
    if chance.random() < 0.6:
        pages.append(CasePages(size_kib=MIB_2, total=chance.randint(8, 64), reserved=chance.choice((0, 0, 4))))
    if chance.random() < 0.3:
        pages.append(CasePages(size_kib=GIB_1, total=chance.randint(0, 1)))
    return CaseCell(
        id=number,
        cpus=cpus,
        memory_mib=chance.choice((1536, 2048)),
        pages=tuple(pages),
        socket=chance.choice((0, 0, 1)),
    )


def _sets(
    chance: Random, cpus: list[int], siblings: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    kind = chance.choice((*("legacy", "pin set", "whole cores", "any CPUs") * 3, "only dedicated", "only shared"))
    if kind == "legacy":
        return None, None
    some = tuple(cpu for cpu in cpus if chance.random() < 0.9) or tuple(cpus)
    if kind == "pin set":
        return some, some
    if kind == "only dedicated":
        return some, None
    if kind == "only shared":
        return None, some
    shared = set(chance.sample(cpus, max(1, len(cpus) // 3)))
    if kind == "whole cores":
        shared = {cpu for group in siblings if shared & set(group) for cpu in group}
    return tuple(cpu for cpu in cpus if cpu not in shared) or None, tuple(sorted(shared))


def _usable(host: CaseHost) -> tuple[set[int], set[int]]:
    everything = {cpu for cell in host.cells for cpu in cell.cpus}
    if host.dedicated is None and host.shared is None:
        return everything, everything
    return set(host.dedicated or ()), set(host.shared or ())


def _used(chance: Random, host: CaseHost, cell: CaseCell, usable: tuple[set[int], set[int]]) -> list[CaseUsed]:
    """Guests that the cell can really have."""
    free = sorted(set(cell.cpus) & usable[0])
    shared = len(set(cell.cpus) & usable[1])
    small_mib = cell.memory_mib - sum(page.size_kib * page.total for page in cell.pages) // 1024
    found: list[CaseUsed] = []
    for _ in range(chance.choice((0, 0, 1, 2))):
        pins = tuple(chance.sample(free, chance.randint(0, min(2, len(free)))))
        isolated = _whole_cores(pins, host, free) if chance.random() < 0.3 else None
        if isolated is not None:
            free = [cpu for cpu in free if cpu not in isolated]
        free = [cpu for cpu in free if cpu not in pins]
        floating = chance.randint(0, shared)
        if not pins and not floating:
            continue
        found.append(
            CaseUsed(
                cell=cell.id,
                pins=pins,
                floating=floating,
                memory_mib=chance.choice((2, 64, small_mib // 3)) if small_mib > 200 else 2,
                threads=None if isolated is None else "isolate",
            )
        )
        shared -= floating
    huge = next((page for page in cell.pages if page.size_kib == MIB_2), None)
    if huge is not None and found and chance.random() < 0.4:
        some_mib = 2 * chance.randint(0, (huge.total - huge.reserved) // 2)
        found.append(CaseUsed(cell=cell.id, floating=0, pins=(), memory_mib=some_mib, page_kib=MIB_2))
    return [one for one in found if one.pins or one.floating or one.page_kib]


def _whole_cores(pins: tuple[int, ...], host: CaseHost, free: Sequence[int]) -> set[int] | None:
    """The cores of these pins; None where a guest with isolated threads could not have them."""
    if host.dedicated != host.shared or not pins:
        return None
    everything = set(host.dedicated or [cpu for cell in host.cells for cpu in cell.cpus])
    cores = [set(group) & everything for group in host.siblings if set(group) & set(pins)]
    taken: set[int] = set().union(*cores)
    return taken if len(cores) == len(pins) and taken <= set(free) else None


def _guest(chance: Random, host_cells: int) -> CaseGuest:
    policy: CpuPolicy | None = chance.choice(("dedicated", "dedicated", "mixed", "shared", None))
    cells: list[CaseGuestCell] = []
    memory_mib = chance.choice((2, 2, 16, 64, 64, 64, 127, 400, 1024))
    for number in range(chance.choice((1, 1, 2, 2, 3)) if host_cells > 1 else 1):
        first = sum(len(cell.vcpus) for cell in cells)
        vcpus = tuple(range(first, first + chance.choice((1, 1, 2, 2, 3, 5))))
        pinned = {"dedicated": vcpus, "mixed": vcpus[: chance.randint(0, len(vcpus))]}.get(policy or "", ())
        cells.append(CaseGuestCell(id=number, vcpus=vcpus, pinned=pinned, memory_mib=memory_mib))
    if policy == "mixed" and not any(cell.pinned for cell in cells):
        policy = None
    pins = policy in {"dedicated", "mixed"}
    return CaseGuest(
        cells=tuple(cells),
        policy=policy,
        threads=chance.choice((None, None, None, "prefer", "require", "isolate")) if pins else None,
        emulator=chance.choice((None, None, None, "share", "isolate")) if pins else None,
        page=chance.choice((*(None,) * 9, "small", "large", "any", "any", MIB_2, GIB_1)),
    )


def _devices(chance: Random, cells: Sequence[int], *, most: int = 4) -> tuple[CaseDevice, ...]:
    found: list[CaseDevice] = []
    for bus in range(1, chance.randint(2, most + 1)):
        cell = chance.choice((*cells, *cells, None))
        kind = chance.choice(("plain", "family", "family", "alike", "vdpa"))
        found += [_plain(chance, bus, cell)] if kind == "plain" else _family(chance, bus, cell, kind)
    return tuple(found)


def _plain(chance: Random, bus: int, cell: int | None) -> CaseDevice:
    taken = chance.random() < 0.2
    return CaseDevice(address=f"0000:{bus:02x}:00.0", vendor_id="10de", product_id="1eb8", cell=cell, taken=taken)


def _family(chance: Random, bus: int, cell: int | None, kind: str) -> list[CaseDevice]:
    """A physical function and those that it has; it is taken or some of them, never both."""
    vendor, product, function = CHILDREN[kind]
    has_serial = chance.random() < 0.8
    parent = CaseDevice(
        address=f"0000:{bus:02x}:00.0",
        product_id="10fb",
        type="type-PF",
        cell=cell,
        taken=chance.random() < 0.15,
        serial=has_serial,
    )
    children = [
        CaseDevice(
            address=f"0000:{bus:02x}:02.{number}",
            vendor_id=vendor,
            product_id=product,
            type=function,
            cell=cell,
            parent=parent.address,
            taken=not parent.taken and chance.random() < 0.2,
            serial=has_serial,
        )
        for number in range(chance.randint(1, 3))
    ]
    return [parent, *children]


def _requests(chance: Random, devices: Sequence[CaseDevice], *, most: int = 3) -> tuple[CaseRequest, ...]:
    found = []
    for number in range(chance.choice((0, 1, 1, 2, 2, 3))):
        specs = chance.sample(_likely(chance, devices), chance.choice((1, 1, 1, 2)))
        if len({spec.get("live_migratable") for spec in specs}) > 1:
            specs = specs[:1]
        said: tuple[ReadOnlyMap[str, str | None], ...] = tuple(MappingProxyType(dict(spec)) for spec in specs)
        found.append(
            CaseRequest(
                id=request_id(number),
                specs=said,
                count=chance.choice((1, 1, 1, 1, 2, most)),
                policy=chance.choice(("required", "socket", "preferred", "preferred", "legacy")),
            )
        )
    return tuple(found)


def _likely(chance: Random, devices: Sequence[CaseDevice]) -> list[dict[str, str | None]]:
    """Mostly what some device is, since what none is says no in an instant."""
    products = {device.product_id for device in devices} | {None}
    found = [spec for spec in SPECS if spec.get("product_id") in products or chance.random() < 0.1]
    return found * 2
