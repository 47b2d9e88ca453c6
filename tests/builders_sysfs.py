"""Writes the sysfs tree of a host from a small description: what the kernel of such a machine would show.

    build_tree(root, nodes={0: Node(cpus="0-3", mem_mib=1024, pages={2048: 10})}, smt=["0+2", "1+3"], pci=[Pci(...)])

Calling it again on the same root with another description changes the tree as the kernel would: files whose content
differs are rewritten, files of what is gone are removed. `write` and `remove` spoil single files by hand.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agent.core.cpuset import CpuSet

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
POOLS = "sys/kernel/mm/hugepages"


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A NUMA node. pages and free_pages: by page size in KiB; free is all where it is not named."""

    cpus: str = ""
    mem_mib: int = 0
    pages: Mapping[int, int] = {}
    free_pages: Mapping[int, int] = {}
    surplus_pages: Mapping[int, int] = {}
    distances: Sequence[int] = ()


class Flat(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel without NUMA."""

    cpus: str
    mem_mib: int
    pages: Mapping[int, int] = {}


class MdevKind(msgspec.Struct, frozen=True, kw_only=True):
    """A type of mediated device that a PCI function offers."""

    available: int
    name: str = "GRID"
    device_api: str = "vfio-pci"


class Pci(msgspec.Struct, frozen=True, kw_only=True):
    """A PCI function. pf: the address of its physical function. net: interface name -> MAC. vpd: raw bytes."""

    address: str
    numa: int = -1
    pf: str | None = None
    driver: str | None = None
    vendor: str = "8086"
    product: str = "10fb"
    class_code: str = "020000"
    totalvfs: int | None = None
    iommu_group: int | None = None
    net: Mapping[str, str] = {}
    vdpa: Sequence[str] = ()
    mdev_types: Mapping[str, MdevKind] = {}
    vpd: bytes | None = None


class Mdev(msgspec.Struct, frozen=True, kw_only=True):
    """A mediated device that exists."""

    uuid: str
    type: str
    parent: str


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The machine. smt: "0+4" per core (empty: one thread per core). sockets: cpulist per socket (default: one per node
    that has CPUs). caches: (level, type, KiB, cpulist of one). cpuset_*: what a cgroup leaves to guests.
    reserved_pages: by page size in KiB, host-wide. present: default all CPUs of the nodes.
    """

    nodes: Mapping[int, Node] = {}
    flat: Flat | None = None
    smt: Sequence[str] = ()
    online: str | None = None
    present: str | None = None
    isolated: str = ""
    nohz_full: str = ""
    sockets: Sequence[str] = ()
    dies: Sequence[str] = ()
    caches: Sequence[tuple[int, str, int, str]] = ()
    capacities: Mapping[int, int] = {}
    pci: Sequence[Pci] = ()
    mdevs: Sequence[Mdev] = ()
    cpuset_v1: str | None = None
    cpuset_v2: str | None = None
    reserved_pages: Mapping[int, int] = {}


class _Link(str):
    """The target of a symlink."""

    __slots__ = ()


def build_tree(root: Path, **description: Any) -> Path:
    """Write the tree that `Host(**description)` describes below root; gives root."""
    return write_tree(root, Host(**description))


def write_tree(root: Path, host: Host) -> Path:
    """Make sys/ and proc/ below root exactly those of this host; gives root."""
    wanted = dict(_tree(host))
    for folder in ("sys", "proc"):
        for path in sorted((root / folder).rglob("*"), reverse=True):
            if str(path.relative_to(root)) not in wanted and (path.is_symlink() or not path.is_dir()):
                path.unlink()
    for name, content in wanted.items():
        write(root, name, content)
    _drop_empty_folders(root)
    return root


def write(root: Path, name: str, content: str | bytes) -> None:
    """Set one file (text gets a newline) or symlink of the tree."""
    path = root / name
    if isinstance(content, _Link):
        if not (path.is_symlink() and str(path.readlink()) == content):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.symlink_to(content)
        return
    data = content if isinstance(content, bytes) else f"{content}\n".encode()
    if not path.is_file() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def remove(root: Path, name: str) -> None:
    """Take a file or a whole folder of the tree away."""
    path = root / name
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def hex_mask(cpus: CpuSet, words: int = 0) -> str:
    """The kernel's comma-grouped mask of a set, at least `words` groups of 32 bits wide."""
    count = max(words, (cpus.mask.bit_length() + 31) // 32, 1)
    return ",".join(f"{cpus.mask >> 32 * n & 0xFFFFFFFF:08x}" for n in reversed(range(count)))


_Files = Iterator[tuple[str, str | bytes]]


def _tree(host: Host) -> _Files:
    everyone = _all_cpus(host)
    online = CpuSet.parse(host.online) if host.online is not None else everyone
    yield from _masks(host, everyone, online)
    yield from _places(host, everyone, online)
    yield from _caches(host, online)
    yield from _nodes(host, online)
    yield from _memory(host)
    yield from _pci(host.pci)
    yield from _mdevs(host.mdevs)
    yield from _cpusets(host, everyone)


def _all_cpus(host: Host) -> CpuSet:
    if host.present is not None:
        return CpuSet.parse(host.present)
    if host.flat is not None:
        return CpuSet.parse(host.flat.cpus)
    return _union(node.cpus for node in host.nodes.values())


def _union(lists: Iterable[str]) -> CpuSet:
    mask = 0
    for text in lists:
        mask |= CpuSet.parse(text).mask
    return CpuSet.from_mask(mask)


def _masks(host: Host, everyone: CpuSet, online: CpuSet) -> _Files:
    masks = {"present": everyone, "possible": everyone, "online": online, "offline": everyone - online}
    for name, cpus in masks.items():
        yield f"{CPU}/{name}", str(cpus)
    yield f"{CPU}/isolated", host.isolated
    yield f"{CPU}/nohz_full", host.nohz_full
    for cpu in everyone:
        if cpu:  # the boot CPU of most machines cannot be taken away and has no such file
            yield f"{CPU}/cpu{cpu}/online", str(int(cpu in online))
        else:
            yield f"{CPU}/cpu0/crash_notes", "0"
        if cpu in host.capacities:
            yield f"{CPU}/cpu{cpu}/cpu_capacity", str(host.capacities[cpu])


def _places(host: Host, everyone: CpuSet, online: CpuSet) -> _Files:
    default = [node.cpus for node in host.nodes.values() if node.cpus] or [str(everyone)]
    cores = [CpuSet.parse(core.replace("+", ",")) for core in host.smt]
    for socket, text in enumerate(host.sockets or default):
        members = CpuSet.parse(text)
        threads = [core for core in cores if core <= members]
        threads += [CpuSet((cpu,)) for cpu in members if not any(cpu in core for core in threads)]
        for core, siblings in enumerate(sorted(threads, key=lambda s: s.lowest)):
            for cpu in siblings & online:
                topology = f"{CPU}/cpu{cpu}/topology"
                yield f"{topology}/physical_package_id", str(socket)
                yield f"{topology}/core_id", str(core)
                yield from _group(topology, ("core_cpus", "thread_siblings"), siblings & online)
                yield from _group(topology, ("package_cpus", "core_siblings"), members & online)
                yield from _die(host, topology, cpu, members & online)


def _die(host: Host, topology: str, cpu: int, socket: CpuSet) -> _Files:
    die, members = 0, socket
    for number, text in enumerate(host.dies):
        if cpu in CpuSet.parse(text):
            die, members = number, CpuSet.parse(text) & socket
    yield f"{topology}/die_id", str(die)
    yield from _group(topology, ("die_cpus",), members)


def _group(folder: str, names: Iterable[str], cpus: CpuSet) -> _Files:
    for name in names:
        yield f"{folder}/{name}", hex_mask(cpus)
        yield f"{folder}/{name}_list", str(cpus)


def _caches(host: Host, online: CpuSet) -> _Files:
    index: dict[int, int] = {}
    for level, kind, size_kib, text in host.caches:
        cpus = CpuSet.parse(text) & online
        for cpu in cpus:
            folder = f"{CPU}/cpu{cpu}/cache/index{index.get(cpu, 0)}"
            index[cpu] = index.get(cpu, 0) + 1
            yield f"{folder}/level", str(level)
            yield f"{folder}/type", kind.capitalize()
            yield f"{folder}/size", f"{size_kib}K"
            yield f"{folder}/shared_cpu_map", hex_mask(cpus)
            yield f"{folder}/shared_cpu_list", str(cpus)


def _nodes(host: Host, online: CpuSet) -> _Files:
    if not host.nodes:
        return
    ids = CpuSet(host.nodes)
    yield f"{NODE}/online", str(ids)
    yield f"{NODE}/possible", str(ids)
    yield f"{NODE}/has_cpu", str(CpuSet(n for n, node in host.nodes.items() if node.cpus))
    yield f"{NODE}/has_memory", str(CpuSet(n for n, node in host.nodes.items() if node.mem_mib))
    for number, node in host.nodes.items():
        folder = f"{NODE}/node{number}"
        cpus = CpuSet.parse(node.cpus) & online
        yield f"{folder}/cpulist", str(cpus)
        yield f"{folder}/cpumap", hex_mask(cpus)
        kib = node.mem_mib * 1024
        yield f"{folder}/meminfo", f"Node {number} MemTotal: {kib:>12} kB\nNode {number} MemFree: {kib // 2:>12} kB"
        distances = node.distances or [10 if other == number else 20 for other in sorted(host.nodes)]
        yield f"{folder}/distance", " ".join(str(far) for far in distances)
        for cpu in cpus:
            yield f"{folder}/cpu{cpu}", _Link(f"../../cpu/cpu{cpu}")
            yield f"{CPU}/cpu{cpu}/node{number}", _Link(f"../../node/node{number}")
        for size, total in node.pages.items():
            free, surplus = node.free_pages.get(size, total), node.surplus_pages.get(size, 0)
            yield from _pool(f"{folder}/hugepages", size, total, free, surplus)


def _pool(folder: str, size_kib: int, total: int, free: int, surplus: int) -> _Files:
    pool = f"{folder}/hugepages-{size_kib}kB"
    yield f"{pool}/nr_hugepages", str(total)
    yield f"{pool}/free_hugepages", str(free)
    yield f"{pool}/surplus_hugepages", str(surplus)


def _memory(host: Host) -> _Files:
    nodes = list(host.nodes.values())
    total_kib = 1024 * (sum(node.mem_mib for node in nodes) or (host.flat.mem_mib if host.flat else 0))
    yield "proc/meminfo", f"MemTotal:  {total_kib:>12} kB\nMemFree:   {total_kib // 2:>12} kB"
    flat = host.flat.pages if host.flat else {}
    for size in sorted({size for pages in (*(node.pages for node in nodes), flat) for size in pages}):
        total = sum(node.pages.get(size, 0) for node in nodes) + flat.get(size, 0)
        free = sum(n.free_pages.get(size, n.pages.get(size, 0)) for n in nodes) + flat.get(size, 0)
        yield from _pool(POOLS, size, total, free, sum(node.surplus_pages.get(size, 0) for node in nodes))
        yield f"{POOLS}/hugepages-{size}kB/resv_hugepages", str(host.reserved_pages.get(size, 0))


def _pci(devices: Sequence[Pci]) -> _Files:
    for device in devices:
        bus = device.address.rsplit(":", 1)[0]
        folder = f"sys/devices/pci{bus}/{device.address}"
        yield f"sys/bus/pci/devices/{device.address}", _Link(f"../../../devices/pci{bus}/{device.address}")
        yield f"{folder}/vendor", f"0x{device.vendor}"
        yield f"{folder}/device", f"0x{device.product}"
        yield f"{folder}/class", f"0x{device.class_code}"
        yield f"{folder}/numa_node", str(device.numa)
        yield from _sriov(folder, device, [vf for vf in devices if vf.pf == device.address])
        yield from _children(folder, device)
        if device.driver:
            yield f"{folder}/driver", _Link(f"../../../bus/pci/drivers/{device.driver}")
        if device.iommu_group is not None:
            yield f"{folder}/iommu_group", _Link(f"../../../kernel/iommu_groups/{device.iommu_group}")
        if device.vpd is not None:
            yield f"{folder}/vpd", device.vpd


def _sriov(folder: str, device: Pci, functions: Sequence[Pci]) -> _Files:
    total = device.totalvfs if device.totalvfs is not None else len(functions)
    if total:
        yield f"{folder}/sriov_totalvfs", str(total)
        yield f"{folder}/sriov_numvfs", str(len(functions))
    for number, vf in enumerate(functions):
        yield f"{folder}/virtfn{number}", _Link(f"../../pci{vf.address.rsplit(':', 1)[0]}/{vf.address}")
    if device.pf:
        yield f"{folder}/physfn", _Link(f"../../pci{device.pf.rsplit(':', 1)[0]}/{device.pf}")


def _children(folder: str, device: Pci) -> _Files:
    for name, mac in device.net.items():
        yield f"{folder}/net/{name}/address", mac
        yield f"sys/class/net/{name}", _Link(f"../../{folder.removeprefix('sys/')}/net/{name}")
    for name in device.vdpa:
        yield f"{folder}/{name}/driver_override", ""
        yield f"{folder}/{name}/vhost-{name[:4]}-{name[4:]}/dev", "511:0"
        yield f"sys/bus/vdpa/devices/{name}", _Link(f"../../../{folder.removeprefix('sys/')}/{name}")
    for kind, offer in device.mdev_types.items():
        yield f"{folder}/mdev_supported_types/{kind}/name", offer.name
        yield f"{folder}/mdev_supported_types/{kind}/device_api", offer.device_api
        yield f"{folder}/mdev_supported_types/{kind}/available_instances", str(offer.available)


def _mdevs(mdevs: Sequence[Mdev]) -> _Files:
    for mdev in mdevs:
        parent = f"devices/pci{mdev.parent.rsplit(':', 1)[0]}/{mdev.parent}"
        yield f"sys/bus/mdev/devices/{mdev.uuid}", _Link(f"../../../{parent}/{mdev.uuid}")
        yield f"sys/{parent}/{mdev.uuid}/mdev_type", _Link(f"../mdev_supported_types/{mdev.type}")


def _cpusets(host: Host, everyone: CpuSet) -> _Files:
    if host.cpuset_v1 is not None:
        for folder, cpus in (("", str(everyone)), ("/machine", host.cpuset_v1)):
            yield f"sys/fs/cgroup/cpuset{folder}/cpuset.cpus", cpus
            yield f"sys/fs/cgroup/cpuset{folder}/cpuset.mems", str(CpuSet(host.nodes))
    if host.cpuset_v2 is not None:
        yield "sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory hugetlb pids"
        for folder, cpus in (("", str(everyone)), ("/machine.slice", host.cpuset_v2)):
            yield f"sys/fs/cgroup{folder}/cpuset.cpus.effective", cpus
            yield f"sys/fs/cgroup{folder}/cpuset.mems.effective", str(CpuSet(host.nodes))


def _drop_empty_folders(root: Path) -> None:
    for folder in ("sys", "proc"):
        for path in sorted((root / folder).rglob("*"), reverse=True):
            if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
                path.rmdir()
