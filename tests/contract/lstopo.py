"""What the real lstopo says of a tree, as values that compare with a HostTopology."""

from __future__ import annotations

import os
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

from agent.core.cpuset import CpuSet
from agent.core.values import Value

COMMAND = ("lstopo-no-graphics", "--of", "xml", "--whole-io", "--disallowed")
_IO = frozenset({"Bridge", "PCIDev", "OSDev"})
_CACHES = {"L1Cache": 1, "L2Cache": 2, "L3Cache": 3}


class Numa(Value, frozen=True, kw_only=True):
    """A NUMA node; pages: (KiB, total) of the huge ones."""

    cpus: CpuSet
    memory_kib: int
    pages: tuple[tuple[int, int], ...]


class Function(Value, frozen=True, kw_only=True):
    """A PCI function; cells: those its bus is near to."""

    class_code: str
    vendor_id: str
    product_id: str
    cells: CpuSet


class Hwloc(Value, frozen=True, kw_only=True):
    """Sets are of CPUs, numbers the kernel's ids. sockets and cores: (CPUs, id or None); caches: (level, KiB, CPUs).
    clusters: those that are an object of their own; one with the CPUs of another object is merged into it. others:
    the CPUs of every other object. kinds: weakest first, when lstopo can rank them.
    """

    present: CpuSet
    online: CpuSet
    allowed: CpuSet
    allowed_cells: CpuSet
    cells: dict[int, Numa]
    sockets: frozenset[tuple[CpuSet, int | None]]
    dies: frozenset[CpuSet]
    cores: frozenset[tuple[CpuSet, int | None]]
    caches: frozenset[tuple[int, int, CpuSet]]
    clusters: frozenset[CpuSet]
    others: frozenset[CpuSet]
    kinds: tuple[CpuSet, ...]
    distances: dict[int, dict[int, int]]
    pci: dict[str, Function]


def look(root: Path) -> Hwloc:
    """Run lstopo on a tree. Only its Linux reader: the others would ask the machine this runs on."""
    environment = {**os.environ, "HWLOC_FSROOT": str(root), "HWLOC_COMPONENTS": "linux,stop"}
    done = subprocess.run(COMMAND, env=environment, check=True, capture_output=True, text=True)
    return read(done.stdout)


def read(xml: str) -> Hwloc:
    """What COMMAND printed."""
    top = ET.fromstring(xml)
    machine = top.find("object")
    assert machine is not None
    objects = list(_walk(machine, machine))
    return Hwloc(
        present=_set(machine, "complete_cpuset"),
        online=CpuSet(int(o.attrib["os_index"]) for o, _ in objects if o.get("type") == "PU"),
        allowed=_set(machine, "allowed_cpuset"),
        allowed_cells=_set(machine, "allowed_nodeset"),
        cells={int(o.attrib["os_index"]): _numa(o) for o, _ in objects if o.get("type") == "NUMANode"},
        sockets=_named(objects, "Package"),
        dies=frozenset(cpus for cpus, _ in _named(objects, "Die")),
        cores=_named(objects, "Core"),
        caches=frozenset(
            (_CACHES[o.attrib["type"]], int(o.attrib["cache_size"]) // 1024, _set(o, "cpuset"))
            for o, _ in objects
            if o.get("type") in _CACHES
        ),
        clusters=frozenset(_set(o, "cpuset") for o, _ in objects if o.get("subtype") == "Cluster"),
        others=frozenset(
            _set(o, "cpuset") for o, _ in objects if o.get("subtype") != "Cluster" and "cpuset" in o.attrib
        ),
        kinds=tuple(_set(kind, "cpuset") for kind in top.findall("cpukind")),
        distances=_distances(top),
        pci=dict(_function(o, near) for o, near in objects if "pci_busid" in o.attrib),
    )


def _walk(node: ET.Element, near: ET.Element) -> Iterator[tuple[ET.Element, ET.Element]]:
    """Objects with the nearest one above (or at) them that has CPUs."""
    for child in node.findall("object"):
        nearest = near if child.get("type") in _IO else child
        yield child, nearest
        yield from _walk(child, nearest)


def _set(node: ET.Element, name: str) -> CpuSet:
    """ "0x00000200,,0x0": groups of 32 bits, empty ones are 0."""
    groups = [group.removeprefix("0x") or "0" for group in node.attrib[name].split(",")]
    return CpuSet.parse_hex(",".join(f"{int(group, 16):08x}" for group in groups))


def _named(objects: list[tuple[ET.Element, ET.Element]], kind: str) -> frozenset[tuple[CpuSet, int | None]]:
    found = (o for o, _ in objects if o.get("type") == kind)
    return frozenset((_set(o, "cpuset"), int(o.attrib["os_index"]) if "os_index" in o.attrib else None) for o in found)


def _numa(node: ET.Element) -> Numa:
    pages = [(int(p.attrib["size"]) // 1024, int(p.attrib["count"])) for p in node.findall("page_type")]
    memory_kib = int(node.get("local_memory", "0")) // 1024
    return Numa(cpus=_set(node, "cpuset"), memory_kib=memory_kib, pages=tuple(sorted(pages)[1:]))


def _distances(top: ET.Element) -> dict[int, dict[int, int]]:
    for matrix in top.findall("distances2"):
        if matrix.get("type") == "NUMANode":
            ids = [int(n) for part in matrix.findall("indexes") for n in (part.text or "").split()]
            values = [int(n) for part in matrix.findall("u64values") for n in (part.text or "").split()]
            rows = [values[n * len(ids) : (n + 1) * len(ids)] for n in range(len(ids))]
            return {cell: dict(zip(ids, row, strict=True)) for cell, row in zip(ids, rows, strict=True)}
    return {}


def _function(node: ET.Element, near: ET.Element) -> tuple[str, Function]:
    """pci_type is "0200 [8086:1521] [1028:0000] 01"."""
    code, ids, *_ = node.attrib["pci_type"].split()
    vendor, _, product = ids.strip("[]").partition(":")
    return node.attrib["pci_busid"], Function(
        class_code=code, vendor_id=vendor, product_id=product, cells=_set(near, "nodeset")
    )
