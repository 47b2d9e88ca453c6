"""Where a command's report comes from: the daemon, or one look at the host."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from agent.core.places import FULL_SOCKET, READ_ONLY_SOCKET, SOCKET_DIR, SOCKET_VARIABLE
from agent.core.report import GuestReport, Report
from agent.core.snapshot import Snapshot
from agent.core.topology import HostTopology
from agent.core.values import Value
from agent.core.words import plain
from agent.errors import DaemonUnavailable
from agent.formats.wall_time import rfc3339

if TYPE_CHECKING:  # what only one command needs
    from agent.client import LocalClient
    from agent.core.dry_run import FitAnswer
    from agent.core.instance import RequestSpec
    from agent.formats.envelope import Refusal

T = TypeVar("T")

FIT_TIMEOUT_S = 60.0
"""A fit on a busy host may wait for those before it."""

CHANGE_TIMEOUT_S = 60.0
"""A change waits for the disk, and longer than this the agent does not let anybody wait."""

DEFAULT_SOCKET = f"{SOCKET_DIR}/{READ_ONLY_SOCKET}"


class Source(Value, frozen=True, kw_only=True):
    """What the options say. socket None: the default, or a look if nobody is there. sysfs_root None: the live host."""

    socket: str | None = None
    sysfs_root: str | None = None
    direct: bool = False
    connection_uri: str | None = None
    config_files: tuple[str, ...] = ()

    def report(self, say: Callable[[str], None]) -> Report:
        """The daemon's report, or a look's where the options or a missing daemon ask for one; `say` is told which.

        Raises DaemonUnavailable, LibvirtUnavailable and the other AgentErrors, each with a sentence for the operator.
        """
        return self.ask() if self.should_ask_agent(say, lost="'since' is not known") else self.look()

    def snapshot(self, say: Callable[[str], None]) -> Snapshot:
        """The picture that the agent answers from, else a look's. Raises as `report`."""
        return self.ask_snapshot() if self.should_ask_agent(say) else self.look_snapshot()

    def should_ask_agent(self, say: Callable[[str], None], *, lost: str = "") -> bool:
        """Whether the agent is to be asked; `say` is told when it is missing and the host is looked at instead. lost:
        what only the agent would know."""
        if self.sysfs_root is not None or self.direct:
            return False
        if self.socket is None and not Path(DEFAULT_SOCKET).exists():
            end = f", {lost}" if lost else ""
            say(f"no compute-agent answers at {DEFAULT_SOCKET}: looking at the host directly{end}")
            return False
        return True

    def ask_snapshot(self) -> Snapshot:
        """The picture that the daemon answers from. Raises as `ask`."""
        from agent.formats.snapshot_file import FullSnapshot, restored

        return restored(self._client().value("/v1/snapshot", FullSnapshot))

    def look_snapshot(self) -> Snapshot:
        """The picture of one look. Raises as `look`."""
        from agent.look import one_snapshot

        return self._looked(one_snapshot)

    def ask(self) -> Report:
        """The daemon's report. Raises DaemonUnavailable and what else the client raises."""
        return self._client().value("/v1/report", Report)

    def ask_fit(self, spec: RequestSpec) -> FitAnswer | Refusal:
        """The daemon's answer to a request; a refusal where that has faults. Raises what the client raises."""
        from agent.core.dry_run import FitAnswer

        return self._client(FIT_TIMEOUT_S).ask("/v1/fit", spec, FitAnswer)

    def ask_topology(self) -> HostTopology:
        """The daemon's host. Raises as `ask`."""
        return self._client().value("/v1/topology", HostTopology)

    def changing_client(self) -> LocalClient:
        """Of the socket that may change things. Where the options name the one that may not, it is that in the same
        folder."""
        from agent.client import LocalClient

        return LocalClient(_full_socket(Path(self.socket or DEFAULT_SOCKET)), CHANGE_TIMEOUT_S)

    def reading_client(self) -> LocalClient:
        """Of the socket that was named, or the one that everybody may use."""
        return self._client()

    def _client(self, timeout_s: float = 5.0) -> LocalClient:
        from agent.client import LocalClient  # a look needs no http.client

        return LocalClient(Path(self.socket or DEFAULT_SOCKET), timeout_s)

    def look(self) -> Report:
        """One look at the host, without a daemon. Raises LibvirtUnavailable and others when it cannot see at all."""
        from agent.look import one_look  # sysfs, libvirt and processes: not for a question to the daemon

        return self._looked(one_look)

    def _looked(self, look: Callable[..., T]) -> T:
        if self.sysfs_root is not None and not Path(self.sysfs_root, "sys").is_dir():
            raise DaemonUnavailable(
                f"--sysfs-root {self.sysfs_root}: it has no folder sys. Give the folder that holds a recorded sys/."
            )
        # this machine's configuration says nothing about a recorded host
        files = self.config_files or (None if self.sysfs_root is None else ())
        return look(sysfs_root=self.sysfs_root or "/", connection_uri=self.connection_uri, config_files=files)


def add_options(
    parser: argparse.ArgumentParser,
    *,
    hidden_default: bool = False,
    agent: bool = True,
    host: bool = True,
    changes: bool = False,
) -> None:
    """The options that say where to look. hidden_default: do not set anything that was not given.

    agent, host: the command can ask the agent, can look at the host itself. changes: it needs the agent's other socket.
    """
    default = argparse.SUPPRESS if hidden_default else None
    titles = {
        (True, True): "the agent if it runs here, else the host itself",
        (True, False): "the agent alone, as only it knows this",
        (False, True): "the host itself, whether or not the agent runs here",
    }
    group = parser.add_argument_group("where to look", titles[agent, host])
    if agent:
        usual = str(_full_socket(Path(DEFAULT_SOCKET))) if changes else DEFAULT_SOCKET
        also = f"; for {READ_ONLY_SOCKET} it takes {FULL_SOCKET} beside it" if changes else ""
        group.add_argument(
            "--socket",
            metavar="PATH",
            default=default,
            help=f"ask the agent there (or ${SOCKET_VARIABLE}; default {usual}{also})",
        )
    if agent and host:
        group.add_argument(
            "--direct",
            action="store_true",
            default=default or False,
            help="do not ask the agent, look at the host itself",
        )
    if host:
        _add_host_options(group, default)


def _add_host_options(group: argparse._ArgumentGroup, default: str | None) -> None:
    group.add_argument(
        "--sysfs-root",
        metavar="DIR",
        default=default,
        help="look at a recorded host: DIR holds sys/; there are no guests then",
    )
    group.add_argument(
        "--connect",
        metavar="URI",
        default=default,
        help="libvirt's URI for a direct look, as for virsh -c (or from the configuration)",
    )
    group.add_argument(
        "--config-file",
        metavar="FILE",
        action="append",
        default=default,
        help="the agent's configuration for a direct look; repeat for more",
    )


def _full_socket(path: Path) -> Path:
    return path.with_name(FULL_SOCKET) if path.name == READ_ONLY_SOCKET else path


def from_options(options: argparse.Namespace) -> Source:
    """The options as a value; the environment names the socket when no option does."""
    return Source(
        socket=options.socket or os.environ.get(SOCKET_VARIABLE) or None,
        sysfs_root=options.sysfs_root,
        direct=options.direct,
        connection_uri=options.connect,
        config_files=tuple(options.config_file or ()),
    )


def started(guest: GuestReport) -> str | None:
    """When the guest's QEMU began, RFC 3339 in UTC, by this machine's clocks; None when it does not run.

    None too for a number that is no date, see `undated`.
    """
    started_at_s = guest.sighting.run.started_at_boot_s
    if started_at_s is None:
        return None
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started_at_s
    try:
        return rfc3339(time.time() - age_s)
    except (ValueError, OverflowError, OSError):
        return None


def undated(report: Report) -> tuple[str, ...]:
    """A sentence for each guest whose start is said to be at a number that is no date."""
    starts = [(guest, guest.sighting.run.started_at_boot_s) for guest in report.guests]
    return tuple(
        f"{plain(guest.sighting.name)}: its QEMU is said to run since {start:g} s after boot, which is no date"
        for guest, start in starts
        if start is not None and started(guest) is None
    )
