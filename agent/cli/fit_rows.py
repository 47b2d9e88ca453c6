"""The answer to a fit in rows: each part of the placement, or each reason; each of several guests in one line."""

from __future__ import annotations

from collections.abc import Iterator

from agent.core.cpuset import CpuSet
from agent.core.dry_run import CountAnswer, FitAnswer
from agent.core.placement import Placement
from agent.core.reason_text import sentence
from agent.core.words import plain, plural
from agent.render.fit_text import place


def in_short(placement: Placement) -> str:
    """Its host cells with the CPUs that it has there, and its devices: "cell 0: CPUs 4-5; devices 0000:3b:00.0"."""
    parts: list[str] = []
    for host_cell in dict.fromkeys(cell.host_cell for cell in placement.cells):
        here = [cell for cell in placement.cells if cell.host_cell == host_cell]
        pinned = CpuSet(cpu for cell in here for cpu in cell.pins.values())
        shared = CpuSet(cpu for cell in here for cpu in cell.shared_cpus)
        said = [plural(pinned)] * bool(pinned) + [f"floating over {plural(shared)}"] * bool(shared)
        parts.append(f"cell {host_cell}: {', '.join(said) or 'memory alone'}")
    if not placement.cells:
        parts.append(f"floating over {plural(placement.shared_cpus)}" if placement.shared_cpus else "floating")
    devices = [str(address) for given in placement.devices for address in given.devices]
    if devices:
        parts.append(f"{'device' if len(devices) == 1 else 'devices'} {', '.join(devices)}")
    return plain("; ".join(parts))


def rows(found: FitAnswer | CountAnswer) -> Iterator[tuple[str, int | None, str]]:
    """What stands in tables: each part of the placement, or each reason; of a count how many, and then why not more."""
    if isinstance(found, CountAnswer):
        yield "count", None, f"{len(found.placements)} of {found.asked}"
        for number, placement in enumerate(found.placements, 1):
            yield f"guest {number}", None, in_short(placement)
        if found.fits:
            return
    last = found.last if isinstance(found, CountAnswer) else found
    for reason in last.reasons:
        where = place(reason)
        yield where.part, where.cell, sentence(reason)
    if last.placement is not None and isinstance(found, FitAnswer):
        yield from _placed(last.placement)


def _placed(placement: Placement) -> Iterator[tuple[str, int | None, str]]:
    for cell in placement.cells:
        pins = ",".join(f"{vcpu}:{cpu}" for vcpu, cpu in sorted(cell.pins.items()))
        said = {
            "pins": pins,
            "shared": cell.shared_cpus,
            "idle": cell.idle_cpus,
            "memory_kib": cell.memory_kib,
            "page_size_kib": cell.page_size_kib,
        }
        yield f"guest cell {cell.guest_cell}", cell.host_cell, " ".join(f"{k}={v}" for k, v in said.items() if v)
    if not placement.cells:
        yield "guest", None, f"shared={placement.shared_cpus} memory_kib={placement.memory_kib}"
    if placement.emulator_cpus:
        yield "emulator", None, f"cpus={placement.emulator_cpus}"
    for given in placement.devices:
        yield given.request, None, ",".join(map(str, given.devices))
