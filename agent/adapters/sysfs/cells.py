"""NUMA cells: their CPUs, memory, distances and pools of huge pages."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from agent.adapters.sysfs.cpus import FOLDER as CPU_FOLDER
from agent.adapters.sysfs.cpus import Masks
from agent.adapters.sysfs.files import Files
from agent.core.cpuset import HIGHEST_ID, CpuSet
from agent.core.topology import HostCell, PagePool
from agent.core.values import ReadOnlyMap, Value
from agent.core.words import agrees, plural

FOLDER = "sys/devices/system/node"
POOLS = "sys/kernel/mm/hugepages"

_NODE = re.compile(r"node(\d{1,5})")
_POOL = re.compile(r"hugepages-(\d{1,15})kB")
_DISTANCE = re.compile(r"\d{1,9}", re.ASCII)
_TOTAL = re.compile(r"\bMemTotal:\s+(\d{1,15}) kB")


class Cells(Value, frozen=True, kw_only=True):
    """The cells, the cell of each CPU (online or not, where it is known), and host-wide pools and memory."""

    cells: tuple[HostCell, ...]
    cell_of: ReadOnlyMap[int, int]
    pages: tuple[PagePool, ...]
    memory_kib: int
    has_cells: bool


def read_cells(files: Files, masks: Masks) -> Cells:
    """All cells; one cell 0 with everything for a kernel without NUMA. Source: node/nodeN, meminfo, mm/hugepages."""
    ids = _ids(files)
    meminfo = files.text("proc/meminfo") or ""
    files.require(FOLDER, "proc/meminfo")
    pages = read_pools(files, POOLS)
    memory_kib = _memory_total(meminfo)
    if not ids:
        if memory_kib is None:
            files.problem("proc/meminfo", "does not tell the host's memory, and there are no cells to sum up")
        cell = HostCell(id=0, cpus=masks.online, memory_kib=memory_kib or 0, pages=pages)
        in_cell = MappingProxyType(dict.fromkeys(masks.present, 0))
        return Cells(cells=(cell,), cell_of=in_cell, pages=pages, memory_kib=memory_kib or 0, has_cells=False)
    cell_of = _cell_of(files, masks, {cell: _listed_cpus(files, masks, cell) for cell in ids})
    distances = _distances(files, ids)
    cells = tuple(
        HostCell(
            id=cell,
            cpus=CpuSet(cpu for cpu in masks.online if cell_of.get(cpu) == cell),
            memory_kib=_memory_kib(files, cell),
            pages=_pools_of_cell(files, cell, pages if len(ids) == 1 else ()),
            distances=MappingProxyType(distances[cell]),
        )
        for cell in ids
    )
    _tell_pools_without_cell(files, cells, pages)
    total = memory_kib if memory_kib is not None else sum(cell.memory_kib for cell in cells)
    return Cells(cells=cells, cell_of=MappingProxyType(cell_of), pages=pages, memory_kib=total, has_cells=True)


def read_pools(files: Files, folder: str) -> tuple[PagePool, ...]:
    """Pools of huge pages below a folder, smallest size first; a pool whose size in use is unreadable is left out."""
    sizes = sorted(int(match[1]) for name in files.names(folder) if (match := _POOL.fullmatch(name)))
    files.require(folder)
    pools = []
    for size in sizes:
        pool = f"{folder}/hugepages-{size}kB"
        total, free = files.number(f"{pool}/nr_hugepages"), files.number(f"{pool}/free_hugepages")
        files.require(f"{pool}/nr_hugepages", f"{pool}/free_hugepages")
        if total is None:
            files.problem(pool, "this pool is left out: its number of pages is not known")
            continue
        surplus, reserved = files.number(f"{pool}/surplus_hugepages") or 0, files.number(f"{pool}/resv_hugepages")
        pools.append(PagePool(size_kib=size, total=total, free=free or 0, surplus=surplus, reserved=reserved))
    return tuple(pools)


def node_ids(files: Files) -> tuple[int, ...]:
    """Ids of the cells that have a folder, ascending."""
    return _own_cells(files.names(FOLDER))


def _ids(files: Files) -> tuple[int, ...]:
    ids = node_ids(files)
    online = files.cpulist(f"{FOLDER}/online")
    if online is not None and online != CpuSet(ids):
        said = ((f"{FOLDER}/online", online), (f"{FOLDER}/node*", CpuSet(ids)))
        files.contradiction(f"{FOLDER}/online", "the list of cells contradicts the folders, which are taken", said)
    return ids


def _listed_cpus(files: Files, masks: Masks, cell: int) -> CpuSet:
    """CPUs that a cell claims: by its mask or list, else by links."""
    folder = f"{FOLDER}/node{cell}"
    cpus = files.twins(folder, "cpumap", "cpulist")
    if cpus is None:
        files.require(f"{folder}/cpumap", f"{folder}/cpulist")
        linked = f"node{cell}"
        cpus = CpuSet(cpu for cpu, names in masks.entries.items() if linked in names)
        cpus |= CpuSet(cpu for cpu in masks.present if files.exists(f"{folder}/cpu{cpu}"))
        files.problem(f"{folder}/cpulist", "neither list nor mask of this cell's CPUs; the links are taken", links=cpus)
    return cpus


def _cell_of(files: Files, masks: Masks, listed: Mapping[int, CpuSet]) -> dict[int, int]:
    """The cell of each CPU. Of several cells that claim it, the one its own folder links to, else the lowest.

    Where cells list the very same CPUs the links are dealt out in turn and mean nothing (numa=fake).
    """
    claims: defaultdict[int, list[int]] = defaultdict(list)
    for cell, cpus in listed.items():
        for cpu in cpus & masks.present:
            claims[cpu].append(cell)
    own = {cpu: links for cpu, names in masks.entries.items() if (links := _own_cells(names))}
    shared = CpuSet(cpu for cpu, cells in claims.items() if len(cells) > 1)
    if shared:
        said = [(f"node{cell}/cpulist", cpus) for cell, cpus in listed.items() if not cpus.isdisjoint(shared)]
        what = (
            f"{plural(shared)} {agrees(shared, 'is', 'are')} listed in several cells; each is shown in the one its "
            "folder links to, else the lowest"
        )
        files.contradiction(f"{FOLDER}/node*/cpulist", what, said)
    taken = {cpu: _choose(cells, own.get(cpu, ()), listed) for cpu, cells in claims.items()}
    _tell_other_links(files, taken, own, shared)
    _tell_homeless(files, masks, taken, own)
    return {**{cpu: links[0] for cpu, links in own.items() if links[0] in listed}, **taken}


def _own_cells(names: frozenset[str]) -> tuple[int, ...]:
    numbers = (int(match[1]) for name in names if (match := _NODE.fullmatch(name)))
    return tuple(sorted(number for number in numbers if number < HIGHEST_ID))


def _choose(claiming: Sequence[int], links: Sequence[int], listed: Mapping[int, CpuSet]) -> int:
    same = len({listed[cell] for cell in claiming}) == 1
    return claiming[0] if same else next((cell for cell in links if cell in claiming), claiming[0])


def _tell_other_links(
    files: Files, taken: Mapping[int, int], own: Mapping[int, tuple[int, ...]], shared: CpuSet
) -> None:
    differ = CpuSet(cpu for cpu, cell in taken.items() if cpu not in shared and own.get(cpu, (cell,)) != (cell,))
    if differ:
        said = [(f"cpu{cpu}", f"list: node{taken[cpu]}, link: {_links_text(own[cpu])}") for cpu in differ]
        what = (
            f"{plural(differ)} {agrees(differ, 'is', 'are')} linked to another cell than the one that lists "
            f"{agrees(differ, 'it', 'them')}, which is taken"
        )
        files.contradiction(f"{CPU_FOLDER}/cpu{differ.lowest}", what, said)


def _tell_homeless(files: Files, masks: Masks, taken: Mapping[int, int], own: Mapping[int, tuple[int, ...]]) -> None:
    homeless = CpuSet(cpu for cpu in masks.online if cpu not in taken)
    if homeless:
        said = [(f"cpu{cpu}", f"link: {_links_text(own.get(cpu, ()))}") for cpu in homeless]
        what = (
            f"online {plural(homeless)} {agrees(homeless, 'is', 'are')} in no cell's list; each is shown in the cell "
            "its own folder links to, if any"
        )
        files.contradiction(f"{FOLDER}/node*/cpulist", what, said)


def _links_text(cells: Sequence[int]) -> str:
    return ",".join(f"node{cell}" for cell in cells) or "none"


def _memory_kib(files: Files, cell: int) -> int:
    name = f"{FOLDER}/node{cell}/meminfo"
    memory_kib = _memory_total(files.text(name) or "")
    files.require(name)
    if memory_kib is None:
        files.problem(name, "does not tell this cell's memory, so it counts as none")
    return memory_kib or 0


def _pools_of_cell(files: Files, cell: int, host_pages: tuple[PagePool, ...]) -> tuple[PagePool, ...]:
    """host_pages: the host-wide pools when this is the only cell; they alone know what is reserved."""
    pools = read_pools(files, f"{FOLDER}/node{cell}/hugepages")
    reserved = {pool.size_kib: pool.reserved for pool in host_pages}
    return tuple(msgspec.structs.replace(pool, reserved=reserved.get(pool.size_kib)) for pool in pools) or host_pages


def _tell_pools_without_cell(files: Files, cells: Iterable[HostCell], pages: Iterable[PagePool]) -> None:
    """Kernels before 2.6.33 have pools for the whole host alone."""
    in_cells = {pool.size_kib for cell in cells for pool in cell.pages}
    for pool in pages:
        if pool.total and pool.size_kib not in in_cells:
            what = "the kernel does not tell in which cells these pages are; they are offered to no guest with cells"
            files.problem(f"{POOLS}/hugepages-{pool.size_kib}kB", what, nr_hugepages=pool.total)


def _memory_total(meminfo: str) -> int | None:
    match = _TOTAL.search(meminfo)
    return int(match[1]) if match else None


def _distances(files: Files, ids: Sequence[int]) -> dict[int, dict[int, int]]:
    """Rows by cell. The kernel prints one column per online cell, in order of id."""
    online = tuple(files.cpulist(f"{FOLDER}/online") or ids)
    rows = {cell: _distance_row(files, cell, ids, online) for cell in ids}
    near = [cell for cell, row in rows.items() if any(far <= row[cell] for other, far in row.items() if other != cell)]
    if near:
        said = [(f"node{cell}/distance", " ".join(map(str, rows[cell].values()))) for cell in near]
        what = (
            f"{plural(CpuSet(near), 'cell')} {agrees(near, 'is', 'are')} said to be no nearer to "
            f"{agrees(near, 'itself', 'themselves')} than to others: firmware lies about distances"
        )
        files.contradiction(f"{FOLDER}/node*/distance", what, said)
    return rows


def _distance_row(files: Files, cell: int, ids: Sequence[int], online: Sequence[int]) -> dict[int, int]:
    name = f"{FOLDER}/node{cell}/distance"
    text = files.text(name)
    if text is None:
        return {}
    columns = text.split()
    header = next((cells for cells in (ids, online) if len(cells) == len(columns) and cell in cells), None)
    if header is None or not all(_DISTANCE.fullmatch(column) for column in columns):
        files.problem(name, f"has not one number for each of {len(ids)} cells, so it is left out", text=text)
        return {}
    return dict(zip(header, map(int, columns), strict=True))
