"""Who holds which host CPU, and what contradicts about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.core import advice
from agent.core.advice import FreeCpus, Proposals, Room
from agent.core.conflicts import Conflict, ConflictKind, Resource, by_name, conflict, id_of
from agent.core.cpuset import CpuMask, CpuSet
from agent.core.holds import GuestHolds, HostSets, cell_of
from agent.core.topology import HostTopology
from agent.core.usage.books import CpuBooks
from agent.core.usage.rows import CpuAmount, CpuHolder
from agent.core.words import agrees, plural, some

CPU_KINDS: frozenset[ConflictKind] = frozenset(
    {
        "cpu-pinned-twice",
        "sibling-of-isolated",
        "pinned-to-offline",
        "pinned-outside-dedicated",
        "shared-on-dedicated",
        "emulator-on-dedicated",
    }
)
"""What `cpu_conflicts` finds."""


def cpu_books(guests: Sequence[GuestHolds]) -> CpuBooks:
    """Add up who holds which CPU; each CPU counts once."""
    pinned = twice = by_vcpus = 0
    for guest in guests:
        if not guest.holds.guessed:
            mask = guest.holds.cpus.mask
            twice |= pinned & mask
            pinned |= mask
            by_vcpus |= mask & ~guest.holds.emulator_cpus.mask
    maybe_twice, seen = 0, pinned
    for guest in guests:
        if guest.holds.guessed:
            mask = guest.holds.kernel_pins.mask
            maybe_twice |= seen & mask
            seen |= mask
    holders: dict[int, list[GuestHolds]] = {}
    waiting_for: dict[int, list[GuestHolds]] = {}
    for guest in guests:
        for cpu in _held(guest, pinned):
            holders.setdefault(cpu, []).append(guest)
        for cpu in guest.holds.sibling_cpus:
            waiting_for.setdefault(cpu, []).append(guest)
    taken = CpuSet(holders).mask | CpuSet(waiting_for).mask
    return CpuBooks(
        CpuMask(pinned),
        CpuMask(twice),
        CpuMask(maybe_twice),
        CpuMask(by_vcpus),
        CpuMask(taken),
        holders,
        waiting_for,
    )


def _held(guest: GuestHolds, pinned: int) -> CpuSet:
    if not guest.holds.guessed:
        return guest.holds.cpus
    # Of threads that may run on several CPUs, one that another guest is pinned to proves nothing.
    return CpuSet.from_mask(guest.holds.cpus.mask & ~pinned | guest.holds.kernel_pins.mask)


def cpu_amount(total: int, books: CpuBooks) -> CpuAmount:
    """The row of a set of dedicated CPUs that can be used."""
    return CpuAmount(
        total=CpuSet.from_mask(total),
        used=CpuSet.from_mask(total & books.taken),
        free=CpuSet.from_mask(total & ~books.taken),
    )


def cpu_holders(books: CpuBooks) -> dict[int, CpuHolder]:
    """One row for each CPU that is held or kept idle, lowest first."""
    return {cpu: _cpu_holder(cpu, books) for cpu in CpuSet.from_mask(books.taken)}


def _cpu_holder(cpu: int, books: CpuBooks) -> CpuHolder:
    guests = books.holders.get(cpu, []) + books.waiting_for.get(cpu, [])
    if len(guests) == 1:
        return CpuHolder(cpu=cpu, owners=(guests[0].owner,))
    return CpuHolder(cpu=cpu, owners=tuple(sorted({guest.owner for guest in guests}, key=by_name)))


def room_of(books: CpuBooks, sets: HostSets, promised: int = 0) -> Room:
    """Where threads can go that are somewhere else now: not where a guest is, or is promised that it can be."""
    usable = sets.dedicated & sets.usable & ~books.taken & ~promised
    return Room(
        free=FreeCpus((cpus, usable & cpus) for cpus in sets.cells.values()),
        shared=CpuSet.from_mask(sets.shared & sets.usable & ~sets.dedicated),
        usable=CpuSet.from_mask(sets.usable),
        proposals=Proposals(),
    )


def cpu_conflicts(
    guests: Sequence[GuestHolds], books: CpuBooks, topology: HostTopology, sets: HostSets, room: Room
) -> Iterator[Conflict]:
    """Every contradiction about CPUs. room: of its own, since what one row proposes no other does."""
    yield from _pinned_twice(books, sets, room)
    yield from _siblings_of_isolated(books, sets, room)
    yield from _pinned_to_offline(books, topology, sets, room)
    for guest in guests:
        if not sets.is_legacy:
            yield from _outside_dedicated(guest, sets)
        if sets.has_split:
            yield from _shared_on_dedicated(guest, books, sets)
            yield from _emulator_on_dedicated(guest, room)


def _cpu(cpu: int, sets: HostSets) -> Resource:
    return Resource(kind="cpu", id=str(cpu), cell=cell_of(CpuMask(1 << cpu), sets.cells))


def _guest(guest: GuestHolds) -> Resource:
    return Resource(kind="guest", id=guest.sighting.uuid)


def _pinned_twice(books: CpuBooks, sets: HostSets, room: Room) -> Iterator[Conflict]:
    # Without CPU sets of their own for guests, emulators of several guests on one housekeeping CPU are good practice.
    twice = books.pinned_twice if sets.has_split else books.pinned_twice & books.by_vcpus
    for cpu in CpuSet.from_mask(twice | books.maybe_twice):
        known = [guest for guest in books.holders[cpu] if not guest.holds.guessed]
        unread = [guest for guest in books.holders[cpu] if guest.holds.guessed and cpu in guest.holds.kernel_pins]
        is_certain = bool(twice >> cpu & 1)
        guests = known + unread
        way_out = _once("cpu-pinned-twice", _cpu(cpu, sets), advice.make_way(guests, cpu, room), room)
        yield conflict(
            "cpu-pinned-twice",
            _cpu(cpu, sets),
            (guest.owner for guest in guests),
            cause=f"CPU {cpu} {'is' if is_certain else 'may be'} pinned by {len(guests)} guests: "
            f"{_listed(guests, cpu, room)}{_by_the_kernel(unread)}",
            severity="error" if is_certain and books.by_vcpus >> cpu & 1 else "warning",
            action=f"{way_out}; left alone nothing breaks, but these guests share the time of one CPU",
        )


def _by_the_kernel(unread: Sequence[GuestHolds]) -> str:
    if not unread:
        return ""
    return (
        f"; the {agrees(unread, 'definition', 'definitions')} of {advice.names(unread)} could not be read, but the "
        f"kernel binds {agrees(unread, 'its', 'their')} vCPU threads to that CPU"
    )


def _siblings_of_isolated(books: CpuBooks, sets: HostSets, room: Room) -> Iterator[Conflict]:
    for cpu, isolated in sorted(books.waiting_for.items()):
        known = [guest for guest in books.holders.get(cpu, []) if not guest.holds.guessed]
        keepers = {guest.sighting.uuid for guest in isolated}
        intruders = [guest for guest in known if keepers - {guest.sighting.uuid}]
        if not intruders:
            continue
        way_out = _once("sibling-of-isolated", _cpu(cpu, sets), advice.make_way(intruders, cpu, room), room)
        yield conflict(
            "sibling-of-isolated",
            _cpu(cpu, sets),
            (guest.owner for guest in (*isolated, *intruders)),
            cause=f"CPU {cpu} is a thread sibling of a CPU of {advice.names(isolated)}, which asked to share no core "
            f"(thread policy isolate), and is pinned by {_listed(intruders, cpu, room)}",
            severity="warning",
            action=f"{way_out}; left alone nothing breaks, but the core is not the guest's own",
        )


def _pinned_to_offline(books: CpuBooks, topology: HostTopology, sets: HostSets, room: Room) -> Iterator[Conflict]:
    unreadable = CpuSet(cpu.id for cpu in topology.cpus if cpu.online is None).mask
    withheld = CpuSet(cpu.id for cpu in topology.cpus if cpu.online and not cpu.allowed).mask
    offline = topology.offline.mask
    if not topology.cpus:
        return
    for cpu in CpuSet.from_mask(books.pinned & ~sets.usable & ~unreadable):
        guests = [guest for guest in books.holders[cpu] if not guest.holds.guessed]
        if withheld >> cpu & 1:
            state, repair = "withheld from guests by a cpuset", "give the CPU back to the cpuset of machine.slice"
        elif offline >> cpu & 1:
            state, repair = "offline", f"`echo 1 > /sys/devices/system/cpu/cpu{cpu}/online` and pin again"
        else:
            state, repair = "not on this host", "pin to CPUs that exist"
        way_out = _once("pinned-to-offline", _cpu(cpu, sets), advice.make_way(guests, cpu, room), room)
        yield conflict(
            "pinned-to-offline",
            _cpu(cpu, sets),
            (guest.owner for guest in guests),
            cause=f"CPU {cpu} is {state}, and {_listed(guests, cpu, room)} {agrees(guests, 'is', 'are')} pinned to it",
            severity="error",
            action=f"{way_out}, or {repair}; left alone the kernel runs "
            f"{agrees(guests, 'the thread', 'the threads')} on any other CPU, also on those of pinned guests, and "
            f"{agrees(guests, 'the guest does', 'the guests do')} not start again",
        )


def _outside_dedicated(guest: GuestHolds, sets: HostSets) -> Iterator[Conflict]:
    outside = CpuSet.from_mask(0 if guest.holds.guessed else guest.holds.cpus.mask & ~sets.dedicated)
    if not outside:
        return
    shared = CpuSet.from_mask(outside.mask & sets.shared)
    harm = (
        f"floating guests run on {plural(shared)} too and take {agrees(shared, 'its', 'their')} time"
        if shared
        else f"nothing breaks, but {agrees(outside, 'this CPU is', 'these CPUs are')} in nobody's books"
    )
    yield conflict(
        "pinned-outside-dedicated",
        _guest(guest),
        (guest.owner,),
        cause=f"{_name(guest)} is pinned to {plural(outside)}, outside the dedicated set "
        f"({CpuSet.from_mask(sets.dedicated) or 'empty'})",
        severity="warning",
        action=f"Add {outside} to [compute] cpu_dedicated_set, or re-pin the guest inside of it; left alone {harm}",
    )


def _shared_on_dedicated(guest: GuestHolds, books: CpuBooks, sets: HostSets) -> Iterator[Conflict]:
    over = CpuSet.from_mask(guest.holds.confined.mask & sets.dedicated & ~guest.holds.cpus.mask)
    if not over:
        return
    disturbed = [
        other
        for other in {one.sighting.uuid: one for cpu in over for one in books.holders.get(cpu, [])}.values()
        if other is not guest and not other.holds.guessed
    ]
    shared = CpuSet.from_mask(sets.shared & sets.usable)
    harm = f"it takes time from {advice.names(disturbed)}" if disturbed else "nothing breaks until a pinned guest comes"
    yield conflict(
        "shared-on-dedicated",
        _guest(guest),
        (guest.owner,),
        cause=f"Floating vCPUs of {_name(guest)} are confined to {plural(guest.holds.confined)}, of which "
        f"{over} {agrees(over, 'is', 'are')} dedicated to pinned guests",
        severity="error" if disturbed else "warning",
        action=f"Confine its vCPUs to the shared set{f' ({shared})' if shared else ''} with virsh vcpupin, or pin each "
        f"to one CPU; left alone {harm}",
    )


def _emulator_on_dedicated(guest: GuestHolds, room: Room) -> Iterator[Conflict]:
    emulator = guest.holds.emulator_cpus
    if not emulator or guest.holds.cpus.mask & ~emulator.mask:
        return
    helpers = advice.helpers_on(guest, emulator, room.usable)
    way_out = _once("emulator-on-dedicated", _guest(guest), advice.off_dedicated(guest, emulator, room), room)
    yield conflict(
        "emulator-on-dedicated",
        _guest(guest),
        (guest.owner,),
        cause=f"{_name(guest)} has no pinned vCPU, but its {helpers} {'is' if helpers.is_one else 'are'} pinned to "
        f"dedicated {plural(emulator)}",
        severity="warning",
        action=f"{way_out}; left alone nothing breaks, but "
        f"{plural(emulator)} {agrees(emulator, 'is', 'are')} not offered to pinned guests",
    )


def _name(guest: GuestHolds) -> str:
    return guest.sighting.label


def _listed(guests: Sequence[GuestHolds], cpu: int, room: Room) -> str:
    return some([advice.described(guest, cpu, room.usable) for guest in guests])


def _once(kind: ConflictKind, resource: Resource, way_out: str, room: Room) -> str:
    return room.proposals.once(way_out, id_of(kind, resource))
