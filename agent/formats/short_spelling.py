"""How people write the short form of a snapshot, into how it is checked. docs/fit.md lists what they may write."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agent.core.cpuset import CpuSet
from agent.core.words import brief
from agent.formats import page_spelling, pci_spelling
from agent.formats.spelling import is_whole, refuse, renamed, tidied, twice, unknown
from agent.formats.validate import entry_path

TOP_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "cpu_dedicated_set": "dedicated",
        "cpu_shared_set": "shared",
        "passthrough_whitelist": "device_spec",
        "pci_passthrough_whitelist": "device_spec",
        "pci_alias": "alias",
        "reserved_host_memory_mb": "reserved_memory_mb",
        "reserved_huge_pages": "reserved_pages",
        "packing_host_numa_cells_allocation_strategy": "pack_cells",
        "share_host_cells": "share_cells",
    }
)
"""The names that nova and the agent's options have for fields of a host."""

RATIOS: Mapping[str, str] = MappingProxyType(
    {
        "cpu": "cpu_allocation_ratio",
        "ram": "ram_allocation_ratio",
        "cpu_allocation_ratio": "cpu_allocation_ratio",
        "ram_allocation_ratio": "ram_allocation_ratio",
    }
)
PIN_SET = "vcpu_pin_set"
COMMENT = "comment"
CPU_SETS = ("dedicated", "shared", "pinned")
_SMALL_KIB = 4
_OPTIONS = frozenset({"device_spec", "alias"})
_AS_WRITTEN = frozenset({"tags", *_OPTIONS, *(name for name, field in TOP_NAMES.items() if field in _OPTIONS)})
"""Where null is a value."""


def spelled(data: object) -> object:
    """The short form under its own names. Raises FaultyInput for what is said twice."""
    if not isinstance(data, dict):
        return data
    faults: list[str] = []
    given = {name: value for name, value in data.items() if name != COMMENT and value is not None}
    top = renamed(tidied(given, _AS_WRITTEN), TOP_NAMES, "", faults)
    _pin_set(top, faults)
    _ratios(top, faults)
    for name, spell in (("device_spec", pci_spelling.device_specs), ("alias", pci_spelling.aliases)):
        if name in top:
            top[name] = spell(top[name])
    if isinstance(devices := top.get("pci"), list):
        top["pci"] = [pci_spelling.device(one, f"pci[{n}]", faults) for n, one in enumerate(devices)]
    _cells(top, faults)
    refuse(faults)
    return top


def _pin_set(top: dict[str, Any], faults: list[str]) -> None:
    """One set for pinned and floating guests alike."""
    if (both := top.pop(PIN_SET, None)) is not None:
        for name in ("dedicated", "shared"):
            if name in top:
                faults.append(twice(PIN_SET, name))
            top[name] = both


def _ratios(top: dict[str, Any], faults: list[str]) -> None:
    if not isinstance(ratios := top.get("ratios"), dict):
        return
    del top["ratios"]
    for name, value in ratios.items():
        if name not in RATIOS:
            faults.append(unknown("ratios", name, RATIOS))
        elif RATIOS[name] in top:
            faults.append(twice(f"ratios.{name}", RATIOS[name]))
        else:
            top[RATIOS[name]] = value


def _cells(top: dict[str, Any], faults: list[str]) -> None:
    if "reserved_pages" in top:
        top["reserved_pages"] = page_spelling.reserved(top["reserved_pages"], "reserved_pages", faults)
    if not isinstance(given := top.get("cells"), list):
        return
    cells = [dict(cell) if isinstance(cell, dict) else cell for cell in given]
    top["cells"] = cells
    small_kib = top.get("page_size_kib", _SMALL_KIB)
    by_id: dict[str, dict[str, Any]] = {}
    for n, cell in enumerate(cells):
        if isinstance(cell, dict):
            by_id[str(cell.get("id"))] = cell
            _cell(cell, f"cells[{n}]", faults)
            _pages(top, cell, f"cells[{n}]", small_kib, faults)
    for name in CPU_SETS:
        _by_cell(top, name, by_id, faults)
    page_spelling.refuse_same(top.get("reserved_pages"), "reserved_pages", faults)


def _cell(cell: dict[str, Any], path: str, faults: list[str]) -> None:
    for name in ("cpus", *CPU_SETS):
        if name in cell:
            cell[name] = _cpus(cell[name])
    if isinstance(cores := cell.get("siblings"), dict):
        cell["siblings"] = _cores(cores, f"{path}.siblings", faults)
    for name in ("siblings", "l3"):
        if isinstance(lists := cell.get(name), list):
            cell[name] = [_cpus(one) for one in lists]


def _pages(top: dict[str, Any], cell: dict[str, Any], path: str, small_kib: Any, faults: list[str]) -> None:
    if not is_whole(small_kib):
        return
    small = page_spelling.pools(cell, small_kib, path, faults)
    if small.total is not None and "memory_mb" not in cell:
        cell["memory_mb"] = (small.total * small_kib + page_spelling.in_pools_kib(cell)) // 1024
    if small.used:
        used_mb = top.get("used_memory_mb")
        if "used_memory_mb" in cell:
            faults.append(twice(f"{path}.pages", f"{path}.used_memory_mb"))
        elif isinstance(used_mb, dict) and str(cell.get("id")) in used_mb:
            faults.append(twice(f"{path}.pages", entry_path("used_memory_mb", str(cell.get("id")))))
        cell["used_memory_mb"] = -(-small.used * small_kib // 1024)
    if "reserved_pages" in cell and "id" in cell and isinstance(top.get("reserved_pages", []), list):
        rows = page_spelling.reserved_in(cell["id"], cell.pop("reserved_pages"), f"{path}.reserved_pages", faults)
        top["reserved_pages"] = [*top.get("reserved_pages", []), *rows]


def _by_cell(top: dict[str, Any], name: str, cells: Mapping[str, dict[str, Any]], faults: list[str]) -> None:
    """A CPU set by cell goes to the cells; those that are not named have none of it."""
    if not isinstance(given := top.get(name), dict):
        if name in top:
            top[name] = _cpus(top[name])
        return
    top[name] = ""
    for id_, value in given.items():
        if id_ not in cells:
            faults.append(f"{entry_path(name, id_)}: there is no such cell")
        elif name in cells[id_]:
            faults.append(twice(entry_path(name, id_), f"{name} of the cell"))
        else:
            cells[id_][name] = _cpus(value)


def _cpus(value: Any) -> Any:
    """A list that holds texts as one text; anything else as it is."""
    if not isinstance(value, list) or not all(isinstance(part, str) or is_whole(part) for part in value):
        return value
    return ",".join(map(str, value)) if any(isinstance(part, str) for part in value) else value


def _cores(given: Mapping[str, Any], path: str, faults: list[str]) -> list[Any]:
    """Siblings by CPU: each CPU with those that share its core, whether it is among them or not."""
    core_of: dict[int, CpuSet] = {}
    for cpu, others in given.items():
        try:
            text = _cpus([str(one) for one in others] if isinstance(others, list) else others)
            core = CpuSet.parse(cpu) | CpuSet.parse(str(text))
        except ValueError as error:
            faults.append(f"{entry_path(path, cpu)}: {brief(str(error))}")
            continue
        for one in core:
            core |= core_of.get(one, core)
        core_of.update(dict.fromkeys(core, core))
    return [str(core) for core in sorted(set(core_of.values()), key=lambda one: one.lowest)]
