"""Calls that hang, many calls at once, what is said of a libvirt that cannot be opened; over libvirt's test driver."""

from __future__ import annotations

import contextlib
import functools
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.adapters.libvirt import LibvirtConnection, LibvirtHost, Patience, diagnosis
from agent.adapters.libvirt.binding import BEAT_LATE_S, EventLoop, event_loop, load_libvirt
from agent.adapters.libvirt.host import device_xml
from agent.adapters.libvirt.link import Events, Link
from agent.adapters.libvirt.workers import WorkerPool
from agent.errors import DomainGone, LibvirtError, LibvirtTimeout, LibvirtUnavailable
from tests.functional.lab import wait_until

QUICK = Patience(call_timeout_s=0.3, open_timeout_s=5.0, first_retry_s=0.01, longest_retry_s=0.05)
PATIENT_S = 60.0


@pytest.fixture
def connection() -> Iterator[LibvirtConnection]:
    connection = LibvirtConnection("test:///default", patience=QUICK, workers=2)
    connection.connect(PATIENT_S)
    yield connection
    connection.close()


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Calls that wait for it hang until the end of the test."""
    event = threading.Event()
    yield event
    event.set()


def wait_for(event: threading.Event, _raw: object) -> bool:
    return event.wait(PATIENT_S)


def libvirt_threads(start: str) -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(start)]


def wait_for_number(connection: LibvirtConnection, number: int) -> None:
    wait_until(lambda: connection.is_connected and connection.number == number, f"connection {number}", PATIENT_S)


def hang(connection: LibvirtConnection, release: threading.Event) -> None:
    with pytest.raises(LibvirtTimeout, match=r"did not count sheep within 0\.3 s"):
        connection.call(lambda _raw: release.wait(PATIENT_S), doing="count sheep")


def test_a_hung_call_costs_one_worker(connection: LibvirtConnection, release: threading.Event) -> None:
    hang(connection, release)
    assert len(LibvirtHost(connection).list_domains().uuids) > 0
    assert (connection.number, connection.is_connected) == (1, True)


def test_a_worker_is_free_again_when_its_hung_call_ends(
    connection: LibvirtConnection, release: threading.Event
) -> None:
    hang(connection, release)
    release.set()
    wait_until(lambda: connection.current().pool.hung == 0, "the worker to be free")
    for _ in range(5):
        connection.call(lambda raw: raw.getCapabilities())
    assert connection.number == 1


def test_when_every_worker_hangs_another_connection_is_opened(
    connection: LibvirtConnection, release: threading.Event
) -> None:
    first = connection.current()
    hang(connection, release)
    hang(connection, release)
    wait_for_number(connection, 2)
    assert len(LibvirtHost(connection).list_domains().uuids) > 0
    release.set()
    assert first.disposed.wait(PATIENT_S)
    assert first.pool.hung == 0


def test_hung_calls_are_bounded_over_connections_too(connection: LibvirtConnection, release: threading.Event) -> None:
    for number in range(1, 5):
        wait_for_number(connection, number)
        hang(connection, release)
        hang(connection, release)
    wait_until(lambda: "8 calls to libvirt at test:///default hang" in str(connection.problem), "the refusal")
    with pytest.raises(LibvirtUnavailable, match=r"no further connection is opened"):
        LibvirtHost(connection).list_domains()
    release.set()
    wait_for_number(connection, 5)
    assert connection.problem is None


def test_one_call_that_hangs_among_many_costs_only_itself(
    connection: LibvirtConnection, release: threading.Event
) -> None:
    def work(number: int) -> Callable[[Any], int]:
        return lambda _raw: int(release.wait(PATIENT_S)) if number == 3 else number

    works = ((number, f"count {number}", work(number)) for number in range(50))
    answers = dict(connection.each_call(connection.current(), works, at_once=2))
    late = answers.pop(3)
    assert isinstance(late, LibvirtTimeout)
    assert answers == {number: number for number in range(50) if number != 3}


def test_no_more_calls_run_at_a_time_than_were_asked_for() -> None:
    running: list[int] = []
    most: list[int] = []

    def work(_raw: Any) -> None:
        running.append(1)
        most.append(len(running))
        time.sleep(0.02)
        running.pop()

    connection = LibvirtConnection("test:///default", workers=8)
    with contextlib.closing(connection):
        connection.connect(PATIENT_S)
        list(connection.each_call(connection.current(), ((n, "wait", work) for n in range(30)), at_once=3))
    assert max(most) == 3


def test_calls_lose_no_time_to_those_for_which_there_is_no_worker_yet(connection: LibvirtConnection) -> None:
    works = ((number, "wait", lambda _raw: time.sleep(0.1)) for number in range(16))
    answers = dict(connection.each_call(connection.current(), works, at_once=16, timeout_s=0.5))
    assert answers == dict.fromkeys(range(16))  # 0.8 s in all, two at a time


def test_the_deadline_of_each_call_runs_from_its_own_begin(connection: LibvirtConnection) -> None:
    works = ((number, "wait", lambda _raw: time.sleep(0.05)) for number in range(30))
    answers = dict(connection.each_call(connection.current(), works, at_once=2, timeout_s=0.5))
    assert answers == dict.fromkeys(range(30))  # 0.75 s in all


def test_a_call_waits_for_a_worker_no_longer_than_its_deadline(
    connection: LibvirtConnection, release: threading.Event
) -> None:
    link = connection.current()
    busy = [link.pool.submit(lambda: release.wait(PATIENT_S)) for _ in range(2)]
    wait_until(lambda: all(job.future.running() for job in busy), "both workers to be busy")
    with pytest.raises(LibvirtTimeout, match=r"all 2 calls .* were under way \(0 hang\)"):
        connection.call(lambda raw: raw.getCapabilities())
    assert connection.number == 1  # busy is not hung


def test_a_mistake_in_the_work_itself_is_not_taken_for_libvirts(connection: LibvirtConnection) -> None:
    with pytest.raises(ZeroDivisionError):
        connection.call(lambda _raw: 1 // 0)


def test_what_libvirt_refuses_is_told_with_its_words_and_number(connection: LibvirtConnection) -> None:
    with pytest.raises(LibvirtError, match=r"could not ask libvirt: .*Domain not found.* \(error 42\)") as caught:
        connection.call(lambda raw: raw.lookupByName("nobody"))
    assert isinstance(caught.value, DomainGone)
    with pytest.raises(LibvirtError, match=r"\(error 3\)"):
        connection.call(lambda raw: raw.getMemoryParameters())


def test_libvirt_prints_nothing_by_itself(connection: LibvirtConnection, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DomainGone):
        connection.call(lambda raw: raw.lookupByName("nobody"))
    assert capfd.readouterr() == ("", "")


def test_a_thousand_domains_are_listed_and_read(tmp_path: Path) -> None:
    rows = "".join(
        f"<domain type='test'><name>d{n}</name><uuid>00000000-0000-4000-8000-{n:012d}</uuid><memory>1024</memory>"
        "<os><type>hvm</type></os></domain>"
        for n in range(1000)
    )
    (tmp_path / "node.xml").write_text(f"<node>{rows}</node>")
    connection = LibvirtConnection(f"test://{tmp_path}/node.xml")
    with contextlib.closing(connection):
        connection.connect(PATIENT_S)
        host = LibvirtHost(connection)
        listing = host.list_domains()
        texts = dict(host.read_domain_texts(listing.uuids))
    assert {entry.name for entry in listing.entries.values()} == {f"d{n}" for n in range(1000)}
    assert texts.keys() == listing.uuids
    assert not [text for text in texts.values() if isinstance(text, Exception)]


# --- retries, the loop, the keeper -------------------------------------------------------------


def test_tries_to_connect_back_off_exponentially_to_a_cap_with_jitter(tmp_path: Path) -> None:
    waits: list[float] = []
    patience = Patience(first_retry_s=0.1, longest_retry_s=2.0)
    enough = threading.Event()

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) >= 10:
            enough.set()
            time.sleep(0.05)

    connection = LibvirtConnection(f"qemu:///system?socket={tmp_path}/none", patience=patience, sleep=sleep)
    with contextlib.closing(connection):
        connection.start()
        assert enough.wait(PATIENT_S)
    due = [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0, 2.0, 2.0]
    assert all(least <= wait <= least + 0.5 for least, wait in zip(due, waits, strict=False))
    assert len(set(waits[5:10])) > 1


def test_connections_that_end_soon_are_opened_again_ever_more_slowly() -> None:
    rests: list[float] = []
    patience = Patience(call_timeout_s=0.05, first_retry_s=0.1, longest_retry_s=0.5)
    connection = LibvirtConnection("test:///default", patience=patience, workers=1, sleep=rests.append)
    with contextlib.closing(connection):
        connection.connect(PATIENT_S)
        for number in range(2, 8):
            over = threading.Event()
            with pytest.raises(LibvirtTimeout):
                connection.call(functools.partial(wait_for, over))
            over.set()
            wait_for_number(connection, number)
    assert rests == [0.1, 0.2, 0.4, 0.5, 0.5]


class WithoutNodeDevices:
    """A virConnect behind which nobody has node devices, as virtqemud is without virtnodedevd."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def nodeDeviceEventRegisterAny(self, *arguments: object) -> int:  # noqa: N802
        raise load_libvirt().libvirtError("Failed to connect socket to '/run/libvirt/virtnodedevd-sock-ro'")


def test_guests_are_seen_without_node_devices(caplog: pytest.LogCaptureFixture) -> None:
    changes: queue.SimpleQueue[str] = queue.SimpleQueue()
    libvirt = load_libvirt()
    event_loop()
    raw = libvirt.open("test:///default")
    events = Events(on_change=changes.put, on_device_change=changes.put, on_closed=lambda _link, _sentence: None)
    link = Link(WithoutNodeDevices(raw), "test:///default", events, WorkerPool(1, "libvirt-call"))
    link.set_up()
    xml = "<domain type='test'><name>seen</name><memory>1024</memory><os><type>hvm</type></os></domain>"
    domain = raw.defineXML(xml)
    assert changes.get(timeout=PATIENT_S) == domain.UUIDString()
    assert "tells of no change of node devices" in caplog.text
    domain.undefine()
    link.dispose()
    assert link.disposed.wait(PATIENT_S)


def test_a_node_device_that_went_after_the_list_has_no_xml() -> None:
    raw = load_libvirt().open("test:///default")
    device = raw.nodeDeviceCreateXML(
        "<device><parent>scsi_host1</parent><capability type='scsi_host'><capability type='fc_host'>"
        "<wwnn>2000000012341234</wwnn><wwpn>1000000012349999</wwpn></capability></capability></device>",
        0,
    )
    before = device_xml(device, raw)
    raw.nodeDeviceLookupByName(device.name()).destroy()
    assert before is not None
    assert device_xml(device, raw) is None
    raw.close()


def test_a_loop_that_ends_says_so(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise OSError("poll is broken")

    loop = EventLoop(fail, lambda _period, _beat: None)
    before = loop.problem
    loop.start()
    after = wait_until(lambda: loop.problem, "the loop to end")
    assert (before, after) == (None, "libvirt's event loop has ended (poll is broken); restart the agent")
    assert "Traceback" in caplog.text


def test_a_loop_that_no_longer_turns_says_so(release: threading.Event) -> None:
    def stay_away() -> None:
        release.wait(PATIENT_S)
        raise OSError("released")

    now = [0.0]
    beats: list[Callable[[], None]] = []
    loop = EventLoop(stay_away, lambda _period, beat: beats.append(beat), clock=lambda: now[0])
    loop.start()
    told = []
    for now[0] in (BEAT_LATE_S, BEAT_LATE_S + 1):
        told.append(loop.problem)
    beats[0]()
    told.append(loop.problem)
    assert told == [None, "libvirt's event loop has not turned for 31 s; restart the agent", None]


def test_the_end_of_the_keeper_is_told(tmp_path: Path) -> None:
    def fail(_seconds: float) -> None:
        raise RuntimeError("no sleep")

    connection = LibvirtConnection(f"qemu:///system?socket={tmp_path}/none", sleep=fail)
    with contextlib.closing(connection):
        connection.start()
        wait_until(lambda: connection.loop_problem, "the keeper to end")
        assert connection.loop_problem == "the thread that keeps the libvirt connection has ended; restart the agent"


def test_a_connection_that_comes_while_it_is_closed_is_closed_too() -> None:
    comes, go_on = threading.Event(), threading.Event()

    def clock() -> float:
        if threading.current_thread().name == "libvirt-keeper":
            comes.set()
            go_on.wait(PATIENT_S)
        return time.monotonic()

    connection = LibvirtConnection("test:///default", clock=clock)
    connection.start()
    assert comes.wait(PATIENT_S)  # it is open, and about to become the current one
    closing = threading.Thread(target=connection.close)
    closing.start()
    closing.join(0.3)  # it has looked for a connection to close
    go_on.set()
    closing.join(PATIENT_S)
    wait_until(lambda: not libvirt_threads("libvirt-keeper"), "the keeper to end")
    assert not connection.is_connected
    assert connection.problem == "the agent has closed its connection to libvirt"


# --- sentences that need no daemon -------------------------------------------------------------


def refused(uri: str) -> Any:
    libvirt = load_libvirt()
    with pytest.raises(libvirt.libvirtError) as caught:
        libvirt.openReadOnly(uri)
    return caught.value


@pytest.mark.parametrize(
    ("installed", "sentence"),
    [
        ((), "libvirt is not installed on this host (no libvirtd, no virtqemud, no socket {path}). {apt}"),
        (("libvirtd",), "libvirt is not running: there is no socket {path}. {libvirtd}"),
        (("virtqemud",), "libvirt is not running: there is no socket {path}. {virtqemud}"),
        (("libvirtd", "virtqemud"), "libvirt is not running: there is no socket {path}. {libvirtd}"),
    ],
)
def test_a_missing_socket_is_explained_by_what_is_installed(
    installed: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    uri = f"qemu:///system?socket={tmp_path}/sock"

    def find(name: str) -> str | None:
        return f"/usr/sbin/{name}" if name in installed else None

    assert diagnosis.explain(uri, refused(uri), load_libvirt(), find) == sentence.format(
        path=tmp_path / "sock",
        apt="Install it: apt-get install libvirt-daemon-system",
        libvirtd="Start it: systemctl start libvirtd",
        virtqemud="Start it: systemctl start virtqemud.socket virtqemud-ro.socket",
    )


def test_text_that_is_no_uri_is_quoted() -> None:
    assert diagnosis.explain("not a uri", refused("not a uri"), load_libvirt()) == (
        "libvirt cannot open the URI not a uri: internal error: Unable to parse URI not a uri. "
        "On a KVM host it is qemu:///system"
    )


@pytest.mark.parametrize(
    ("uri", "wrong"),
    [
        ("xyz:///?socket={path}", "'xyz' is no driver of libvirt's"),
        ("xyz+unix:///system?socket={path}", "'xyz' is no driver of libvirt's"),
        ("qemu:///sytem?socket={path}", "the driver 'qemu' has /system and /session, not '/sytem'"),
        ("qemu://?socket={path}", "the driver 'qemu' has /system and /session, not ''"),
        ("qemu://[/system", "it is no URI (Invalid IPv6 URL)"),
    ],
)
def test_a_wrong_uri_is_told_also_where_no_daemon_runs_that_could_say_so(uri: str, wrong: str, tmp_path: Path) -> None:
    uri = uri.format(path=tmp_path / "sock")
    told = diagnosis.explain(uri, refused(uri), load_libvirt(), find_all)
    assert told == f"libvirt cannot open the URI {uri}: {wrong}. On a KVM host it is qemu:///system"


@pytest.mark.parametrize(
    "uri", ["qemu:///session", "QEMU:///system", "qemu+unix:///system", "lxc:///system", "xen:///system", "ch:///system"]
)
def test_a_uri_that_a_daemon_could_open_is_not_blamed_for_its_absence(uri: str, tmp_path: Path) -> None:
    uri = f"{uri}?socket={tmp_path}/sock"
    told = diagnosis.explain(uri, refused(uri), load_libvirt(), find_all)
    assert told.startswith(f"libvirt is not running: there is no socket {tmp_path}/sock. ")


def find_all(name: str) -> str:
    """Where everything is installed."""
    return f"/usr/sbin/{name}"


def test_a_missing_client_library_is_named_and_breaks_no_import() -> None:
    program = """
import sys
sys.modules["libvirt"] = None
from agent.adapters.libvirt import LibvirtConnection
from agent.errors import LibvirtUnavailable
connection = LibvirtConnection()
try:
    connection.connect(30)
except LibvirtUnavailable as error:
    print(error)
print(connection.loop_problem)
connection.close()
"""
    first, second = output_of(program).splitlines()
    assert first.startswith("libvirt's client library cannot be loaded (")
    assert first.endswith("Install it: apt-get install libvirt0, and libvirt-python into the virtualenv of the agent")
    assert second == "None"


def test_to_ask_for_the_state_of_the_connection_starts_no_thread() -> None:
    program = """
import sys, threading
sys.modules["libvirt"] = None
from agent.adapters.libvirt import LibvirtConnection
tried, go_on, connected = threading.Event(), threading.Event(), threading.Event()

def sleep(_seconds):
    tried.set()
    go_on.wait(60)

connection = LibvirtConnection("test:///default", sleep=sleep, on_connected=lambda _number: connected.set())
connection.start()
tried.wait(60)
del sys.modules["libvirt"]  # it is installed meanwhile
threads = {thread.name for thread in threading.enumerate()}
print(connection.loop_problem, {thread.name for thread in threading.enumerate()} - threads)
go_on.set()
print(connected.wait(60), connection.problem)
connection.close()
"""
    assert output_of(program).splitlines() == ["None set()", "True None"]


def output_of(program: str) -> str:
    """What this program prints, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=PATIENT_S,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    return done.stdout
