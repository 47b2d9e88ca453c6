"""The daemon: wires adapters, tracker and watch together, answers signals, and ends with a meaningful exit code.

Exit codes: 0 a clean stop; 2 the configuration is wrong; 3 another agent runs on the same state folder or socket;
4 the state folder cannot be used at all, or its journal is of a newer release.
"""

import sys

sys.modules["eventlet"] = None  # type: ignore[assignment]  # oslo imports it when installed: 8 MiB, 100 ms, and it patches

import logging
import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from agent import conf
from agent.adapters import own_cpus
from agent.adapters.http import READ_ONLY_SOCKET, LocalApi
from agent.adapters.journal import Journal, StateLock
from agent.adapters.libvirt import LibvirtHost
from agent.adapters.systemd import Notifier
from agent.adapters.udev import OVERFLOW, UdevMonitor
from agent.core.cpuset import CpuSet
from agent.core.snapshot import Identity, Snapshot, SourceState
from agent.errors import ConfigError, JournalError, JournalTooNew, LibvirtError, TwinRunning
from agent.handlers import Handlers
from agent.look import host_look, open_libvirt
from agent.render.welcome import welcome
from agent.reporter import report_pass, status_line
from agent.tracker import Tracker
from agent.watch import Watch

LOG = logging.getLogger(__name__)

EXIT_CONFIG, EXIT_TWIN, EXIT_JOURNAL = 2, 3, 4

ALIVE_EVERY_S = 5.0
"""How often the watching thread shows that it lives when no watchdog asks for it more often."""

STUCK_AFTER_INTERVALS = 6
STUCK_AFTER_CALLS = 4
"""Passes are called stuck when none ended for so many intervals and for as long as so many calls to libvirt may take:
a frozen libvirtd makes a pass wait for the list, the capabilities, the node devices and some domains."""

STOP_TIMEOUT_S = 5.0

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

DEFAULT_SOCKET_DIR = "/run/compute-agent"
SOCKET_VARIABLE = "COMPUTE_AGENT_SOCKET"
FEWEST_COLUMNS, MOST_COLUMNS = 80, 120


class Service:
    """One running daemon, from the lock on its state folder to the removal of its sockets."""

    def __init__(self, settings: conf.Settings, arguments: Sequence[str]) -> None:
        """Raises TwinRunning, JournalError, ConfigError; nothing is left behind then."""
        self._settings, self._arguments = settings, arguments
        self._notifier = Notifier.from_environment(os.environ)
        self._status = ""
        _hold_signals()
        state_path = Path(settings.state_path)
        self._lock = StateLock(state_path)
        self._journal, identity = _begin_journal(state_path)
        self._tracker = Tracker(
            identity=identity,
            config=settings.host_config,
            since=self._journal.conflict_since(),
            now=rfc3339_now,
        )
        self._libvirt = self._open_libvirt()
        self._look = host_look(settings, self._libvirt, sysfs_root=settings.sysfs_root)
        self._watch = Watch(
            look=self._look,
            current=lambda: self._tracker.snapshot,
            take_in=self._tracker.take_in,
            on_pass=self._after_pass,
            on_alive=self._feed_watchdog,
            clock=time.monotonic,
            interval_s=settings.interval_s,
            alive_every_s=self._notifier.watchdog_interval_s or ALIVE_EVERY_S,
        )
        self._udev = UdevMonitor(self._on_udev) if self._libvirt is not None else None
        self._pass_ended_at = time.monotonic()
        self._handlers = Handlers(
            snapshot=lambda: self._tracker.snapshot,
            clock=time.monotonic,
            now=rfc3339_now,
            interval_s=lambda: self._settings.interval_s,
            alive=self._why_stuck,
        )
        self._api = LocalApi(
            self._handlers.answer, self._handlers.refuse, Path(settings.socket_dir), settings.socket_group
        )

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT; SIGHUP reloads the configuration."""
        self._report_journal(self._journal.problem)
        self._api.start()
        try:
            self._first_look()
            self._notifier.ready(status_line(self._tracker.snapshot))
            self._watch.start()
            self._serve_signals()
        finally:
            self._stop()

    def _first_look(self) -> None:
        if self._udev is not None:
            self._udev.start()  # before the first look, so that nothing that changes after it is missed
        if self._libvirt is not None:
            self._connect(self._libvirt)
        snapshot = self._watch.one_pass()
        self._keep_off_guests_cpus()
        if not self._notifier.is_managed:
            self._welcome()
        LOG.info("started agent_id=%s epoch=%s", snapshot.identity.agent_id, snapshot.identity.epoch)

    def _welcome(self) -> None:
        width = min(MOST_COLUMNS, shutil.get_terminal_size((FEWEST_COLUMNS, 0)).columns)
        folder = self._settings.socket_dir
        sys.stdout.write(welcome(self._handlers.report(), sockets=folder, commands=next_commands(folder), width=width))
        sys.stdout.flush()

    def _connect(self, libvirt: LibvirtHost) -> None:
        try:
            libvirt.connect(timeout_s=self._settings.call_timeout_s)
        except LibvirtError as error:
            LOG.warning("libvirt is not there yet, it is tried again and again: %s", error)

    def _serve_signals(self) -> None:
        while signal.sigwait(SIGNALS) == signal.SIGHUP:
            self._reload()

    def _stop(self) -> None:
        self._notifier.stopping()
        LOG.info("stopping")
        if not self._watch.stop(STOP_TIMEOUT_S):
            LOG.warning("the running pass does not end, probably a hung call to libvirt; leaving without it")
        self._api.stop()
        if self._udev is not None:
            self._udev.stop()
        if self._libvirt is not None:
            self._libvirt.close()
        self._journal.close()
        self._lock.release()

    def _open_libvirt(self) -> LibvirtHost | None:
        if self._settings.sysfs_root != "/":
            return None
        return open_libvirt(
            self._settings,
            on_change=self._mark,
            on_device_change=lambda _name: self._watch.wake(),
            on_connected=lambda _number: self._watch.wake(),
            on_lost=lambda _sentence: self._watch.wake(),
        )

    def _mark(self, uuid: str) -> None:
        self._watch.mark(uuid)

    # --- after each pass ---------------------------------------------------------------------

    def _after_pass(self, before: Snapshot, after: Snapshot) -> None:
        self._pass_ended_at = time.monotonic()
        report_pass(before, after)
        self._tell_status(after)
        is_news = after.usage is not before.usage or not before.complete or after.source("journal").problem is not None
        # Before all sources were read once, a conflict that is not seen is not gone: its date must stay.
        if after.complete and is_news:
            self._remember({row.id: row.since for row in after.conflicts if row.since is not None})
        if self._udev is not None:
            self._report_source("udev", self._udev.problem)

    def _tell_status(self, snapshot: Snapshot) -> None:
        line = status_line(snapshot)
        if line != self._status:
            self._status = line
            self._notifier.status(line)

    def _remember(self, since: Mapping[str, str]) -> None:
        try:
            self._journal.remember_conflicts(since)
        except JournalError as error:
            self._report_journal(str(error))
        else:
            self._report_journal(self._journal.problem)

    def _report_journal(self, problem: str | None) -> None:
        self._report_source("journal", problem)

    def _report_source(self, name: str, problem: str | None) -> None:
        known = self._tracker.snapshot.source(name)
        if known.problem != problem or (problem is None and known.read_at is None):
            read_at = None if problem else time.monotonic()
            self._tracker.report_source(SourceState(name=name, read_at=read_at, problem=problem))

    def _feed_watchdog(self) -> None:
        if self._why_stuck() is None:
            self._notifier.watchdog()

    def _why_stuck(self) -> str | None:
        silent_s = time.monotonic() - self._pass_ended_at
        settings = self._settings
        if silent_s > max(STUCK_AFTER_INTERVALS * settings.interval_s, STUCK_AFTER_CALLS * settings.call_timeout_s):
            return f"no pass has ended for {silent_s:.0f} s: see the log for the call that hangs, restart compute-agent"
        return None if self._libvirt is None else self._libvirt.loop_problem

    # --- signals and events ------------------------------------------------------------------

    def _on_udev(self, reason: str) -> None:
        # what changed shows in sysfs; after an overflow that is no longer certain
        self._watch.wake(host=reason == OVERFLOW)

    def _reload(self) -> None:
        self._notifier.reloading()
        try:
            new = conf.reload(self._settings, self._arguments)
            conf.setup_logging(self._arguments)
        except ConfigError as error:
            for fault in error.faults:
                LOG.error("reload refused, the old configuration stays in force: %s", fault)
        else:
            self._apply(new)
        self._notifier.ready(status_line(self._tracker.snapshot))

    def _apply(self, settings: conf.Settings) -> None:
        self._settings = settings
        log_notes(settings)
        self._look.set_intervals(settings.interval_s, settings.deep_interval_s)
        self._watch.set_interval(settings.interval_s)
        self._tracker.configure(settings.host_config)
        self._keep_off_guests_cpus()
        self._watch.wake()
        LOG.info("reloaded the configuration")

    def _keep_off_guests_cpus(self) -> None:
        topology, config = self._tracker.snapshot.topology, self._settings.host_config
        ours = topology.usable - topology.isolated - (config.dedicated or CpuSet())
        if self._settings.sysfs_root != "/" or not ours:
            return
        problem = own_cpus.restrict(ours)
        if problem is not None:
            LOG.warning("%s", problem)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon, or check its configuration; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        settings = conf.load(arguments)
    except ConfigError as error:
        for fault in error.faults:
            sys.stderr.write(f"compute-agent: {fault}\n")
        return EXIT_CONFIG
    if settings.check_config:
        for line in (*conf.describe(settings), *settings.notes, *(f"warning: {text}" for text in settings.warnings)):
            sys.stdout.write(f"{line}\n")
        return 0
    try:
        conf.setup_logging(arguments)
    except ConfigError as error:
        sys.stderr.write(f"compute-agent: {error}\n")
        return EXIT_CONFIG
    log_notes(settings)
    return _run(settings, arguments)


def _run(settings: conf.Settings, arguments: Sequence[str]) -> int:
    try:
        Service(settings, arguments).run()
    except TwinRunning as error:
        LOG.error("%s", error)
        return EXIT_TWIN
    except JournalError as error:
        LOG.error("%s", error)
        return EXIT_JOURNAL
    except ConfigError as error:
        LOG.error("%s", error)
        return EXIT_CONFIG
    return 0


def log_notes(settings: conf.Settings) -> None:
    """What the configuration has to say about itself."""
    for note in settings.notes:
        LOG.info("%s", note)
    for warning in settings.warnings:
        LOG.warning("%s", warning)


def next_commands(socket_dir: str) -> tuple[str, ...]:
    """What somebody who started the daemon by hand can type in another shell, to be copied as it stands."""
    agentctl = "agentctl"
    if shutil.which(agentctl) is None:
        agentctl = str(Path(sys.executable).with_name(agentctl))
    elsewhere = socket_dir != DEFAULT_SOCKET_DIR
    export = (f"export {SOCKET_VARIABLE}={socket_dir}/{READ_ONLY_SOCKET}",) if elsewhere else ()
    return (*export, *(f"{agentctl} {words}" for words in ("status", "conflicts", "topology", "why 0")))


def _hold_signals() -> None:
    """Signals wait until `sigwait` takes them, in every thread that is started from now on.

    Not handlers: one that comes just before the main thread waits for a lock is not heard until the next signal, and
    one that takes a lock itself may dead-lock.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)  # a shell ignores SIGINT for what it starts in the background


def _begin_journal(state_path: Path) -> tuple[Journal, Identity]:
    """A disk that takes no writes costs what would be kept, never the view of the host. Raises JournalTooNew."""
    try:
        journal = Journal.open(state_path)
        try:
            return journal, journal.begin(_boot_id())
        except JournalError:
            journal.close()
            raise
    except JournalTooNew:
        raise
    except JournalError as error:
        LOG.error("%s", error)
        journal = Journal.unstored(state_path, str(error))
        return journal, journal.begin(_boot_id())


def rfc3339_now() -> str:
    """Wall time in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


if __name__ == "__main__":
    sys.exit(main())
