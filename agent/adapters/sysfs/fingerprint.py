"""A cheap fingerprint of what can change without a reboot, so that a pass re-reads the host only when it did."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator
from pathlib import Path

from agent.adapters.sysfs.cells import FOLDER as NODES
from agent.adapters.sysfs.cells import POOLS
from agent.adapters.sysfs.cpus import FOLDER as CPUS
from agent.adapters.sysfs.cpusets import cpuset_files
from agent.adapters.sysfs.devices import MDEV, NET, PCI, VDPA
from agent.adapters.sysfs.files import Read, read_file

_MASKS = ("online", "present", "isolated", "nohz_full")
_POOL_FILES = ("nr_hugepages", "free_hugepages", "surplus_hugepages", "resv_hugepages")
_GROUPS = tuple(cpuset_files())


def changing_facts(root: Path, *, read: Read = read_file) -> Hashable:
    """Equal as long as `discover` would find the same host; compare it, nothing else.

    CPU masks, memory and pools per cell, PCI functions with driver, cell and number of virtual functions, vDPA and
    mediated devices, interfaces of real devices, and the guests' cpuset. Never raises: what cannot be read is a fact.
    """
    top = os.fspath(root).rstrip("/")
    look = _Look(top, read)
    return (
        tuple(look.text(f"{CPUS}/{name}") for name in _MASKS),
        tuple(look.nodes()),
        (look.memory("proc/meminfo"), tuple(look.pools(POOLS))),
        tuple(look.pci()),
        (look.names(MDEV), look.names(VDPA), tuple(look.interfaces())),
        tuple(look.text(name) for name in _GROUPS),
    )


class _Look:
    def __init__(self, top: str, read: Read) -> None:
        self._top = top
        self._read = read

    def text(self, name: str) -> bytes | int | None:
        """Content, or the error number."""
        try:
            return self._read(f"{self._top}/{name}")
        except OSError as error:
            return error.errno

    def names(self, folder: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(os.listdir(f"{self._top}/{folder}")))  # noqa: PTH208 cheap is the purpose here
        except OSError:
            return ()

    def link(self, name: str) -> str | None:
        try:
            return os.readlink(f"{self._top}/{name}")  # noqa: PTH115 as above
        except OSError:
            return None

    def nodes(self) -> Iterator[Hashable]:
        for name in self.names(NODES):
            if name.startswith("node"):
                folder = f"{NODES}/{name}"
                yield (
                    name,
                    self.text(f"{folder}/cpulist"),
                    self.memory(f"{folder}/meminfo"),
                    tuple(self.pools(f"{folder}/hugepages")),
                )

    def pools(self, folder: str) -> Iterator[Hashable]:
        for pool in self.names(folder):
            yield (pool, *(self.text(f"{folder}/{pool}/{name}") for name in _POOL_FILES))

    def pci(self) -> Iterator[Hashable]:
        for name in self.names(PCI):
            folder = f"{PCI}/{name}"
            yield (
                name,
                self.link(f"{folder}/driver"),
                self.text(f"{folder}/sriov_numvfs"),
                self.text(f"{folder}/numa_node"),
            )

    def interfaces(self) -> Iterator[str]:
        """A guest's tap comes and goes and is no fact of the host."""
        for name in self.names(NET):
            target = self.link(f"{NET}/{name}")
            if target is not None and "/virtual/" not in target:
                yield target

    def memory(self, name: str) -> Hashable:
        meminfo = self.text(name)
        return (
            next((line for line in meminfo.splitlines() if b"MemTotal" in line), b"")
            if isinstance(meminfo, bytes)
            else meminfo
        )
