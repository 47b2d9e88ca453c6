"""What is plugged, pulled or switched while the daemon runs is in its answers soon after, without a restart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.client import LocalClient
from tests.builders_sysfs import Mdev, MdevKind, Node, Pci, build_tree
from tests.functional.daemon import Daemon
from tests.functional.lab import wait_until

CARD, VFS = "0000:3b:00.0", ("0000:3b:02.0", "0000:3b:02.1")
MDEV = "0f0e0d0c-1111-4222-8333-444455556666"
CONFIG = """
[tracker]
interval = 1
[compute]
cpu_dedicated_set = 2-7
cpu_shared_set = 0-1
[pci]
device_spec = {"vendor_id": "8086", "product_id": "1515"}
"""


def nodes(pages: int, free: int, second_mib: int = 8192) -> Mapping[int, Node]:
    """Two cells of four CPUs, with pages of 2 MiB in the first."""
    first = Node(cpus="0-3", mem_mib=8192, pages={2048: pages}, free_pages={2048: free})
    return {0: first, 1: Node(cpus="4-7", mem_mib=second_mib)}


def card(*functions: str, driver: str | None = None, mdevs: int = 2) -> Sequence[Pci]:
    """A network card with these virtual functions, all bound to one driver, and room for so many mediated devices."""
    offer = {"i915-GVTg_V5_4": MdevKind(available=mdevs)}
    physical = Pci(address=CARD, numa=1, driver="ixgbe", totalvfs=64, mdev_types=offer)
    return [physical, *(Pci(address=vf, numa=1, pf=CARD, driver=driver, product="1515") for vf in functions)]


class Machine:
    """A host of which anything may change, and a daemon that watches it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.description: dict[str, Any] = {"nodes": nodes(0, 0), "pci": card()}
        build_tree(root, **self.description)
        self.daemon = Daemon(None, config=CONFIG, arguments=["--sysfs-root", str(root)])

    def change(self, **description: Any) -> None:
        """Plug, pull or switch: what is not named stays."""
        self.description |= description
        build_tree(self.root, **self.description)

    def tells(self, path: str, *keys: str | int, told: object) -> None:
        """Wait until what is below these keys of the answer is this."""

        def found() -> object:
            part = LocalClient(self.daemon.dir / "sock/agent-ro.sock").get(path).result
            for key in keys:
                part = [one[key] for one in part] if isinstance(key, str) and isinstance(part, list) else part[key]
            return part

        wait_until(lambda: found() == told, f"{path} {keys} to be {told}, is {found()}; log:\n{self.daemon.log()}", 60)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    try:
        made.daemon.start()
        yield made
        assert "Traceback" not in made.daemon.log()
        assert made.daemon.stop() == 0
    finally:
        made.daemon.clean()


def test_cpus_that_go_offline_and_come_back_are_followed(machine: Machine) -> None:
    for online, states, free in (
        ("0-7", [True] * 8, ["2-3", "4-7"]),
        ("0-2,4-6", [True, True, True, False, True, True, True, False], ["2", "4-6"]),
        ("0-7", [True] * 8, ["2-3", "4-7"]),
    ):
        machine.change(online=online)
        machine.tells("/v1/topology", "cpus", "online", told=states)
        machine.tells("/v1/usage", "cells", "dedicated", "free", told=free)


def test_virtual_functions_that_are_made_bound_and_removed_are_followed(machine: Machine) -> None:
    machine.tells("/v1/usage", "pci", told=[])
    machine.change(pci=card(*VFS))
    machine.tells("/v1/topology", "pci", "address", told=[CARD, *VFS])
    machine.tells("/v1/topology", "pci", "sriov_numvfs", told=[2, None, None])
    machine.tells("/v1/usage", "pci", "address", told=list(VFS))
    machine.tells("/v1/usage", "pci", "free", told=[True, True])
    machine.change(pci=card(*VFS, driver="vfio-pci"))
    machine.tells("/v1/topology", "pci", "driver", told=["ixgbe", "vfio-pci", "vfio-pci"])
    machine.change(pci=card(VFS[1]))
    machine.tells("/v1/topology", "pci", "address", told=[CARD, VFS[1]])
    machine.tells("/v1/topology", "pci", "driver", told=["ixgbe", None])
    machine.tells("/v1/topology", "pci", "sriov_numvfs", told=[1, None])
    machine.tells("/v1/usage", "pci", "address", told=[VFS[1]])
    machine.change(pci=[])
    machine.tells("/v1/topology", "pci", told=[])
    machine.tells("/v1/usage", "pci", told=[])


def test_pools_of_huge_pages_that_grow_and_are_used_are_followed(machine: Machine) -> None:
    for pages, free in ((512, 512), (512, 500), (16, 16), (0, 0)):
        machine.change(nodes=nodes(pages, free))
        machine.tells("/v1/topology", "cells", 0, "pages", "total", told=[pages])
        machine.tells("/v1/topology", "cells", 0, "pages", "free", told=[free])
        machine.tells("/v1/usage", "cells", 0, "pages", "kernel_free", told=[free])
        machine.tells("/v1/usage", "cells", 0, "pages", "total", told=[pages])


def test_memory_that_is_plugged_and_pulled_is_followed(machine: Machine) -> None:
    for mib in (16384, 4096, 8192):
        machine.change(nodes=nodes(0, 0, second_mib=mib))
        machine.tells("/v1/topology", "cells", "memory_kib", told=[8192 << 10, mib << 10])
        machine.tells("/v1/usage", "cells", "memory_kib", "total", told=[8192 << 10, mib << 10])


def test_mediated_devices_that_are_made_and_removed_are_followed(machine: Machine) -> None:
    machine.change(pci=card(mdevs=1), mdevs=[Mdev(uuid=MDEV, type="i915-GVTg_V5_4", parent=CARD)])
    machine.tells("/v1/topology", "mdevs", "uuid", told=[MDEV])
    machine.tells("/v1/usage", "mdevs", "exists", told=[True])
    machine.change(pci=card(mdevs=2), mdevs=[])
    machine.tells("/v1/topology", "mdevs", told=[])
    machine.tells("/v1/usage", "mdevs", told=[])
