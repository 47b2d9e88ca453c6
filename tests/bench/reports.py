"""The whole report of a host with 200 guests, in the process and over the socket."""

from __future__ import annotations

import grp
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from agent.adapters.http import READ_ONLY_SOCKET, LocalApi
from agent.client import LocalClient
from agent.core.report import Report
from agent.formats.envelope import respond
from agent.handlers import Handlers
from tests.bench.rig import INTERVAL_S, Agent, test_driver
from tests.bench.rows import Row, at_most, median_row, milliseconds

GUESTS, ROUNDS = 200, 25


def measure() -> Iterator[Row]:
    """Wall time."""
    with test_driver(GUESTS) as driver:
        agent = driver.agent()
        agent.watch.one_pass()
        handlers = _handlers(agent)
        size_kib = len(respond(handlers.call("get_report")).body) / 1024
        inside = milliseconds(time.perf_counter, lambda: respond(handlers.call("get_report")), ROUNDS)
        # a path of a UNIX socket must be short
        with tempfile.TemporaryDirectory(prefix="ca-", dir="/tmp") as folder:
            api = LocalApi(handlers.answer, handlers.refuse, Path(folder), grp.getgrgid(os.getegid()).gr_name)
            api.start()
            try:
                client = LocalClient(Path(folder) / READ_ONLY_SOCKET)
                over = milliseconds(time.perf_counter, lambda: client.value("/v1/report", Report), ROUNDS)
                report = client.value("/v1/report", Report)
            finally:
                api.stop()
    if len(report.guests) != GUESTS or not report.conflicts:
        raise RuntimeError(f"{len(report.guests)} guests and {len(report.conflicts)} conflicts are reported")
    what = f"report of {GUESTS} guests, {len(report.conflicts)} conflicts, {size_kib:.0f} KiB of JSON"
    yield median_row(what, inside, "ms", budget=at_most(200))
    yield median_row("the same over the socket, read into values by the client", over, "ms", budget=at_most(200))


def _handlers(agent: Agent) -> Handlers:
    return Handlers(
        snapshot=lambda: agent.tracker.snapshot,
        clock=time.monotonic,
        now=lambda: "2026-01-01T00:00:00Z",
        interval_s=lambda: INTERVAL_S,
        alive=lambda: None,
    )
