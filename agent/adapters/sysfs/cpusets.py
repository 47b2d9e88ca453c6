"""What a cgroup cpuset leaves to this machine's guests."""

from __future__ import annotations

from collections.abc import Iterator

from agent.adapters.sysfs.files import Files
from agent.core.cpuset import CpuSet
from agent.core.values import Value

_GUEST_GROUPS = ("machine.slice", "machine")
"""libvirt's parent of all guests, with systemd and without."""
_V1 = "sys/fs/cgroup/cpuset"
_V2 = "sys/fs/cgroup"
_CPUS_V1 = ("cpuset.effective_cpus", "cpuset.cpus", "cpus")
_MEMS_V1 = ("cpuset.effective_mems", "cpuset.mems", "mems")
_CPUS_V2 = ("cpuset.cpus.effective",)
_MEMS_V2 = ("cpuset.mems.effective",)


class Allowed(Value, frozen=True, kw_only=True):
    """CPUs and cells that guests may use; None when nothing restricts them. source: the file that says so."""

    cpus: CpuSet | None = None
    cpus_source: str = ""
    cells: CpuSet | None = None
    cells_source: str = ""


class _Hierarchy(Value, frozen=True, kw_only=True):
    """A mounted hierarchy that has the cpuset controller, and the group of the process that recorded the tree."""

    folder: str
    cpu_files: tuple[str, ...]
    mem_files: tuple[str, ...]
    recorder: str | None = None


def read_allowed(files: Files) -> Allowed:
    """The set of the group that holds all guests, else of the recorder's own group, else of the root.

    The recorder's group counts only in a recorded tree: on the live machine /proc/self is this program.
    """
    for hierarchy in _hierarchies(files):
        for group in _groups(hierarchy):
            cpus, cpus_source = _first(files, group, hierarchy.cpu_files)
            if cpus:  # an empty file is a group that was never given a set: its parent's holds
                cells, cells_source = _first(files, group, hierarchy.mem_files)
                return Allowed(cpus=cpus, cpus_source=cpus_source, cells=cells or None, cells_source=cells_source)
    return Allowed()


def cpuset_files() -> Iterator[str]:
    """All files of the live machine that `read_allowed` may go by."""
    for folder, names in ((_V1, _CPUS_V1 + _MEMS_V1), (_V2, _CPUS_V2 + _MEMS_V2)):
        for group in (*(f"{folder}/{guests}" for guests in _GUEST_GROUPS), folder):
            yield from (f"{group}/{name}" for name in names)


def _hierarchies(files: Files) -> Iterator[_Hierarchy]:
    own = _place(files, "proc/self/cpuset", files.text("proc/self/cpuset") or "") if files.recorded else None
    seen = {_V1: False, _V2: True}
    if files.recorded:
        seen = {**_mounts(files), **seen}
    for folder, unified in seen.items():
        yield _Hierarchy(
            folder=folder,
            cpu_files=_CPUS_V2 if unified else _CPUS_V1,
            mem_files=_MEMS_V2 if unified else _MEMS_V1,
            recorder=own,
        )


def _mounts(files: Files) -> dict[str, bool]:
    """Mount points of a recorded machine that may hold cpusets, and whether each is of version 2."""
    found: dict[str, bool] = {}
    for line in (files.text("proc/mounts") or "").splitlines():
        _, point, kind, options, *_ = (*line.split(), "", "", "", "")
        if kind == "cpuset" or (kind == "cgroup" and "cpuset" in options.split(",")) or kind == "cgroup2":
            folder = _place(files, "proc/mounts", point)
            if folder is not None:
                found[folder] = kind == "cgroup2"
    return found


def _place(files: Files, source: str, path: str) -> str | None:
    """The path relative to the root; None, with a problem, where it leads out of the tree or is no path at all.

    The kernel itself prints "/.." for a group beyond the namespace of the reader.
    """
    if "\0" in path or ".." in path.split("/"):
        files.problem(source, "names no place in this tree, so it is left out", path=ascii(path))
        return None
    return path.strip("/")


def _groups(hierarchy: _Hierarchy) -> Iterator[str]:
    for group in _GUEST_GROUPS:
        yield f"{hierarchy.folder}/{group}"
    if hierarchy.recorder:
        yield f"{hierarchy.folder}/{hierarchy.recorder}"
    yield hierarchy.folder


def _first(files: Files, group: str, names: tuple[str, ...]) -> tuple[CpuSet | None, str]:
    for name in names:
        found = files.cpulist(f"{group}/{name}")
        if found:
            return found, f"{group}/{name}"
    return None, ""
