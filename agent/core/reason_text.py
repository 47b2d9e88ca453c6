"""Why a guest does not fit, in words: one sentence for each reason, without a full stop at its end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from agent.core.commands import command
from agent.core.conflicts import Owner
from agent.core.cpuset import CpuSet
from agent.core.pci_request import PciSpec
from agent.core.reasons import (
    CellsContended,
    CellWithheld,
    ClaimForbidden,
    CpusShort,
    CpusUncertain,
    DevicesApart,
    DevicesContended,
    DevicesFar,
    DevicesShort,
    EmulatorCpuShort,
    EmulatorHomeless,
    GroupViolated,
    InMaintenance,
    KeptBack,
    MemoryShort,
    NoRoomTogether,
    NoSiblings,
    NoSuchPages,
    NotOffered,
    PagesShort,
    PagesUneven,
    Reason,
    SaidElse,
    SearchStopped,
    SharedCpusShort,
    SharedOverRatio,
    SocketsUnknown,
    ThreadsShort,
    TooFewCells,
)
from agent.core.usage.rows import CpuHolder
from agent.core.words import agrees, count, plain, plural, some

_KIB_PER_MIB = 1024
_MOST_ENTRIES = 3
_CELL = "cell"

_NOT_REMOTE = ("remote_managed", "false")
"""What devices are without a word."""

_UNITS = ((1 << 30, "TiB"), (1 << 20, "GiB"), (1 << 10, "MiB"), (1, "KiB"))


def sentence(reason: Reason) -> str:
    """What is asked for, what there is, where, and who has the rest. Names of guests are made safe to show."""
    return plain(_sentence(reason))


def page_size(kib: int) -> str:
    """The exact size of a page: "2 MiB", "1 GiB", "64 KiB"."""
    size, unit = next((size, unit) for size, unit in _UNITS if kib % size == 0)
    return f"{kib // size} {unit}"


def listed(names: Sequence[str]) -> str:
    """Few of them as a person would say it: "a and b", "a, b, c, d and 4 more"."""
    if len(names) > 5:
        return some(names, 4)
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def owner_name(owner: Owner) -> str:
    """Who it is, for a sentence: a guest's name (or uuid), marked where it is a claim that holds for it, else "the
    kernel", "the configuration"."""
    if owner.type == "claim":
        return f"{plain(owner.label)} (promised)"
    if owner.name or owner.uuid:
        return plain(owner.label)
    return {"domain": "an unknown guest", "kernel": "the kernel", "config": "the configuration"}[owner.type]


def mib_asked(kib: int) -> str:
    """An amount that is needed, in MiB, rounded up: what it is compared with must not look like enough."""
    return f"{-(-kib // _KIB_PER_MIB)} MiB"


def _sentence(reason: Reason) -> str:  # noqa: PLR0912 - a line for each kind
    match reason:
        case CpusShort():
            return _cpus_short(reason)
        case ThreadsShort():
            return _threads_short(reason)
        case NoSiblings():
            return _no_siblings(reason)
        case EmulatorCpuShort():
            return _emulator_cpu_short(reason)
        case EmulatorHomeless():
            return _emulator_homeless(reason)
        case SharedCpusShort():
            return _shared_cpus_short(reason)
        case SharedOverRatio():
            return _shared_over_ratio(reason)
        case MemoryShort():
            return _memory_short(reason)
        case PagesShort():
            return _pages_short(reason)
        case PagesUneven():
            return _pages_uneven(reason)
        case NoSuchPages():
            return _no_such_pages(reason)
        case CellWithheld():
            return _cell_withheld(reason)
        case TooFewCells():
            return _too_few_cells(reason)
        case CellsContended():
            return _cells_contended(reason)
        case NoRoomTogether():
            return _no_room_together(reason)
        case CpusUncertain():
            return _cpus_uncertain(reason)
        case DevicesShort():
            return _devices_short(reason)
        case DevicesFar():
            return _devices_far(reason)
        case DevicesContended():
            return _devices_contended(reason)
        case DevicesApart():
            return _devices_apart(reason)
        case SocketsUnknown():
            return _sockets_unknown(reason)
        case SearchStopped():
            return _search_stopped(reason)
        case GroupViolated() | InMaintenance() | ClaimForbidden():
            return _not_of_room(reason)
        case _:
            assert_never(reason)


def _cpus_short(reason: CpusShort) -> str:
    total, free = len(reason.dedicated), len(reason.free)
    vcpus = f"{reason.asked - 1} and one for the emulator" if reason.with_emulator else str(reason.asked)
    asks = f"guest cell {reason.guest_cell} asks for {vcpus}"
    if not total:
        return f"Cell {reason.cell} has no dedicated CPUs; {asks}"
    which = f" ({reason.free})" if reason.free else ""
    has = f"Cell {reason.cell} has {free or 'none'} of {count(total, 'dedicated CPU')} free{which}"
    return "; ".join([has, asks, *_held(reason.holders)])


def _held(holders: Iterable[CpuHolder]) -> list[str]:
    """ "4-5 are held by web1, 7 by web2 and web3"; nothing when nobody is known to hold any."""
    by_owners: dict[tuple[Owner, ...], list[int]] = {}
    for holder in holders:
        by_owners.setdefault(holder.owners, []).append(holder.cpu)
    sets = [(CpuSet(cpus), _owners(owners)) for owners, cpus in by_owners.items()]
    if not sets:
        return []
    (cpus, owners), *others = sets
    first = f"{cpus} {agrees(cpus, 'is', 'are')} held by {owners}"
    return [some([first, *(f"{cpus} by {owners}" for cpus, owners in others)])]


def _owners(owners: Iterable[Owner]) -> str:
    return listed([owner_name(owner) for owner in owners]) or "somebody unknown"


def _threads_short(reason: ThreadsShort) -> str:
    room = f"for only {reason.placeable}" if reason.placeable else "for none"
    wish = {"isolate": "whole free cores", "require": "free siblings"}[reason.policy]
    why = (
        f"{_free_on(reason.cell, reason.free)}, but {wish} {room} of the {count(reason.asked, 'vCPU')} of guest cell "
        f"{reason.guest_cell} (thread policy {reason.policy})"
    )
    return "; ".join([why, *_held(reason.holders)])


def _free_on(cell: int, free: CpuSet) -> str:
    return f"Cell {cell} has {count(len(free), 'dedicated CPU')} free{f' ({free})' if free else ''}"


def _no_siblings(reason: NoSiblings) -> str:
    return (
        f"The cores of cell {reason.cell} have one thread each; "
        f"guest cell {reason.guest_cell} asks for siblings (thread policy require)"
    )


def _emulator_cpu_short(reason: EmulatorCpuShort) -> str:
    vcpus = count(reason.asked - 1, "vCPU")
    why = (
        f"{_free_on(reason.cell, reason.free)}, enough for the {vcpus} of guest cell {reason.guest_cell}, "
        "but none is left for the emulator alone (emulator threads isolate)"
    )
    return "; ".join([why, *_held(reason.holders)])


def _emulator_homeless(reason: EmulatorHomeless) -> str:
    return (
        f"All vCPUs ({reason.vcpus}) are realtime, so that emulator threads cannot run beside them: they need a CPU of "
        "their own (emulator threads isolate) or a shared set on this host (share)"
    )


def _shared_cpus_short(reason: SharedCpusShort) -> str:
    who = f"{_asker(reason.guest_cell)} has {count(reason.asked, 'floating vCPU')}"
    if not reason.shared:
        return f"{_place(reason.cell)} has no shared CPUs; {who}"
    cpus = f"{count(len(reason.shared), 'shared CPU')} ({reason.shared})"
    return f"{_place(reason.cell)} has {cpus}; {who}, and no two of them may share a CPU"


def _shared_over_ratio(reason: SharedOverRatio) -> str:
    asks = f"{_asker(reason.guest_cell)} asks for {reason.asked}"
    if reason.limit <= 0:
        return f"{_place(reason.cell)} has no room for floating vCPUs; {asks}"
    over = f" ({-reason.free} too many)" if reason.free < 0 else ""
    room = f"{max(reason.free, 0) or 'none'} of {count(reason.limit, 'floating vCPU')} left{over}"
    return f"{_place(reason.cell)} has {room} by its CPU ratio; {asks}"


def _memory_short(reason: MemoryShort) -> str:
    return (
        f"{_place(reason.cell)} has {_memory_free(reason.free_kib)}; "
        f"{_asker(reason.guest_cell)} asks for {mib_asked(reason.asked_kib)}"
    )


def _pages_short(reason: PagesShort) -> str:
    kept = f" besides {reason.reserved} kept in reserve" if reason.reserved else ""
    over = f" ({-reason.free} too many are in use)" if reason.free < 0 else ""
    free = max(reason.free, 0)
    pages = f"{count(free, 'page')} of {page_size(reason.size_kib)}"
    return f"Cell {reason.cell} has {pages} free{kept}{over}; guest cell {reason.guest_cell} asks for {reason.asked}"


def _pages_uneven(reason: PagesUneven) -> str:
    return (
        f"Guest cell {reason.guest_cell} has {_exactly(reason.memory_kib)} of memory, "
        f"which is not a whole number of the {page_size(reason.size_kib)} pages of cell {reason.cell}"
    )


def _no_such_pages(reason: NoSuchPages) -> str:
    wish = f"{page_size(reason.asked)} pages" if isinstance(reason.asked, int) else f"{reason.asked} pages"
    sizes = [page_size(kib) for kib in reason.sizes_kib]
    has = f"has pages of {listed(sizes)}" if sizes else "has no pages"
    only = " only" if len(sizes) == 1 else ""
    return f"Guest cell {reason.guest_cell} asks for {wish}; cell {reason.cell} {has}{only}"


def _cell_withheld(reason: CellWithheld) -> str:
    return (
        f"A cpuset of this host withholds the memory of cell {reason.cell}, so that guest cell {reason.guest_cell} "
        f"cannot go there: put {reason.cell} into cpuset.mems of machine.slice (agentctl check names the file)"
    )


def _too_few_cells(reason: TooFewCells) -> str:
    number = len(reason.cells)
    which = f" ({reason.cells})" if reason.cells else ""
    return f"The guest has {count(reason.asked, 'cell')}; this host has {count(number, 'cell')} with CPUs{which}"


def _cells_contended(reason: CellsContended) -> str:
    number = len(reason.cells)
    only = f"only {plural(reason.cells, 'cell')}" if number else "no cell"
    return (
        f"Guest {plural(reason.guest_cells, 'cell')} {agrees(reason.guest_cells, 'has', 'together have')} "
        f"{only} of the host to choose from, and each needs a cell of its own"
    )


def _no_room_together(reason: NoRoomTogether) -> str:
    names = listed([plain(name) for name in reason.requests])
    near = f" with the devices of {names} near" if names else ""
    return (
        f"Guest {plural(reason.guest_cells, 'cell')} would each fit alone, but not beside each other{near} on "
        f"{plural(reason.cells, 'cell')} of the host, although several may share one there"
    )


def _cpus_uncertain(reason: CpusUncertain) -> str:
    names = [plain(name) for name in reason.guests]
    see = command("agentctl show", names[0]) if names else "agentctl domains"
    return (
        f"Nobody knows which CPUs {listed(names) or 'some guests'} {agrees(names, 'is', 'are')} pinned to, "
        f"so that no dedicated CPU can be promised: see {see}"
    )


def _devices_short(reason: DevicesShort) -> str:
    kinds = [_kind(spec) for spec in reason.specs[:_MOST_ENTRIES]]
    kind = f" ({' or '.join(kinds)})" if kinds else ""
    asks = f"Request {plain(reason.request)} asks for {count(reason.asked, 'device')}{kind}"
    if not reason.offered:
        return "; ".join([asks, *_instead(reason.instead)])
    free = f"{reason.free or 'none'} of {reason.offered} of that kind {_is(reason.free or reason.offered)} free"
    held = f" ({'others ' if reason.free else ''}held by {_owners(reason.holders)})" if reason.holders else ""
    kept = (
        [some([_kept_back(one) for one in reason.kept_back], _MOST_ENTRIES, between="; ")] if reason.kept_back else []
    )
    return "; ".join([asks, f"{free}{held}", *kept])


def _kept_back(kept: KeptBack) -> str:
    """ "0000:17:00.0 cannot be given while its VF 0000:17:02.1 is held by web"."""
    what, by = kept.devices, listed([str(address) for address in kept.by])
    relative = "PF" if kept.is_by_pf else agrees(kept.by, "VF", "VFs")
    held = (
        f"{agrees(what, 'its', 'their')} {relative} {by} {agrees(kept.by, 'is', 'are')} held by {_owners(kept.owners)}"
    )
    return f"{listed([str(address) for address in what])} cannot be given while {held}"


def _kind(spec: PciSpec) -> str:
    """ "8086:154c, type-VF, physical_network left"; what is not said is not asked."""
    vendor, product = spec.vendor_id, spec.product_id
    ids = f"{vendor}:{product}" if vendor and product else vendor and f"vendor {vendor}"
    said = [ids or (product and f"product {product}"), spec.device_type]
    said += [spec.resource_class and f"resource class {spec.resource_class}", *(f"trait {one}" for one in spec.traits)]
    said += [_said(name, value) for name, value in spec.tags.items() if (name, value) != _NOT_REMOTE]
    return plain(", ".join(part for part in said if part)) or "of any kind"


def _said(name: str, value: str | None) -> str:
    if value is not None:
        return f"{name} {value}"
    return f"no {name}: an overlay" if name == "physical_network" else f"no {name}"


def _instead(instead: NotOffered | None) -> Iterator[str]:
    """What there is in place of what is asked for."""
    if instead is None:
        yield "[pci] device_spec offers none of that kind"
        return
    if instead.named:
        differs = [_differs(one) for one in instead.differs]
        but = listed(differs) if differs else "with a part of that each"
        yield f"[pci] device_spec names {instead.named} such, but {but}"
    if instead.flaw is not None:
        yield f"this host has such that cannot be given: [pci] {instead.flaw}"
    if instead.unnamed:
        entries = " or ".join(map(_entry, instead.entries))
        more = "more " if instead.named else ""
        them = "it" if instead.unnamed == 1 else "them"
        yield f"this host has {instead.unnamed} {more}such, but [pci] device_spec does not name {them}: add {entries}"
    if not (instead.named or instead.unnamed or instead.flaw):
        yield f"this host has none{f', but it has {listed(instead.same_vendor)}' if instead.same_vendor else ''}"


def _differs(one: SaidElse) -> str:
    """ "with physical_network left and right, not physnet9"."""
    values, name = [value for value in one.found if value is not None], one.name
    found = [f"with {name} {listed(values)}"] if values else []
    found += [f"without {name}"] if None in one.found else []
    return f"{' and '.join(found)}, {'where none is asked for' if one.asked is None else f'not {one.asked}'}"


def _entry(spec: PciSpec) -> str:
    """What [pci] device_spec would have to say for such devices, as JSON."""
    ids = {"vendor_id": spec.vendor_id, "product_id": spec.product_id}
    tags = {name: value for name, value in spec.tags.items() if (name, value) != _NOT_REMOTE}
    # a network of null is an overlay, and has to be said; another tag of null is met by its absence
    said = {name: value for name, value in {**ids, **tags}.items() if value is not None or name == "physical_network"}
    named = {"resource_class": spec.resource_class, "traits": ",".join(spec.traits)}
    return json.dumps({**said, **{name: value for name, value in named.items() if value}}, ensure_ascii=False)


def _devices_far(reason: DevicesFar) -> str:
    near = {
        "required": "on its own host cells",
        "socket": "on the sockets of its host cells",
        "legacy": "on its own host cells or on none",
        "preferred": "anywhere",
    }[reason.policy]
    asks = f"Request {plain(reason.request)} asks for {count(reason.asked, 'device')} {near} (policy {reason.policy})"
    where = [f"{many} on cell {cell}" for cell, many in sorted(reason.by_cell.items()) if many]
    where += [f"{reason.elsewhere} without a cell"] if reason.elsewhere else []
    free = f" (free on this host: {some(where)})" if where else ""
    if not reason.cells:
        return f"{asks}; no cell of this host would do for the guest{free}"
    is_choice = len(reason.cells) > reason.guest_cells == 1
    cells = f"{'any of ' if is_choice else ''}{plural(reason.cells, 'cell')}"
    near = f"{'at most ' if is_choice and reason.near else ''}{reason.near or 'none'} {_is(reason.near or 1)} free"
    return f"{asks}; the guest could have {cells}, where {near}{free}"


def _devices_contended(reason: DevicesContended) -> str:
    names, total = [plain(name) for name in reason.requests], sum(reason.asked)
    ask = f"they ask for {listed([str(asked) for asked in reason.asked])} devices"
    where = "" if reason.cells is None else f" for a guest on {plural(reason.cells, 'cell')}"
    only = "only " if total > reason.free else ""
    free = f"{only}{reason.free} that would do for any of them {_is(reason.free)} free at once{where}"
    exclude = ", and a physical function and its virtual ones exclude each other" if reason.has_pfs else ""
    return f"Requests {listed(names)} could each be served alone, but not together: {ask}, {free}{exclude}"


def _devices_apart(reason: DevicesApart) -> str:
    names = [plain(one.request) for one in reason.requests]
    where = [
        f"{name} has devices {'anywhere' if one.cells is None else f'near {plural(one.cells, _CELL)} only'}"
        for name, one in zip(names, reason.requests, strict=True)
    ]
    has = f"the guest has {count(reason.guest_cells, _CELL)}"
    return f"Requests {listed(names)} could each be served alone, but not together: {listed(where)}; {has}"


def _sockets_unknown(reason: SocketsUnknown) -> str:
    cells = f"{plural(reason.cells, 'cell')} {agrees(reason.cells, 'is', 'are')}"
    return (
        f"Request {plain(reason.request)} asks for devices on the socket of the guest (policy socket), "
        f"but {cells} on no socket or on several"
    )


def _search_stopped(reason: SearchStopped) -> str:
    steps = count(reason.steps, "step")
    return (
        f"The search for host cells and devices ended after {steps} without an answer, so there may still be a way: "
        "it is shorter with a softer device policy or with devices of fewer kinds"
    )


def _not_of_room(reason: GroupViolated | InMaintenance | ClaimForbidden) -> str:
    match reason:
        case GroupViolated():
            return _group_violated(reason)
        case InMaintenance():
            since = f"since {reason.since} ({reason.reason})"
            return f"This host takes no new guests {since}: `agentctl maintenance off` ends that"
        case ClaimForbidden():
            return reason.message


def _group_violated(reason: GroupViolated) -> str:
    if reason.policy == "affinity":
        where = f"they are on {listed(tuple(map(plain, reason.hosts)))}, and none is on this host, {plain(reason.host)}"
        return f"Server group {plain(reason.group)} keeps its members on one host (policy {reason.policy}); {where}"
    most = count(reason.limit, "member")
    here = f"{_owners(reason.members)} {agrees(reason.members, 'is', 'are')} here"
    return f"Server group {plain(reason.group)} allows {most} on one host (policy {reason.policy}); {here}"


def _place(cell: int | None) -> str:
    return "The host as a whole" if cell is None else f"Cell {cell}"


def _asker(guest_cell: int | None) -> str:
    return "the guest" if guest_cell is None else f"guest cell {guest_cell}"


def _memory_free(kib: int) -> str:
    if kib >= _KIB_PER_MIB:
        return f"{kib // _KIB_PER_MIB} MiB of small-page memory free"
    over = -kib // _KIB_PER_MIB
    return "no small-page memory free" + (f" ({over} MiB too much is in use)" if over > 0 else "")


def _exactly(kib: int) -> str:
    return f"{kib} KiB" if kib % _KIB_PER_MIB else f"{kib // _KIB_PER_MIB} MiB"


def _is(number: int) -> str:
    return "is" if number == 1 else "are"
