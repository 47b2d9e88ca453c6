"""Listens on both sockets, attends to their clients, asks the handler.

One thread waits for all clients at once (asyncio), so a client that dawdles costs a few kilobytes and no thread; only
complete requests reach the few threads that run the handler. One request per connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import grp
import logging
import os
import socket
import stat
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path

from agent.adapters.http.exchange import MAX_HEAD_BYTES, BadRequest, Exchange
from agent.core.places import FULL_SOCKET, READ_ONLY_SOCKET
from agent.core.values import Value
from agent.errors import ApiUnavailable, ConfigError, TwinRunning
from agent.formats.envelope import ApiRequest, ApiResponse, Peer
from agent.formats.route import Route, Table

LOG = logging.getLogger(__name__)

ONLY_READ = Table(())
"""Of a handler that changes nothing and answers at once."""

ACCEPTS_PER_TURN = 16
"""Clients that are let in before those over the limit are shown out: asyncio would empty the whole queue first, and a
flood of connections would cost the daemon every descriptor that it has."""

Handler = Callable[[ApiRequest], ApiResponse]

Refuse = Callable[[str, str, int], ApiResponse]
"""The refusal of a request that no handler sees, from its code, a sentence for people and the HTTP status."""


class Limits(Value, frozen=True, kw_only=True):
    """receive_s: from connecting to the last byte of the request; send_s: until the client has taken all of the answer.
    clients: connections at a time on one socket; one more ends the oldest that does not wait for a change. threads:
    for reading, on each socket. changing: threads for changes, each of which waits for the disk; waiting: changes that
    may wait for one of them, one more is told to come later. Together they leave room for clients that read.
    """

    receive_s: float = 5.0
    send_s: float = 30.0
    clients: int = 128
    threads: int = 4
    changing: int = 32
    waiting: int = 64


class LocalApi:
    """Serves `handler` on socket_dir/agent.sock (0660, all methods) and socket_dir/agent-ro.sock (0666, GET and HEAD,
    and the questions of `table`).

    The handler runs in one of the few threads of each socket, so that everybody, who may use the one, cannot keep those
    waiting who may use the other. Questions are worked out one after the other in a thread of their own, for the same
    reason, and changes in many, since they wait for the disk; whoever reads waits for neither. A change goes on when
    its client has left. The handler sees HEAD as GET. What it raises is logged and answered with 500.
    """

    def __init__(
        self,
        handler: Handler,
        refuse: Refuse,
        socket_dir: Path,
        group: str | None = None,
        limits: Limits | None = None,
        *,
        table: Table = ONLY_READ,
    ) -> None:
        """refuse: must neither wait nor raise: it runs in the thread that waits for all clients.

        table: which requests are questions and which change something; what is not in it is read.

        group: owns agent.sock when it exists on this host; else, and when None, the group of the process.
        """
        self._handler = handler
        self._refuse = refuse
        self._limits = limits or Limits()
        self._table = table
        self._doors = (
            _Door(socket_dir / FULL_SOCKET, mode=0o660, writable=True, group=group),
            _Door(socket_dir / READ_ONLY_SOCKET, mode=0o666, writable=False, group=None),
        )
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._drain_s = 0.0

    def start(self) -> None:
        """Listen; returns when both sockets answer. Replaces socket files that a dead agent left.

        Raises TwinRunning when an agent answers there, ConfigError when the folder or the path cannot be used,
        ApiUnavailable when nobody can be served for want of descriptors and the like. Leaves nothing behind then.
        """
        with contextlib.ExitStack() as undo:
            undo.callback(self.stop)
            for door in self._doors:
                door.open()
            serving: Future[None] = Future()
            thread = threading.Thread(target=self._run, args=(serving,), name="local-api", daemon=True)
            thread.start()
            self._thread = thread
            serving.result()
            undo.pop_all()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Finish what is being answered, at most `timeout_s`, then close and remove both sockets. Fine to repeat."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._drain_s = timeout_s
            if self._loop is not None:
                with contextlib.suppress(RuntimeError):  # the loop ended by itself
                    self._loop.call_soon_threadsafe(self._stop.set)
            thread.join()
        for door in self._doors:
            door.close()

    @property
    def is_serving(self) -> bool:
        """Between `start` and `stop`, unless the server's thread died of a fault (logged)."""
        return self._thread is not None and self._thread.is_alive()

    def _run(self, serving: Future[None]) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._serve(serving))
        except Exception as error:
            LOG.exception("local API ended sockets=%s", [str(door.path) for door in self._doors])
            if not serving.done():
                serving.set_exception(ApiUnavailable(self._why_unavailable(error)))

    def _why_unavailable(self, error: Exception) -> str:
        return (
            f"Nobody can be served at {' and '.join(str(door.path) for door in self._doors)}: {error}. "
            "See the log; if descriptors or threads ran out, raise LimitNOFILE or TasksMax of the unit."
        )

    async def _serve(self, serving: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        rooms = [_Room(door, self._handler, self._refuse, self._limits, self._table) for door in self._doors]
        for room in rooms:
            await room.enter()
        LOG.info("local API serves sockets=%s", [str(door.path) for door in self._doors])
        serving.set_result(None)
        await self._stop.wait()
        for room in rooms:
            await room.leave(self._drain_s)


class _Door:
    """One listening socket and its file."""

    def __init__(self, path: Path, *, mode: int, writable: bool, group: str | None) -> None:
        self.path = path
        self.writable = writable
        self.socket: socket.socket | None = None
        self._mode = mode
        self._group = group
        self._inode: int | None = None

    def open(self) -> None:
        """Bind under another name and rename, so that nobody meets the socket before it has its mode and owner."""
        unfinished = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._refuse_if_taken()
            unfinished.unlink(missing_ok=True)
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            self.socket.bind(str(unfinished))
            unfinished.chmod(self._mode)
            self._give_to_group(unfinished)
            self.socket.listen(socket.SOMAXCONN)
            self._inode = unfinished.stat().st_ino
            unfinished.rename(self.path)
        except OSError as error:
            self.close()
            raise ConfigError(
                f"The socket {self.path} cannot be made: {error.strerror or error}. "
                f"Make {self.path.parent} a folder that the daemon's user can write, or set [agent] socket_dir."
            ) from error

    def close(self) -> None:
        """Close, and remove the file if it is still ours. Fine to repeat."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None
        with contextlib.suppress(OSError):
            if self._inode is not None and self.path.lstat().st_ino == self._inode:
                self.path.unlink()
        self._inode = None

    def _refuse_if_taken(self) -> None:
        try:
            found = self.path.lstat().st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(found):
            raise ConfigError(
                f"{self.path} is there and is no socket. Remove it if nobody needs it, or set [agent] socket_dir."
            )
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
            probe.setblocking(False)  # a live twin whose queue is full says EAGAIN
            result = probe.connect_ex(str(self.path))
            if result == errno.ECONNREFUSED:
                return  # nobody listens: a dead agent's
            other = _peer(probe).pid if result == 0 else "unknown"
        raise TwinRunning(
            f"Process {other} answers at {self.path}. Stop it, or give this agent another folder with --socket-dir."
        )

    def _give_to_group(self, path: Path) -> None:
        if self._group is None:
            return
        try:
            os.chown(path, -1, grp.getgrnam(self._group).gr_gid)
        except KeyError:
            LOG.info(
                "%s is for %s alone, which is fine for a trial: there is no group %s here. "
                "An installation makes it (install.sh), and [http] group names another",
                self.path, _own_name(), self._group,
            )  # fmt: skip
        except PermissionError:
            LOG.warning("this process is not in group %s and cannot give it %s", self._group, self.path)


class _Room:
    """The clients of one door."""

    def __init__(self, door: _Door, handler: Handler, refuse: Refuse, limits: Limits, table: Table) -> None:
        self._door = door
        self._table = table
        self._handler = handler
        self._refuse = refuse
        name = f"local-api-{door.path.stem}"
        self._pool = ThreadPoolExecutor(limits.threads, thread_name_prefix=name)
        self._thinker = ThreadPoolExecutor(1, thread_name_prefix=f"{name}-questions")
        self._changer = ThreadPoolExecutor(limits.changing, thread_name_prefix=f"{name}-changes")
        self._places = threading.BoundedSemaphore(limits.changing + limits.waiting)
        self._is_full = False
        self._limits = limits
        self._clients: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._waiting: set[asyncio.Task[None]] = set()
        """Those of the clients who wait for a change."""
        self._server: asyncio.Server | None = None

    async def enter(self) -> None:
        """Accept clients from now on."""
        assert self._door.socket is not None
        self._server = await asyncio.start_unix_server(
            self._welcome, sock=self._door.socket, limit=MAX_HEAD_BYTES, backlog=ACCEPTS_PER_TURN
        )
        self._door.socket.listen(socket.SOMAXCONN)  # asyncio has made the queue as short as its turn

    async def leave(self, timeout_s: float) -> None:
        """Accept no more, and give those inside `timeout_s` seconds."""
        if self._server is not None:
            self._server.close()
        if self._clients:
            await asyncio.wait(list(self._clients), timeout=timeout_s)
        for late in list(self._clients):
            self._show_out(late)
        for pool in (self._pool, self._thinker, self._changer):
            pool.shutdown(wait=False, cancel_futures=True)

    def _show_out(self, task: asyncio.Task[None]) -> None:
        """End the connection, whatever is still to be sent, and drop its request if no thread has begun with it."""
        self._clients.pop(task).transport.abort()
        task.cancel()

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= self._limits.clients:
            oldest = next(iter(self._clients))
            self._show_out(next((task for task in self._clients if task not in self._waiting), oldest))
        task = asyncio.current_task()
        assert task is not None
        self._clients[task] = writer
        try:
            await self._attend(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # the client went away, which is its business, or was shown out
        finally:
            self._clients.pop(task, None)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = _peer(writer.get_extra_info("socket"))
        exchange = Exchange(reader, writer, self._table)
        try:
            async with asyncio.timeout(self._limits.receive_s):
                request = await exchange.receive(peer, writable=self._door.writable)
        except TimeoutError:
            late = self._refuse("InvalidRequest", "The request did not come in time.", HTTPStatus.REQUEST_TIMEOUT)
            await self._send(exchange, writer, late)
        except BadRequest as error:
            await self._send(exchange, writer, self._refuse("InvalidRequest", str(error), error.status))
            await self._hear_out(reader, writer)
        else:
            await self._send(exchange, writer, await self._answered(exchange.route, request))

    async def _answered(self, route: Route | None, request: ApiRequest) -> ApiResponse:
        task = asyncio.current_task()
        assert task is not None
        work = "read" if route is None else route.work
        if work == "change" and not self._has_place():
            message = "More changes wait for the disk than this agent keeps; nothing was done. Ask again soon."
            return self._refuse("AgentNotReady", message, HTTPStatus.SERVICE_UNAVAILABLE)
        pools = {"read": self._pool, "question": self._thinker, "change": self._changer}
        future = pools[work].submit(self._answer, request)
        if work == "change":
            future.add_done_callback(lambda _: self._places.release())
            self._waiting.add(task)
        try:
            return await asyncio.wrap_future(future)
        finally:
            self._waiting.discard(task)

    def _has_place(self) -> bool:
        """Take a place among the changes, if there is one; it is logged when there is none any more."""
        was_full, self._is_full = self._is_full, not self._places.acquire(blocking=False)
        if self._is_full and not was_full:
            LOG.warning(
                "changes are refused: %d wait for the disk socket=%s", self._limits.changing + self._limits.waiting,
                self._door.path,
            )  # fmt: skip
        return not self._is_full

    def _answer(self, request: ApiRequest) -> ApiResponse:
        try:
            return self._handler(request)
        except Exception:
            LOG.exception("request failed method=%s path=%s peer=%s", request.method, request.path, request.peer)
            message = "The agent made a mistake; its log has the details."
            return self._refuse("InternalError", message, HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _send(self, exchange: Exchange, writer: asyncio.StreamWriter, answer: ApiResponse) -> None:
        writer.transport.set_write_buffer_limits(high=0)  # drain returns when all is with the kernel
        exchange.send(answer)
        try:
            async with asyncio.timeout(self._limits.send_s):
                await writer.drain()
        except TimeoutError:
            writer.transport.abort()

    async def _hear_out(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take what the client still sends: one that is writing its body would meet a broken pipe, not our answer."""
        writer.write_eof()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.receive_s):
                while await reader.read(MAX_HEAD_BYTES):
                    pass


def _own_name() -> str:
    """Who may use a file that belongs to this process's user and group."""
    user, group = os.geteuid(), os.getegid()
    return "root" if user == group == 0 else f"user {user} and group {group}"


def _peer(connection: socket.socket) -> Peer:
    layout = struct.Struct("3i")
    pid, uid, gid = layout.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, layout.size))
    return Peer(pid=pid, uid=uid, gid=gid)
