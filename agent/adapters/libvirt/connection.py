"""One read-only connection to libvirt that keeps itself up, and calls over it that cannot block the caller for ever.

What was found by running libvirt 9.0, and shapes this module:
- A connection never comes back by itself. The daemon's end is told by the close callback at once; a frozen daemon is
  noticed by asking it, after interval x (count + 1) seconds. libvirt's own keepalive (setKeepAlive) is left alone: when
  it closes a connection in which two calls hang, the client wakes one of them and then uses memory that it has freed,
  which ends the process (libvirt 9.0.0: every time). Calls that hang end when the daemon goes on or is killed.
- open() has no deadline at all: on a frozen daemon it blocks until the daemon goes on or is killed. So it runs in a
  thread of its own, which is waited for again instead of starting ever more of them.
- close() asks the daemon too, so a connection is disposed of in a thread of its own as well.
- A daemon serves a few calls of one client at a time (max_client_requests, 5): some hung calls make all others wait.
  When every worker hangs the connection is given up and another one opened.
- When the daemon starts it accepts nobody until it has loaded all definitions, and it lists the guests that run from
  its status files before it has spoken to their QEMU: the first list after each of 20 starts, half of them after a
  SIGKILL, held all of 1000 definitions and all running guests in their right state. But a guest whose status file
  cannot be read is shut off, or missing, without a word. So `settle_s` after opening is a second guard for what a list
  lacks; the QEMU processes are the first.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, TypeVar

import tenacity

from agent.adapters.libvirt import diagnosis
from agent.adapters.libvirt.binding import EventLoop, event_loop, load_libvirt
from agent.adapters.libvirt.link import Events, Link, open_link
from agent.adapters.libvirt.workers import Job, WorkerPool
from agent.core.places import SYSTEM_LIBVIRT
from agent.core.values import Value
from agent.errors import DomainGone, LibvirtError, LibvirtTimeout, LibvirtUnavailable

LOG = logging.getLogger(__name__)

T = TypeVar("T")
K = TypeVar("K")

MOST_OPENS = 2
"""Opens that may hang at a time: one that hangs for its own reasons does not keep the next from being tried."""

MOST_LEFT_BEHIND = 4
"""Worker pools' worth of hung calls on given-up connections, beyond which no new connection is opened."""


class Patience(Value, frozen=True, kw_only=True):
    """How long to wait for what. settle_s: age of a connection from which on its lists count as complete.

    longest_retry_s: cap of the exponential back-off between two tries to connect, plus up to a quarter of jitter.
    """

    call_timeout_s: float = 10.0
    open_timeout_s: float = 10.0
    keepalive_interval_s: int = 5
    keepalive_count: int = 3
    first_retry_s: float = 0.1
    longest_retry_s: float = 3.0
    settle_s: float = 3.0


CLOSE_WAIT_S = 1.0
CLOSED = "the agent has closed its connection to libvirt"


def _ignore(_: object) -> None:
    """Nobody listens."""


def _tell(listener: Callable[[T], None], what: T) -> None:
    try:
        listener(what)
    except Exception:
        LOG.exception("a listener of the libvirt connection failed")


def _dispose_unwanted(attempt: Future[Link]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().dispose()


class LibvirtConnection:
    """Opens, watches, re-opens. Callbacks run in libvirt's or the keeper's thread: they must return at once.

    on_change(uuid): read this domain again. on_device_change(name): a node device came, went or changed.
    on_connected(number): callbacks are registered and lists may be read. on_lost(sentence): why, and what to do.
    """

    def __init__(
        self,
        uri: str = SYSTEM_LIBVIRT,
        *,
        patience: Patience | None = None,
        workers: int = 8,
        on_change: Callable[[str], None] = _ignore,
        on_device_change: Callable[[str], None] = _ignore,
        on_connected: Callable[[int], None] = _ignore,
        on_lost: Callable[[str], None] = _ignore,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        self.uri = uri or SYSTEM_LIBVIRT
        self.clock = clock
        self._patience = patience or Patience()
        self._workers = workers
        self._events = Events(on_change=on_change, on_device_change=on_device_change, on_closed=self._lose)
        self._on_connected = on_connected
        self._on_lost = on_lost
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._sleep = sleep or tenacity.sleep_using_event(self._closing)
        self._keeper: threading.Thread | None = None
        self._link: Link | None = None
        self._number = 0
        self._loop: EventLoop | None = None
        self._problem: str | None = f"libvirt at {self.uri} has not been opened yet"
        self._failures = 0
        self._opens: list[Future[Link]] = []
        self._left_behind: list[WorkerPool] = []

    # --- state -------------------------------------------------------------------------------

    @property
    def number(self) -> int:
        """Number of the last connection made, 1 for the first; 0: there never was one."""
        return self._number

    @property
    def is_connected(self) -> bool:
        """A connection is open, as far as is known."""
        return self._link is not None

    @property
    def problem(self) -> str | None:
        """Why nothing can be read now, or no event comes, and what to do; None: all is well."""
        return self._problem or self.loop_problem

    @property
    def loop_problem(self) -> str | None:
        """Why no event will come any more in this process, which only a restart of it cures."""
        if self._keeper is None:
            return None
        if not self._keeper.is_alive() and not self._closing.is_set():
            return "the thread that keeps the libvirt connection has ended; restart the agent"
        return None if self._loop is None else self._loop.problem

    def current(self) -> Link:
        """The open connection. Raises LibvirtUnavailable with the reason when there is none."""
        link = self._link
        if link is None:
            raise LibvirtUnavailable(self._problem or "libvirt is not connected")
        return link

    def has_settled(self, link: Link, begun_at: float) -> bool:
        """A list begun then over this connection may be believed for what it lacks."""
        return begun_at - link.opened_at >= self._patience.settle_s

    # --- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to connect in the background, and stay connected from then on; once."""
        with self._changed:
            if self._keeper is None:
                self._keeper = threading.Thread(target=self._keep, name="libvirt-keeper", daemon=True)
                self._keeper.start()

    def connect(self, timeout_s: float) -> None:
        """Start if need be and wait until connected. Raises LibvirtUnavailable when the first attempt fails."""
        with self._changed:
            failures = self._failures if self._keeper else 0
        self.start()
        with self._changed:
            ended = self._changed.wait_for(lambda: self._link or self._failures > failures, timeout_s)
            if self._link is None:
                raise LibvirtUnavailable(
                    self._problem if ended and self._problem else diagnosis.frozen(self.uri, timeout_s)
                )

    def close(self) -> None:
        """Give the connection up for good; hung calls are left to themselves."""
        self._closing.set()
        with self._changed:  # what the keeper makes current, or begins to open, after this sees that it is closing
            link = self._link
            opens, self._opens = self._opens, []
            self._changed.notify_all()
        if link is not None:
            self._lose(link, CLOSED, tell=False)
        for attempt in opens:
            attempt.add_done_callback(_dispose_unwanted)
        if self._keeper is not None and self._keeper is not threading.current_thread():
            self._keeper.join(CLOSE_WAIT_S)
        if link is not None:
            link.disposed.wait(CLOSE_WAIT_S)

    def _keep(self) -> None:
        try:
            short_lives = 0
            while not self._closing.is_set():
                self._reopen()
                opened_at = self.clock()
                self._watch_over()
                is_short = self.clock() - opened_at < self._patience.longest_retry_s
                short_lives = short_lives + 1 if is_short else 0
                self._rest(short_lives)
        except Exception:
            LOG.exception("the thread that keeps the libvirt connection has ended")
            self._problem = "the thread that keeps the libvirt connection has ended; restart the agent"

    def _watch_over(self) -> None:
        """Return when the connection is lost, which it also is when its daemon gives no sign of life for too long."""
        patience, link = self._patience, self._link
        while link is not None and not self._is_over(link, patience.keepalive_interval_s):
            if not self._answers(link):
                silent_s = patience.keepalive_interval_s * (patience.keepalive_count + 1)
                self._lose(link, diagnosis.silent(self.uri, silent_s))

    def _is_over(self, link: Link, wait_s: float, asked: Future[Any] | None = None) -> bool:
        """Wait until the connection is lost, or `asked` is answered; False when neither came in time."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._link is not link or self._closing.is_set() or (asked is not None and asked.done()), wait_s
            )

    def _answers(self, link: Link) -> bool:
        """Ask the daemon for something simple. A question that found no free worker tells nothing."""
        try:
            job = link.pool.submit(link.raw.getLibVersion)
        except LibvirtUnavailable:
            return True  # lost meanwhile
        job.future.add_done_callback(self._wake_keeper)
        patience_s = self._patience.keepalive_interval_s * self._patience.keepalive_count
        return self._is_over(link, patience_s, job.future) or not link.pool.give_up(job)

    def _wake_keeper(self, _answered: object) -> None:
        with self._changed:
            self._changed.notify_all()

    def _rest(self, short_lives: int) -> None:
        """Wait after several connections that ended soon: a daemon may accept everybody and drop them at once."""
        if short_lives > 1 and not self._closing.is_set():
            doubled_s = self._patience.first_retry_s * 2.0 ** min(short_lives - 2, 30)
            self._sleep(min(doubled_s, self._patience.longest_retry_s))

    def _reopen(self) -> None:
        patience = self._patience
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(LibvirtUnavailable),
            wait=tenacity.wait_exponential(multiplier=patience.first_retry_s, max=patience.longest_retry_s)
            + tenacity.wait_random(0, patience.longest_retry_s / 4),
            stop=tenacity.stop_when_event_set(self._closing),
            sleep=self._sleep,
        )
        try:
            retrying(self._open_once)
        except tenacity.RetryError:
            LOG.debug("closing: no further try to connect uri=%s", self.uri)

    # --- open and lose -----------------------------------------------------------------------

    def _open_once(self) -> None:
        try:
            link = self._opened()
        except LibvirtUnavailable as error:
            self._note_failure(str(error))
            raise
        with self._changed:
            if self._closing.is_set():
                link.dispose()
                return
            self._number += 1
            link.begin(self._number, self.clock())
            self._link, self._problem, self._loop = link, None, event_loop()
            self._changed.notify_all()
        LOG.info("connected to libvirt uri=%s connection=%d", self.uri, link.number)
        _tell(self._on_connected, link.number)
        if link.lost_because is not None:  # it ended before it was ours
            self._lose(link, link.lost_because)

    def _opened(self) -> Link:
        self._refuse_when_too_much_hangs()
        done, _ = wait(self._begun_opens(), self._patience.open_timeout_s, FIRST_COMPLETED)
        if not done:
            raise LibvirtUnavailable(diagnosis.frozen(self.uri, self._patience.open_timeout_s))
        links = [attempt.result() for attempt in done if attempt.exception() is None]
        with self._changed:
            others = [attempt for attempt in self._opens if attempt not in done]
            self._opens = [] if links else others
        if not links:
            return done.pop().result()  # raises why
        for attempt in others:
            attempt.add_done_callback(_dispose_unwanted)
        for spare in links[1:]:
            spare.dispose()
        return links[0]

    def _begun_opens(self) -> tuple[Future[Link], ...]:
        with self._changed:
            if self._closing.is_set():
                raise LibvirtUnavailable(self._problem or CLOSED)
            if len(self._opens) < MOST_OPENS:
                self._opens.append(open_link(self.uri, self._events, WorkerPool(self._workers, "libvirt-call")))
            return tuple(self._opens)

    def _refuse_when_too_much_hangs(self) -> None:
        self._left_behind = [pool for pool in self._left_behind if pool.hung]
        hung = sum(pool.hung for pool in self._left_behind)
        if hung >= MOST_LEFT_BEHIND * self._workers:
            raise LibvirtUnavailable(
                f"{hung} calls to libvirt at {self.uri} hang; no further connection is opened until some of them end. "
                "See the daemon's log and restart it (guests run on)"
            )

    def _note_failure(self, sentence: str) -> None:
        if sentence != self._problem:
            LOG.warning("libvirt cannot be reached: %s", sentence)
        with self._changed:
            self._problem = sentence
            self._failures += 1
            self._changed.notify_all()

    def _lose(self, link: Link, sentence: str, tell: bool = True) -> None:
        """Drop `link` if it is still the current one; idempotent, never blocks."""
        link.lost_because = sentence
        with self._changed:
            if self._link is not link:
                return
            self._link, self._problem = None, sentence
            self._left_behind.append(link.pool)
            link.pool.close(LibvirtUnavailable(sentence))
            self._changed.notify_all()
        link.dispose()
        if tell:
            LOG.warning("libvirt connection lost connection=%d: %s", link.number, sentence)
            _tell(self._on_lost, sentence)

    # --- calls -------------------------------------------------------------------------------

    def call(self, work: Callable[[Any], T], timeout_s: float | None = None, doing: str = "ask libvirt") -> T:
        """What `work` makes of the open virConnect, from a worker thread. doing: for the message, "list the domains".

        Raises LibvirtUnavailable without a connection or when it ends meanwhile, LibvirtTimeout when the answer takes
        longer than `timeout_s` (default: Patience.call_timeout_s), DomainGone for a domain that is not there, and
        LibvirtError for what libvirt refuses.
        """
        return self.call_on(self.current(), work, timeout_s, doing)

    def call_on(
        self, link: Link, work: Callable[[Any], T], timeout_s: float | None = None, doing: str = "ask libvirt"
    ) -> T:
        """As `call`, over this very connection."""
        _, answer = next(self.each_call(link, ((None, doing, work),), at_once=1, timeout_s=timeout_s))
        if isinstance(answer, LibvirtError):
            raise answer
        return answer

    def each_call(
        self,
        link: Link,
        works: Iterable[tuple[K, str, Callable[[Any], T]]],
        *,
        at_once: int | None = None,
        timeout_s: float | None = None,
    ) -> Iterator[tuple[K, T | LibvirtError]]:
        """Make many calls (key, doing, work), each with its own deadline; pairs as they come.

        at_once: the most at a time, if fewer than there are workers; a call that waits for one would lose its time.
        """
        timeout_s = self._patience.call_timeout_s if timeout_s is None else timeout_s
        at_once = min(at_once or link.pool.size, link.pool.size)
        left = iter(works)
        running: dict[Future[T], tuple[K, str, Job[T]]] = {}
        try:
            while True:
                refused = self._fill(link, left, running, at_once)
                yield from refused
                if not running:
                    if refused:
                        continue
                    return
                yield from self._collect(link, running, timeout_s)
        finally:
            for _, _, job in running.values():
                job.future.cancel()

    def _fill(
        self,
        link: Link,
        left: Iterator[tuple[K, str, Callable[[Any], T]]],
        running: dict[Future[T], tuple[K, str, Job[T]]],
        at_once: int,
    ) -> list[tuple[K, LibvirtError]]:
        while len(running) < at_once:
            try:
                key, doing, work = next(left)
            except StopIteration:
                return []
            if link.pool.all_hung:
                self._lose(link, self._all_hung(link))
            try:
                job = link.pool.submit(functools.partial(work, link.raw))
            except LibvirtUnavailable as error:
                return [(key, error)]
            running[job.future] = key, doing, job
        return []

    def _collect(
        self, link: Link, running: dict[Future[T], tuple[K, str, Job[T]]], timeout_s: float
    ) -> Iterator[tuple[K, T | LibvirtError]]:
        next_end = min(job.begun_at for _, _, job in running.values()) + timeout_s
        done, _ = wait(running, max(0.0, next_end - time.monotonic()), FIRST_COMPLETED)
        for future in done:
            key, doing, _ = running.pop(future)
            yield key, self._answer(link, future, doing)
        now = time.monotonic()
        late = [future for future, (_, _, job) in running.items() if job.begun_at + timeout_s <= now]
        for future in late:
            key, doing, job = running.pop(future)
            yield key, self._late(link, job, doing, timeout_s)

    def _late(self, link: Link, job: Job[Any], doing: str, timeout_s: float) -> LibvirtError | Any:
        if link.pool.give_up(job):
            LOG.warning("libvirt call hangs: %s; hung=%d of %d", doing, link.pool.hung, link.pool.size)
            if link.pool.all_hung:
                self._lose(link, self._all_hung(link))
            return LibvirtTimeout(f"libvirt at {self.uri} did not {doing} within {timeout_s:g} s")
        if job.future.cancelled():
            return LibvirtTimeout(
                f"libvirt at {self.uri} could not be asked to {doing}: for {timeout_s:g} s all {link.pool.size} calls "
                f"that the agent may make at a time were under way ({link.pool.hung} hang)"
            )
        return self._answer(link, job.future, doing)  # it came at the last moment

    def _answer(self, link: Link, future: Future[Any], doing: str) -> T | LibvirtError:
        error = future.exception()
        if error is None:
            result: T = future.result()
            return result
        if isinstance(error, LibvirtError):
            return error
        libvirt = load_libvirt()
        if not isinstance(error, libvirt.libvirtError):
            raise error
        code = error.get_error_code()
        message = f"libvirt at {self.uri} could not {doing}: {error.get_error_message()} (error {code})"
        if code == libvirt.VIR_ERR_NO_DOMAIN:
            return DomainGone(message)
        if link.lost_because is not None or not link.is_alive():
            self._lose(link, link.lost_because or f"the connection to libvirt at {self.uri} has ended")
            return LibvirtUnavailable(f"{message}; {link.lost_because}")
        return LibvirtError(message)

    def _all_hung(self, link: Link) -> str:
        return (
            f"all {link.pool.size} calls that the agent may make at a time hang in libvirt at {self.uri}; "
            "a new connection is being opened. If this stays, see the daemon's log and restart it (guests run on)"
        )
