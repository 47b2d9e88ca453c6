"""Who holds a thing: a CPU, a device, or all that a guest holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from agent.core.advice import threads_on
from agent.core.conflicts import Conflict, Owner
from agent.core.cpuset import CpuSet
from agent.core.pci import PciAddress, PciDevice
from agent.core.reason_text import owner_name
from agent.core.report import GuestReport, Report
from agent.core.topology import Cpu
from agent.core.usage import DeviceUsage
from agent.core.words import plain, plural, some
from agent.render import words
from agent.render.guest_text import conflicts_of
from agent.render.table import wrap

Started = Callable[[GuestReport], str | None]
"""When the guest's QEMU began, RFC 3339; None when it is not known."""


class Holder(NamedTuple):
    """One who holds it. how: "vCPU 0", "hostdev"; of a claim its id and state; since: when its QEMU began, as pins have
    no date of their own."""

    type: str
    name: str
    uuid: str | None
    how: str
    since: str | None


class Answer(NamedTuple):
    """thing: "CPU 3", "device 0000:3b:00.1", "guest web". facts: sentences about it. conflicts: those it is in."""

    thing: str
    facts: tuple[str, ...]
    holders: tuple[Holder, ...]
    conflicts: tuple[Conflict, ...]


def why_cpu(report: Report, number: int, started: Started) -> Answer:
    """Who is pinned to a CPU, and what is on its siblings. The CPU must be in the topology."""
    cpu = next(cpu for cpu in report.topology.cpus if cpu.id == number)
    owners = _owners_of_cpu(report, number)
    holders = _holders(report, owners, started, lambda guest: ", ".join(_threads(report, guest, number)))
    return Answer(f"CPU {number}", tuple(_cpu_facts(report, cpu)), holders, _about(report, "cpu", {str(number)}))


def _cpu_facts(report: Report, cpu: Cpu) -> Iterator[str]:
    places = (("cell", cpu.cell), ("socket", cpu.socket), ("core", cpu.core))
    marks = (
        (cpu.online is False, "offline"),
        (cpu.online is None, "could not be read"),
        (cpu.isolated, "isolated by the kernel"),
        (not cpu.allowed, "withheld from guests by a cpuset"),
    )
    place = ", ".join(f"{name} {value}" for name, value in places if value is not None)
    yield "; ".join([*([place] if place else []), _role(report, cpu.id), *(mark for true, mark in marks if true)])
    for sibling in cpu.siblings - CpuSet([cpu.id]):
        owners = _owners_of_cpu(report, sibling)
        yield (
            f"its sibling CPU {sibling} is held by {words.owners(owners)}"
            if owners
            else f"its sibling CPU {sibling} is not held"
        )
    floating = [g.sighting.name for g in report.guests if g.sighting.is_active and cpu.id in g.holds.confined]
    if floating:
        yield f"floating here, among other CPUs: {plain(some(floating))}"


def why_device(report: Report, address: PciAddress, started: Started) -> Answer:
    """Who has a PCI function."""
    device = next((d for d in report.topology.pci if d.address == address), None)
    used = next((d for d in report.usage.pci if d.address == address), None)
    owners = used.owners if used else _owners_of_device(report, address)
    holders = _holders(report, owners, started, lambda guest: _source_of(guest, address))
    conflicts = _about(report, "pci", {str(address)})
    return Answer(f"device {address}", tuple(_device_facts(device, used)), holders, conflicts)


def _device_facts(device: PciDevice | None, used: DeviceUsage | None) -> Iterator[str]:
    if device is None:
        yield "the host has no such function"
        return
    yield f"{device.type} {device.vendor_id}:{device.product_id}, {_cell(device.cell)}, {_driver(device)}"
    if device.parent:
        yield f"a function of {device.parent}"
    if used is None or not used.offered:
        yield "the configuration does not offer it to guests"
    if used and used.remark:
        yield plain(used.remark)


def why_mdev(report: Report, uuid: str, started: Started) -> Answer:
    """Who has a mediated device."""
    used = next((m for m in report.usage.mdevs if m.uuid == uuid), None)
    parent = f" of {used.parent}" if used and used.parent else ""
    facts = (f"{used.type or 'unknown type'}{parent}" if used and used.exists else "the host has no such device",)
    holders = _holders(report, used.owners if used else (), started, lambda _: "mediated device")
    return Answer(f"mediated device {uuid}", facts, holders, _about(report, "mdev", {uuid}))


def why_guest(report: Report, guest: GuestReport, started: Started) -> Answer:
    """What a guest holds, and with whom it shares it."""
    seen, held = guest.sighting, guest.holds
    facts = [
        f"CPU {cpu}: {', '.join(_threads(report, guest, cpu)) or 'held'}{_shared_with(report, cpu, seen.uuid)}"
        for cpu in held.cpus
    ]
    facts += [f"floats within {plural(held.confined)}"] if held.confined else []
    facts += [f"device {address} ({_source_of(guest, address)})" for address in held.devices]
    facts += [f"mediated device {uuid}" for uuid in held.mdevs]
    facts += [f"claim {plain(claim.claim_id)} holds for it, {claim.state}" for claim in guest.claims]
    me = Holder("domain", plain(seen.name), seen.uuid, seen.state, started(guest))
    return Answer(
        f"guest {plain(seen.name)}",
        tuple(facts) or ("holds no CPU and no device",),
        (me,),
        conflicts_of(seen.uuid, report.conflicts),
    )


def why_text(answer: Answer, *, width: int = 80) -> str:
    """The answer in a few lines, conflicts by headline. Ends with a newline."""
    lines = [answer.thing, *(f"  {fact}" for fact in answer.facts)]
    if answer.thing.startswith("guest "):
        lines += [f"  runs since {holder.since}" for holder in answer.holders if holder.since]
    else:
        lines += [f"  {_verb(holder)} {_holder(holder)}" for holder in answer.holders] or ["  held by nobody"]
    lines += [f"  {row.severity.upper()} {words.headline(row)}{_since(row)}" for row in answer.conflicts]
    lines += ["  what to do: agentctl conflicts"] if any(not row.accepted for row in answer.conflicts) else []
    return "".join(wrap(line.strip(), width, first="  " if line[0] == " " else "", rest="    ") for line in lines)


def _since(row: Conflict) -> str:
    date = f", since {row.since}" if row.since else ""
    return f"{date} (accepted by the configuration)" if row.accepted else date


def _verb(holder: Holder) -> str:
    return "promised to" if holder.type == "claim" else "held by"


def _holder(holder: Holder) -> str:
    how = f" ({holder.how})" if holder.how else ""
    return f"{holder.name}{how}" + (f", which runs since {holder.since}" if holder.since else "")


def _holders(
    report: Report, owners: Iterable[Owner], started: Started, how: Callable[[GuestReport], str]
) -> tuple[Holder, ...]:
    guests = {guest.sighting.uuid: guest for guest in report.guests}
    return tuple(
        _claim(owner, report) if owner.type == "claim" else _one(owner, guests.get(owner.uuid or ""), started, how)
        for owner in owners
    )


def _one(owner: Owner, guest: GuestReport | None, started: Started, how: Callable[[GuestReport], str]) -> Holder:
    name = owner_name(owner)
    return Holder(owner.type, name, owner.uuid, how(guest) if guest else "", started(guest) if guest else None)


def _claim(owner: Owner, report: Report) -> Holder:
    claims = [f"claim {plain(one.claim_id)}, {one.state}" for one in report.claims if one.instance.uuid == owner.uuid]
    return Holder("claim", plain(owner.label), owner.uuid, "; ".join(claims), None)


def _owners_of_cpu(report: Report, number: int) -> tuple[Owner, ...]:
    return next((holder.owners for holder in report.usage.holders if holder.cpu == number), ())


def _owners_of_device(report: Report, address: PciAddress) -> tuple[Owner, ...]:
    return tuple(
        Owner(type="domain", uuid=guest.sighting.uuid, name=guest.sighting.name)
        for guest in report.guests
        if address in guest.holds.devices
    )


def _role(report: Report, number: int) -> str:
    host = report.usage.host
    if report.usage.is_legacy:
        return "dedicated and shared, as no CPU sets are configured" if number in host.shared_cpus else "not usable"
    roles = [
        name for name, cpus in (("dedicated", host.dedicated.total), ("shared", host.shared_cpus)) if number in cpus
    ]
    return f"{' and '.join(roles)} by configuration" if roles else "in no CPU set of the configuration"


def _shared_with(report: Report, cpu: int, uuid: str) -> str:
    others = [owner for owner in _owners_of_cpu(report, cpu) if owner.uuid != uuid]
    return f"; also held by {words.owners(others)}" if others else ""


def _threads(report: Report, guest: GuestReport, cpu: int) -> tuple[str, ...]:
    return threads_on(guest.sighting, guest.holds, cpu, report.topology.usable)


def _source_of(guest: GuestReport, address: PciAddress) -> str:
    devices = guest.sighting.domain.devices if guest.sighting.domain else ()
    return next((plain(device.source) for device in devices if device.address == address), "")


def _driver(device: PciDevice) -> str:
    return f"driver {device.driver}" if device.driver else "no driver"


def _cell(cell: int | None) -> str:
    return "no cell" if cell is None else f"cell {cell}"


def _about(report: Report, kind: str, ids: set[str]) -> tuple[Conflict, ...]:
    return tuple(row for row in report.conflicts if row.resource.kind == kind and row.resource.id in ids)
