"""What the service manager receives, on a real datagram socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.adapters.systemd import Notifier


@pytest.fixture(params=["file", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """The manager's socket and its NOTIFY_SOCKET."""
    address = str(tmp_path / "notify") if request.param == "file" else f"@compute-agent-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(address.replace("@", "\0"))
        listening.settimeout(10)
        yield listening, address


def test_each_message_is_one_datagram_as_systemd_documents_it(manager: tuple[socket.socket, str]) -> None:
    listening, address = manager
    notifier = Notifier(address, clock=lambda: 1234567891234)
    sent: list[tuple[Callable[[], None], bytes]] = [
        (lambda: notifier.starting(20.5), b"EXTEND_TIMEOUT_USEC=20500000"),
        (lambda: notifier.ready("2 guests"), b"READY=1\nSTATUS=2 guests"),
        (lambda: notifier.status("3 guests"), b"STATUS=3 guests"),
        (notifier.reloading, b"RELOADING=1\nMONOTONIC_USEC=1234567891"),
        (notifier.watchdog, b"WATCHDOG=1"),
        (notifier.stopping, b"STOPPING=1"),
    ]
    for send, expected in sent:
        send()
        assert listening.recv(4096) == expected


def test_the_address_and_the_watchdog_come_from_the_environment(manager: tuple[socket.socket, str]) -> None:
    listening, address = manager
    environ = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}
    notifier = Notifier.from_environment(environ)
    notifier.watchdog()
    assert listening.recv(4096) == b"WATCHDOG=1"
    assert notifier.watchdog_interval_s == 15.0


@pytest.mark.parametrize(
    ("environ", "interval_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "2000000"}, 1.0),
        ({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_fed_only_where_this_process_is_watched(
    environ: dict[str, str], interval_s: float | None
) -> None:
    assert Notifier.from_environment(environ).watchdog_interval_s == interval_s


def test_a_status_of_several_lines_cannot_set_anything_else(manager: tuple[socket.socket, str]) -> None:
    listening, address = manager
    Notifier(address).status("libvirt says:\nMAINPID=1\n  no")
    assert listening.recv(4096) == b"STATUS=libvirt says: MAINPID=1 no"


def test_a_reload_carries_the_kernels_monotonic_time(manager: tuple[socket.socket, str]) -> None:
    listening, address = manager
    Notifier(address).reloading()
    told_us = int(listening.recv(4096).rpartition(b"=")[2])
    with Path("/proc/uptime").open(encoding="ascii") as uptime:
        assert 0 < told_us / 1e6 <= float(uptime.read().split()[0]) + 1


def test_without_a_manager_nothing_is_sent_and_nothing_fails() -> None:
    notifier = Notifier.from_environment({})
    notifier.ready("x")
    notifier.watchdog()


def test_a_manager_that_is_gone_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    notifier = Notifier(str(tmp_path / "gone"))
    notifier.watchdog()
    notifier.watchdog()
    assert [record.getMessage() for record in caplog.records] == [
        f"systemd cannot be told WATCHDOG=1 over NOTIFY_SOCKET={tmp_path}/gone: [Errno 2] No such file or directory"
    ]


def test_a_manager_that_reads_nothing_does_not_hold_up_the_daemon(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "full"))
        notifier = Notifier(str(tmp_path / "full"))
        for _ in range(5000):  # more than any queue of the kernel takes
            notifier.watchdog()
