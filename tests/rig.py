"""A host in memory: sysfs tree, libvirt, /proc and clock; and over it the agent's own look, tracker and watch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agent.adapters.processes import QemuProcesses
from agent.adapters.sysfs.files import read_file
from agent.core.conflicts import Since, dates
from agent.core.cpuset import CpuSet
from agent.core.host_config import DeviceSpec, HostConfig
from agent.core.report import Report, report
from agent.core.snapshot import Identity, Snapshot
from agent.look import HostLook
from agent.reporter import report_pass
from agent.tracker import Tracker
from agent.watch import Watch
from tests import moments
from tests.builders import uuid_of
from tests.builders_proc import add_qemu, empty_proc, remove_process
from tests.builders_sysfs import Node, build_tree
from tests.builders_xml import domain_xml
from tests.fakes_libvirt import FakeLibvirt

INTERVAL_S = 10.0
DEEP_INTERVAL_S = 300.0
H8: Mapping[str, Any] = MappingProxyType({"nodes": {0: Node(cpus="0-7", mem_mib=16384)}})
"""One cell, CPUs 0-7 without siblings, 16 GiB."""


def config(dedicated: str | None = "2-7", shared: str | None = "0-1", **options: Any) -> HostConfig:
    """An operator's options; CPU sets as text."""
    sets = [None if text is None else CpuSet.parse(text) for text in (dedicated, shared)]
    return HostConfig(dedicated=sets[0], shared=sets[1], **options)


def filtered(*addresses: str) -> HostConfig:
    """With these device_spec addresses."""
    return config(device_spec=tuple(DeviceSpec(address=text) for text in addresses))


class Rig:
    """H8 unless told otherwise. `started` says when the agent looks at it; `now` moves by hand.

    reads: how often each file below the root was opened. since: what the journal would keep. told: each pass's
    snapshots. make_libvirt: the libvirt, connected at once; it must take the callbacks of `FakeLibvirt`.
    """

    watch: Watch
    tracker: Tracker
    look: HostLook

    def __init__(
        self,
        folder: Path,
        configured: HostConfig | None = None,
        *,
        make_libvirt: Callable[..., FakeLibvirt] = FakeLibvirt,
        **tree: Any,
    ) -> None:
        self.now = 1000.0
        self.root, self.proc = folder / "root", empty_proc(folder / "proc")
        self.config = config() if configured is None else configured
        self.reads: dict[str, int] = {}
        self.since: dict[str, Since] = {}
        self.told: list[tuple[Snapshot, Snapshot]] = []
        self.epoch = 0
        self._pids: dict[str, int] = {}
        self._last_pid = 2000
        self.set_tree(**(tree or H8))
        self.libvirt = make_libvirt(
            clock=self.clock,
            capabilities="<capabilities><host/></capabilities>",
            on_change=self._on_change,
            on_device_change=lambda _name: self.watch.wake(),
            on_connected=lambda _number: self.watch.wake(),
            on_lost=lambda _sentence: self.watch.wake(),
        )
        self.restart_agent()
        self.libvirt.start()
        self.now += 100.0  # the connection has settled

    def clock(self) -> float:
        """Each thing takes a moment, so that one comes before the other."""
        self.now += 1e-6
        return self.now

    def set_tree(self, **description: Any) -> None:
        """Make the kernel show this host (see `builders_sysfs.Host`)."""
        build_tree(self.root, **description)

    def restart_agent(self, configured: HostConfig | None = None) -> None:
        """A new agent over the same host, which keeps nothing but what the journal has."""
        self.config = self.config if configured is None else configured
        self.epoch += 1
        self.tracker = self.begin_tracker()
        self.look = HostLook(
            sysfs_root=self.root,
            libvirt=self.libvirt,
            processes=QemuProcesses(self.proc, clock=self.clock, boot_clock=lambda: self.now + 1000.0),
            clock=self.clock,
            interval_s=INTERVAL_S,
            deep_interval_s=DEEP_INTERVAL_S,
            read=self._read,
            sleep=self._sleep,
        )
        self.watch = Watch(
            look=self.look,
            current=lambda: self.tracker.snapshot,
            take_in=self.tracker.take_in,
            on_pass=self._on_pass,
            clock=self.clock,
            interval_s=INTERVAL_S,
        )

    def begin_tracker(self) -> Tracker:
        """The books of a new agent: for subclasses that have a journal."""
        return Tracker(
            identity=Identity(agent_id="agent", boot_id="boot", epoch=self.epoch),
            config=self.config,
            since=self.since,
            moment=lambda: moments.at(self.now, wall=f"2026-01-01T00:00:00Z+{self.now:g}"),
        )

    # --- guests ------------------------------------------------------------------------------

    def define(self, name: str, *pins: int, **options: Any) -> str:
        """A guest that is off, vCPU n pinned to the nth of `pins`; options as of `domain_xml`; gives its uuid."""
        return self.libvirt.define(domain_xml(name, dict(enumerate(pins)), **options))

    def run(self, name: str, *pins: int, **options: Any) -> str:
        """The same, running, with a QEMU process whose vCPU threads are bound as pinned."""
        uuid = self.define(name, *pins, **options)
        self.start(name, *pins)
        return uuid

    def start(self, name: str, *pins: int) -> None:
        """Start a defined guest."""
        self._last_pid += 10
        self._pids[name] = self._last_pid
        vcpus = ",".join(map(str, pins)) or None
        ticks = int(self.now * 100)
        add_qemu(self.proc, self._last_pid, uuid=uuid_of(name), name=name, start_ticks=ticks, vcpus=vcpus)
        self.libvirt.start_domain(uuid_of(name))

    def end(self, name: str) -> None:
        """The guest ends, and its QEMU with it."""
        self.end_process(name)
        self.libvirt.stop_domain(uuid_of(name))

    def end_process(self, name: str) -> None:
        """QEMU ends, whatever libvirt knows of it."""
        remove_process(self.proc, self._pids.pop(name))

    # --- passes ------------------------------------------------------------------------------

    def one_pass(self, after_s: float = 0.0) -> Snapshot:
        """One pass, so many seconds from now."""
        self.now += after_s
        return self.watch.one_pass()

    def passes(self, count: int) -> Iterator[Snapshot]:
        """Timed passes, an interval apart."""
        for _ in range(count):
            yield self.one_pass(INTERVAL_S)

    def report(self) -> Report:
        """What is told now."""
        return report(self.tracker.snapshot, now_s=self.now, interval_s=INTERVAL_S)

    def _on_change(self, uuid: str) -> None:
        self.watch.mark(uuid)

    def _on_pass(self, before: Snapshot, after: Snapshot) -> None:
        report_pass(before, after)
        self.told.append((before, after))
        self.since = dates(after.conflicts)

    def _read(self, path: str) -> bytes:
        name = path.removeprefix(f"{self.root}/")
        self.reads[name] = self.reads.get(name, 0) + 1
        return self.read(name, path)

    def read(self, name: str, path: str) -> bytes:
        """How a file is read: for subclasses whose kernel refuses."""
        return read_file(path)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


def free(snapshot: Snapshot) -> str:
    """The dedicated CPUs that a claim would find free."""
    return str(snapshot.usage.host.dedicated.free)


def held(snapshot: Snapshot) -> str:
    """All CPUs that guests hold."""
    return str(CpuSet(row.cpu for row in snapshot.usage.holders))


def remarks(snapshot: Snapshot, name: str) -> tuple[str, ...]:
    """What is remarked of a guest."""
    return tuple(row.text for row in snapshot.usage.remarks if row.name == name)


def kinds(snapshot: Snapshot) -> list[str]:
    """Kinds of the conflicts, in order."""
    return [row.kind for row in snapshot.conflicts]
