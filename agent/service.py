"""The daemon: wires adapters, tracker and watch together, answers signals, and ends with a meaningful exit code.

Exit codes: 0 a clean stop; 1 the local API cannot be served; 2 the configuration is wrong; 3 another agent runs on the
same state folder or socket; 4 the state folder cannot be used at all, or its journal is of a newer release.
"""

import sys

sys.modules["eventlet"] = None  # type: ignore[assignment]  # oslo imports it when installed: 8 MiB, 100 ms, and it patches

import contextlib
import logging
import os
import queue
import shlex
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from agent import conf
from agent.adapters import own_cpus
from agent.adapters.http import LocalApi
from agent.adapters.journal import Journal, StateLock, Store, Stored
from agent.adapters.libvirt import LibvirtHost
from agent.adapters.systemd import Notifier
from agent.adapters.udev import UdevMonitor
from agent.claims import Claims
from agent.conf.settings import DEFAULT_FILE
from agent.core.claim.book import Draft
from agent.core.claim.restore import book_of, restarted
from agent.core.claim.values import Moment
from agent.core.conflicts import Since, dates
from agent.core.cpuset import CpuSet
from agent.core.places import LIBVIRT_VARIABLE, READ_ONLY_SOCKET, SOCKET_DIR, SOCKET_VARIABLE, SYSTEM_LIBVIRT
from agent.core.report import health, is_ready
from agent.core.snapshot import Identity, Snapshot, SourceState
from agent.core.words import plain_lines
from agent.errors import AgentError, ConfigError, JournalError, JournalTooNew, LibvirtError, TwinRunning
from agent.formats.wall_time import rfc3339
from agent.handlers import TABLE, Handlers, LatestHostFacts
from agent.look import host_look, open_libvirt
from agent.render.welcome import cpu_in_conflict, welcome
from agent.reporter import report_pass, status_line
from agent.tracker import Tracker
from agent.watch import Watch

LOG = logging.getLogger(__name__)

EXIT_UNAVAILABLE, EXIT_CONFIG, EXIT_TWIN, EXIT_JOURNAL = 1, 2, 3, 4

FEED_EVERY_S = 10.0
"""How often the main thread says that the daemon lives when no watchdog asks for it more often."""

STUCK_AFTER_INTERVALS = 2
STUCK_AFTER_CALLS = 4
"""Passes are called stuck when none ended for so many intervals and, on top, as long as so many calls to libvirt may
take: a frozen libvirtd makes a pass wait for the list, the capabilities, the node devices and some domains."""

FROZEN_S = 5.0
"""When the main thread has its turn so much later than it should, the process or the whole host was frozen."""

STOP_TIMEOUT_S = 5.0

REFUSED = "reload refused, the old configuration stays in force"

ENDING = (signal.SIGTERM, signal.SIGINT)
SIGNALS = (*ENDING, signal.SIGHUP)

FEWEST_COLUMNS, MOST_COLUMNS = 80, 120


class Service:
    """One running daemon, from the lock on its state folder to the removal of its sockets."""

    def __init__(self, settings: conf.Settings, arguments: Sequence[str]) -> None:
        """Raises TwinRunning, JournalError; nothing is left behind then."""
        self._settings, self._arguments = settings, arguments
        self._notifier = Notifier.from_environment(os.environ)
        self._status = ""
        self._is_ready = self._is_stopping = False
        self._turns = threading.RLock()
        """One of these at a time: the first pass begins the service, a signal reloads or ends it."""
        with contextlib.ExitStack() as undo:
            state_path = Path(settings.state_path)
            lock = StateLock(state_path)
            undo.callback(lock.release)
            damaged = self._open_books(state_path, lock, undo)
            self._libvirt = self._open_libvirt(undo)
            self._udev = UdevMonitor(self._on_udev) if self._libvirt is not None else None
            self._look = host_look(settings, self._libvirt, sysfs_root=settings.sysfs_root)
            self._watch = Watch(
                look=self._look,
                current=lambda: self._tracker.snapshot,
                take_in=self._tracker.take_in,
                on_pass=self._after_pass,
                clock=time.monotonic,
                interval_s=settings.interval_s,
            )
            self._pass_ended_at = time.monotonic()
            self._serve(damaged)
            self._undo = undo.pop_all()

    def _open_books(self, state_path: Path, lock: StateLock, undo: contextlib.ExitStack) -> str | None:
        """Take up what the journal has. What was lost of it, one sentence; None: nothing."""
        store, identity, since, stored = _begin(state_path, lock)
        self._journal = Journal(store)
        undo.callback(self._journal.close, STOP_TIMEOUT_S)
        self._tracker = Tracker(
            identity=identity,
            config=self._settings.host_config,
            since=since,
            moment=lambda: moment(identity.boot_id),
            journal=self._journal,
            book=book_of(stored.records, stored.sequence),
            rules=self._settings.claim_rules,
        )
        self._tracker.transact(_began)
        return stored.damaged

    def _serve(self, damaged: str | None) -> None:
        """Make what answers callers."""
        self._claims = Claims(
            self._tracker,
            self._journal,
            host=self._settings.host,
            facts=LatestHostFacts().of,
            why_blind=self._why_not_known,
            reread=self._mark,
            damaged=damaged,
        )
        self._handlers = Handlers(
            snapshot=lambda: self._tracker.snapshot,
            clock=time.monotonic,
            now=rfc3339_now,
            interval_s=lambda: self._settings.interval_s,
            alive=self._why_blind,
            claims=self._claims,
            why_not_stored=lambda: self._journal.problem,
        )
        self._api = LocalApi(
            self._handlers.answer,
            self._handlers.refuse,
            Path(self._settings.socket_dir),
            self._settings.socket_group,
            table=TABLE,
        )

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT, which `hold_signals` has kept for us; SIGHUP reloads the configuration.

        Raises TwinRunning, ConfigError when the sockets cannot be used. However it ends, all is undone.
        """
        with self._undo as undo:
            self._report_journal()
            self._api.start()
            undo.callback(self._api.stop)
            if self._udev is not None:
                self._udev.start()  # before the first look, so that nothing that changes after it is missed
                undo.callback(self._udev.stop)
            self._watch.start(self._connect)
            undo.callback(self._stop_watching)
            undo.callback(self._say_stopping)
            self._serve_signals()

    def why_stuck(self) -> str | None:
        """Why the daemon no longer does its work, which only a restart cures; None: it does."""
        ended = None if self._api.is_serving else "the local API has ended: see the log, restart compute-agent"
        return self._why_blind() or ended

    def _why_blind(self) -> str | None:
        silent_s = time.monotonic() - self._pass_ended_at
        settings = self._settings
        if silent_s > STUCK_AFTER_INTERVALS * settings.interval_s + STUCK_AFTER_CALLS * settings.call_timeout_s:
            return f"no pass has ended for {silent_s:.0f} s: see the log for the call that hangs, restart compute-agent"
        return None if self._libvirt is None else self._libvirt.loop_problem

    def _why_not_known(self, snapshot: Snapshot) -> str | None:
        """Why nobody can be admitted; None: the host is known well enough."""
        now_s, interval_s = time.monotonic(), self._settings.interval_s
        if is_ready(snapshot, now_s=now_s, interval_s=interval_s):
            return None
        reasons = health(snapshot, now_s=now_s, interval_s=interval_s).reasons
        return " ".join(("The host is not known well enough to admit anybody yet, ask again soon.", *reasons))

    def _serve_signals(self) -> None:
        every_s = self._notifier.watchdog_interval_s or FEED_EVERY_S
        signals, turn_at = taken_signals(), time.monotonic()
        while True:
            taken = next_signal(signals, every_s)
            before, turn_at = turn_at, time.monotonic()
            if turn_at - before > every_s + FROZEN_S:  # nobody had a turn: the pass that is due gets its time anew
                self._pass_ended_at = turn_at
            if self.why_stuck() is None:
                self._show_life(2 * every_s)
            if taken is not None and taken in ENDING:
                LOG.info("asked to end signal=%s", taken.name)
                return
            if taken is not None:
                self._reload()

    def _show_life(self, for_s: float) -> None:
        if self._is_ready:
            self._notifier.watchdog()
        else:
            self._notifier.starting(for_s)

    def _say_stopping(self) -> None:
        with self._turns:
            self._is_stopping = True
            self._notifier.stopping()
            LOG.info("stopping")

    def _stop_watching(self) -> None:
        if not self._watch.stop(STOP_TIMEOUT_S):
            LOG.warning("the running pass does not end, probably a hung call to libvirt; leaving without it")

    def _open_libvirt(self, undo: contextlib.ExitStack) -> LibvirtHost | None:
        if self._settings.sysfs_root != "/":
            return None
        libvirt = open_libvirt(
            self._settings,
            on_change=self._mark,
            on_device_change=lambda _name: self._watch.wake(),
            on_connected=lambda _number: self._watch.wake(),
            on_lost=lambda _sentence: self._watch.wake(),
        )
        undo.callback(libvirt.close)
        return libvirt

    def _mark(self, uuid: str) -> None:
        self._watch.mark(uuid)

    def _connect(self) -> None:
        if self._libvirt is None:
            return
        try:
            self._libvirt.connect(timeout_s=self._settings.call_timeout_s)
        except LibvirtError as error:
            LOG.warning("libvirt is not there yet, it is tried again and again: %s", error)

    # --- after each pass ---------------------------------------------------------------------

    def _after_pass(self, before: Snapshot, after: Snapshot) -> None:
        self._pass_ended_at = time.monotonic()
        self._journal.check()
        report_pass(before, after)
        self._tell_status(after)
        is_news = after.usage is not before.usage or not before.complete or self._journal.problem is not None
        # Before all sources were read once, a conflict that is not seen is not gone: its date must stay.
        if after.complete and is_news:
            with contextlib.suppress(JournalError):  # closed: this pass has outlived a stop that did not wait for it
                self._journal.remember_conflicts(dates(after.conflicts))
        self._report_journal()
        if self._udev is not None:
            self._report_source("udev", self._udev.problem)
        if not self._is_ready:
            self._begin_service(after)

    def _begin_service(self, snapshot: Snapshot) -> None:
        with self._turns:
            if self._is_stopping:
                return
            self._is_ready = True
            self._keep_off_guests_cpus()
            if not self._notifier.is_managed:
                self._welcome()
            LOG.info("started agent_id=%s epoch=%s", snapshot.identity.agent_id, snapshot.identity.epoch)
            self._notifier.ready(status_line(snapshot))

    def _welcome(self) -> None:
        width = min(MOST_COLUMNS, shutil.get_terminal_size((FEWEST_COLUMNS, 0)).columns)
        folder = self._settings.socket_dir
        report = self._handlers.report()
        commands = next_commands(self._settings, cpu_in_conflict(report))
        text = welcome(report, sockets=folder, commands=commands, width=width)
        with contextlib.suppress(OSError):  # nobody reads it
            sys.stdout.write(text)
            sys.stdout.flush()

    def _tell_status(self, snapshot: Snapshot) -> None:
        line = status_line(snapshot)
        if line != self._status:
            self._status = line
            self._notifier.status(line)

    def _report_journal(self) -> None:
        self._claims.settle_damage()
        self._report_source("journal", self._journal.problem or self._claims.damaged)

    def _report_source(self, name: str, problem: str | None) -> None:
        known = self._tracker.snapshot.source(name)
        if known.problem != problem or (problem is None and known.read_at is None):
            read_at = None if problem else time.monotonic()
            self._tracker.report_source(SourceState(name=name, read_at=read_at, problem=problem))

    # --- signals and events ------------------------------------------------------------------

    def _on_udev(self, lost: bool) -> None:
        # what changed shows in sysfs; after an overflow that is no longer certain
        self._watch.wake(host=lost)

    def _reload(self) -> None:
        is_told = self._is_ready  # before that the service manager waits for the start, not for a reload
        if is_told:
            self._notifier.reloading()
        try:
            new, own = conf.reload(self._settings, self._arguments)
            conf.setup_logging(own)
        except ConfigError as error:
            for fault in error.faults:
                LOG.error("%s: %s", REFUSED, fault)
        except Exception:  # the top of the main thread: a fault of ours while a file is read ends no daemon
            LOG.exception(REFUSED)
        else:
            self._apply(new)
        if is_told:
            self._notifier.ready(status_line(self._tracker.snapshot))

    def _apply(self, settings: conf.Settings) -> None:
        self._settings = settings
        log_notes(settings)
        self._look.set_intervals(settings.interval_s, settings.deep_interval_s)
        self._watch.set_interval(settings.interval_s)
        self._tracker.configure(settings.host_config, settings.claim_rules)
        self._keep_off_guests_cpus()
        self._watch.wake()
        LOG.info("reloaded the configuration")

    def _keep_off_guests_cpus(self) -> None:
        with self._turns:
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
        settings, own = conf.read(arguments)
    except ConfigError as error:
        for fault in error.faults:
            sys.stderr.write(plain_lines(f"compute-agent: {fault}\n"))
        return EXIT_CONFIG
    if settings.check_config:
        for line in (*conf.describe(settings), *settings.notes, *(f"warning: {text}" for text in settings.warnings)):
            sys.stdout.write(plain_lines(f"{line}\n"))
        return 0
    try:
        conf.setup_logging(own)
    except ConfigError as error:
        sys.stderr.write(plain_lines(f"compute-agent: {error}\n"))
        return EXIT_CONFIG
    log_notes(settings)
    return _run(settings, arguments)


def _run(settings: conf.Settings, arguments: Sequence[str]) -> int:
    hold_signals()
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
    except AgentError as error:
        LOG.error("%s", error)
        return EXIT_UNAVAILABLE
    return 0


def log_notes(settings: conf.Settings) -> None:
    """What the configuration has to say about itself."""
    for note in settings.notes:
        LOG.info("%s", note)
    for warning in settings.warnings:
        LOG.warning("%s", warning)


def next_commands(settings: conf.Settings, cpu: str) -> tuple[str, ...]:
    """What somebody who started the daemon by hand can type in another shell, as it stands. cpu: one to ask about."""
    programs = shlex.quote(str(Path(sys.executable).parent))
    path = () if shutil.which("agentctl") else (f"export PATH={programs}:$PATH",)
    sock = shlex.quote(f"{settings.socket_dir}/{READ_ONLY_SOCKET}")
    export = (f"export {SOCKET_VARIABLE}={sock}",) if settings.socket_dir != SOCKET_DIR else ()
    curl = (f"curl -sS --unix-socket {sock} http://agent/v1/conflicts",) if shutil.which("curl") else ()
    libvirt = settings.connection_uri
    virsh = (f"export {LIBVIRT_VARIABLE}={shlex.quote(_writable(libvirt))}",) if libvirt != SYSTEM_LIBVIRT else ()
    words = ("status", "conflicts", "topology", f"why {cpu}", shlex.join(["check", *_where_to_look(settings)]))
    return (*path, *export, *virsh, *(f"agentctl {some}" for some in words), *curl)


def _writable(uri: str) -> str:
    """For virsh, which defines and starts guests: a libvirtd that is named by its read-only socket has another."""
    return uri.replace("-sock-ro", "-sock")


def _where_to_look(settings: conf.Settings) -> Iterator[str]:
    """The options with which agentctl sees for itself what this daemon sees."""
    if settings.sysfs_root != "/":
        yield from ("--sysfs-root", settings.sysfs_root)
    elif settings.connection_uri != SYSTEM_LIBVIRT:
        yield from ("--connect", settings.connection_uri)
    for file in settings.config_files if settings.config_files != (DEFAULT_FILE,) else ():
        yield from ("--config-file", str(Path(file).absolute()))


def hold_signals() -> None:
    """Signals wait until the service takes them, in every thread that is started from now on.

    Not handlers: one that comes just before the main thread waits for a lock is not heard until the next signal, and
    one that takes a lock itself may dead-lock.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)  # a shell ignores SIGINT for what it starts in the background


def taken_signals() -> queue.Queue[signal.Signals]:
    """Where a thread puts each of SIGNALS that comes, one at a time: those that come meanwhile are as many as one.

    Not sigtimedwait: of a process that was stopped and goes on after the time is over, Python 3.11 has it return a
    signal that nobody sent, made of what lay in memory.
    """
    taken: queue.Queue[signal.Signals] = queue.Queue(maxsize=1)

    def take() -> None:
        while True:
            taken.put(signal.Signals(signal.sigwait(SIGNALS)))

    threading.Thread(target=take, name="signals", daemon=True).start()
    return taken


def next_signal(taken: queue.Queue[signal.Signals], timeout_s: float) -> signal.Signals | None:
    """The next that has come, None when none does in time."""
    try:
        return taken.get(timeout=timeout_s)
    except queue.Empty:
        return None


def _begin(state_path: Path, lock: StateLock) -> tuple[Store, Identity, dict[str, Since], Stored]:
    """The journal of this start, who we are, since when conflicts stand, and what was promised.

    A disk that takes no writes costs what would be kept, never the view of the host. Raises JournalTooNew.
    """
    try:
        store = Store.open(state_path, lock=lock)
        try:
            return store, store.begin(_boot_id()), store.conflict_since(), store.load()
        except JournalError:
            store.close()
            raise
    except JournalTooNew:
        raise
    except JournalError as error:
        LOG.error("%s", error)
        store = Store.unstored(state_path, str(error), lock=lock)
        return store, store.begin(_boot_id()), store.conflict_since(), store.load()


def _began(_current: Snapshot, draft: Draft) -> None:
    """What a start of the agent does to the claims that it finds."""
    boot = draft.book.boot
    restarted(draft, None if boot is None else boot.boot_id)
    draft.begin_boot()


def moment(boot_id: str) -> Moment:
    """Now, by every clock."""
    wall_s = time.time()
    return Moment(boot_id=boot_id, monotonic_s=time.monotonic(), wall_s=wall_s, wall=rfc3339(wall_s))


def rfc3339_now() -> str:
    """Wall time in UTC, to the second."""
    return rfc3339(time.time())


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


if __name__ == "__main__":
    sys.exit(main())
