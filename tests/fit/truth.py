"""Whether the reasons of a refusal are true: every number counted again by its definition."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec

from agent.core import reasons as why
from agent.core.cpuset import CpuSet
from agent.core.fit.host import CellOffer, Offer
from agent.core.fit.rules import FitRules
from agent.core.instance import CellRequest, InstanceRequest
from agent.core.pci_request import PciRequest
from agent.core.usage import CpuHolder
from tests.fit import oracle, rules
from tests.fit.rules import Room, members

SHARING = FitRules(share_cells=True)

OfCell = (
    why.CpusShort
    | why.ThreadsShort
    | why.NoSiblings
    | why.EmulatorCpuShort
    | why.SharedCpusShort
    | why.SharedOverRatio
    | why.MemoryShort
    | why.PagesShort
    | why.PagesUneven
    | why.NoSuchPages
    | why.CellWithheld
)
"""Reasons that name a guest cell and a host cell."""


def untrue(reason: why.Reason, request: InstanceRequest, room: Room) -> list[str]:
    """What of a reason is not so; none when it is true."""
    match reason:
        case why.DevicesShort() | why.DevicesFar() | why.SocketsUnknown():
            return list(_of_request(reason, next(one for one in request.devices if one.id == reason.request), room))
        case why.DevicesContended():
            return list(_contended_devices(reason, request, room))
        case why.DevicesApart():
            return list(_devices_apart(reason, request, room))
        case why.MemoryShort() | why.SharedCpusShort() | why.SharedOverRatio() if reason.cell is None:
            return list(_of_host_row(reason, request, room.offer))
        case (
            why.CpusShort()
            | why.ThreadsShort()
            | why.NoSiblings()
            | why.EmulatorCpuShort()
            | why.SharedCpusShort()
            | why.SharedOverRatio()
            | why.MemoryShort()
            | why.PagesShort()
            | why.PagesUneven()
            | why.NoSuchPages()
            | why.CellWithheld()
        ):
            return list(_of_amount(reason, request, room.offer))
        case _:
            return list(_of_host(reason, request, room))


def _differ(**pairs: tuple[object, object]) -> Iterator[str]:
    for name, (said, counted) in pairs.items():
        if said != counted:
            yield f"{name} is {said}, counted {counted}"


def _of_amount(reason: OfCell, request: InstanceRequest, offer: Offer) -> Iterator[str]:
    asked = next((one for one in request.cells if one.id == reason.guest_cell), None)
    here = next((one for one in offer.cells if one.facts.id == reason.cell), None)
    if asked is None or here is None:
        yield f"there is no guest cell {reason.guest_cell}, or no cell {reason.cell}"
    else:
        yield from _of_cpus(reason, asked, here, request)
        yield from _of_memory(reason, asked, here, request)


def _of_cpus(reason: OfCell, asked: CellRequest, cell: CellOffer, request: InstanceRequest) -> Iterator[str]:
    count, free, spare = len(asked.pinned), members(cell.free_cpus), asked.vcpus - asked.pinned
    pins_fit = _pins_fit(count, request, cell)
    match reason:
        case why.CpusShort():
            emulator = rules.needs_emulator_cpu(request, asked)
            needed = count + emulator
            yield from _differ(with_emulator=(reason.with_emulator, emulator))
            yield from _differ(asked=(reason.asked, needed), free=(members(reason.free.mask), free))
            yield from _differ(
                dedicated=(reason.dedicated.mask, cell.facts.dedicated), short=(True, needed > len(free))
            )
            yield from _holders_differ(reason.holders, cell, free)
        case why.ThreadsShort():
            most = max(n for n in range(count + 1) if _pins_fit(n, request, cell))
            yield from _differ(policy=(reason.policy, request.thread_policy), asked=(reason.asked, count))
            yield from _differ(placeable=(reason.placeable, most), free=(members(reason.free.mask), free))
            yield from _differ(short=(True, most < count <= len(free)))
            yield from _holders_differ(reason.holders, cell, free)
        case why.NoSiblings():
            yield from _differ(policy=("require", request.thread_policy), threads=(1, cell.facts.threads))
        case why.EmulatorCpuShort():
            yield from _differ(asked=(reason.asked, count + 1), free=(members(reason.free.mask), free))
            yield from _holders_differ(reason.holders, cell, free)
            yield from _differ(fits=(True, pins_fit), both=(False, oracle.cpus_possible((cell, (asked,)), request)))
        case why.SharedCpusShort():
            yield from _differ(asked=(reason.asked, len(spare)), shared=(reason.shared.mask, cell.facts.shared))
            yield from _differ(short=(True, len(spare) > len(reason.shared)))
        case why.SharedOverRatio():
            yield from _differ(asked=(reason.asked, len(spare)), free=(reason.free, cell.floating))
            yield from _differ(limit=(reason.limit, cell.floating_limit), short=(True, reason.asked > reason.free))
        case why.CellWithheld():
            yield from _differ(allowed=(False, cell.facts.allowed))


def _holders_differ(holders: tuple[CpuHolder, ...], cell: CellOffer, free: frozenset[int]) -> Iterator[str]:
    held = {holder.cpu for holder in holders}
    yield from _differ(holders=(held, members(cell.facts.dedicated) - free))


def _pins_fit(count: int, request: InstanceRequest, cell: CellOffer) -> bool:
    free = members(cell.free_cpus)
    return any(
        not rules.thread_fault(pins, request.thread_policy, cell, free)
        for pins in itertools.combinations(sorted(free), count)
    )


def _of_memory(reason: OfCell, asked: CellRequest, cell: CellOffer, request: InstanceRequest) -> Iterator[str]:
    kib, pages = asked.memory_kib, {page.size_kib: page for page in cell.pages}
    allowed = rules.sizes_for(request, cell)
    match reason:
        case why.MemoryShort():
            bounds = {cell.free_kib, cell.free_by_ratio_kib, cell.total_kib}
            small = cell.facts.small_kib
            yield from _differ(asked=(reason.asked_kib, kib), short=(True, kib > reason.free_kib))
            yield from _differ(free=(True, reason.free_kib in bounds), small=(True, small in allowed))
            yield from _differ(fault=(True, any(rules.amount_faults([(asked, small)], request, cell))))
        case why.PagesShort():
            row = pages[reason.size_kib]
            yield from _differ(asked=(reason.asked, kib // row.size_kib), even=(0, kib % row.size_kib))
            yield from _differ(free=(reason.free, row.free), reserved=(reason.reserved, row.reserved))
            yield from _differ(short=(True, reason.asked > reason.free), size=(True, row.size_kib in allowed))
        case why.PagesUneven():
            yield from _differ(memory=(reason.memory_kib, kib), size=(True, reason.size_kib in allowed))
            yield from _differ(uneven=(True, kib % reason.size_kib > 0))
        case why.NoSuchPages():
            yield from _differ(asked=(reason.asked, request.page_size), allowed=((), allowed))
            yield from _differ(
                sizes=(
                    reason.sizes_kib,
                    (cell.facts.small_kib, *sorted(size for size, page in pages.items() if page.total > 0)),
                )
            )


def _of_host_row(
    reason: why.MemoryShort | why.SharedCpusShort | why.SharedOverRatio, request: InstanceRequest, offer: Offer
) -> Iterator[str]:
    spare = sum(len(cell.vcpus - cell.pinned) for cell in request.cells) if request.cells else request.vcpus
    match reason:
        case why.MemoryShort():
            yield from _differ(short=(True, reason.asked_kib > reason.free_kib))
            yield from _differ(free=(True, reason.free_kib in {offer.free_by_ratio_kib, offer.free_kib}))
            yield from _differ(asked=(True, reason.asked_kib <= request.memory_kib))
            if request.page_size == "any":
                yield from _differ(enough=(True, _is_enough(reason.asked_kib, request, offer)))
                # devices can take the guest to other host cells than those that need the least
                is_too_much = not request.devices and _is_enough(reason.asked_kib - 1, request, offer)
                yield from _differ(too_much=(False, is_too_much))
            else:
                yield from _differ(all=(reason.asked_kib, request.memory_kib))
        case why.SharedCpusShort():
            yield from _differ(asked=(reason.asked, request.vcpus), shared=(reason.shared.mask, offer.shared_cpus))
            yield from _differ(short=(True, reason.asked > len(reason.shared)), cells=((), request.cells))
        case why.SharedOverRatio():
            yield from _differ(asked=(reason.asked, spare), free=(reason.free, offer.floating))
            yield from _differ(limit=(reason.limit, offer.floating_limit), short=(True, reason.asked > reason.free))


def _is_enough(small_kib: int, request: InstanceRequest, offer: Offer) -> bool:
    """With so much free on the host as a whole there is a place for the guest, devices apart."""
    there = msgspec.structs.replace(offer, free_kib=small_kib, free_by_ratio_kib=small_kib)
    bare = msgspec.structs.replace(request, devices=())
    return oracle.possible(bare, Room(there, {}))


def _of_host(reason: why.Reason, request: InstanceRequest, room: Room) -> Iterator[str]:
    offer = room.offer
    match reason:
        case why.TooFewCells():
            yield from _differ(asked=(reason.asked, len(request.cells)), short=(True, reason.asked > len(reason.cells)))
            # every guest cell has vCPUs
            yield from _differ(
                cells=(reason.cells, CpuSet(cell.facts.id for cell in offer.cells if cell.facts.has_cpus))
            )
        case why.CellsContended():
            for part in (part for part in request.cells if part.id in reason.guest_cells):
                alone = {cell.facts.id for cell in offer.cells if _fits_alone(part, cell, request)}
                yield from _differ(somewhere=(True, bool(alone)), within=(set(), alone - set(reason.cells)))
            yield from _differ(short=(True, len(reason.cells) < len(reason.guest_cells)))
        case why.NoRoomTogether():
            for part in request.cells:
                alone = {cell.facts.id for cell in room.offer.cells if _fits_alone(part, cell, request)}
                yield from _differ(somewhere=(True, bool(alone)), within=(set(), alone - set(reason.cells)))
            yield from _differ(guest_cells=(reason.guest_cells, CpuSet(part.id for part in request.cells)))
            yield from _differ(together=(False, oracle.possible(request, room, SHARING)))
            bare = msgspec.structs.replace(request, devices=()) if not reason.requests else request
            yield from _differ(without_devices=(False, oracle.possible(bare, room, SHARING)))
        case why.EmulatorHomeless():
            yield from _differ(home=(False, rules.has_emulator_home(request, offer)))
            yield from _differ(vcpus=(reason.vcpus, request.realtime))
        case why.CpusUncertain():
            yield from _differ(guests=(reason.guests, offer.uncertain), unknown=(True, bool(offer.uncertain)))
            yield from _differ(pinned=(True, bool(request.pinned)))
        case _:
            yield f"{reason} is not expected"


def _fits_alone(part: CellRequest, cell: CellOffer, request: InstanceRequest) -> bool:
    return (
        cell.facts.allowed
        and oracle.cpus_possible((cell, (part,)), request)
        and any(not any(rules.amount_faults([(part, size)], request, cell)) for size in rules.sizes_for(request, cell))
    )


def _of_request(
    reason: why.DevicesShort | why.DevicesFar | why.SocketsUnknown, asked: PciRequest, room: Room
) -> Iterator[str]:
    offer, devices = room
    every = [n for n in rules.offered(offer) if rules.will_do(devices[n], rules.spec_of(n, offer), asked)]
    free = oracle.usable_for(asked, room, None)
    match reason:
        case why.DevicesShort():
            yield from _differ(asked=(reason.asked, asked.count), offered=(reason.offered, len(every)))
            yield from _differ(free=(reason.free, _most_at_once(free, offer)), short=(True, reason.asked > reason.free))
            yield from _differ(specs=(reason.specs, asked.specs), instead=(reason.instead is None, bool(every)))
            owners = {owner for n in every for owner in offer.device_holders.get(n, ())}
            yield from _differ(holders=(set(reason.holders), owners))
            yield from _kept_back_differ(reason.kept_back, every, offer)
        case why.DevicesFar():
            is_choice = reason.guest_cells == 1 and bool(reason.cells)
            sets = [frozenset((cell,)) for cell in reason.cells] if is_choice else [frozenset(reason.cells)]
            near = max(_most_at_once(oracle.usable_for(asked, room, cells), offer) for cells in sets)
            places = {devices[n].cell for n in free}
            many = {cell: _most_at_once(tuple(n for n in free if devices[n].cell == cell), offer) for cell in places}
            elsewhere = many.pop(None, 0)
            yield from _differ(policy=(reason.policy, asked.numa_policy), asked=(reason.asked, asked.count))
            yield from _differ(near=(reason.near, near), short=(True, reason.near < reason.asked))
            yield from _differ(by_cell=(dict(reason.by_cell), many), elsewhere=(reason.elsewhere, elsewhere))
            yield from _differ(enough=(True, _most_at_once(free, offer) >= asked.count))
        case why.SocketsUnknown():
            unknown = {cell.id for cell in offer.facts.cells if cell.socket is None}
            yield from _differ(policy=("socket", asked.numa_policy), cells=(set(), set(reason.cells) - unknown))
            yield from _differ(some=(True, bool(reason.cells)))


def _kept_back_differ(said: tuple[why.KeptBack, ...], every: list[int], offer: Offer) -> Iterator[str]:
    """Each that nobody has and that is not free, with all held ones that exclude it."""
    numbers, holders = offer.facts.devices.number, offer.device_holders
    kept = {numbers[device]: {numbers[by] for by in one.by} for one in said for device in one.devices}
    held = {n: {other for other in holders if rules.are_relatives(n, other, offer)} for n in every}
    mine = {n for n in every if not holders.get(n) and not offer.free_devices >> n & 1 and held[n]}
    yield from _differ(kept_back=(kept, {n: held[n] for n in mine}))


def _most_at_once(free: tuple[int, ...], offer: Offer) -> int:
    """As many of them as can be given beside each other."""
    return max(
        count
        for count in range(len(free) + 1)
        for given in itertools.combinations(free, count)
        if not any(rules.are_relatives(one, other, offer) for one, other in itertools.combinations(given, 2))
    )


def _contended_devices(reason: why.DevicesContended, request: InstanceRequest, room: Room) -> Iterator[str]:
    named = [one for one in request.devices if one.id in reason.requests]
    yield from _differ(requests=(sorted(reason.requests), sorted(one.id for one in named)))
    cells = None if reason.cells is None else frozenset(reason.cells)
    for one in named:
        yield from _differ(alone=(True, oracle.can_serve([one], room, cells)))
    free = tuple(sorted({n for one in named for n in oracle.usable_for(one, room, cells)}))
    yield from _differ(asked=(reason.asked, tuple(one.count for one in named)))
    yield from _differ(free=(reason.free, _most_at_once(free, room.offer)))
    yield from _differ(together=(False, oracle.can_serve(named, room, cells)))
    yield from _differ(why=(True, sum(reason.asked) > reason.free or reason.has_pfs))


def _devices_apart(reason: why.DevicesApart, request: InstanceRequest, room: Room) -> Iterator[str]:
    """The host cells are those that some guest cell fits on, which is what tells them from the host's."""
    from_where = {one.request: one.cells for one in reason.requests}
    named = [one for one in request.devices if one.id in from_where]
    could = {
        cell.facts.id for cell in room.offer.cells if any(_fits_alone(part, cell, request) for part in request.cells)
    }
    yield from _differ(guest_cells=(reason.guest_cells, len(request.cells)), several=(True, len(named) > 1))
    yield from _differ(somewhere=(True, oracle.can_serve(named, room, frozenset(could))))
    for chosen in itertools.combinations(sorted(could), reason.guest_cells):
        yield from _differ(together=(False, oracle.can_serve(named, room, frozenset(chosen))))
    for one in named:
        anywhere = set(oracle.usable_for(one, room, frozenset()))
        near = {cell for cell in could if set(oracle.usable_for(one, room, frozenset((cell,)))) - anywhere}
        yield from _differ(cells=(from_where[one.id] or frozenset(), CpuSet(near)))
