"""One opened connection: its callbacks, which are registered before anything is listed, and its end."""

from __future__ import annotations

import functools
import logging
import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from agent.adapters.libvirt import diagnosis
from agent.adapters.libvirt.binding import event_loop, load_libvirt
from agent.adapters.libvirt.workers import WorkerPool
from agent.errors import LibvirtError, LibvirtUnavailable

LOG = logging.getLogger(__name__)

DOMAIN_EVENTS = (
    "LIFECYCLE",
    "DEVICE_ADDED",
    "DEVICE_REMOVED",
    "TUNABLE",
    "MEMORY_DEVICE_SIZE_CHANGE",
    "METADATA_CHANGE",
    "JOB_COMPLETED",
)
"""What may change where a domain sits or what it holds. TUNABLE tells of vcpupin, emulatorpin and iothreadpin on a
running guest. Nothing tells of a live numatune, of an iothread that comes or goes, or of a change to the stored
definition of a running guest (vcpupin --config); only its metadata has an event then too."""

DEVICE_EVENTS = ("LIFECYCLE", "UPDATE")


class Events(NamedTuple):
    """Who is told of what, in libvirt's thread. on_closed: the connection itself ended, with one sentence."""

    on_change: Callable[[str], None]
    on_device_change: Callable[[str], None]
    on_closed: Callable[[Link, str], None]


class Link:
    """An open virConnect (`raw`) and its workers; number 0 and opened_at inf until it is the current one."""

    def __init__(self, raw: Any, uri: str, events: Events, pool: WorkerPool) -> None:
        self.raw = raw
        self.uri = uri
        self.pool = pool
        self.number = 0
        self.opened_at = math.inf
        self.lost_because: str | None = None
        self.disposed = threading.Event()
        self._events = events
        self._dispose_lock = threading.Lock()
        self._disposer: threading.Thread | None = None
        self._undo: list[Callable[[], object]] = []

    def begin(self, number: int, opened_at: float) -> None:
        """It is the current connection from now on."""
        self.number, self.opened_at = number, opened_at

    def is_alive(self) -> bool:
        """The socket is open, as far as the client knows; asks nobody."""
        libvirt = load_libvirt()
        try:
            return bool(self.raw.isAlive())
        except libvirt.libvirtError:
            return False

    # --- set up, in the opening thread ---------------------------------------------------------

    def set_up(self) -> None:
        """Register everything. Raises libvirtError."""
        raw, libvirt = self.raw, load_libvirt()
        if self._supports(raw.registerCloseCallback, self._closed, None) is not None:
            self._undo.append(raw.unregisterCloseCallback)
        for name in DOMAIN_EVENTS:
            number = getattr(libvirt, f"VIR_DOMAIN_EVENT_ID_{name}")
            answer = self._supports(raw.domainEventRegisterAny, None, number, self._domain_event, None)
            if answer is not None:
                self._undo.append(functools.partial(raw.domainEventDeregisterAny, answer))
        for name in DEVICE_EVENTS:
            number = getattr(libvirt, f"VIR_NODE_DEVICE_EVENT_ID_{name}")
            try:
                answer = self._supports(raw.nodeDeviceEventRegisterAny, None, number, self._device_event, None)
            except libvirt.libvirtError as error:
                if not self.is_alive():
                    raise
                # with modular daemons another one has the devices, virtnodedevd; guests must be seen without it
                LOG.warning("libvirt at %s tells of no change of node devices: %s", self.uri, error)
                return
            if answer is not None:
                self._undo.append(functools.partial(raw.nodeDeviceEventDeregisterAny, answer))

    def _supports(self, register: Callable[..., int], *arguments: Any) -> int | None:
        # the test driver has no close callback; an older daemon not every event
        libvirt = load_libvirt()
        try:
            return register(*arguments)
        except libvirt.libvirtError as error:
            if error.get_error_code() not in (libvirt.VIR_ERR_NO_SUPPORT, libvirt.VIR_ERR_INVALID_ARG):
                raise
            LOG.debug("libvirt at %s lacks %s%r: %s", self.uri, register.__name__, arguments, error)
            return None

    # --- callbacks, in the event loop's thread -------------------------------------------------

    def _closed(self, _raw: object, reason: int, _opaque: object) -> None:
        words = {0: "with an error", 1: "by its daemon"}
        sentence = (
            f"the connection to libvirt at {self.uri} was closed {words.get(reason, f'for reason {reason}')}; "
            "it is opened again as soon as libvirt answers. Is it running? systemctl status libvirtd virtqemud"
        )
        try:
            self._events.on_closed(self, sentence)
        except Exception:
            LOG.exception("the loss of a libvirt connection was not handled")

    def _domain_event(self, _raw: object, domain: Any, *_details: object) -> None:
        try:
            if self.lost_because is None:
                self._events.on_change(domain.UUIDString())
        except Exception:
            LOG.exception("a libvirt domain event was not handled")

    def _device_event(self, _raw: object, device: Any, *_details: object) -> None:
        try:
            if self.lost_because is None:
                self._events.on_device_change(device.name())
        except Exception:
            LOG.exception("a libvirt node device event was not handled")

    # --- the end -------------------------------------------------------------------------------

    def dispose(self) -> None:
        """Unregister and close in a thread of its own, once: both ask the daemon, and a frozen one does not answer."""
        with self._dispose_lock:
            if self._disposer is not None:
                return
            self._disposer = threading.Thread(target=self._dispose, name="libvirt-dispose", daemon=True)
        self._disposer.start()

    def _dispose(self) -> None:
        libvirt = load_libvirt()
        for undo in self._undo:
            try:
                undo()
            except libvirt.libvirtError as error:
                LOG.debug("libvirt at %s: %s", self.uri, error)
        self.pool.join()  # a call that still runs uses the C connection, which close() would free under it
        try:
            self.raw.close()
        except libvirt.libvirtError as error:
            LOG.debug("libvirt at %s: %s", self.uri, error)
        self.disposed.set()


def open_link(uri: str, events: Events, pool: WorkerPool) -> Future[Link]:
    """Open and set up in a daemon thread of its own; the future raises LibvirtUnavailable."""
    opened: Future[Link] = Future()
    threading.Thread(target=_open, args=(opened, uri, events, pool), name="libvirt-open", daemon=True).start()
    return opened


def _open(opened: Future[Link], uri: str, events: Events, pool: WorkerPool) -> None:
    try:
        opened.set_result(_opened(uri, events, pool))
    except LibvirtError as error:
        opened.set_exception(error)
    except Exception as error:
        LOG.exception("opening libvirt at %s failed", uri)
        opened.set_exception(LibvirtUnavailable(f"opening libvirt at {uri} failed: {error!r}"))


def _opened(uri: str, events: Events, pool: WorkerPool) -> Link:
    libvirt = load_libvirt()
    event_loop()
    link = None
    try:
        raw = libvirt.openReadOnly(uri)
        link = Link(raw, uri, events, pool)
        link.set_up()
    except libvirt.libvirtError as error:
        if link is not None:
            link.dispose()
        raise LibvirtUnavailable(diagnosis.explain(uri, error, libvirt)) from error
    return link
