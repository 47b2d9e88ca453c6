"""Guests: who is here, and all of one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agent.core.conflicts import Conflict
from agent.core.cpuset import CpuSet
from agent.core.guest import GuestCell, GuestDevice, ObservedDomain, Pin, Sighting
from agent.core.ledger import Holds
from agent.core.report import GuestReport
from agent.core.words import count, plain, plural, some
from agent.render import words
from agent.render.conflict_text import conflict_block, worst_first
from agent.render.paint import Paint, no_paint
from agent.render.table import text_table, wrap


class GuestRow(NamedTuple):
    """A guest on one line. cpus: those it alone should have; confined: those its floating vCPUs stay within.

    cells: host cells its memory is bound to, or is counted in. conflicts: how many it is in, accepted ones aside.
    """

    name: str
    uuid: str
    state: str
    maker: str
    vcpus: int | None
    cpus: str
    confined: str
    cells: str
    memory_kib: int | None
    devices: tuple[str, ...]
    conflicts: int
    age_s: int
    problem: str | None


def guest_rows(guests: Sequence[GuestReport], conflicts: Sequence[Conflict]) -> tuple[GuestRow, ...]:
    """One row per guest, by name."""
    return tuple(_row(guest, conflicts) for guest in sorted(guests, key=lambda g: (g.sighting.name, g.sighting.uuid)))


def guests_text(guests: Sequence[GuestReport], conflicts: Sequence[Conflict], *, width: int = 80) -> str:
    """A table of all guests and what qualifies them. Ends with a newline."""
    if not guests:
        return "no guests\n"
    header = ("NAME", "STATE", "VCPUS", "CPUS", "MEMORY", "CELLS", "DEVICES", "CONFLICTS")
    rows = guest_rows(guests, conflicts)
    table = text_table(header, [_short(row) for row in rows], width)
    notes = [wrap(f"{row.name}: {row.problem}", width, rest="  ") for row in rows if row.problem]
    return table + "".join(notes)


def guest_text(
    guest: GuestReport, conflicts: Sequence[Conflict], *, started: str | None, width: int = 80, paint: Paint = no_paint
) -> str:
    """All of one guest: run, pins, memory, devices, conflicts. started: when QEMU began. Ends with a newline."""
    seen = guest.sighting
    title = paint("strong", plain(seen.name)) + f"  {plain(seen.uuid)}\n"
    facts = [*_run_facts(guest, started), *_domain_facts(seen.domain), *_hold_facts(guest), *_claim_facts(guest)]
    lines = [wrap(text, width, first=f"  {name:<9} ") for name, text in facts]
    mine = conflicts_of(seen.uuid, conflicts)
    blocks = ["\n" + conflict_block(row, width=width, paint=paint) for row in worst_first(mine)]
    return title + "".join(lines) + ("".join(blocks) or "  conflicts none\n")


def conflicts_of(uuid: str, conflicts: Sequence[Conflict]) -> tuple[Conflict, ...]:
    """Those that this guest is in."""
    return tuple(row for row in conflicts if row.resource.id == uuid or any(owner.uuid == uuid for owner in row.owners))


def held_text(held: Holds) -> str:
    """CPUs and memory in one sentence, without devices; "nothing"."""
    cpus = [f"{plural(held.cpus)} for itself"] if held.cpus else []
    cpus += [f"of them {plural(held.emulator_cpus)} for emulator and iothreads"] if held.emulator_cpus else []
    cpus += [f"floats within {plural(held.confined)}"] if held.confined else []
    memory = [f"{words.size(kib)} of cell {cell}" for cell, kib in held.cell_memory_kib.items()]
    memory += [f"{words.size(held.host_memory_kib)} of the host"] if held.host_memory_kib else []
    memory += [
        f"{count(hold.count, 'page')} of {words.size(hold.size_kib)} of {words.cell(hold.cell)}" for hold in held.pages
    ]
    return "; ".join([*cpus, *memory]) or "nothing"


def state_word(seen: Sighting) -> str:
    """ "running", "running (last known)", "running (lost by libvirt)"."""
    return seen.state if seen.validity == "valid" else f"{seen.state} ({seen.validity.replace('-', ' ')})"


def _row(guest: GuestReport, conflicts: Sequence[Conflict]) -> GuestRow:
    seen, held, domain = guest.sighting, guest.holds, guest.sighting.domain
    cells = CpuSet(held.cell_memory_kib) | CpuSet(hold.cell for hold in held.pages if hold.cell is not None)
    return GuestRow(
        name=plain(seen.name),
        uuid=plain(seen.uuid),
        state=state_word(seen),
        maker=domain.maker if domain else "unknown",
        vcpus=len(domain.vcpus_online) if domain else None,
        cpus=str(held.cpus),
        confined=str(held.confined),
        cells=str(cells or (domain.nodeset if domain else CpuSet())),
        memory_kib=domain.memory_kib if domain else None,
        devices=(*(str(address) for address in held.devices), *held.mdevs),
        conflicts=sum(not row.accepted for row in conflicts_of(seen.uuid, conflicts)),
        age_s=int(guest.age_s),
        problem=plain(seen.problem) if seen.problem else None,
    )


def _short(row: GuestRow) -> tuple[str, ...]:
    cpus = row.cpus or (f"floats on {row.confined}" if row.confined else words.NOTHING)
    return (
        row.name,
        row.state,
        words.NOTHING if row.vcpus is None else str(row.vcpus),
        cpus,
        words.NOTHING if row.memory_kib is None else words.size(row.memory_kib),
        row.cells or words.NOTHING,
        some(row.devices, 2) or words.NOTHING,
        str(row.conflicts or words.NOTHING),
    )


def _run_facts(guest: GuestReport, started: str | None) -> Iterator[tuple[str, str]]:
    seen = guest.sighting
    definition = {True: ", persistent", False: ", transient", None: ""}[seen.persistent]
    maker = f", made by {seen.domain.maker}" if seen.domain and seen.domain.maker not in ("libvirt", "unknown") else ""
    yield "state", f"{state_word(seen)}{definition}{maker}; read {words.age(guest.age_s)} ago"
    if seen.run.pid:
        yield "process", f"QEMU {seen.run.pid}" + (f", runs since {started}" if started else "")
    if seen.problem:
        yield "problem", plain(seen.problem)


def _domain_facts(domain: ObservedDomain | None) -> Iterator[tuple[str, str]]:
    if domain is None:
        yield "pins", "not known: its definition could not be read"
        return
    yield "vCPUs", _vcpus(domain)
    if domain.emulator_pin is not None:
        yield "emulator", f"on {plural(domain.emulator_pin)}"
    if domain.iothreads:
        yield "iothreads", "; ".join(_pins(domain.iothread_pins, "iothread")) or f"{domain.iothreads}, not pinned"
    yield "memory", _memory(domain)
    for cell in domain.cells:
        yield f"cell {cell.id}", _guest_cell(cell)
    for module in domain.memory_devices:
        yield "module", f"{words.size(module.size_kib)} {module.model}"
    for name, value in domain.facts.items():
        yield domain.maker, plain(f"{name} = {value}")


def _hold_facts(guest: GuestReport) -> Iterator[tuple[str, str]]:
    held = guest.holds
    yield "holds", held_text(held)
    if held.uncertain:
        yield "", "its CPUs could not be read at all: it may hold more"
    devices = guest.sighting.domain.devices if guest.sighting.domain else ()
    for device in devices:
        yield "device", _device(device)


def _claim_facts(guest: GuestReport) -> Iterator[tuple[str, str]]:
    for claim in guest.claims:
        yield "claim", f"{plain(claim.claim_id)}, {claim.kind.replace('_', ' ')}, {claim.state} since {claim.since}"


def _vcpus(domain: ObservedDomain) -> str:
    plugged = len(domain.vcpus_online)
    text = str(plugged) + (f" of at most {domain.vcpus}" if domain.vcpus != plugged else "")
    pins = "; ".join(_pins(domain.vcpu_pins, "vCPU"))
    rest = f"the others on {plural(domain.cpuset)}" if domain.cpuset is not None else ""
    return ": ".join(
        part
        for part in (
            text,
            "; ".join(part for part in (pins, rest if len(domain.vcpu_pins) < domain.vcpus else "") if part)
            or "not pinned",
        )
        if part
    )


def _pins(pins: Sequence[Pin], what: str) -> Iterator[str]:
    """Threads with the same CPUs together: "vCPUs 0-3 on CPUs 8-11"."""
    together: dict[CpuSet, list[int]] = {}
    for pin in pins:
        together.setdefault(pin.cpus, []).append(pin.thread)
    for cpus, threads in together.items():
        yield f"{plural(CpuSet(threads), what)} on {plural(cpus)}"


def _memory(domain: ObservedDomain) -> str:
    pages = f" in {words.size(domain.page_size_kib)} pages" if domain.page_size_kib else ""
    where = f", {domain.mode or 'bound'} on {plural(domain.nodeset, 'cell')}" if domain.nodeset else ""
    return f"{words.size(domain.memory_kib)}{pages}{where}{', locked' if domain.memory_locked else ''}"


def _guest_cell(cell: GuestCell) -> str:
    pages = f" in {words.size(cell.page_size_kib)} pages" if cell.page_size_kib else ""
    where = f", {cell.mode or 'bound'} on {plural(cell.nodeset, 'host cell')}" if cell.nodeset else ""
    vcpus = plural(cell.vcpus, "vCPU") if cell.vcpus else "no vCPU"
    return f"of the guest: {vcpus}, {words.size(cell.memory_kib)}{pages}{where}"


def _device(device: GuestDevice) -> str:
    what = device.address or device.mdev or device.vdpa or device.netdev or "not chosen yet"
    managed = {True: ", managed", False: ", not managed", None: ""}[device.managed]
    return plain(f"{what} ({device.source}{managed})")
