"""What the kernel shows of this host below an injectable root that holds sys/ and, where recorded, proc/.

    read_host(Path("/"))        everything, and whether it is the host: what one look may miss and what not
    discover(Path("/"))         everything, as one HostTopology with what contradicted or could not be read
    changing_facts(Path("/"))   a cheap fingerprint: equal as long as nothing changed

Reads nothing that interrupts another CPU, and writes nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from agent.adapters.sysfs.caches import read_caches
from agent.adapters.sysfs.cells import Cells, read_cells
from agent.adapters.sysfs.cpus import FOLDER as CPUS
from agent.adapters.sysfs.cpus import Masks, read_masks
from agent.adapters.sysfs.cpusets import Allowed, read_allowed
from agent.adapters.sysfs.devices import read_mdevs, read_pci
from agent.adapters.sysfs.files import Files, Read, read_file
from agent.adapters.sysfs.fingerprint import changing_facts
from agent.adapters.sysfs.sockets import Place, read_places
from agent.core.cpuset import CpuSet
from agent.core.topology import Cpu, HostCell, HostTopology
from agent.core.values import Value
from agent.core.words import agrees, plural

__all__ = ["HostReading", "changing_facts", "discover", "read_host"]

_NOWHERE = Place()


class HostReading(Value, frozen=True, kw_only=True):
    """What one look found. failure: one sentence on why it is not the host, None when it is.

    A look is not the host when the reader lacked the means (descriptors, memory), when a list of CPUs, cells or devices
    or an amount of memory or pages is there and could not be read, or when there is no CPU.
    """

    topology: HostTopology
    failure: str | None


def discover(root: Path, *, sleep: Callable[[float], object] = time.sleep, read: Read = read_file) -> HostTopology:
    """As `read_host`, for whoever has nothing better than what was found."""
    return read_host(root, sleep=sleep, read=read).topology


def read_host(root: Path, *, sleep: Callable[[float], object] = time.sleep, read: Read = read_file) -> HostReading:
    """The host below root. Never raises over what it sees: `problems` tells what it could not read or believe.

    sleep: waits before a busy file is tried again, under 2 s in all. read: gives a file's bytes or raises OSError.
    """
    files = Files(root, sleep=sleep, read=read)
    masks = read_masks(files)
    caches = read_caches(files, masks)
    cells = read_cells(files, masks)
    allowed = read_allowed(files)
    places = read_places(files, masks, caches)
    pci = read_pci(files, cells.cells)
    mdevs = read_mdevs(files)
    _tell_withheld(files, masks, cells, allowed)
    page_size_kib = _page_size_kib(files)
    topology = HostTopology(
        cells=tuple(_allowed_cell(cell, allowed) for cell in cells.cells),
        cpus=tuple(_cpu(cpu, masks, cells, places.get(cpu, _NOWHERE), allowed) for cpu in masks.present),
        caches=caches,
        pci=pci,
        mdevs=mdevs,
        pages=cells.pages,
        memory_kib=cells.memory_kib,
        page_size_kib=page_size_kib,
        has_cells=cells.has_cells,
        problems=files.problems(),
    )
    return HostReading(topology=topology, failure=files.failure or _no_cpu(root, masks))


def _no_cpu(root: Path, masks: Masks) -> str | None:
    folder = f"{os.fspath(root).rstrip('/')}/{CPUS}"
    return None if masks.present else f"{folder} shows no CPU (is sysfs mounted or recorded there?)"


def _cpu(cpu: int, masks: Masks, cells: Cells, place: Place, allowed: Allowed) -> Cpu:
    return Cpu(
        id=cpu,
        online=None if cpu in masks.unknown else cpu in masks.online,
        isolated=cpu in masks.isolated,
        nohz_full=cpu in masks.nohz_full,
        allowed=allowed.cpus is None or cpu in allowed.cpus or cpu not in masks.online,
        cell=cells.cell_of.get(cpu),
        socket=place.socket,
        die=place.die,
        cluster=place.cluster,
        core=place.core,
        kernel_core_id=place.kernel_core_id,
        siblings=place.siblings,
        kind=place.kind,
    )


def _allowed_cell(cell: HostCell, allowed: Allowed) -> HostCell:
    if allowed.cells is None or cell.id in allowed.cells:
        return cell
    return msgspec.structs.replace(cell, allowed=False)


def _tell_withheld(files: Files, masks: Masks, cells: Cells, allowed: Allowed) -> None:
    withheld = masks.online - allowed.cpus if allowed.cpus is not None else CpuSet()
    if withheld:
        what = (
            f"online {plural(withheld)} {agrees(withheld, 'is', 'are')} withheld from guests (cgroup v1 never gives "
            "back a CPU that was offline once)"
        )
        said = (("online", masks.online), (allowed.cpus_source, allowed.cpus))
        files.contradiction(allowed.cpus_source, what, said)
    with_memory = CpuSet(cell.id for cell in cells.cells if cell.memory_kib) if cells.has_cells else CpuSet()
    unreachable = with_memory - allowed.cells if allowed.cells is not None else CpuSet()
    if unreachable:
        said = (("cells", with_memory), (allowed.cells_source, allowed.cells))
        files.contradiction(
            allowed.cells_source, f"memory of {plural(unreachable, 'cell')} is withheld from guests", said
        )


def _page_size_kib(files: Files) -> int:
    """The kernel's small page; a recorded tree tells it only by hwloc's note, else it is taken as 4 KiB."""
    if not files.recorded:
        return os.sysconf("SC_PAGESIZE") // 1024
    for line in (files.text("proc/hwloc-nofile-info") or "").splitlines():
        name, _, value = line.partition(": ")
        if name == "PageSize" and value.isdigit():
            return int(value) // 1024
    return 4
