"""How people write page sizes, pools of pages and what is reserved of them, into how it is checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from agent.formats.spelling import is_whole, number, renamed, twice
from agent.formats.validate import entry_path

_SIZE = re.compile(r"(\d{1,12})\s*(?:([kmgt])(?:i?b)?)?", re.IGNORECASE | re.ASCII)
_UNITS = ("", "k", "m", "g", "t")

_SIZE_NAMES: Mapping[str, str] = MappingProxyType({"size": "size_kib", "size_kb": "size_kib"})
_POOL_NAMES: Mapping[str, str] = MappingProxyType({**_SIZE_NAMES, "count": "total"})
_RESERVED_NAMES: Mapping[str, str] = MappingProxyType({**_SIZE_NAMES, "node": "cell"})
_RESERVED = frozenset({"cell", "size_kib", "count", *_RESERVED_NAMES})


class SmallPages(NamedTuple):
    """What a pool of the small page tells, which is no pool of huge pages. total: None when there is none."""

    total: int | None = None
    used: int = 0


def size(value: Any) -> Any:
    """2048, "2048", "2M", "2MB" or "2 MiB" as a number of KiB, which is also the unit where none is written; anything
    else as it is."""
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return value
    power = max(_UNITS.index((match[2] or "").lower()) - 1, 0)
    return int(match[1]) << 10 * power


def pools(cell: dict[str, Any], small_kib: int, path: str, faults: list[str]) -> SmallPages:
    """Brings pages and used_pages of a cell into their form, without the small page, of which it tells."""
    for name in ("pages", "used_pages"):
        if isinstance(given := cell.get(name), dict):
            cell[name] = _by_size(given, f"{path}.{name}", faults)
    given = cell.get("pages")
    if isinstance(given, dict) and any(isinstance(value, dict) for value in given.values()):
        given = [_with_size(value, kib) for kib, value in given.items()]
    if isinstance(given, list):
        cell["pages"] = [_pool(one, f"{path}.pages[{n}]", faults) for n, one in enumerate(given)]
        _refuse_doubles(cell, path, faults)
    return _without_small(cell, small_kib)


def _by_size(given: Mapping[str, Any], path: str, faults: list[str]) -> dict[str, Any]:
    names = {name: str(size(name)) for name in given}
    return renamed(given, names, path, faults)


def _with_size(value: Any, kib: str) -> dict[str, Any]:
    return {"size_kib": size(kib), **(value if isinstance(value, dict) else {"total": value})}


def _pool(given: Any, path: str, faults: list[str]) -> Any:
    """The object of a pool, with what is free instead of what is used."""
    if not isinstance(given, dict):
        return given
    pool = renamed(given, _POOL_NAMES, path, faults)
    pool["size_kib"] = size(pool.get("size_kib"))
    amounts: list[Any] = [pool.get(name) for name in ("used", "total", "free")]
    used, total, free = amounts
    if not is_whole(used):
        return pool
    if is_whole(total, free) and total != used + free:
        faults.append(f"{path}: {used} used and {free} free are not {total} in all")
    if is_whole(free) and total is None:
        pool["total"] = used + free
    elif is_whole(total):
        pool["free"] = total - used
    return {name: value for name, value in pool.items() if name != "used"}


def _refuse_doubles(cell: Mapping[str, Any], path: str, faults: list[str]) -> None:
    used = cell.get("used_pages")
    seen: dict[int, str] = {}
    for n, pool in enumerate(cell["pages"]):
        where = f"{path}.pages[{n}]"
        kib: Any = pool.get("size_kib") if isinstance(pool, dict) else None
        if not is_whole(kib):
            continue
        if kib in seen:
            faults.append(twice(seen[kib], where))
        if isinstance(used, dict) and str(kib) in used and "free" in pool:
            faults.append(twice(where, entry_path(f"{path}.used_pages", str(kib))))
        seen[kib] = where


def _without_small(cell: dict[str, Any], small_kib: int) -> SmallPages:
    """Takes the small page out where it is well formed; else it stays, to be refused by its path."""
    given, used, small = cell.get("pages"), cell.get("used_pages"), str(small_kib)
    found = SmallPages()
    if isinstance(given, dict) and is_whole(given.get(small)):
        found = SmallPages(total=given[small])
        cell["pages"] = {name: value for name, value in given.items() if name != small}
    elif isinstance(given, list) and (pool := _small_pool(given, small_kib)) is not None:
        found = SmallPages(total=pool["total"], used=max(pool["total"] - pool.get("free", pool["total"]), 0))
        cell["pages"] = [one for one in given if one is not pool]
    if isinstance(used, dict) and is_whole(used.get(small)):
        found = found._replace(used=max(used[small], found.used))
        cell["used_pages"] = {name: value for name, value in used.items() if name != small}
    return found


def _small_pool(given: list[Any], small_kib: int) -> dict[str, Any] | None:
    pools_ = (one for one in given if isinstance(one, dict) and one.get("size_kib") == small_kib)
    return next((one for one in pools_ if is_whole(one.get("total"), one.get("free", 0))), None)


def in_pools_kib(cell: Mapping[str, Any]) -> int:
    """Memory in the pools of a cell, as far as they are well formed."""
    pages = cell.get("pages")
    pairs: list[Any] = []
    if isinstance(pages, dict):
        pairs = [(number(kib), count) for kib, count in pages.items()]
    elif isinstance(pages, list):
        pairs = [(pool.get("size_kib"), pool.get("total")) for pool in pages if isinstance(pool, dict)]
    return sum(kib * count for kib, count in pairs if is_whole(kib, count))


def reserved(given: Any, path: str, faults: list[str]) -> Any:
    """Reserved pages as a list of objects: "node:0,size:2048,count:64" as nova has it, objects with these names or the
    agent's, or sizes by cell; anything else as it is."""
    if isinstance(given, dict) and given and not given.keys() & _RESERVED:
        if not all(cell.isdecimal() and isinstance(sizes, dict | list) for cell, sizes in given.items()):
            return given
        rows = [row for cell, sizes in given.items() for row in reserved_in(number(cell), sizes, path, faults)]
    elif isinstance(given, str | list | dict):
        every = given if isinstance(given, list) else [given] if given else []
        rows = [_reserved(one, f"{path}[{n}]", faults) for n, one in enumerate(every)]
    else:
        return given
    return rows


def reserved_in(cell: Any, given: Any, path: str, faults: list[str]) -> Iterator[Any]:
    """The same of one cell, by size or as a list."""
    if isinstance(given, dict) and not given.keys() & _RESERVED:
        rows: Any = [{"size_kib": size(kib), "count": count} for kib, count in given.items()]
    else:
        rows = given if isinstance(given, list) else [given]
    for n, row in enumerate(rows):
        one = _reserved(row, f"{path}[{n}]", faults)
        yield {"cell": cell, **one} if isinstance(one, dict) else one


def refuse_same(rows: Any, path: str, faults: list[str]) -> None:
    """Two numbers for one size in one cell."""
    seen: set[tuple[int, int]] = set()
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and is_whole(row.get("cell"), row.get("size_kib")):
            key = (row["cell"], row["size_kib"])
            if key in seen:
                faults.append(f"{path}: pages of {key[1]} KiB of cell {key[0]} are given twice")
            seen.add(key)


def _reserved(given: Any, path: str, faults: list[str]) -> Any:
    if isinstance(given, str):
        pairs = [part.partition(":") for part in given.split(",")]
        if not all(colon for _, colon, _ in pairs):
            return given
        given = {name.strip(): value.strip() for name, _, value in pairs}
    if not isinstance(given, dict):
        return given
    row = {name: number(value) for name, value in renamed(given, _RESERVED_NAMES, path, faults).items()}
    return {**row, "size_kib": size(row["size_kib"])} if "size_kib" in row else row
