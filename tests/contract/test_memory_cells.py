"""Where a guest's memory lies: cgroup trees as the kernel writes them, of both versions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from agent.adapters.processes import QemuProcesses

PID = 332
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024
GROUP = "machine/qemu-1-web.libvirt-qemu"
SCOPE = r"machine.slice/machine-qemu\x2d1\x2dweb.scope"

V1_GROUPS = "8:pids:/\n7:blkio:/{0}\n4:memory:/{0}\n3:cpuset:/{0}/emulator\n1:cpu,cpuacct:/{0}/emulator\n"
V1_STAT = """\
total=49752 N0=1920 N1=47832 N2=0 N3=0
file=5535 N0=1920 N1=3615 N2=0 N3=0
anon=44217 N0=0 N1=44217 N2=0 N3=0
unevictable=0 N0=0 N1=0 N2=0 N3=0
hierarchical_total=49768 N0=1920 N1=47832 N2=16 N3=0
hierarchical_file=5535 N0=1920 N1=3615 N2=0 N3=0
hierarchical_anon=44217 N0=0 N1=44217 N2=0 N3=0
hierarchical_unevictable=16 N0=0 N1=0 N2=16 N3=0
"""
V2_STAT = """\
anon N0=4096 N1=181256192 N2=0 N3=0
file N0=7905280 N1=14766080 N2=0 N3=0
kernel_stack N0=32768 N1=0 N2=0 N3=16384
shmem N0=0 N1=0 N2=0 N3=8192
file_mapped N0=0 N1=14766080 N2=0 N3=0
anon_thp N0=0 N1=167772160 N2=0 N3=0
inactive_anon N0=0 N1=181211136 N2=0 N3=0
unevictable N0=0 N1=0 N2=65536 N3=0
"""


class Host(NamedTuple):
    """A /proc and a /sys/fs/cgroup."""

    proc: Path
    cgroups: Path

    def runs(self, groups: str) -> Host:
        """Process PID is in these groups."""
        write(self.proc / str(PID) / "cgroup", groups)
        return self

    def stat(self, folder: str, text: str = V2_STAT) -> Host:
        """What memory.numa_stat of this group says."""
        write(self.cgroups / folder / "memory.numa_stat", text)
        return self

    def told(self) -> dict[int, int] | None:
        """KiB by cell."""
        told = QemuProcesses(self.proc, cgroups=self.cgroups).memory_cells(PID)
        return None if told is None else dict(told)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "proc", tmp_path / "cgroup")


def test_version_1_tells_pages_of_anonymous_and_locked_memory_and_leaves_the_page_cache_out(host: Host) -> None:
    host.runs(V1_GROUPS.format(GROUP)).stat(f"memory/{GROUP}", V1_STAT)
    assert host.told() == {0: 0, 1: 44217 * PAGE_KIB, 2: 16 * PAGE_KIB, 3: 0}


@pytest.mark.parametrize(
    ("below", "group"),
    [
        (f"{GROUP}/emulator", GROUP),
        (GROUP, GROUP),
        (f"{SCOPE}/libvirt/emulator", f"{SCOPE}/libvirt"),
        (f"{SCOPE}/libvirt", SCOPE),
        (f"tests/lab-7/{GROUP}/emulator", f"tests/lab-7/{GROUP}"),
        ("production.partition/qemu-12-db.libvirt-qemu/emulator", "production.partition/qemu-12-db.libvirt-qemu"),
    ],
)
def test_version_2_tells_bytes_of_anonymous_and_shared_memory_at_the_group_above_the_threads(
    host: Host, below: str, group: str
) -> None:
    host.runs(f"0::/{below}\n").stat(group)
    assert host.told() == {0: 4, 1: 177008, 2: 0, 3: 8}


def test_beside_version_1_controllers_version_2_lies_in_a_folder_of_its_own(host: Host) -> None:
    host.runs(f"3:cpuset:/{GROUP}/emulator\n0::/{GROUP}\n").stat(f"unified/{GROUP}")
    assert host.told() == {0: 4, 1: 177008, 2: 0, 3: 8}


@pytest.mark.parametrize(
    "groups",
    [
        "0::/system.slice/libvirtd.service\n",
        "0::/\n",
        "4:memory:/\n0::/\n",
        f"0::/../../{GROUP}/emulator\n",
        f"0::/{GROUP.replace('qemu-1', 'lxc-1').replace('libvirt-qemu', 'libvirt-lxc')}\n",
        "no line of the kernel's\n",
        "",
    ],
    ids=[
        "shared with libvirtd",
        "no group of its own",
        "no group of its own, version 1",
        "outside of our namespace",
        "a container",
        "strange text",
        "ended",
    ],
)
def test_what_is_no_group_of_this_guest_alone_tells_nothing_of_it(host: Host, groups: str) -> None:
    for folder in ("", "system.slice/libvirtd.service", "memory", GROUP, f"memory/{GROUP}"):
        host.stat(folder)
    assert host.runs(groups).told() is None


def test_a_process_that_is_gone_or_hidden_tells_nothing(host: Host) -> None:
    assert host.stat(GROUP).told() is None


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "file N0=4096\n",
        "anon N0=many\n",
        "anon Nx=1\n",
        "anon 4096\n",
        "anon N0=-4096\n",
        "anon N99999999999999999999=4096\n",
    ],
)
def test_statistics_that_are_not_there_or_not_to_be_understood_tell_nothing(host: Host, text: str | None) -> None:
    host.runs(f"0::/{GROUP}\n")
    if text is not None:
        host.stat(GROUP, text)
    assert host.told() is None


def test_bytes_that_are_no_text_tell_nothing(host: Host) -> None:
    host.runs(f"0::/{GROUP}\n").stat(GROUP)
    (host.cgroups / GROUP / "memory.numa_stat").write_bytes(b"anon N0=\xff\n")
    assert host.told() is None
