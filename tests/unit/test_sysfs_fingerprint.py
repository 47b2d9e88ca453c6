"""The cheap fingerprint differs exactly when discovery would."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.adapters.sysfs import changing_facts, discover
from agent.adapters.sysfs.files import read_file
from tests.builders_sysfs import Flat, Host, Mdev, MdevKind, Node, Pci, remove, write, write_tree

PF, VF = "0000:3b:00.0", "0000:3b:02.0"
CARD = Pci(address=PF, numa=0, totalvfs=4, driver="ixgbe", net={"ens1": "3c:fd:fe:00:00:01"})
GPU = Pci(address="0000:65:00.0", mdev_types={"t4": MdevKind(available=4)})
NODES = {0: Node(cpus="0-3", mem_mib=1024, pages={2048: 8}), 1: Node(cpus="4-7", mem_mib=1024)}


class Counted:
    """Reads files for real and counts."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self, path: str) -> bytes:
        self.reads += 1
        return read_file(path)


def host(**changes: object) -> Host:
    description: dict[str, object] = {"nodes": NODES, "pci": [CARD, GPU], "cpuset_v2": "0-7"}
    return Host(**{**description, **changes})  # type: ignore[arg-type]


CHANGES = {
    "a CPU goes offline": host(online="0-6"),
    "a CPU is added": host(nodes={**NODES, 1: Node(cpus="4-8", mem_mib=1024)}),
    "CPUs are isolated": host(isolated="6-7"),
    "CPUs become tickless": host(nohz_full="6-7"),
    "memory is added": host(nodes={**NODES, 1: Node(cpus="4-7", mem_mib=2048)}),
    "a cell appears": host(nodes={**NODES, 2: Node(mem_mib=2048)}),
    "pages are made": host(nodes={**NODES, 0: Node(cpus="0-3", mem_mib=1024, pages={2048: 16})}),
    "pages are taken": host(nodes={**NODES, 0: Node(cpus="0-3", mem_mib=1024, pages={2048: 8}, free_pages={2048: 4})}),
    "pages are promised": host(reserved_pages={2048: 3}),
    "a device is added": host(pci=[CARD, GPU, Pci(address="0000:5e:00.0")]),
    "a device is removed": host(pci=[CARD]),
    "virtual functions are made": host(pci=[CARD, GPU, Pci(address=VF, pf=PF)]),
    "a vDPA device is made": host(pci=[CARD, GPU, Pci(address=VF, pf=PF, vdpa=["vdpa0"])]),
    "a driver is changed": host(pci=[Pci(address=PF, numa=0, totalvfs=4, driver="vfio-pci"), GPU]),
    "a device gets a cell": host(pci=[CARD, Pci(address="0000:65:00.0", numa=1, mdev_types=GPU.mdev_types)]),
    "an interface is renamed": host(
        pci=[Pci(address=PF, numa=0, totalvfs=4, driver="ixgbe", net={"p0": "3c:fd:fe:00:00:01"}), GPU]
    ),
    "a mediated device is made": host(mdevs=[Mdev(uuid="0b5fd3fb", type="t4", parent="0000:65:00.0")]),
    "a cpuset withholds a CPU": host(cpuset_v2="0-6"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_it_changes_when(tmp_path: Path, change: str) -> None:
    root = write_tree(tmp_path, host())
    before, seen_before = changing_facts(root), discover(root)
    write_tree(root, CHANGES[change])
    assert discover(root) != seen_before
    assert changing_facts(root) != before
    write_tree(root, host())
    assert changing_facts(root) == before


@pytest.mark.parametrize("missing", ["sys/bus/pci", "sys/devices/system/node", "sys/devices/system/cpu", "sys"])
def test_it_never_raises_over_what_is_missing(tmp_path: Path, missing: str) -> None:
    root = write_tree(tmp_path, host())
    before = changing_facts(root)
    remove(root, missing)
    assert changing_facts(root) != before


def test_a_tap_of_a_guest_is_no_change_of_the_host(tmp_path: Path) -> None:
    root = write_tree(tmp_path, host())
    before = changing_facts(root)
    (root / "sys/class/net/vnet0").symlink_to("../../devices/virtual/net/vnet0")
    assert changing_facts(root) == before


def test_free_memory_that_moves_is_no_change_of_the_host(tmp_path: Path) -> None:
    root = write_tree(tmp_path, host())
    before = changing_facts(root)
    name = "sys/devices/system/node/node0/meminfo"
    write(root, name, (root / name).read_text().replace("MemFree: ", "MemFree:1"))
    assert changing_facts(root) == before


def test_it_reads_far_fewer_files_than_discovery(tmp_path: Path) -> None:
    root = write_tree(tmp_path, Host(nodes={0: Node(cpus="0-255", mem_mib=1024)}))

    cheap, full = Counted(), Counted()
    changing_facts(root, read=cheap)
    discover(root, read=full)
    assert cheap.reads * 20 < full.reads


def test_memory_of_a_host_without_cells_counts(tmp_path: Path) -> None:
    root = write_tree(tmp_path, Host(flat=Flat(cpus="0-3", mem_mib=1024)))
    before = changing_facts(root)
    write_tree(root, Host(flat=Flat(cpus="0-3", mem_mib=2048)))
    assert changing_facts(root) != before


def test_it_says_the_same_of_the_machine_this_runs_on_twice() -> None:
    masks = [Path(f"/sys/devices/system/cpu/{name}").read_bytes() for name in ("online", "present")]
    facts = changing_facts(Path("/"))
    assert isinstance(facts, tuple)
    assert list(facts[0][:2]) == masks
