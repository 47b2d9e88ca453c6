"""When the host is discovered again, and when libvirt is compared with it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.adapters.libvirt import NodeDevices
from agent.adapters.sysfs.files import read_file
from agent.core.snapshot import SourceState
from agent.core.topology import HostTopology
from agent.errors import LibvirtError, LibvirtTimeout, LibvirtUnavailable
from agent.look.topology import VERIFY_AGAIN_S, TopologyLook
from tests.builders_sysfs import Node, Pci, build_tree
from tests.builders_xml import pci_device_xml
from tests.fakes_libvirt import FakeLibvirt

DEEP_INTERVAL_S = 300.0
CAPABILITIES = (
    "<capabilities><host><topology><cells num='1'><cell id='0'>{cell}</cell></cells></topology></host></capabilities>"
)
NODES = {0: Node(cpus="0-3", mem_mib=1024)}
VENDOR = "sys/bus/pci/devices/0000:01:00.0/vendor"
"""Read by a discovery and never for the fingerprint."""
CPUS = "sys/devices/system/cpu"


class Libvirt(FakeLibvirt):
    """capabilities_errors, device_list_errors: raised by the next calls. asked: calls in order."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.asked: list[str] = []
        self.capabilities_errors: list[LibvirtError] = []
        self.device_list_errors: list[LibvirtError] = []

    def capabilities_xml(self) -> str:
        self.asked.append("capabilities")
        if self.capabilities_errors:
            raise self.capabilities_errors.pop(0)
        return super().capabilities_xml()

    def node_device_xmls(self) -> NodeDevices:
        self.asked.append("nodedev")
        if self.device_list_errors:
            raise self.device_list_errors.pop(0)
        return super().node_device_xmls()


class Bench:
    """One card on one cell; libvirt agrees with sysfs."""

    def __init__(self, root: Path, *, with_libvirt: bool = True) -> None:
        self.root = root
        self.now = 1000.0
        self.reads: list[str] = []
        self.libvirt = Libvirt(clock=lambda: self.now, capabilities=_capabilities(1024))
        self.libvirt.start()
        self.libvirt.add_device(*pci_device_xml("0000:01:00.0"))
        self.set_tree()
        self.look = TopologyLook(
            root,
            self.libvirt if with_libvirt else None,
            clock=lambda: self.now,
            deep_interval_s=DEEP_INTERVAL_S,
            read=self._read,
        )
        self.states: dict[str, SourceState] = {}
        self.gone = False
        self.refused: str | None = None
        self.refusal = errno.EACCES

    def set_tree(self, **description: Any) -> None:
        build_tree(self.root, **{"nodes": NODES, "pci": [Pci(address="0000:01:00.0", numa=0)], **description})

    def one_look(self, *, deep: bool = False, after_s: float = 10.0) -> HostTopology | None:
        """What a pass finds; forgets what was read and asked before."""
        self.now += after_s
        self.reads.clear()
        self.libvirt.asked.clear()
        topology, states = self.look.look(deep=deep)
        self.states = {state.name: state for state in states}
        return topology

    def settle(self) -> HostTopology:
        """Passes until libvirt need not be asked any more."""
        found = self.one_look()
        assert found is not None
        self.one_look()
        self.one_look()
        return found

    @property
    def discoveries(self) -> int:
        return self.reads.count(str(self.root / VENDOR))

    def _read(self, path: str) -> bytes:
        self.reads.append(path)
        if self.gone and path == str(self.root / VENDOR):
            raise OSError(errno.ENODEV, "No such device", path)
        if self.refused is not None and path.endswith(self.refused):
            raise OSError(self.refusal, os.strerror(self.refusal), path)
        return read_file(path)

    def refuse(self, ending: str | None, why: int = errno.EACCES) -> None:
        self.refused, self.refusal = ending, why


def _capabilities(mem_mib: int) -> str:
    cpus = "".join(f"<cpu id='{cpu}' socket_id='0' die_id='0' core_id='{cpu}' siblings='{cpu}'/>" for cpu in range(4))
    cell = f"<memory unit='KiB'>{mem_mib * 1024}</memory><cpus num='4'>{cpus}</cpus>"
    return CAPABILITIES.format(cell=cell)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def problems(topology: HostTopology | None) -> list[str]:
    assert topology is not None
    return [f"{row.source}: {row.what}" for row in topology.problems]


def test_the_first_look_discovers_the_host_and_compares_libvirt(bench: Bench) -> None:
    topology = bench.one_look()
    assert topology is not None
    assert (str(topology.online), [str(one.address) for one in topology.pci]) == ("0-3", ["0000:01:00.0"])
    assert problems(topology) == []
    assert bench.discoveries == 1
    assert bench.libvirt.asked == ["capabilities", "nodedev"]
    assert bench.states == {
        name: SourceState(name=name, read_at=bench.now) for name in ("sysfs", "capabilities", "nodedev")
    }


def test_libvirt_is_compared_once_more_in_the_next_pass_and_then_no_more(bench: Bench) -> None:
    asked = []
    for _ in range(4):
        bench.one_look()
        asked.append(len(bench.libvirt.asked))
    assert asked == [2, 2, 0, 0]


def test_an_unchanged_host_is_neither_discovered_nor_compared_again(bench: Bench) -> None:
    bench.settle()
    assert bench.one_look() is None
    assert (bench.discoveries, bench.libvirt.asked) == (0, [])
    assert bench.states == {"sysfs": SourceState(name="sysfs", read_at=bench.now)}


@pytest.mark.parametrize(
    "change",
    [
        {"online": "0-2"},
        {"nodes": {0: Node(cpus="0-3", mem_mib=2048)}},
        {"nodes": {0: Node(cpus="0-3", mem_mib=1024, pages={2048: 8})}},
        {"pci": [Pci(address="0000:01:00.0", numa=0, driver="vfio-pci")]},
        {"pci": [Pci(address="0000:01:00.0", numa=0), Pci(address="0000:02:00.0")]},
        {"pci": []},
        {"cpuset_v2": "0-1"},
    ],
    ids=lambda change: "-".join(f"{key}" for key in change),
)
def test_a_change_that_the_kernel_shows_is_discovered_by_the_next_look(bench: Bench, change: dict[str, Any]) -> None:
    before = bench.settle()
    bench.set_tree(**change)
    after = bench.one_look()
    assert after is not None
    assert after != before
    assert bench.libvirt.asked == ["capabilities", "nodedev"]
    bench.one_look()
    assert bench.libvirt.asked == ["capabilities", "nodedev"]
    bench.one_look()
    assert bench.libvirt.asked == []


def test_what_was_half_there_when_it_changed_is_whole_in_the_next_look(tmp_path: Path) -> None:
    """A device that is being bound anew is listed and not readable for a moment; the fingerprint does not show it."""
    missing = {f"{tmp_path}/{VENDOR}"}

    def read(path: str) -> bytes:
        if path in missing:
            missing.remove(path)
            raise OSError(2, "gone")
        return read_file(path)

    build_tree(tmp_path, nodes=NODES, pci=[Pci(address="0000:01:00.0", numa=0)])
    look = TopologyLook(tmp_path, None, clock=lambda: 1.0, deep_interval_s=DEEP_INTERVAL_S, read=read)
    found = [look.look(deep=False)[0] for _ in range(3)]
    assert [None if one is None else len(one.pci) for one in found] == [0, 1, None]


def test_a_deep_wish_discovers_what_seems_unchanged(bench: Bench) -> None:
    bench.settle()
    assert bench.one_look(deep=True) is not None
    assert bench.discoveries == 1


def test_the_host_is_discovered_again_after_the_deep_interval_whatever_the_fingerprint_says(bench: Bench) -> None:
    bench.settle()
    bench.one_look(after_s=DEEP_INTERVAL_S)
    assert bench.discoveries == 1
    bench.one_look()
    assert bench.discoveries == 0


def test_after_a_reconnect_libvirt_is_compared_again_with_what_was_discovered(bench: Bench) -> None:
    bench.settle()
    bench.libvirt.lose("libvirtd was restarted")
    assert bench.one_look() is None
    assert bench.libvirt.asked == []
    bench.libvirt.reconnect()
    assert bench.one_look() is not None
    assert (bench.discoveries, bench.libvirt.asked) == (0, ["capabilities", "nodedev"])
    assert bench.one_look() is None


def test_a_disagreement_is_told_and_goes_when_libvirt_has_learnt_too(bench: Bench) -> None:
    bench.settle()
    bench.set_tree(pci=[Pci(address="0000:01:00.0", numa=0), Pci(address="0000:02:00.0", numa=0)])
    told = problems(bench.one_look())
    assert told == ["libvirt node devices: libvirt does not list 1 PCI function that sysfs shows"]
    bench.libvirt.add_device(*pci_device_xml("0000:02:00.0"))
    assert problems(bench.one_look()) == []


@pytest.mark.parametrize("error", [LibvirtTimeout("it hangs"), LibvirtUnavailable("lost"), LibvirtError("refused")])
def test_an_error_of_one_question_costs_its_source_alone_and_is_asked_again_later(
    bench: Bench, error: LibvirtError
) -> None:
    bench.libvirt.capabilities_errors += [error, error]
    topology = bench.one_look()
    assert topology is not None
    assert bench.states["capabilities"] == SourceState(name="capabilities", problem=str(error))
    assert bench.states["nodedev"] == SourceState(name="nodedev", read_at=bench.now)
    bench.one_look()
    bench.one_look()
    assert bench.libvirt.asked == []
    bench.one_look(after_s=VERIFY_AGAIN_S)
    assert bench.states["capabilities"] == SourceState(name="capabilities", read_at=bench.now)
    bench.one_look(after_s=VERIFY_AGAIN_S)
    assert bench.libvirt.asked == []


def test_a_list_of_node_devices_that_fails_costs_its_source_alone(bench: Bench) -> None:
    bench.libvirt.device_list_errors.append(LibvirtError("no node device driver"))
    topology = bench.one_look()
    assert problems(topology) == []
    assert bench.states["nodedev"] == SourceState(name="nodedev", problem="no node device driver")
    assert bench.states["capabilities"].problem is None


def test_capabilities_that_do_not_parse_cost_their_source_alone(bench: Bench) -> None:
    bench.libvirt.capabilities = "<capabilities>"
    assert bench.one_look() is not None
    assert bench.states["capabilities"].problem is not None
    assert bench.states["nodedev"].problem is None


def test_a_field_of_the_capabilities_that_cannot_be_read_is_one_row(bench: Bench) -> None:
    bench.libvirt.capabilities = _capabilities(1024).replace("core_id='3'", "core_id='three'")
    told = [row for row in problems(bench.one_look()) if "could not be read" in row or "three" in row]
    assert len(told) == 1
    assert told[0].startswith("libvirt capabilities: could not be read: ")


def test_a_file_that_is_refused_is_not_looked_for_in_each_pass(bench: Bench) -> None:
    bench.refused = "cpu3/topology/core_id"
    assert [row.split(": ")[0] for row in problems(bench.settle())] == [f"{CPUS}/cpu3/topology/core_id"]
    assert bench.one_look() is None
    assert bench.discoveries == 0


def test_a_device_whose_ids_are_refused_is_not_looked_for_in_each_pass(bench: Bench) -> None:
    bench.refused = VENDOR
    assert bench.settle().pci == ()
    assert bench.one_look() is None
    assert bench.discoveries == 0


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda libvirt, name: libvirt.device_errors.update({name: "it hangs"}), "it hangs"),
        (lambda libvirt, name: libvirt.add_device(name, "<device>"), "not well-formed"),
    ],
    ids=["hangs", "does not parse"],
)
def test_one_bad_node_device_is_a_row_and_the_others_are_compared(
    bench: Bench, spoil: Callable[[Libvirt, str], None], why: str
) -> None:
    spoil(bench.libvirt, "pci_0000_01_00_0")
    topology = bench.one_look()
    assert topology is not None
    (row,) = (row for row in topology.problems if "could not be read" in row.what)
    assert row.what == "node device pci_0000_01_00_0 could not be read, so sysfs alone is believed"
    assert why in row.values["libvirt"]
    assert bench.states["nodedev"].problem is None


def test_while_libvirt_is_away_a_change_is_discovered_from_sysfs_alone(bench: Bench) -> None:
    bench.settle()
    bench.libvirt.lose("libvirtd was stopped")
    bench.set_tree(online="0-1")
    topology = bench.one_look()
    assert topology is not None
    assert str(topology.online) == "0-1"
    assert bench.states["capabilities"] == SourceState(name="capabilities", problem="libvirtd was stopped")


def test_a_recorded_tree_is_read_without_libvirt(tmp_path: Path) -> None:
    bench = Bench(tmp_path, with_libvirt=False)
    assert bench.one_look() is not None
    assert bench.states == {"sysfs": SourceState(name="sysfs", read_at=bench.now)}
    assert bench.one_look() is None
    assert bench.libvirt.asked == []


def test_a_busy_file_costs_its_fact_and_the_look_goes_on(tmp_path: Path) -> None:
    slept: list[float] = []

    def read(path: str) -> bytes:
        if path.endswith("cpu3/online"):
            raise OSError(16, "busy")
        return read_file(path)

    build_tree(tmp_path, nodes=NODES)
    (tmp_path / "sys/devices/system/cpu/online").unlink()
    look = TopologyLook(
        tmp_path, None, clock=lambda: 0.0, deep_interval_s=DEEP_INTERVAL_S, read=read, sleep=slept.append
    )
    topology, _ = look.look(deep=False)
    assert topology is not None
    assert [cpu.online for cpu in topology.cpus] == [True, True, True, None]
    assert 0 < sum(slept) < 2.0


def test_a_device_that_could_not_be_read_is_looked_for_in_each_pass_until_it_is_back(bench: Bench) -> None:
    bench.gone = True
    assert bench.settle().pci == ()
    assert bench.one_look() is None
    assert (bench.discoveries, bench.libvirt.asked) == (1, [])
    bench.gone = False
    found = bench.one_look()
    assert found is not None
    assert [str(device.address) for device in found.pci] == ["0000:01:00.0"]
    assert bench.libvirt.asked == ["capabilities", "nodedev"]
    bench.settle()
    assert bench.one_look() is None
    assert bench.discoveries == 0


NODE_0 = "sys/devices/system/node/node0"
POOL = f"{NODE_0}/hugepages/hugepages-2048kB"


@pytest.mark.parametrize(
    "needed",
    [
        f"{CPUS}/online",
        f"{CPUS}/present",
        f"{CPUS}/isolated",
        f"{CPUS}/nohz_full",
        f"{NODE_0}/meminfo",
        "proc/meminfo",
        f"{POOL}/nr_hugepages",
        f"{POOL}/free_hugepages",
    ],
)
@pytest.mark.parametrize("why", [errno.EACCES, errno.EIO, errno.EBUSY, errno.ENOMEM], ids=errno.errorcode.__getitem__)
def test_a_look_without_a_fact_that_guests_are_held_against_replaces_nothing(
    bench: Bench, needed: str, why: int
) -> None:
    bench.set_tree(nodes={0: Node(cpus="0-3", mem_mib=1024, pages={2048: 8})})
    bench.settle()
    bench.refuse(needed, why)
    assert bench.one_look(deep=True) is None
    assert bench.states["sysfs"].read_at is None
    problem = bench.states["sysfs"].problem or ""
    assert f"{bench.root}/{needed} could not be read: {os.strerror(why)} ({errno.errorcode[why]})" in problem
    assert "what was last known of the host is shown" in problem


def test_a_look_that_failed_is_made_again_in_each_pass_until_one_succeeds(bench: Bench) -> None:
    bench.settle()
    bench.set_tree(online="0-2")
    bench.refuse(f"{CPUS}/present", errno.EIO)
    assert [bench.one_look(), bench.discoveries, bench.one_look(), bench.discoveries] == [None, 1, None, 1]
    bench.refuse(None)
    found = bench.one_look()
    assert found is not None
    assert str(found.online) == "0-2"
    assert bench.states["sysfs"] == SourceState(name="sysfs", read_at=bench.now)
    assert bench.libvirt.asked == ["capabilities", "nodedev"]
    bench.settle()
    assert (bench.one_look(), bench.discoveries) == (None, 0)


def test_one_file_for_which_no_descriptor_is_left_spoils_the_look(bench: Bench) -> None:
    before = bench.settle()
    bench.refuse("cpu3/topology/core_id", errno.EMFILE)
    assert bench.one_look(deep=True) is None
    assert "cpu3/topology/core_id could not be read: Too many open files (EMFILE)" in (
        bench.states["sysfs"].problem or ""
    )
    bench.refuse(None)
    assert bench.one_look() == before


def test_what_a_first_look_that_failed_found_is_shown_and_not_compared(bench: Bench) -> None:
    bench.refuse("proc/meminfo", errno.EIO)
    first = bench.one_look()
    assert first is not None
    assert [row.source for row in first.problems] == ["proc/meminfo"]
    assert bench.libvirt.asked == []
    assert "the host is known in part alone" in (bench.states["sysfs"].problem or "")
    bench.refuse(None)
    assert problems(bench.one_look()) == []
    assert bench.libvirt.asked == ["capabilities", "nodedev"]
    assert bench.states["sysfs"].problem is None


def test_a_cell_whose_list_of_cpus_is_refused_is_known_by_its_mask(bench: Bench) -> None:
    bench.settle()
    bench.refuse(f"{NODE_0}/cpulist", errno.EIO)
    assert bench.one_look(deep=True) is not None
    assert bench.states["sysfs"].problem is None


def test_a_tree_that_went_away_is_no_host_without_cpus(bench: Bench) -> None:
    bench.settle()
    (bench.root / "sys").rename(bench.root / "elsewhere")
    assert bench.one_look() is None
    assert bench.states["sysfs"] == SourceState(
        name="sysfs",
        problem=f"{bench.root}/{CPUS} shows no CPU (is sysfs mounted or recorded there?); "
        "what was last known of the host is shown",
    )
    (bench.root / "elsewhere").rename(bench.root / "sys")
    assert bench.one_look() is not None
    assert bench.states["sysfs"].problem is None
