"""Reads a host: sysfs, libvirt, processes. One class serves the daemon's passes and a single look without a daemon."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

import msgspec

from agent import conf
from agent.adapters.libvirt import LibvirtConnection, LibvirtHost, Patience
from agent.adapters.processes import QemuProcesses
from agent.adapters.sysfs.files import Read, read_file
from agent.core.ledger import Listing
from agent.core.report import Report, report
from agent.core.snapshot import Findings, Identity, Snapshot, Wish, first, take_in
from agent.look.domains import Domains, DomainsLook
from agent.look.topology import HostDescription, TopologyLook

SYSTEM_RUN_DIR = Path("/run/libvirt/qemu")

NO_GUESTS = Listing(connection=0, begun_at=0.0, complete=True)
"""What a recorded tree tells of guests."""


class Libvirt(Domains, HostDescription, Protocol):
    """All that is read from libvirt; `LibvirtHost` is one."""


class HostLook:
    """libvirt None: a recorded tree is read, which has no guests. has_processes: an active guest of this libvirt is a
    QEMU process. read, sleep: as of `sysfs.discover`."""

    def __init__(
        self,
        *,
        sysfs_root: Path,
        libvirt: Libvirt | None,
        processes: QemuProcesses,
        clock: Callable[[], float],
        interval_s: float,
        deep_interval_s: float,
        has_processes: bool = True,
        read: Read = read_file,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._topology = TopologyLook(
            sysfs_root, libvirt, clock=clock, deep_interval_s=deep_interval_s, read=read, sleep=sleep
        )
        self._domains = None
        if libvirt is not None:
            self._domains = DomainsLook(
                libvirt,
                processes,
                clock=clock,
                interval_s=interval_s,
                deep_interval_s=deep_interval_s,
                has_processes=has_processes,
            )

    def set_intervals(self, interval_s: float, deep_interval_s: float) -> None:
        """Share the work out anew over passes that come this often; from any thread."""
        self._topology.deep_interval_s = deep_interval_s
        if self._domains is not None:
            self._domains.interval_s, self._domains.deep_interval_s = interval_s, deep_interval_s

    def findings(self, snapshot: Snapshot, wish: Wish) -> Findings:
        """What one pass finds. Never raises over what it sees: what cannot be read is a source's problem."""
        topology, sources = self._topology.look(deep=wish.host)
        if self._domains is None:
            return Findings(topology=topology, sources=sources, listing=NO_GUESTS)
        found = self._domains.look(snapshot.ledger, wish)
        return msgspec.structs.replace(found, topology=topology, sources=sources + found.sources)


def one_look(
    *, sysfs_root: str = "/", connection_uri: str | None = None, config_files: Sequence[str] | None = None
) -> Report:
    """What `one_snapshot` tells, as a report. Conflicts have no `since`."""
    settings = _settings(connection_uri, config_files)
    snapshot = _snapshot(settings, sysfs_root)
    return report(snapshot, now_s=time.monotonic(), interval_s=settings.interval_s)


def one_snapshot(
    *, sysfs_root: str = "/", connection_uri: str | None = None, config_files: Sequence[str] | None = None
) -> Snapshot:
    """Look once, without a daemon: the same code, and nothing is kept.

    sysfs_root: with another than "/", libvirt, udev and processes are not asked. connection_uri None: as configured.
    config_files None: the daemon's own file when it is there. Raises ConfigError; LibvirtUnavailable when guests cannot
    be seen at all.
    """
    return _snapshot(_settings(connection_uri, config_files), sysfs_root)


def _settings(connection_uri: str | None, config_files: Sequence[str] | None) -> conf.Settings:
    arguments = [] if connection_uri is None else ["--connection-uri", connection_uri]
    return conf.load(arguments, default_config_files=config_files)


def _snapshot(settings: conf.Settings, sysfs_root: str) -> Snapshot:
    snapshot = first(Identity(agent_id="", boot_id="", epoch=0), settings.host_config)
    libvirt = None if sysfs_root != "/" else open_libvirt(settings)
    look = host_look(settings, libvirt, sysfs_root=sysfs_root)
    try:
        if libvirt is not None:
            libvirt.connect(timeout_s=settings.call_timeout_s)
        # twice: the second look proves what the first could only suspect of a guest that was just starting or stopping
        for _ in range(1 if libvirt is None else 2):
            snapshot = take_in(snapshot, look.findings(snapshot, Wish()))
    finally:
        if libvirt is not None:
            libvirt.close()
    return snapshot


def open_libvirt(
    settings: conf.Settings,
    *,
    on_change: Callable[[str], None] = lambda _uuid: None,
    on_device_change: Callable[[str], None] = lambda _name: None,
    on_connected: Callable[[int], None] = lambda _number: None,
    on_lost: Callable[[str], None] = lambda _sentence: None,
) -> LibvirtHost:
    """The configured libvirt, not yet connected; the callbacks run in its threads."""
    patience = Patience(
        call_timeout_s=settings.call_timeout_s,
        open_timeout_s=settings.call_timeout_s,
        keepalive_interval_s=settings.keepalive_interval_s,
        keepalive_count=settings.keepalive_count,
    )
    connection = LibvirtConnection(
        settings.connection_uri,
        patience=patience,
        workers=settings.libvirt_workers,
        on_change=on_change,
        on_device_change=on_device_change,
        on_connected=on_connected,
        on_lost=on_lost,
    )
    return LibvirtHost(connection)


def host_look(settings: conf.Settings, libvirt: LibvirtHost | None, *, sysfs_root: str) -> HostLook:
    """A look at the host that these settings describe."""
    return HostLook(
        sysfs_root=Path(sysfs_root),
        libvirt=libvirt,
        processes=QemuProcesses(pid_dir=pid_dir(settings.connection_uri)),
        clock=time.monotonic,
        interval_s=settings.interval_s,
        deep_interval_s=settings.deep_interval_s,
        has_processes=settings.connection_uri.startswith("qemu"),
    )


def pid_dir(connection_uri: str) -> Path:
    """Where the QEMU driver behind this URI keeps its pid files: beside its socket when the URI names one."""
    named = parse_qs(urlsplit(connection_uri).query).get("socket")
    return Path(named[0]).parent / "qemu" if named else SYSTEM_RUN_DIR
