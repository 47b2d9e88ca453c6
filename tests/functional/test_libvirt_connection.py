"""A connection under which libvirtd is stopped, killed, frozen and restarted."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.adapters.libvirt import LibvirtConnection, LibvirtHost, Patience
from agent.errors import LibvirtError, LibvirtTimeout, LibvirtUnavailable
from tests.functional.lab import Guest, Libvirtd, wait_until

QUICK = Patience(
    call_timeout_s=1.0,
    open_timeout_s=1.0,
    keepalive_interval_s=1,
    keepalive_count=2,
    first_retry_s=0.05,
    longest_retry_s=0.2,
    settle_s=0.5,
)
PATIENT_S = 60.0


class Heard:
    """What a connection has told."""

    def __init__(self) -> None:
        self.changes: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.connected: list[int] = []
        self.lost: list[str] = []

    def changes_until(self, uuid: str) -> list[str]:
        """All uuids told up to and with this one."""
        told: list[str] = []
        while uuid not in told:
            told.append(self.changes.get(timeout=PATIENT_S))
        return told


@pytest.fixture
def heard() -> Heard:
    return Heard()


def listen(uri: str, heard: Heard, **options: Any) -> LibvirtConnection:
    return LibvirtConnection(
        uri,
        on_change=heard.changes.put,
        on_connected=heard.connected.append,
        on_lost=heard.lost.append,
        **{"patience": QUICK, **options},
    )


@pytest.fixture
def connection(libvirtd: Libvirtd, heard: Heard) -> Iterator[LibvirtConnection]:
    connection = listen(libvirtd.ro_uri, heard)
    connection.connect(PATIENT_S)
    yield connection
    connection.close()


def wait_for_number(connection: LibvirtConnection, number: int) -> None:
    wait_until(lambda: connection.is_connected and connection.number >= number, f"connection {number}", PATIENT_S)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_daemon_that_ends_is_told_without_a_call_and_found_again(
    how: str, libvirtd: Libvirtd, connection: LibvirtConnection, heard: Heard
) -> None:
    getattr(libvirtd, how)()
    wait_until(lambda: heard.lost, "the loss to be told")
    assert "closed by its daemon" in heard.lost[0]
    wait_until(
        lambda: "libvirt is not running" in str(connection.problem) or "nobody listens" in str(connection.problem),
        "the cause",
    )
    with pytest.raises(LibvirtUnavailable, match=r"systemctl start libvirtd"):
        LibvirtHost(connection).list_domains()
    libvirtd.start()
    wait_for_number(connection, 2)
    assert heard.connected == [1, 2]
    assert len(heard.lost) == 1
    assert connection.problem is None
    assert LibvirtHost(connection).list_domains().connection == 2


def test_a_frozen_daemon_costs_each_call_its_deadline_and_is_used_again_once_it_answers(
    libvirtd: Libvirtd, connection: LibvirtConnection, heard: Heard, guest: Callable[..., Guest]
) -> None:
    made = guest("a", start=False)
    libvirtd.pause()
    with pytest.raises(LibvirtTimeout, match=r"did not list the domains within 1 s"):
        LibvirtHost(connection).list_domains()
    wait_until(lambda: heard.lost, "keepalive to notice")
    assert "did not answer the keepalive" in heard.lost[0]
    wait_until(lambda: "does not answer" in str(connection.problem), "the open to be late")
    with pytest.raises(LibvirtUnavailable, match=r"frozen or overloaded"):
        LibvirtHost(connection).list_domains()
    libvirtd.resume()
    wait_for_number(connection, 2)
    assert LibvirtHost(connection).list_domains().uuids == {made.uuid}


def test_opens_of_a_frozen_daemon_do_not_pile_up(
    libvirtd: Libvirtd, connection: LibvirtConnection, heard: Heard
) -> None:
    libvirtd.pause()
    wait_until(lambda: heard.lost, "keepalive to notice")
    before = threading.active_count()
    wait_until(lambda: "does not answer" in str(connection.problem), "the open to be late")
    time.sleep(4 * QUICK.open_timeout_s)  # several tries
    opening = [thread for thread in threading.enumerate() if thread.name == "libvirt-open"]
    assert len(opening) <= 2
    assert threading.active_count() <= before + 2


def test_a_frozen_daemon_that_is_killed_and_started_is_found_again(
    libvirtd: Libvirtd, connection: LibvirtConnection, heard: Heard
) -> None:
    libvirtd.pause()
    wait_until(lambda: "does not answer" in str(connection.problem), "the open to be late")
    libvirtd.kill()
    libvirtd.start()
    wait_for_number(connection, 2)
    assert LibvirtHost(connection).list_domains().uuids == frozenset()


def test_after_ten_restarts_each_event_is_told_once(
    libvirtd: Libvirtd, connection: LibvirtConnection, heard: Heard, guest: Callable[..., Guest]
) -> None:
    for number in range(2, 12):
        libvirtd.kill()
        libvirtd.start()
        wait_for_number(connection, number)
    assert heard.connected == list(range(1, 12))
    first, last = guest("first", start=False), guest("last", start=False)
    assert heard.changes_until(last.uuid) == [first.uuid, last.uuid]


def test_disposed_connections_leave_no_thread_and_no_open_file(
    libvirtd: Libvirtd, connection: LibvirtConnection
) -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = open_files()
    for number in range(2, 7):
        libvirtd.kill()
        libvirtd.start()
        wait_for_number(connection, number)
    wait_until(lambda: open_files() <= before, f"{open_files()} open files to become {before} again")
    wait_until(
        lambda: not [t for t in threading.enumerate() if t.name in ("libvirt-dispose", "libvirt-open")], "threads"
    )


def test_changes_of_live_pins_state_and_metadata_are_told(
    libvirtd: Libvirtd, connection: LibvirtConnection, heard: Heard, guest: Callable[..., Guest]
) -> None:
    made, marker = guest("a", iothread=["0"]), guest("marker", start=False)
    changes = [
        ("vcpupin", "a", "0", "1", "--live"),
        ("emulatorpin", "a", "1", "--live"),
        ("iothreadpin", "a", "1", "1", "--live"),
        ("metadata", "a", "http://example.org/x", "--key", "k", "--set", "<x/>", "--live"),
        ("suspend", "a"),
        ("resume", "a"),
        ("destroy", "a"),
        ("undefine", "a"),
    ]
    heard.changes_until(marker.uuid)
    for change in changes:
        libvirtd.virsh(*change)
        assert set(heard.changes_until(made.uuid)) == {made.uuid}, change
        while not heard.changes.empty():  # stopped and shut-down are two events of one change
            heard.changes.get()


def test_a_guest_that_is_killed_from_outside_is_told(
    connection: LibvirtConnection, heard: Heard, guest: Callable[..., Guest]
) -> None:
    made, marker = guest("a"), guest("marker", start=False)
    heard.changes_until(marker.uuid)
    assert made.pid is not None
    os.kill(made.pid, 9)
    assert heard.changes_until(made.uuid) == [made.uuid]


def test_a_listener_that_fails_costs_no_further_event(
    libvirtd: Libvirtd, heard: Heard, guest: Callable[..., Guest], caplog: pytest.LogCaptureFixture
) -> None:
    def fail_once(uuid: str) -> None:
        heard.changes.put(uuid)
        if len(heard.connected) == 1:
            heard.connected.append(0)
            raise RuntimeError("a listener fails")

    connection = LibvirtConnection(
        libvirtd.ro_uri, patience=QUICK, on_change=fail_once, on_connected=heard.connected.append
    )
    connection.connect(PATIENT_S)
    with contextlib.closing(connection):
        first, last = guest("first", start=False), guest("last", start=False)
        assert heard.changes_until(last.uuid) == [first.uuid, last.uuid]
        assert connection.loop_problem is None
    assert "a listener fails" in caplog.text


def test_an_idle_connection_and_one_with_a_long_call_outlive_many_keepalives(
    connection: LibvirtConnection, heard: Heard
) -> None:
    keepalives_s = 2 * QUICK.keepalive_interval_s * (QUICK.keepalive_count + 1)
    time.sleep(keepalives_s)
    connection.call(lambda _raw: time.sleep(keepalives_s), timeout_s=PATIENT_S)
    assert (connection.is_connected, connection.number, heard.lost) == (True, 1, [])


def test_a_list_is_complete_only_when_the_connection_has_settled(
    libvirtd: Libvirtd, connection: LibvirtConnection, heard: Heard, guest: Callable[..., Guest]
) -> None:
    now = [1000.0]
    made = guest("a", start=False)
    timed = listen(libvirtd.ro_uri, heard, clock=lambda: now[0], patience=Patience(settle_s=3.0))
    timed.connect(PATIENT_S)
    with contextlib.closing(timed):
        told = []
        for now[0] in (1000.0, 1002.9, 1003.0, 1100.0):
            listing = LibvirtHost(timed).list_domains()
            told.append((listing.begun_at, listing.complete, set(listing.uuids) == {made.uuid}))
    assert told == [(1000.0, False, True), (1002.9, False, True), (1003.0, True, True), (1100.0, True, True)]


def test_the_first_list_after_a_start_lacks_nobody(
    libvirtd: Libvirtd, connection: LibvirtConnection, guest: Callable[..., Guest]
) -> None:
    uuids = {guest("runs").uuid} | {guest(f"off-{number}", start=False).uuid for number in range(5)}
    for number in range(2, 6):
        libvirtd.kill()
        libvirtd.start()
        wait_for_number(connection, number)
        assert LibvirtHost(connection).list_domains().uuids == uuids


def test_libvirt_itself_refuses_every_change_over_this_connection(
    connection: LibvirtConnection, guest: Callable[..., Guest]
) -> None:
    made = guest("a", start=False)
    for change in (
        lambda raw: raw.lookupByUUIDString(made.uuid).create(),
        lambda raw: raw.lookupByUUIDString(made.uuid).undefine(),
        lambda raw: raw.defineXML("<domain/>"),
    ):
        with pytest.raises(LibvirtError, match=r"read only"):
            connection.call(change)


ENDING = """
import os, signal, sys, time
from agent.adapters.libvirt import LibvirtConnection, LibvirtHost, Patience
from agent.errors import LibvirtTimeout
uri, pid, calls, close = sys.argv[1], *map(int, sys.argv[2:])
connection = LibvirtConnection(uri, patience=Patience(call_timeout_s=0.3, keepalive_interval_s=600))
connection.connect(30)
other = LibvirtConnection(uri)
os.kill(pid, signal.SIGSTOP)
for _ in range(calls):
    try:
        LibvirtHost(connection).list_domains()
    except LibvirtTimeout:
        print("late", flush=True)
other.start()
time.sleep(0.3)
if close:
    connection.close()
print("end", flush=True)
"""


@pytest.mark.parametrize("calls", [0, 3])
@pytest.mark.parametrize("closes", [True, False])
def test_a_process_ends_cleanly_although_its_calls_and_its_open_hang(
    calls: int, closes: bool, libvirtd: Libvirtd
) -> None:
    arguments = [libvirtd.ro_uri, str(libvirtd.pid()), str(calls), str(int(closes))]
    done = subprocess.run(
        [sys.executable, "-c", ENDING, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENT_S,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert (done.returncode, done.stdout) == (0, "late\n" * calls + "end\n"), done.stderr
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["libvirt call hangs"] * calls


# --- who cannot connect, and what the sentence says -------------------------------------------


def why_not(uri: str) -> str:
    connection = LibvirtConnection(uri, patience=QUICK)
    with contextlib.closing(connection), pytest.raises(LibvirtUnavailable) as caught:
        connection.connect(PATIENT_S)
    assert connection.problem == str(caught.value)
    return str(caught.value)


def test_a_missing_socket_is_named_and_the_command_that_makes_it(tmp_path: Path) -> None:
    path = tmp_path / "no-sock"
    assert why_not(f"qemu:///system?socket={path}") == (
        f"libvirt is not running: there is no socket {path}. Start it: systemctl start libvirtd"
    )


def test_a_socket_that_nobody_listens_on_is_told_from_a_missing_one(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    assert f"nobody listens on {path}: the libvirt daemon that made this socket has ended" in why_not(
        f"qemu:///system?socket={path}"
    )


@pytest.mark.parametrize("uri", ["qemu:///systm", "xen:///system"])
def test_a_wrong_uri_is_quoted_with_the_right_one(uri: str, libvirtd: Libvirtd) -> None:
    sentence = why_not(f"{uri}?socket={libvirtd.dir}/run/libvirt/libvirt-sock-ro")
    assert sentence.startswith(f"libvirt cannot open the URI {uri}?socket=")
    assert sentence.endswith("On a KVM host it is qemu:///system")


AS_NOBODY = """
import os, pwd, sys
from agent.adapters.libvirt import LibvirtConnection, LibvirtHost
from agent.adapters.libvirt.binding import load_libvirt
from agent.errors import LibvirtUnavailable
load_libvirt()
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for uri in sys.argv[1:]:
    connection = LibvirtConnection(uri)
    try:
        connection.connect(30)
        print(len(LibvirtHost(connection).list_domains().uuids))
    except LibvirtUnavailable as error:
        print(error)
    connection.close()
"""


def told_to_nobody(*uris: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, *uris],
        capture_output=True,
        text=True,
        timeout=PATIENT_S,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    return done.stdout.splitlines()


def test_another_user_may_read_over_the_read_only_socket_and_is_told_so(libvirtd: Libvirtd) -> None:
    path = libvirtd.dir / "run/libvirt/libvirt-sock"
    advice = f"Use the read-only socket {path}-ro, or add the user to the group that owns the socket"
    assert told_to_nobody(libvirtd.uri, libvirtd.ro_uri) == [
        f"user nobody may not connect to {path} (group root, mode srwx------). {advice}",
        "0",
    ]


def test_a_daemon_that_asks_for_a_password_is_told_from_a_closed_socket(libvirtd: Libvirtd) -> None:
    configuration = libvirtd.dir / "etc/libvirt/libvirtd.conf"
    before = configuration.read_text()
    libvirtd.stop()
    configuration.write_text(before.replace('auth_unix_ro = "none"', 'auth_unix_ro = "sasl"'))
    try:
        libvirtd.start()
        told = told_to_nobody(libvirtd.ro_uri)
    finally:
        libvirtd.stop()
        configuration.write_text(before)
    advice = 'Allow the action org.libvirt.unix.monitor in polkit, or set auth_unix_ro = "none" in libvirtd.conf'
    assert told == [f"libvirt refuses to let user nobody read (authentication failed: authentication failed). {advice}"]


def test_the_default_uri_reaches_modular_daemons_by_their_own_socket(libvirtd: Libvirtd) -> None:
    """Where virtqemud's socket is the only one. libvirtd stands behind it here: it speaks the same protocol."""
    program = """
from agent.adapters.libvirt import LibvirtConnection, LibvirtHost
connection = LibvirtConnection()
connection.connect(30)
print(len(LibvirtHost(connection).list_domains().uuids))
connection.close()
"""
    own = libvirtd.dir / "modular"
    own.mkdir(exist_ok=True)
    (own / "virtqemud-sock-ro").touch()
    script = (
        f"mount --bind {own} /run/libvirt && "
        f"mount --bind {libvirtd.dir}/run/libvirt/libvirt-sock-ro /run/libvirt/virtqemud-sock-ro && "
        f'exec "$0" -c "$1"'
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, sys.executable, program],
        capture_output=True,
        text=True,
        timeout=PATIENT_S,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
