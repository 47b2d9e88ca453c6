"""The agent's own look, tracker and watch over libvirt's test driver, whose guests live in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent.adapters.libvirt import LibvirtConnection, LibvirtHost
from agent.adapters.libvirt.binding import load_libvirt
from agent.adapters.processes import QemuProcesses
from agent.core.cpuset import CpuSet
from agent.core.host_config import HostConfig
from agent.core.snapshot import Identity
from agent.look import HostLook
from agent.reporter import report_pass
from agent.tracker import Tracker
from agent.watch import Watch
from tests import moments
from tests.bench.guests import guest_xml, uuid_of
from tests.recorded_hosts import recorded_host

URI = "test:///default"
"""One driver for the whole process: what is made over a writable connection is seen over the agent's own."""

INTERVAL_S, DEEP_INTERVAL_S = 10.0, 300.0
HOST = "256ppc-8n8s4t"
CPUS, CPUS_OF_CELL = 256, 32
CONFIG = HostConfig(dedicated=CpuSet(range(8, CPUS)), shared=CpuSet(range(8)))
SETTLED_S = 4.0
"""A list on a connection younger than 3 s is no proof of absence."""


class Agent:
    """A new agent that knows nothing yet, over an open connection. Its watch's clock stands still, so that no pass is
    the timed one by chance."""

    def __init__(self, root: Path, libvirt: LibvirtHost) -> None:
        self._watch_s = 0.0
        self.tracker = Tracker(
            identity=Identity(agent_id="bench", boot_id="boot", epoch=1),
            config=CONFIG,
            since={},
            moment=moments.at,
        )
        look = HostLook(
            sysfs_root=root,
            libvirt=libvirt,
            processes=QemuProcesses(),
            clock=time.monotonic,
            interval_s=INTERVAL_S,
            deep_interval_s=DEEP_INTERVAL_S,
        )
        self.watch = Watch(
            look=look,
            current=lambda: self.tracker.snapshot,
            take_in=self.tracker.take_in,
            on_pass=report_pass,
            clock=lambda: self._watch_s,
            interval_s=INTERVAL_S,
        )

    def make_timed_pass_due(self) -> None:
        """The next pass is a timed one, which reads its share of the oldest definitions again."""
        self._watch_s += INTERVAL_S


class TestDriver:
    """Guests on the test driver. raw: a writable connection of our own."""

    __test__ = False

    def __init__(self, raw: Any, libvirt: LibvirtHost, root: Path) -> None:
        self.raw, self.libvirt, self.root = raw, libvirt, root
        self._agent: Agent | None = None

    def run_anew(self, number: int, cpus: Sequence[int]) -> None:
        """End guest `number` and start it on these CPUs."""
        self.raw.lookupByUUIDString(uuid_of(number)).destroy()
        self.raw.createXML(guest_xml(number, cpus, cell=cpus[0] // CPUS_OF_CELL, driver="test"), 0)

    def run_many(self, count: int) -> None:
        """Guests 0 to count - 1 of two vCPUs each; beyond 124 of them the pins overlap."""
        for number in range(count):
            first = 8 + 2 * number % (CPUS - 8)
            cpus = (first, first + 1)
            self.raw.createXML(guest_xml(number, cpus, cell=first // CPUS_OF_CELL, driver="test"), 0)

    def agent(self) -> Agent:
        """A new agent over the one connection."""
        self._agent = None  # or the collector would have two agents' guests to visit
        self._agent = Agent(self.root, self.libvirt)
        return self._agent

    def mark(self, uuid: str) -> None:
        """Events reach the newest agent."""
        if self._agent is not None:
            self._agent.watch.mark(uuid)


@contextmanager
def test_driver(guests: int) -> Iterator[TestDriver]:
    """So many running guests on a recorded host of 256 CPUs."""
    libvirt = load_libvirt()
    drivers: list[TestDriver] = []

    def mark(uuid: str) -> None:
        for one in drivers:
            one.mark(uuid)

    host = LibvirtHost(LibvirtConnection(URI, on_change=mark))
    host.connect(10.0)
    raw = libvirt.open(URI)
    try:
        with recorded_host(HOST) as root:
            driver = TestDriver(raw, host, root)
            raw.lookupByName("test").destroy()  # the driver comes with a guest of its own
            raw.lookupByName("test").undefine()
            driver.run_many(guests)
            time.sleep(SETTLED_S)
            drivers.append(driver)
            yield driver
    finally:
        raw.close()
        host.close()
