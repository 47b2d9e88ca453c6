"""Field cases about what the host has, over a whole host in memory: what each pass reads, takes in and says.

The claims are made of the agent that looks at it.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from agent.adapters.libvirt import NodeDevices
from agent.adapters.libvirt.host import DEVICE_KINDS
from agent.core.claim.refusal import ClaimRefusal
from agent.core.claim.values import Tombstone
from agent.core.placement import Placement
from agent.core.reasons import NoSuchPages
from agent.core.snapshot import Snapshot
from agent.core.usage import DeviceUsage
from agent.formats import wire
from tests.at_work import asked
from tests.builders import uuid_of
from tests.builders_sysfs import Mdev, MdevKind, Node, Pci, write
from tests.builders_xml import pci_device_xml
from tests.fakes_libvirt import FakeLibvirt
from tests.field.claims import given, only_cell, placed
from tests.fit.requests import asks, wants
from tests.promising_rig import PromisingRig, cpus_of
from tests.rig import H8, INTERVAL_S, Rig, config, filtered, free, held, kinds, remarks

MIB = 1024
CPUS = "sys/devices/system/cpu"
PF = "0000:3b:00.0"
ONE_DEVICE = asks(nodes=0, pci=(wants(),))
VGPU = "0b5fd3fb-2389-4a22-ba70-52969a26b9d5"


class RefusingRig(Rig):
    """refused_files: name below the root -> error number and how often, None: for ever."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.refused_files: dict[str, tuple[int, int | None]] = {}
        super().__init__(*arguments, **options)

    def read(self, name: str, path: str) -> bytes:
        number, times = self.refused_files.get(name, (0, 0))
        if times != 0:
            self.refused_files[name] = (number, None if times is None else times - 1)
            raise OSError(number, os.strerror(number))
        return super().read(name, path)


class RefusingPromises(RefusingRig, PromisingRig):
    """Both."""


class CountingLibvirt(FakeLibvirt):
    """xmls: how many node devices were read one by one, in all."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.xmls = 0

    def node_device_xmls(self) -> NodeDevices:
        found = super().node_device_xmls()
        self.xmls += len(found.xmls)
        return found


def devices(snapshot: Snapshot) -> dict[str, DeviceUsage]:
    return {str(row.address): row for row in snapshot.usage.pci}


def free_devices(snapshot: Snapshot) -> list[str]:
    return [address for address, row in devices(snapshot).items() if row.free]


def problems(snapshot: Snapshot) -> list[str]:
    """What sysfs itself says of the host."""
    return [row.what for row in snapshot.topology.problems if "libvirt" not in row.source]


def virtual_functions(count: int) -> list[Pci]:
    """0000:3b:02.0 and on, eight to a slot."""
    return [Pci(address=f"0000:3b:{2 + n // 8:02x}.{n % 8}", numa=0, pf=PF) for n in range(count)]


# --- cpu-offline, dedicated-set-change -----------------------------------------------------------


@pytest.mark.parametrize("is_lost", [False, True], ids=["event", "lost event"])
def test_cpu_count_not_cached(tmp_path: Path, is_lost: bool) -> None:
    """LP#1460043."""
    rig = Rig(tmp_path, **H8, online="0-5")
    first = rig.one_pass()
    assert (str(first.topology.online), free(first)) == ("0-5", "2-5")
    for online in ("0-6", "0-7"):
        rig.set_tree(**H8, online=online)
        rig.watch.wake()
    assert free(rig.one_pass(1.0)) == "2-7"
    rig.set_tree(**H8, online="0-1,3-7")
    if not is_lost:
        rig.watch.wake()
    assert free(rig.one_pass(INTERVAL_S if is_lost else 1.0)) == "3-7"


def test_sysfs_busy_and_missing_attributes(tmp_path: Path) -> None:
    """LP#2065927."""
    rig = RefusingRig(tmp_path, **H8, online="0-6")
    assert not (rig.root / CPUS / "cpu7/cpufreq/scaling_governor").exists()
    busy = (f"{CPUS}/online", f"{CPUS}/cpu3/online")
    for name in busy:
        rig.refused_files[name] = (errno.EBUSY, 3)
    rig.restart_agent()
    begun_at = rig.now
    first = rig.one_pass()
    assert (str(first.topology.online), free(first), problems(first)) == ("0-6", "2-6", [])
    assert 0.0 < rig.now - begun_at < 2.0
    for name in busy:
        rig.refused_files[name] = (errno.EBUSY, None)
    rig.restart_agent()
    begun_at = rig.now
    second = rig.one_pass()
    assert rig.now - begun_at < 2.0
    assert [cpu.id for cpu in second.topology.cpus if cpu.online is None] == [3]
    assert free(second) == "2,4-6"
    assert any("could not be read" in what for what in problems(second))
    assert second.usage.cells[0].memory_kib.total == 16384 * MIB


def test_host_smaller_after_reboot(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """hashicorp/nomad#23922."""
    rig = PromisingRig(tmp_path, config("1-7", "0"), nodes={0: Node(cpus="0-7", mem_mib=8192)})
    for name, cpu in (("b", 1), ("c", 3), ("d", 4), ("e", 5)):
        rig.run(name, cpu)
    rig.one_pass()
    m1 = rig.granted(asked("m1", "z", asks(2), kind="live_migration"))
    assert str(cpus_of(m1)) == "2,6"
    for name in "bcde":
        rig.end(name)
        rig.libvirt.undefine(uuid_of(name))
    rig.set_tree(nodes={0: Node(cpus="0-3", mem_mib=8192)})
    rig.boot_id = "after"
    rig.restart_agent()
    snapshot = rig.one_pass()
    assert str(snapshot.usage.host.dedicated.total) == "1-3"
    assert free(snapshot) == "1,3"
    (row,) = snapshot.conflicts
    assert (row.id, [owner.name for owner in row.owners]) == ("pinned-to-offline:cpu:6", ["z"])
    no = rig.claims.recheck("m1")
    assert isinstance(no, ClaimRefusal)
    assert (no.code, no.retry, rig.state("m1")) == ("ComputeResourcesUnavailable", "elsewhere", "reserved")
    assert str(cpus_of(rig.granted(asked("k1", "x", asks(2))))) == "1,3"
    assert isinstance(rig.claims.abort("m1"), Tombstone)
    assert (free(rig.tracker.snapshot), kinds(rig.tracker.snapshot)) == ("2", [])
    rig.stop_agent()
    told = "[compute] cpu_dedicated_set names CPUs 4-7, not usable on this host, left out until that changes"
    assert [record.getMessage() for record in caplog.records if told in record.getMessage()]
    assert [row.what for row in rig.report().topology.problems if row.source == "configuration"] == [told]


# --- page-pools ----------------------------------------------------------------------------------


def test_pages_pool_changed_after_start(tmp_path: Path) -> None:
    """kubernetes/kubernetes#111757."""
    rig = PromisingRig(tmp_path, nodes={0: Node(cpus="0-7", mem_mib=16384, pages={2048: 0})})
    first = rig.one_pass()
    wanted = asks(1, 1024, cpu=None, page=2048)
    none = rig.refused(asked("k1", "x", wanted))
    rig.set_tree(nodes={0: Node(cpus="0-7", mem_mib=16384, pages={2048: 512})})
    second = rig.one_pass(INTERVAL_S)
    cells = [snapshot.usage.cells[0] for snapshot in (first, second)]
    assert [[(row.size_kib, row.total, row.free) for row in cell.pages] for cell in cells] == [
        [(2048, 0, 0)],
        [(2048, 512, 512)],
    ]
    assert cells[0].memory_kib.total - cells[1].memory_kib.total == 1024 * MIB
    assert none.reasons == (NoSuchPages(guest_cell=0, cell=0, asked=2048, sizes_kib=(4,)),)
    assert only_cell(rig.claims.claim(asked("k2", "x", wanted))).page_size_kib == 2048
    pages = rig.tracker.snapshot.usage.cells[0].pages
    assert [(row.used, row.promised, row.free) for row in pages] == [(0, 512, 0)]
    rig.run("x", mem=1024, node=0, page=2048)
    third = rig.one_pass()
    assert [(row.used, row.free) for row in third.usage.cells[0].pages] == [(512, 0)]
    assert (third.usage.host.memory_kib.used, kinds(third)) == (0, [])


def test_pages_node_memory_drifts_on_reboot(tmp_path: Path) -> None:
    """kubernetes/kubernetes#131253. Claims are held against what is there now, not the totals of before."""
    rig = PromisingRig(tmp_path, config("0-7", ""), nodes=two_nodes(128649, 129010))
    rig.run("b", 0, 1, 2)
    rig.one_pass()
    m1 = rig.granted(asked("m1", "z", asks(2, 65536), kind="live_migration"))
    assert str(cpus_of(m1)) == "4-5"
    rig.set_tree(nodes=two_nodes(128611, 129052))
    rig.boot_id = "after"
    rig.restart_agent()
    after = rig.one_pass()
    assert [cell.memory_kib.total // MIB for cell in after.usage.cells] == [128611, 129052]
    assert (kinds(after), rig.report().health.status) == ([], "ok")
    assert (rig.state("m1"), after.usage.cells[1].memory_kib.promised // MIB) == ("reserved", 65536)

    rig.set_tree(nodes=two_nodes(128611, 32768))
    rig.boot_id = "after that"
    rig.restart_agent()
    smaller = rig.one_pass()
    assert (rig.state("m1"), kinds(smaller)) == ("reserved", ["memory-over-commit"])
    assert [owner.name for owner in smaller.conflicts[0].owners] == ["z"]
    no = rig.claims.recheck("m1")
    assert isinstance(no, ClaimRefusal)
    assert (no.code, no.claim_id) == ("ComputeResourcesUnavailable", "m1")
    rig.stop_agent()


def two_nodes(*mem_mib: int) -> dict[int, Node]:
    return {0: Node(cpus="0-3", mem_mib=mem_mib[0]), 1: Node(cpus="4-7", mem_mib=mem_mib[1])}


# --- pci-lifecycle, pci-address-numa, mdev -------------------------------------------------------


def test_pci_device_gone_between_list_and_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """RHBZ#1428692. The device is listed, and its files are not there just when they are read."""
    pci = [Pci(address=PF, numa=0), *(Pci(address=f"0000:3b:00.{n}", numa=0, pf=PF) for n in (1, 2))]
    rig = RefusingRig(tmp_path, **H8, pci=pci)
    rig.refused_files["sys/bus/pci/devices/0000:3b:00.2/vendor"] = (errno.ENOENT, 1)
    first = rig.one_pass()
    assert free_devices(first) == [PF, "0000:3b:00.1"]
    second = rig.one_pass(INTERVAL_S)
    assert free_devices(second) == [PF, "0000:3b:00.1", "0000:3b:00.2"]
    assert all(record.exc_info is None for record in caplog.records)


def test_a_promised_device_that_is_missing_once_stays_promised(tmp_path: Path) -> None:
    """The rest of pci-device-gone-between-list-and-read."""
    rig = RefusingPromises(tmp_path, filtered("0000:3b:00.*"), **H8, pci=[Pci(address=PF, numa=0)])
    rig.one_pass()
    k1 = rig.granted(asked("k1", "x", ONE_DEVICE))
    rig.refused_files["sys/bus/pci/devices/0000:3b:00.0/vendor"] = (errno.ENOENT, 1)
    rig.watch.wake(host=True)
    missing = rig.one_pass(INTERVAL_S)
    assert (free_devices(missing), rig.book.claims["k1"]) == ([], k1)
    back = rig.one_pass(INTERVAL_S)
    assert [owner.type for owner in devices(back)[PF].owners] == ["claim"]
    assert (free_devices(back), kinds(back)) == ([], [])
    rig.stop_agent()


def test_pci_freed_device_not_in_filter(tmp_path: Path) -> None:
    """LP#2115905."""
    pci = [Pci(address=f"0000:{bus}:00.0", numa=0) for bus in ("5e", "5f")]
    rig = PromisingRig(tmp_path, **H8, pci=pci)
    rig.run("a", mem=1024, dev=("0000:5e:00.0",))
    rig.one_pass()
    rig.restart_agent(filtered("0000:5f:00.0"))
    first = rig.one_pass()
    row = devices(first)["0000:5e:00.0"]
    assert [owner.name for owner in row.owners] == ["a"]
    assert row.remark == "not in the filter (device_spec): it is not offered again once it is free"
    assert free_devices(first) == ["0000:5f:00.0"]
    rig.end("a")
    rig.libvirt.undefine(uuid_of("a"))
    for snapshot in (rig.one_pass(1.0), *rig.passes(3)):
        assert free_devices(snapshot) == ["0000:5f:00.0"]
    assert "0000:5e:00.0" not in devices(rig.tracker.snapshot)
    assert given(rig.claims.claim(asked("k1", "x", ONE_DEVICE))) == ["0000:5f:00.0"]
    assert rig.refused(asked("k2", "y", ONE_DEVICE)).code == "PciRequestError"
    rig.stop_agent()


def test_pci_vfs_recreated(tmp_path: Path) -> None:
    """lxc/incus#2845. What is used is not offered, also while its domain is off."""
    before = [Pci(address="0000:3b:02.0", numa=0, pf=PF, driver="vfio-pci"), virtual_functions(2)[1]]
    rig = PromisingRig(tmp_path, filtered("0000:3b:02.*"), **H8, pci=[Pci(address=PF, numa=0), *before])
    rig.run("a", mem=512, dev=("0000:3b:02.0",))
    first = rig.one_pass()
    assert (devices(first)["0000:3b:02.0"].remark, kinds(first)) == (None, [])
    after = [Pci(address=f"0000:3b:02.{n}", numa=0, pf=PF, driver="iavf") for n in range(4)]
    rig.set_tree(**H8, pci=[Pci(address=PF, numa=0), *after])
    for _ in range(6):
        rig.watch.wake()
    second = rig.one_pass(1.0)
    row = devices(second)["0000:3b:02.0"]
    assert [owner.name for owner in row.owners] == ["a"]
    assert row.remark is not None
    assert row.remark.startswith("re-created or rebound under a")
    assert free_devices(second) == [f"0000:3b:02.{n}" for n in (1, 2, 3)]
    assert [conflict.id for conflict in second.conflicts] == ["device-missing:pci:0000:3b:02.0"]
    three = asked("k1", "x", asks(nodes=0, pci=(wants(count=3),)))
    assert given(rig.claims.claim(three)) == [f"0000:3b:02.{n}" for n in (1, 2, 3)]
    rig.end("a")
    rig.one_pass(1.0)
    assert rig.refused(asked("k2", "y", ONE_DEVICE)).code == "PciRequestError"
    rig.stop_agent()


def test_pci_domain_above_ffff(tmp_path: Path) -> None:
    """jaypipes/ghw#372."""
    pci = [Pci(address=text, numa=0) for text in ("10000:e1:00.0", "0000:e1:00.0", "5d0505:01:00.0")]
    rig = PromisingRig(tmp_path, filtered("*:e1:00.0"), **H8, pci=pci)
    write(rig.root, "sys/bus/pci/devices/no-address/vendor", "0x8086")
    rig.run("a", mem=512, dev=("0000:e1:00.0",))
    rig.restart_agent()
    snapshot = rig.one_pass()
    assert {address: [owner.name for owner in row.owners] for address, row in devices(snapshot).items()} == {
        "0000:e1:00.0": ["a"],
        "10000:e1:00.0": [],
    }
    assert free_devices(snapshot) == ["10000:e1:00.0"]
    answer = rig.claims.claim(asked("k1", "x", ONE_DEVICE))
    assert given(answer) == ["10000:e1:00.0"]
    assert wire.from_json(wire.to_json(placed(answer)), Placement) == placed(answer)
    rig.restart_agent()
    assert free_devices(rig.one_pass()) == []
    again = rig.claims.recheck("k1")
    assert given(again) == ["10000:e1:00.0"]
    rig.stop_agent()
    assert len([row for row in snapshot.topology.problems if "no-address" in row.source + row.what]) == 1


def test_mdev_gone_after_host_reboot(tmp_path: Path) -> None:
    """mdevctl/mdevctl#82. No request can ask for mediated devices; the one that is named stays its guest's."""
    card = Pci(address="0000:65:00.0", numa=0, mdev_types={"t4": MdevKind(available=3)})
    rig = Rig(tmp_path, **H8, pci=[card], mdevs=[Mdev(uuid=VGPU, type="t4", parent="0000:65:00.0")])
    rig.define("a", mem=1024, mdev=VGPU)
    before = rig.one_pass()
    assert (remarks(before, "a"), kinds(before)) == ((), [])
    rig.set_tree(**H8, pci=[Pci(address="0000:65:00.0", numa=0, mdev_types={"t4": MdevKind(available=4)})])
    rig.restart_agent()
    after = rig.one_pass()
    (row,) = after.conflicts
    assert remarks(after, "a") == (row.cause,)
    assert f"mediated device {VGPU} does not exist" in row.cause
    assert (row.id, row.severity, row.owners[0].uuid) == (f"device-missing:mdev:{VGPU}", "warning", uuid_of("a"))
    assert [(one.uuid, one.exists, [owner.name for owner in one.owners]) for one in after.usage.mdevs] == [
        (VGPU, False, ["a"])
    ]
    assert [kind.available for device in after.topology.pci for kind in device.mdev_types] == [4]


# --- scale, udev ---------------------------------------------------------------------------------


def test_scale_3000_node_devices(tmp_path: Path) -> None:
    """RHBZ#1398572. That only some kinds of node device are read at all is asserted of the list's own filter."""
    assert DEVICE_KINDS == ("PCI_DEV", "MDEV_TYPES", "MDEV", "VDPA", "VPD")
    pci = [Pci(address=PF, numa=0), *virtual_functions(64)]
    rig = Rig(tmp_path, make_libvirt=CountingLibvirt, **H8, pci=pci)
    libvirt = rig.libvirt
    assert isinstance(libvirt, CountingLibvirt)
    for one in pci:
        libvirt.add_device(*pci_device_xml(one.address))
    rig.one_pass()
    rig.one_pass(INTERVAL_S)
    assert libvirt.xmls == 2 * 65
    rig.reads.clear()
    rig.one_pass(INTERVAL_S)
    assert libvirt.xmls == 2 * 65
    assert sum(rig.reads.values()) < 3 * 65
    new = Pci(address="0000:3b:0a.0", numa=0, pf=PF)
    rig.set_tree(**H8, pci=[*pci, new])
    libvirt.add_device(*pci_device_xml(new.address))
    after = rig.one_pass(1.0)
    assert "0000:3b:0a.0" in free_devices(after)
    assert len(after.topology.pci) == 66


def test_udev_enobufs(tmp_path: Path) -> None:
    """pyudev/pyudev#194. The real monitor and a real overflow: tests/contract/test_udev.py."""
    rig = Rig(tmp_path, **H8, pci=[Pci(address=PF, numa=0)])
    rig.one_pass()
    rig.one_pass(1.0)
    rig.set_tree(**H8, pci=[Pci(address=PF, numa=0), *virtual_functions(64)])
    rig.reads.clear()
    rig.watch.wake(host=True)  # what the overflow asks for
    first = rig.one_pass(1.0)
    assert len(free_devices(first)) == 65
    assert rig.reads[f"sys/bus/pci/devices/{PF}/vendor"] == 1
    rig.set_tree(**H8, pci=[Pci(address=PF, numa=0), *virtual_functions(64)[1:]])
    rig.watch.wake()
    second = rig.one_pass(1.0)
    assert len(free_devices(second)) == 64
    assert held(second) == ""
