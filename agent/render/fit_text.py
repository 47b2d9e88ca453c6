"""The answer to a fit for people: where everything goes, or why not and what would help."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from agent.core.cpuset import CpuSet
from agent.core.pci import PciAddress
from agent.core.placement import CellPlacement, GivenDevices, Placement
from agent.core.reason_text import page_size, sentence
from agent.core.reasons import (
    CellsContended,
    ClaimForbidden,
    CpusUncertain,
    DevicesApart,
    DevicesContended,
    DevicesFar,
    DevicesShort,
    EmulatorHomeless,
    GroupViolated,
    InMaintenance,
    NoRoomTogether,
    Reason,
    SearchStopped,
    SocketsUnknown,
    TooFewCells,
)
from agent.core.relax.text import phrase
from agent.core.relax.values import Relaxations
from agent.core.words import count, plain, plural
from agent.render import words
from agent.render.paint import Paint, no_paint
from agent.render.table import wrap

NO_CELLS: Mapping[PciAddress, int | None] = MappingProxyType({})

_NAME = 14
_TIE = "~"
"""A blank at which no line breaks, in text that has no such mark of its own."""


class Place(NamedTuple):
    """What a reason is about. part: of the guest, as placements name it: "guest", "guest cell 0", "alias:gpu". cell: of
    the host; None: the host as a whole. is_request: the part is a request for devices, or several."""

    part: str
    cell: int | None = None
    is_request: bool = False


def place(reason: Reason) -> Place:
    """Of any reason."""
    match reason:
        case DevicesShort() | DevicesFar() | SocketsUnknown():
            return Place(plain(reason.request), is_request=True)
        case DevicesContended():
            return Place(", ".join(map(plain, reason.requests)), is_request=True)
        case DevicesApart():
            return Place(", ".join(plain(one.request) for one in reason.requests), is_request=True)
        case (
            EmulatorHomeless()
            | TooFewCells()
            | CellsContended()
            | NoRoomTogether()
            | CpusUncertain()
            | SearchStopped()
            | GroupViolated()
            | InMaintenance()
            | ClaimForbidden()
        ):
            return Place("guest")
        case _:
            cell = reason.guest_cell
            return Place("guest" if cell is None else f"guest cell {cell}", reason.cell)


def placement_text(
    placement: Placement,
    *,
    device_cells: Mapping[PciAddress, int | None] = NO_CELLS,
    width: int = 80,
    paint: Paint = no_paint,
) -> str:
    """Where each cell, CPU, page and device goes, and what is kept idle. Ends with a newline.

    device_cells: host cell of devices, as far as it is known; those far from the guest are marked.
    """
    cells = f" in {count(len(placement.cells), 'cell')}" if placement.cells else ""
    title = f"It fits: {count(placement.vcpus, 'vCPU')} and {words.size(placement.memory_kib)} of memory{cells}"
    text = wrap(title, width, rest="  ") + place_text(placement, device_cells=device_cells, width=width)
    return paint("ok", "It fits") + text.removeprefix("It fits")


def place_text(
    placement: Placement, *, device_cells: Mapping[PciAddress, int | None] = NO_CELLS, width: int = 80
) -> str:
    """The same of a place that is given already, without a title. Each line is indented, and ends with a newline."""
    lines: list[str] = []
    for cell in placement.cells:
        lines.append(wrap(f"guest cell {cell.guest_cell} on cell {cell.host_cell}", width, first="  ", rest="    "))
        if cell.pins:
            lines.append(_pinned(cell.pins, width, "    "))
        lines += [_fact(name, text, width, "    ") for name, text in _cell_facts(cell)]
    lines += [_fact(name, text, width, "  ") for name, text in _guest_facts(placement, device_cells)]
    return "".join(lines)


def refusal_text(
    reasons: Sequence[Reason], relaxations: Relaxations | None = None, *, width: int = 80, paint: Paint = no_paint
) -> str:
    """Every reason by host cell, then those of requests and of the host; then what would help. Ends with a newline.

    relaxations: None: nobody looked for any.
    """
    title = wrap(f"It does not fit, for {count(len(reasons), 'reason')}:", width, rest="  ")
    lines = [paint("error", "It does not fit") + title.removeprefix("It does not fit")]
    for heading, members in _grouped(reasons):
        lines.append(paint("strong", heading) + "\n")
        lines += [wrap(sentence(reason), width, first="  - ") for reason in members]
    return "".join([*lines, *_relaxation_lines(relaxations, width, paint)])


def _relaxation_lines(relaxations: Relaxations | None, width: int, paint: Paint) -> Iterator[str]:
    if relaxations is None:
        return
    if relaxations.found:
        yield paint("strong", "It would fit") + "\n"
        for relaxation in relaxations.found:
            yield wrap(phrase(relaxation), width, first="  - ")
    else:
        yield wrap("No single change that was tried would make it fit.", width)
    if relaxations.untried:
        changes = count(relaxations.untried, "more change")
        yield wrap(f"Whether {changes}, such as that a guest left, would help was not tried: it takes too long.", width)


def _grouped(reasons: Iterable[Reason]) -> Iterator[tuple[str, list[Reason]]]:
    """By host cell, ascending; then of requests; then of the host."""
    by_cell: dict[int, list[Reason]] = {}
    others: dict[str, list[Reason]] = {"requests": [], "host": []}
    for reason in reasons:
        where = place(reason)
        if where.cell is not None:
            by_cell.setdefault(where.cell, []).append(reason)
        else:
            others["requests" if where.is_request else "host"].append(reason)
    yield from ((f"cell {cell}", members) for cell, members in sorted(by_cell.items()))
    yield from ((heading, members) for heading, members in others.items() if members)


def _cell_facts(cell: CellPlacement) -> Iterator[tuple[str, str]]:
    floating = cell.vcpus - CpuSet(cell.pins)
    if floating:
        yield "floating", f"{plural(floating, 'vCPU')} over {plural(cell.shared_cpus)}"
    yield "memory", f"{words.size(cell.memory_kib)} in {page_size(cell.page_size_kib)} pages"
    if cell.idle_cpus:
        yield "kept idle", f"{plural(cell.idle_cpus)}, siblings that thread policy isolate keeps from everybody"


def _guest_facts(placement: Placement, device_cells: Mapping[PciAddress, int | None]) -> Iterator[tuple[str, str]]:
    if not placement.cells:
        over = f" over {plural(placement.shared_cpus)}" if placement.shared_cpus else ""
        yield "floating", f"{count(placement.vcpus, 'vCPU')}{over}"
    if placement.emulator_own is not None:
        yield "emulator", f"CPU {placement.emulator_own}, which nobody else has"
    else:
        yield "emulator", plural(placement.emulator_cpus) if placement.emulator_cpus else "not confined"
    cells = {cell.host_cell for cell in placement.cells}
    for given in placement.devices:
        yield "devices", _devices(given, cells, device_cells)


def _devices(given: GivenDevices, cells: set[int], device_cells: Mapping[PciAddress, int | None]) -> str:
    shown = (f"{address}{_remark(address, cells, device_cells)}" for address in given.devices)
    return f"{', '.join(shown) or 'none'} for {plain(given.request)}"


def _remark(address: PciAddress, cells: set[int], device_cells: Mapping[PciAddress, int | None]) -> str:
    where = device_cells.get(address)
    if where is None:
        return ""
    return f" (cell {where}{', far from the guest' if cells and where not in cells else ''})"


def _pinned(pins: Mapping[int, int], width: int, indent: str) -> str:
    """A line breaks between a vCPU and its CPU only where it is too short for both, and never within a number."""
    runs = _pins(pins)
    is_wide = max(map(len, runs)) < width - _NAME - 1
    text = ", ".join(one.replace(" ", _TIE) if is_wide else one for one in runs)
    return _fact("pinned", text, width, indent).replace(_TIE, " ")


def _pins(pins: Mapping[int, int]) -> list[str]:
    """Runs of vCPUs on runs of CPUs in the same order: "vCPUs 0-3 on CPUs 8-11", "4 on 2"."""
    runs: list[tuple[int, int, int]] = []
    for vcpu, cpu in sorted(pins.items()):
        if runs and (vcpu, cpu) == (runs[-1][0] + runs[-1][2], runs[-1][1] + runs[-1][2]):
            first, on, length = runs[-1]
            runs[-1] = (first, on, length + 1)
        else:
            runs.append((vcpu, cpu, 1))
    pairs = [(CpuSet(range(vcpu, vcpu + length)), CpuSet(range(cpu, cpu + length))) for vcpu, cpu, length in runs]
    (vcpus, cpus), *others = pairs
    return [f"{plural(vcpus, 'vCPU')} on {plural(cpus)}", *(f"{vcpus} on {cpus}" for vcpus, cpus in others)]


def _fact(name: str, text: str, width: int, indent: str) -> str:
    return wrap(text, width, first=f"{indent}{name:<{_NAME - len(indent)}} ")
