"""The host as a text picture: one letter per thread, by cell, socket and core."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from agent.core.conflicts import Conflict
from agent.core.cpuset import CpuSet
from agent.core.topology import Cpu, HostCell, HostTopology
from agent.core.usage import Usage
from agent.core.words import plain, plural
from agent.render import words
from agent.render.cpu_states import CpuState, by_state, cpu_states
from agent.render.paint import Paint, no_paint
from agent.render.table import wrap

CORES_PER_ROW = (64, 32, 16, 8, 4, 2, 1)
BLOCK = 4
LONGEST_LABEL = 22
_COLOUR = {CpuState.CONFLICT: "critical", CpuState.OFFLINE: "faint", CpuState.PINNED: "strong", CpuState.FREE: "ok"}


class CoreRow(NamedTuple):
    """Some cores side by side: `label` and `cpus` say which, `cores` has the states of each one's threads."""

    label: str
    cpus: str
    cores: tuple[tuple[CpuState, ...], ...]


class Core(NamedTuple):
    """One core of the picture. number: None where the kernel gives no core (offline CPUs, old kernels)."""

    number: int | None
    cpus: tuple[Cpu, ...]


class Block(NamedTuple):
    """One cell of the picture: its line of text, and its cores by the place they are in (socket, die, kind)."""

    title: str
    groups: tuple[tuple[str, tuple[Core, ...]], ...]


def host_map(
    topology: HostTopology,
    usage: Usage,
    conflicts: Iterable[Conflict],
    *,
    width: int = 80,
    paint: Paint = no_paint,
) -> str:
    """Every CPU of the host as a letter, then what the letters mean and which CPUs they stand for.

    Lines stay within `width` as long as one core fits. Ends with a newline.
    """
    states = cpu_states(topology, usage, conflicts)
    blocks = [_block(cell_line(cell), _cpus_of(topology, cell)) for cell in topology.cells]
    homeless = [cpu for cpu in topology.cpus if _cell_id(topology, cpu) is None]
    if homeless:
        blocks.append(_block("without a known cell", homeless))
    rows = _fitting_rows(blocks, states, width)
    drawn = "".join(_draw_block(block, rows, width, paint) for block in blocks)
    return f"{drawn}\n{legend(states, width=width, paint=paint)}"


def legend(states: Mapping[int, CpuState], *, width: int = 80, paint: Paint = no_paint) -> str:
    """One line per letter that occurs: its meaning, how many CPUs, and which."""
    lines = []
    for state, cpus in by_state(states):
        text = wrap(f"{state.meaning}: {len(cpus)} ({plural(cpus)})", width, first="  = ", rest="    ")
        lines.append(_letter(state, paint) + text[1:])
    return "".join(lines)


def _cpus_of(topology: HostTopology, cell: HostCell) -> tuple[Cpu, ...]:
    return tuple(cpu for cpu in topology.cpus if _cell_id(topology, cpu) == cell.id)


def _cell_id(topology: HostTopology, cpu: Cpu) -> int | None:
    known = {cell.id for cell in topology.cells}
    if not topology.has_cells and cpu.cell is None and cpu.online:
        return min(known, default=None)
    return cpu.cell if cpu.cell in known else None


def cell_line(cell: HostCell) -> str:
    """One cell in a line: "cell 0: 15.6 GiB, CPUs 0-3, 2 MiB pages 512 (64 free)"."""
    parts = [
        words.size(cell.memory_kib) if cell.memory_kib else "no memory",
        plural(cell.cpus) if cell.cpus else "no CPUs",
    ]
    parts += [] if cell.allowed else ["memory withheld from guests by a cpuset"]
    parts += [f"{words.size(pool.size_kib)} pages {pool.total} ({pool.free} free)" for pool in cell.pages if pool.total]
    return f"cell {cell.id}: {', '.join(parts)}"


def _block(title: str, cpus: Sequence[Cpu]) -> Block:
    """One group per socket, die and kind of core; the CPUs whose place is not known come last."""
    groups: dict[str, list[Cpu]] = {}
    several_dies = len({(cpu.socket, cpu.die) for cpu in cpus}) > len({cpu.socket for cpu in cpus})
    for cpu in sorted(cpus, key=lambda cpu: (cpu.socket is None, cpu.socket or 0, cpu.die or 0)):
        groups.setdefault(_place(cpu, several_dies), []).append(cpu)
    drawn = [(place, _cores(members)) for place, members in groups.items()]
    return Block(title, tuple(_merged(drawn)))


def _merged(groups: list[tuple[str, tuple[Core, ...]]]) -> list[tuple[str, tuple[Core, ...]]]:
    """Sockets of one core each side by side, as most virtual machines have them; other groups as they are."""
    lone = [(place, cores[0]) for place, cores in groups if place and len(cores) == 1]
    if len(lone) < len([place for place, _ in groups if place]) or len(lone) < 2:
        return groups
    sockets = CpuSet(cpu.socket for _, core in lone for cpu in core.cpus if cpu.socket is not None)
    cores = tuple(Core(None, core.cpus) for _, core in lone)
    return [(f"sockets {sockets}", cores), *((place, cores) for place, cores in groups if not place)]


def _place(cpu: Cpu, several_dies: bool) -> str:
    socket = None if cpu.socket is None else f"socket {cpu.socket}"
    die = f"die {cpu.die}" if several_dies and cpu.die is not None else None
    return ", ".join(part for part in (socket, die, cpu.kind) if part)


def _cores(cpus: Iterable[Cpu]) -> tuple[Core, ...]:
    """In the order of their lowest CPU, which is how people number them."""
    cores: dict[tuple[str, int | None], list[Cpu]] = {}
    for cpu in cpus:
        key = ("core", cpu.core) if cpu.core is not None else ("cpu", cpu.id)
        cores.setdefault(key, []).append(cpu)
    return tuple(Core(number=members[0].core, cpus=tuple(members)) for members in cores.values())


def _fitting_rows(
    blocks: Sequence[Block], states: Mapping[int, CpuState], width: int
) -> dict[tuple[Core, ...], list[CoreRow]]:
    """The rows of each group of cores, as many cores side by side as fit everywhere, so that rows compare."""
    groups = [cores for block in blocks for _, cores in block.groups]
    rows: dict[tuple[Core, ...], list[CoreRow]] = {}
    for per_row in CORES_PER_ROW:
        rows = {
            cores: [_row(cores[n : n + per_row], states) for n in range(0, len(cores), per_row)] for cores in groups
        }
        if all(_row_width(row, rows) <= width for many in rows.values() for row in many):
            break
    return rows


def _row_width(row: CoreRow, rows: Mapping[tuple[Core, ...], Sequence[CoreRow]]) -> int:
    labels, cpus = _label_widths(rows)
    return 2 + labels + 2 + cpus + 2 + len(_threads(row.cores, no_paint))


def _label_widths(rows: Mapping[tuple[Core, ...], Sequence[CoreRow]]) -> tuple[int, int]:
    every = [row for many in rows.values() for row in many]
    return max(len(row.label) for row in every), max(len(row.cpus) for row in every)


def _draw_block(block: Block, rows: Mapping[tuple[Core, ...], Sequence[CoreRow]], width: int, paint: Paint) -> str:
    labels, cpus = _label_widths(rows) if rows else (0, 0)
    alone = block.groups[0][0] if len(block.groups) == 1 else ""
    lines = [wrap(block.title + (f", {alone}" if alone else ""), width, rest="  ")]
    for place, cores in block.groups:
        lines.append("" if len(block.groups) == 1 else f" {plain(place) or 'place not known'}\n")
        lines += [
            f"  {row.label.ljust(labels)}{'  ' if labels else ''}{row.cpus.ljust(cpus)}  {_threads(row.cores, paint)}\n"
            for row in rows[cores]
        ]
    return "".join(lines)


def _row(cores: Sequence[Core], states: Mapping[int, CpuState]) -> CoreRow:
    threads = tuple(tuple(states[cpu.id] for cpu in core.cpus) for core in cores)
    numbers = [core.number for core in cores if core.number is not None]
    return CoreRow(f"core {_range(numbers)}" if numbers else "", f"CPU {_cpu_label(cores)}", threads)


def _cpu_label(cores: Sequence[Core]) -> str:
    """The row's CPUs as a list; when that is long, those of its first and last core."""
    whole = str(CpuSet(cpu.id for core in cores for cpu in core.cpus))
    if len(whole) <= LONGEST_LABEL or len(cores) == 1:
        return whole
    first, last = (CpuSet(cpu.id for cpu in core.cpus) for core in (cores[0], cores[-1]))
    return f"{first} .. {last}"


def _range(numbers: Sequence[int]) -> str:
    whole = str(CpuSet(numbers))
    return whole if len(whole) <= LONGEST_LABEL // 2 else f"{numbers[0]} .. {numbers[-1]}"


def _threads(cores: Sequence[tuple[CpuState, ...]], paint: Paint) -> str:
    """A blank between cores of several threads; cores of one thread stand in blocks of four."""
    drawn = ["".join(_letter(state, paint) for state in core) for core in cores]
    if max(len(core) for core in cores) > 1:
        return " ".join(drawn)
    return " ".join("".join(drawn[n : n + BLOCK]) for n in range(0, len(drawn), BLOCK))


def _letter(state: CpuState, paint: Paint) -> str:
    style = _COLOUR.get(state)
    return paint(style, state.letter) if style else state.letter
