"""What the host has: discovered from sysfs, verified against libvirt, and only looked at again when something moved."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from agent.adapters import sysfs
from agent.adapters.libvirt import NodeDevices
from agent.adapters.sysfs.files import Read, read_file
from agent.core.snapshot import SourceState
from agent.core.topology import HostTopology, replace_problems
from agent.core.values import Problem
from agent.errors import FormatError, LibvirtError
from agent.formats.host_xml import (
    NodeDevice,
    complete_devices,
    device_disagreements,
    disagreements,
    read_capabilities,
    read_node_device,
)

VERIFICATIONS = 2
"""After a change, libvirt is compared in this pass and in the next: udev may have told libvirt later than us."""

VERIFY_AGAIN_S = 60.0
"""When libvirt gave no answer, so much later: a call that hangs costs it a worker each time."""


class HostDescription(Protocol):
    """What libvirt tells of the host; `agent.adapters.libvirt.LibvirtHost` is one, and tells what is raised."""

    @property
    def is_connected(self) -> bool:
        """A connection is open, as far as is known."""
        ...

    @property
    def connection_number(self) -> int:
        """Number of the last connection that was made."""
        ...

    def capabilities_xml(self) -> str:
        """The capabilities XML of the host."""
        ...

    def node_device_xmls(self) -> NodeDevices:
        """XML of the PCI, mediated and vDPA devices."""
        ...


class TopologyLook:
    """libvirt None: sysfs alone is read (a recorded tree). deep_interval_s: discover again so often whatever the
    fingerprint says. read, sleep: as of `sysfs.discover`."""

    def __init__(
        self,
        root: Path,
        libvirt: HostDescription | None,
        *,
        clock: Callable[[], float],
        deep_interval_s: float,
        read: Read = read_file,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._root, self._libvirt, self._clock = root, libvirt, clock
        self.deep_interval_s = deep_interval_s
        self._read, self._sleep = read, sleep
        self._facts: Hashable = None
        self._discovered: HostTopology | None = None
        self._discovered_at = 0.0
        self._failure: str | None = None
        self._was_whole = False
        self._is_owed = False
        self._verified_over = 0
        self._verifications_left = VERIFICATIONS
        self._verify_again_at: float | None = None

    def look(self, *, deep: bool) -> tuple[HostTopology | None, tuple[SourceState, ...]]:
        """The topology if it may have changed, else None; and the state of the sources that were asked."""
        now = self._clock()
        facts = sysfs.changing_facts(self._root, read=self._read)
        too_old = now - self._discovered_at >= self.deep_interval_s
        moved = self._discovered is None or deep or too_old or self._is_owed or facts != self._facts
        if moved or self._failure is not None or (self._discovered is not None and self._discovered.is_partial):
            moved = self._discover(moved)
        if moved:
            self._facts, self._discovered_at = facts, now
            self._verifications_left = VERIFICATIONS
        states = (self._state(now),)
        if self._discovered is None or not (moved or self._must_verify(now)):
            return None, states
        if not self._was_whole:
            return self._discovered, states
        verified, verdicts = self._verify(self._discovered)
        return verified, states + verdicts

    def _discover(self, moved: bool) -> bool:
        """Whether there is something new to tell. A look that failed replaces none that did not."""
        reading = sysfs.read_host(self._root, read=self._read, sleep=self._sleep)
        self._failure = reading.failure
        self._is_owed = moved and reading.failure is not None
        if reading.failure is not None and self._was_whole:
            return False
        moved = moved or reading.topology != self._discovered
        self._discovered, self._was_whole = reading.topology, reading.failure is None
        return moved

    def _state(self, now: float) -> SourceState:
        if self._failure is None:
            return SourceState(name="sysfs", read_at=now)
        in_part = self._discovered is not None and self._discovered.cpus
        shown = "the host is known in part alone" if in_part else "the host is not known"
        if self._was_whole:
            shown = "what was last known of the host is shown"
        return SourceState(name="sysfs", problem=f"{self._failure}; {shown}")

    def _must_verify(self, now: float) -> bool:
        if self._libvirt is None or not self._libvirt.is_connected:
            return False
        again = self._verify_again_at is not None and now >= self._verify_again_at
        return again or self._verifications_left > 0 or self._verified_over != self._libvirt.connection_number

    def _verify(self, topology: HostTopology) -> tuple[HostTopology, tuple[SourceState, ...]]:
        if self._libvirt is None:
            return topology, ()
        self._verified_over = self._libvirt.connection_number
        self._verifications_left -= 1
        topology, capabilities = self._verify_capabilities(self._libvirt, topology)
        topology, devices = self._verify_devices(self._libvirt, topology)
        failed = capabilities.problem is not None or devices.problem is not None
        self._verify_again_at = self._clock() + VERIFY_AGAIN_S if failed else None
        return topology, (capabilities, devices)

    def _verify_capabilities(
        self, libvirt: HostDescription, topology: HostTopology
    ) -> tuple[HostTopology, SourceState]:
        try:
            told = read_capabilities(libvirt.capabilities_xml())
        except (LibvirtError, FormatError) as error:
            return topology, SourceState(name="capabilities", problem=str(error))
        state = SourceState(name="capabilities", read_at=self._clock())
        return _with(topology, disagreements(topology, told)), state

    def _verify_devices(self, libvirt: HostDescription, topology: HostTopology) -> tuple[HostTopology, SourceState]:
        try:
            found = libvirt.node_device_xmls()
        except LibvirtError as error:
            return topology, SourceState(name="nodedev", problem=str(error))
        devices: list[NodeDevice] = []
        problems = [_unread(name, why) for name, why in sorted(found.failed.items())]
        for name, text in sorted(found.xmls.items()):
            try:
                devices.append(read_node_device(text))
            except FormatError as error:
                problems.append(_unread(name, str(error)))
        problems += device_disagreements(topology, devices)
        state = SourceState(name="nodedev", read_at=self._clock())
        return _with(complete_devices(topology, devices), tuple(problems)), state


def _with(topology: HostTopology, problems: tuple[Problem, ...]) -> HostTopology:
    return replace_problems(topology, topology.problems + problems) if problems else topology


def _unread(name: str, why: str) -> Problem:
    return Problem(
        source="libvirt node devices",
        what=f"node device {name} could not be read, so sysfs alone is believed",
        values=MappingProxyType({"libvirt": why}),
    )
