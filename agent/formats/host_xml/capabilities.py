"""virConnectGetCapabilities: the host's cells, CPUs and caches as libvirt sees them."""

from __future__ import annotations

import re
from types import MappingProxyType

from agent.core.cpuset import CpuSet
from agent.core.topology import Cache, CacheType
from agent.core.values import ReadOnlyMap, Value
from agent.errors import FormatError
from agent.formats.xml_text import Element, Reader, parse_xml, quote, text_of

_CACHE_TYPES: dict[str, CacheType] = {"both": "unified", "data": "data", "code": "instruction"}
_GUESTS = re.compile(r"<guest>.*</guest>", re.DOTALL)


class CapabilityCpu(Value, frozen=True, kw_only=True):
    """One CPU of a cell; None: not said. core: the kernel's core id. cluster: since libvirt 10."""

    id: int
    socket: int | None = None
    die: int | None = None
    cluster: int | None = None
    core: int | None = None
    siblings: CpuSet | None = None


class CapabilityCell(Value, frozen=True, kw_only=True):
    """One NUMA cell. memory_kib: None when not said. pages: number of pages by size in KiB, small ones too."""

    id: int
    memory_kib: int | None = None
    pages: ReadOnlyMap[int, int] = MappingProxyType({})
    distances: ReadOnlyMap[int, int] = MappingProxyType({})
    cpus: tuple[CapabilityCpu, ...] = ()


class Capabilities(Value, frozen=True, kw_only=True):
    """The <host> part. page_sizes_kib: of the CPU, small ones too. caches: the banks that libvirt lists, which are
    those of the highest level. problems: one sentence for each field that could not be read."""

    host_uuid: str | None = None
    arch: str | None = None
    iommu: bool | None = None
    page_sizes_kib: tuple[int, ...] = ()
    cells: tuple[CapabilityCell, ...] = ()
    caches: tuple[Cache, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def cpus(self) -> CpuSet:
        """All CPUs that some cell lists; libvirt goes on listing those that went offline."""
        return CpuSet(cpu.id for cell in self.cells for cpu in cell.cpus)


def read_capabilities(xml: str) -> Capabilities:
    """What virConnectGetCapabilities said. Raises FormatError when it is not well-formed or no <capabilities>."""
    # Lists of machine types are most of the text and of no use here. They come after <host>, never inside it.
    root = parse_xml(_GUESTS.sub("", xml), "libvirt's capabilities")
    host = root.find("host")
    if root.tag != "capabilities" or host is None:
        raise FormatError(f"libvirt's capabilities are a <{root.tag[:80]}> without a <host>")
    reader = Reader()
    iommu = host.find("iommu")
    sizes = (reader.kib_of(page, "size", "cpu pages size") for page in host.iterfind("cpu/pages"))
    return Capabilities(
        host_uuid=text_of(host, "uuid"),
        arch=text_of(host, "cpu/arch"),
        iommu=None if iommu is None else iommu.get("support") == "yes",
        page_sizes_kib=tuple(sorted({size for size in sizes if size is not None})),
        cells=_cells(host, reader),
        caches=_caches(host, reader),
        problems=tuple(reader.problems),
    )


def _cells(host: Element, reader: Reader) -> tuple[CapabilityCell, ...]:
    cells: dict[int, CapabilityCell] = {}
    for element in host.iterfind("topology/cells/cell"):
        number = reader.number(element.get("id", ""), "cell id")
        if number is None:
            continue
        if number in cells:
            reader.problems.append(f"cell {number} is there twice; the first is taken")
            continue
        where = f"cell {number}"
        cells[number] = CapabilityCell(
            id=number,
            memory_kib=reader.kib(element.find("memory"), f"{where}: memory"),
            pages=_pages(element, where, reader),
            distances=_distances(element, where, reader),
            cpus=_cpus(element, where, reader),
        )
    return tuple(cells[number] for number in sorted(cells))


def _pages(cell: Element, where: str, reader: Reader) -> ReadOnlyMap[int, int]:
    pages: dict[int, int] = {}
    for element in cell.iterfind("pages"):
        size_kib = reader.kib_of(element, "size", f"{where}: pages size")
        count = reader.number(element.text or "", f"{where}: number of pages")
        if size_kib is not None and count is not None:
            pages[size_kib] = count
    return MappingProxyType(pages)


def _distances(cell: Element, where: str, reader: Reader) -> ReadOnlyMap[int, int]:
    distances: dict[int, int] = {}
    for element in cell.iterfind("distances/sibling"):
        other = reader.number(element.get("id", ""), f"{where}: distance id")
        value = reader.number(element.get("value", ""), f"{where}: distance value")
        if other is not None and value is not None:
            distances[other] = value
    return MappingProxyType(distances)


def _cpus(cell: Element, where: str, reader: Reader) -> tuple[CapabilityCpu, ...]:
    cpus: dict[int, CapabilityCpu] = {}
    for element in cell.iterfind("cpus/cpu"):
        number = reader.number(element.get("id", ""), f"{where}: cpu id", 1 << 20)
        if number is None:
            continue
        cpus[number] = CapabilityCpu(
            id=number,
            socket=_place(element, "socket_id", reader),
            die=_place(element, "die_id", reader),
            cluster=_place(element, "cluster_id", reader),
            core=_place(element, "core_id", reader),
            siblings=reader.cpus(element.get("siblings"), f"cpu {number}: siblings"),
        )
    return tuple(cpus[number] for number in sorted(cpus))


def _place(element: Element, name: str, reader: Reader) -> int | None:
    text = element.get(name)
    if text is not None and text.startswith("-"):  # the kernel's -1: it does not know, and that is no fault of the text
        return None
    return reader.number(text, f"cpu {quote(element.get('id'))}: {name}")


def _caches(host: Element, reader: Reader) -> tuple[Cache, ...]:
    caches = []
    for bank in host.iterfind("cache/bank"):
        level = reader.number(bank.get("level", ""), "cache bank level")
        size_kib = reader.kib_of(bank, "size", "cache bank size")
        cpus = reader.cpus(bank.get("cpus", ""), "cache bank cpus")
        kind = _CACHE_TYPES.get(bank.get("type", ""))
        if kind is None:
            reader.problems.append(f"cache bank type is {quote(bank.get('type'))}, none that is known")
        elif level is not None and size_kib is not None and cpus is not None:
            caches.append(Cache(level=level, type=kind, size_kib=size_kib, cpus=cpus))
    return tuple(sorted(caches, key=lambda cache: (cache.level, cache.type, cache.cpus.lowest)))
