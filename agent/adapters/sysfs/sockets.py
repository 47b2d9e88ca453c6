"""The place of each online CPU: socket, die, cluster, core and thread siblings."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from agent.adapters.sysfs.cpus import FOLDER, Masks, read_kinds
from agent.adapters.sysfs.files import Files
from agent.core.cpuset import CpuSet
from agent.core.topology import Cache
from agent.core.values import Value
from agent.core.words import agrees, plural

_NO_ID = frozenset({-1, 0xFFFF, 0xFFFFFFFF})
"""What kernels print for a die, cluster or socket that the platform does not name."""


class Place(Value, frozen=True, kw_only=True):
    """Where an online CPU sits; the fields are those of `agent.core.topology.Cpu`."""

    socket: int | None = None
    die: int | None = None
    cluster: int | None = None
    core: int | None = None
    kernel_core_id: int | None = None
    siblings: CpuSet = CpuSet()
    kind: str | None = None


def read_places(files: Files, masks: Masks, caches: Sequence[Cache]) -> dict[int, Place]:
    """A place for every online CPU. Source: cpuN/topology.

    The masks say who is together, the ids only name them: where they contradict each other the masks are taken.
    """
    names = {cpu: _names(files, masks, cpu) for cpu in masks.online}
    _tell_missing(files, CpuSet(cpu for cpu, entries in names.items() if not entries))
    reader = _Reader(files, masks.online, names)
    sockets = reader.labels(("package_cpus", "core_siblings"), "physical_package_id", distinct=True)
    dies = reader.labels(("die_cpus",), "die_id")
    clusters = reader.labels(("cluster_cpus",), "cluster_id")
    core_ids = {cpu: reader.number(cpu, "core_id") for cpu in masks.online}
    siblings = _siblings(files, _threads(reader), sockets, core_ids, caches)
    sockets = {cpu: _socket_of(siblings[cpu], sockets) for cpu in masks.online}
    cores = _cores(sockets, core_ids, siblings)
    kinds = read_kinds(files, masks)
    return {
        cpu: Place(
            socket=sockets[cpu],
            die=dies[cpu],
            cluster=clusters[cpu],
            core=cores[cpu],
            kernel_core_id=core_ids[cpu],
            siblings=siblings[cpu],
            kind=kinds.get(cpu),
        )
        for cpu in masks.online
    }


def _names(files: Files, masks: Masks, cpu: int) -> frozenset[str]:
    return files.names(f"{FOLDER}/cpu{cpu}/topology") if "topology" in masks.entries.get(cpu, ()) else frozenset()


def _tell_missing(files: Files, cpus: CpuSet) -> None:
    if cpus:
        what = "these online CPUs have no topology: what others say of them is taken, else each is a core of its own"
        files.problem(f"{FOLDER}/cpu{cpus.lowest}/topology", what, cpus=cpus)


class _Reader:
    """Reads of cpuN/topology that skip the files a CPU does not have."""

    def __init__(self, files: Files, online: CpuSet, names: Mapping[int, frozenset[str]]) -> None:
        self.files = files
        self.online = online
        self._names = names

    def number(self, cpu: int, name: str) -> int | None:
        """An id, None when the kernel has none."""
        if name not in self._names[cpu]:
            return None
        number = self.files.number(f"{FOLDER}/cpu{cpu}/topology/{name}")
        return None if number in _NO_ID else number

    def group(self, cpu: int, bases: Iterable[str]) -> CpuSet | None:
        """Online CPUs together with this one by the first of these masks; a second that differs is a problem."""
        said = [(name, cpus) for base in bases if (found := self._mask(cpu, base)) for name, cpus in (found,)]
        if not said:
            return None
        if any(cpus != said[0][1] for _, cpus in said[1:]):
            what = f"{said[0][0]} and {said[1][0]} are two names of one mask, yet differ; the first is taken"
            self.files.contradiction(f"{FOLDER}/cpu{cpu}/topology", what, said)
        return said[0][1] & self.online

    def labels(self, masks: tuple[str, ...], id_name: str, *, distinct: bool = False) -> dict[int, int | None]:
        """The id of each CPU's group. distinct: two groups never have the same id, and one without gets a number."""
        labels: dict[int, int | None] = {}
        taken = _Numbers()
        unnamed: list[CpuSet] = []
        for cpu in self.online:
            if cpu in labels:
                continue
            together = self.group(cpu, masks)
            if together is None:
                labels[cpu] = self.number(cpu, id_name)
                taken.add(labels[cpu], CpuSet((cpu,)))
                continue
            members = CpuSet(m for m in together if m not in labels) | CpuSet((cpu,))
            own = self._common_id(members, masks[0], id_name)
            if own is None:
                unnamed.append(members)
            elif distinct:
                own = self._unused(own, taken, members, id_name)
            labels.update(dict.fromkeys(members, own))
            taken.add(own, members)
        if distinct:
            for members in unnamed:
                labels.update(dict.fromkeys(members, taken.unused()))
        return labels

    def _mask(self, cpu: int, base: str) -> tuple[str, CpuSet] | None:
        if not self._names[cpu] & {base, f"{base}_list"}:
            return None
        found = self.files.twins(f"{FOLDER}/cpu{cpu}/topology", base, f"{base}_list")
        return None if found is None else (base, found)

    def _common_id(self, members: CpuSet, mask: str, id_name: str) -> int | None:
        """The id of the lowest member that has one; a problem when others have another."""
        by_id: defaultdict[int, list[int]] = defaultdict(list)
        for member in members:
            number = self.number(member, id_name)
            if number is not None:
                by_id[number].append(member)
        taken = next(iter(by_id), None)
        if len(by_id) > 1:
            said = [(mask, members), *((f"{id_name} = {number}", CpuSet(cpus)) for number, cpus in by_id.items())]
            what = f"{mask} puts {plural(members)} together, {id_name} does not; they are shown together as {taken}"
            self.files.contradiction(f"{FOLDER}/cpu{members.lowest}/topology", what, said)
        return taken

    def _unused(self, own: int, taken: _Numbers, members: CpuSet, id_name: str) -> int:
        others = taken.cpus.get(own)
        if not others:
            return own
        number = taken.unused()
        what = (
            f"{plural(members)} and {plural(others)} are apart, yet both have {id_name} {own}; the former "
            f"{agrees(members, 'is', 'are')} shown as {number}"
        )
        said = ((plural(members), own), (plural(others), own))
        self.files.contradiction(f"{FOLDER}/cpu{members.lowest}/topology/{id_name}", what, said)
        return number


class _Numbers:
    """Numbers that groups have, each with its CPUs."""

    def __init__(self) -> None:
        self.cpus: dict[int, CpuSet] = {}
        self._rest = itertools.count()

    def add(self, number: int | None, cpus: CpuSet) -> None:
        if number is not None:
            self.cpus[number] = self.cpus.get(number, CpuSet()) | cpus

    def unused(self) -> int:
        """The lowest number that no group has, another one each time."""
        return next(number for number in self._rest if number not in self.cpus)


def _threads(reader: _Reader) -> list[CpuSet]:
    """The groups of thread siblings. Two CPUs are siblings if either says so."""
    said = {cpu: reader.group(cpu, ("core_cpus", "thread_siblings")) or CpuSet((cpu,)) for cpu in reader.online}
    _tell_one_sided(reader.files, said)
    return list({group.lowest: group for group in _closure(said).values()}.values())


def _siblings(
    files: Files,
    threads: Iterable[CpuSet],
    sockets: Mapping[int, int | None],
    core_ids: Mapping[int, int | None],
    caches: Sequence[Cache],
) -> dict[int, CpuSet]:
    """The core of each CPU: its siblings, itself among them, after what cannot be one core was split."""
    cores = (
        core
        for group in threads
        for part in _split_sockets(files, group, sockets)
        for core in _split_modules(files, part, core_ids, caches)
    )
    return {cpu: core for core in cores for cpu in core}


def _socket_of(core: CpuSet, sockets: Mapping[int, int | None]) -> int | None:
    """A CPU whose socket is not known is where its siblings are."""
    return next((sockets[cpu] for cpu in core if sockets[cpu] is not None), None)


def _split_sockets(files: Files, group: CpuSet, sockets: Mapping[int, int | None]) -> list[CpuSet]:
    by_socket: defaultdict[int | None, list[int]] = defaultdict(list)
    for cpu in group:
        by_socket[sockets[cpu]].append(cpu)
    if len(by_socket.keys() - {None}) <= 1:
        return [group]
    said = [("thread_siblings", group), *((f"socket {number}", CpuSet(cpus)) for number, cpus in by_socket.items())]
    what = f"CPUs {group} are named siblings, yet sit in several sockets; they are shown as a core in each"
    files.contradiction(f"{FOLDER}/cpu{group.lowest}/topology", what, said)
    return [CpuSet(cpus) for cpus in by_socket.values()]


def _closure(said: Mapping[int, CpuSet]) -> dict[int, CpuSet]:
    groups: dict[int, CpuSet] = {}
    for cpu, siblings in said.items():
        group = siblings | CpuSet((cpu,))
        for other in siblings:
            group |= groups.get(other, group)
        groups.update(dict.fromkeys(group, group))
    return groups


def _tell_one_sided(files: Files, said: Mapping[int, CpuSet]) -> None:
    for cpu, siblings in said.items():
        differ = [other for other in siblings if said.get(other) != siblings]
        if differ or cpu not in siblings:
            values = [(f"cpu{c}/topology", said[c]) for c in sorted({cpu, *differ}) if c in said]
            what = f"thread siblings of CPU {cpu} are one-sided; all that any of them names are taken as one core"
            files.contradiction(f"{FOLDER}/cpu{cpu}/topology", what, values)


def _split_modules(
    files: Files, group: CpuSet, core_ids: Mapping[int, int | None], caches: Sequence[Cache]
) -> list[CpuSet]:
    """AMD family 15h names the two cores of a module siblings; their ids differ and each has an L1 data cache."""
    ids = {core_ids[cpu] for cpu in group} - {None}
    if len(ids) <= 1:
        return [group]
    said = [("thread_siblings", group), *((f"cpu{cpu}/topology/core_id", core_ids[cpu]) for cpu in group)]
    own_l1 = {c.cpus for c in caches if c.level == 1 and c.type != "instruction" and not c.cpus.isdisjoint(group)}
    if len(ids) == len(group) == len(own_l1):
        what = f"CPUs {group} are named siblings, yet have own core ids and own L1 caches; each is shown as a core"
        files.contradiction(f"{FOLDER}/cpu{group.lowest}/topology", what, said)
        return [CpuSet((cpu,)) for cpu in group]
    what = f"CPUs {group} are siblings, yet their core ids differ; they are shown as one core"
    files.contradiction(f"{FOLDER}/cpu{group.lowest}/topology", what, said)
    return [group]


def _cores(
    sockets: Mapping[int, int | None], core_ids: Mapping[int, int | None], siblings: Mapping[int, CpuSet]
) -> dict[int, int | None]:
    """A core number unique within its socket: the kernel's where it is, else counted by lowest CPU.

    Kernel core ids repeat within a socket of several dies or nodes (AMD family 10h, some ARM).
    """
    by_socket: defaultdict[int | None, dict[CpuSet, int | None]] = defaultdict(dict)
    for cpu, core in siblings.items():
        by_socket[sockets[cpu]].setdefault(core, core_ids[core.lowest])
    cores: dict[int, int | None] = {}
    for named in by_socket.values():
        ids = list(named.values())
        unique = None not in ids and len(set(ids)) == len(ids)
        for position, (core, number) in enumerate(named.items()):
            cores.update(dict.fromkeys(core, number if unique else position))
    return cores
