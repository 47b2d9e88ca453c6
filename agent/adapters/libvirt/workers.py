"""A bounded pool of daemon threads in which a call may hang for ever: it costs its worker and nobody else.

concurrent.futures has the future but not the pool: its threads are joined at exit, so one hung call would keep the
process from ending.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Job(Generic[T]):
    """One call: its future, and when it was given to the pool and to a worker (monotonic seconds)."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.work = work
        self.future: Future[T] = Future()
        self.begun_at = time.monotonic()
        self.given_up = False


class WorkerPool:
    """At most `size` calls at a time; threads are made when first needed."""

    def __init__(self, size: int, name: str) -> None:
        self.size = size
        self._name = name
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Job[Any] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._hung = 0
        self._closed: Exception | None = None

    @property
    def hung(self) -> int:
        """Workers in a call that was given up."""
        return self._hung

    @property
    def all_hung(self) -> bool:
        """No worker is left to make a call."""
        return self._hung >= self.size

    def submit(self, work: Callable[[], T]) -> Job[T]:
        """Queue a call. Raises what `close` was given when the pool is closed."""
        job = Job(work)
        with self._lock:
            if self._closed is not None:
                raise self._closed
            self._unfinished += 1
            if len(self._threads) < min(self.size, self._unfinished):
                name = f"{self._name}-{len(self._threads)}"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
            self._jobs.put(job)
        return job

    def give_up(self, job: Job[Any]) -> bool:
        """Wait for this call no longer; True: it hangs and has cost a worker until it ends, False: it never began."""
        if job.future.cancel():
            return False
        with self._lock:
            if job.future.done() or job.given_up:
                return False
            job.given_up = True
            self._hung += 1
            return True

    def close(self, reason: Exception) -> None:
        """Take no more calls; those in the queue end with `reason`, workers end after their call."""
        with self._lock:
            if self._closed is not None:
                return
            self._closed = reason
            waiting = self._take_waiting()
            for _ in self._threads:
                self._jobs.put(None)
        for job in waiting:
            if job.future.set_running_or_notify_cancel():
                job.future.set_exception(reason)

    def join(self) -> None:
        """Wait, after `close`, until no call runs any more; for ever if one hangs for ever."""
        for thread in self._threads:
            thread.join()

    def _take_waiting(self) -> list[Job[Any]]:
        waiting: list[Job[Any]] = []
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return waiting
            if job is not None:
                waiting.append(job)

    def _run(self) -> None:
        while self._run_next():
            pass

    def _run_next(self) -> bool:
        # a function of its own, so that an idle worker keeps no call and no connection alive
        job = self._jobs.get()
        if job is None:
            return False
        if job.future.set_running_or_notify_cancel():
            job.begun_at = time.monotonic()
            try:
                result = job.work()
            except Exception as error:  # noqa: BLE001 - it is raised where the result is asked for
                job.future.set_exception(error)
            else:
                job.future.set_result(result)
        with self._lock:
            self._unfinished -= 1
            self._hung -= job.given_up
        return True
