"""What a host has, on a page: a summary, the map, the devices, and what could not be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from agent.core.conflicts import Conflict
from agent.core.topology import HostTopology
from agent.core.usage import Usage
from agent.core.values import Problem
from agent.core.words import count, plain
from agent.render import words
from agent.render.device_text import devices_text
from agent.render.host_map import host_map
from agent.render.paint import Paint, no_paint
from agent.render.table import wrap


def topology_text(
    topology: HostTopology,
    usage: Usage,
    conflicts: Iterable[Conflict],
    *,
    width: int = 80,
    paint: Paint = no_paint,
    everything: bool = False,
) -> str:
    """The page. everything: all devices, bridges too. Ends with a newline."""
    parts = [
        "".join(wrap(line, width, rest="  ") for line in summary(topology)),
        host_map(topology, usage, conflicts, width=width, paint=paint),
        devices_text(topology, usage, width=width, everything=everything),
        problems_text(topology.problems, width=width, paint=paint),
    ]
    return "\n".join(part for part in parts if part)


def summary(topology: HostTopology) -> tuple[str, ...]:
    """Lines: the counts, the caches, the distances between cells when they are not all alike."""
    return tuple(line for line in (counts(topology), _caches(topology), _distances(topology)) if line)


def counts(topology: HostTopology) -> str:
    """ "2 cells, 2 sockets, 8 cores, 16 CPUs (1 offline, 2 isolated), 31.3 GiB"."""
    sockets = {cpu.socket for cpu in topology.cpus if cpu.socket is not None}
    cores = {(cpu.socket, cpu.core) for cpu in topology.cpus if cpu.core is not None}
    withheld = sum(not cpu.allowed for cpu in topology.cpus)
    unread = sum(cpu.online is None for cpu in topology.cpus)
    marks = (
        (len(topology.offline), "offline"),
        (unread, "unreadable"),
        (len(topology.isolated), "isolated"),
        (withheld, "withheld by a cpuset"),
    )
    marked = ", ".join(f"{number} {word}" for number, word in marks if number)
    cpus = count(len(topology.cpus), "CPU") + (f" ({marked})" if marked else "")
    cells = count(len(topology.cells), "cell") if topology.has_cells else "no NUMA"
    places = [count(len(places), word) for places, word in ((sockets, "socket"), (cores, "core")) if places]
    return ", ".join([cells, *places, cpus, words.size(topology.memory_kib)])


def problems_text(problems: Sequence[Problem], *, width: int = 80, paint: Paint = no_paint) -> str:
    """One paragraph for each thing that could not be read or that two sources tell differently."""
    if not problems:
        return ""
    lines = [wrap(_problem(problem), width, first="  ", rest="    ") for problem in problems]
    head = f"{count(len(problems), 'problem')} in what the host says of itself:"
    return paint("warning", head) + "\n" + "".join(lines)


def _problem(problem: Problem) -> str:
    values = "; ".join(f"{name} says {value or 'nothing'}" for name, value in problem.values.items())
    return plain(f"{problem.source}: {problem.what}" + (f" ({values})" if values else ""))


def _caches(topology: HostTopology) -> str:
    """ "caches: 2 x L3 16 MiB, 8 x L2 1 MiB", highest level first."""
    data = [cache for cache in topology.caches if cache.type != "instruction"]
    kinds = Counter((cache.level, cache.size_kib) for cache in data)
    shown = [f"{number} x L{level} {words.size(kib)}" for (level, kib), number in sorted(kinds.items(), reverse=True)]
    return f"caches: {', '.join(shown)}" if shown else ""


def _distances(topology: HostTopology) -> str:
    """Each cell's nearest neighbours, once the cells are not all equally far from each other."""
    others = {far for cell in topology.cells for to, far in cell.distances.items() if to != cell.id}
    return f"near cells: {'; '.join(_nearest(topology))}" if len(others) > 1 else ""


def _nearest(topology: HostTopology) -> Iterator[str]:
    for cell in topology.cells:
        others = {to: far for to, far in cell.distances.items() if to != cell.id}
        if others:
            nearest = min(others.values())
            ids = ",".join(str(to) for to, far in sorted(others.items()) if far == nearest)
            yield f"{cell.id} to {ids} ({nearest})"
