"""The daemon as a guest of its host: which CPUs and how much memory it takes, whom it lets in, what it can look at."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest

from agent.core.cpuset import CpuSet
from agent.core.report import Report
from tests.builders_sysfs import build_tree, write
from tests.functional.daemon import START_S, Daemon
from tests.functional.lab import Guest, Libvirtd, wait_until
from tests.recorded_hosts import unpack
from tests.rig import H8

MakeGuest = Callable[..., Guest]
RSS_LIMIT_KIB = 75 * 1024
NOBODY = 65534


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    made = Daemon(None)
    yield made
    made.clean()


def sets(dedicated: str, shared: str) -> str:
    return f"[tracker]\ninterval=2\n[compute]\ncpu_dedicated_set={dedicated}\ncpu_shared_set={shared}\n"


def thread_cpus(daemon: Daemon) -> set[str]:
    """Where the daemon's threads may run: one text for each different set."""
    threads = Path(f"/proc/{daemon.process.pid}/task").iterdir()
    return {str(CpuSet(os.sched_getaffinity(int(thread.name)))) for thread in threads}


def ask(path: Path, request: str) -> str:
    """The first line of an answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(START_S)
        client.connect(str(path))
        client.sendall(request.encode())
        return client.makefile("rb").readline().decode().strip()


# --- CPUs and memory -----------------------------------------------------------------------------


def test_every_thread_keeps_off_the_dedicated_cpus_and_comes_back_after_a_reload(libvirtd: Libvirtd) -> None:
    everything = CpuSet(os.sched_getaffinity(0))
    dedicated = CpuSet((max(everything),))
    rest = everything - dedicated
    assert rest, "this test needs two CPUs"
    daemon = Daemon(libvirtd.ro_uri, config=sets(str(dedicated), str(rest)))
    try:
        daemon.start()
        wait_until(lambda: thread_cpus(daemon) == {str(rest)}, "all threads to leave the dedicated CPU", START_S)
        daemon.configure(sets(str(rest), str(dedicated)))
        daemon.reload()
        wait_until(lambda: thread_cpus(daemon) == {str(dedicated)}, "all threads to move", START_S)
        daemon.configure("")
        daemon.reload()
        wait_until(lambda: thread_cpus(daemon) == {str(everything)}, "all threads to be free again", START_S)
    finally:
        daemon.clean()


def test_twenty_guests_fit_into_the_memory_budget(libvirtd: Libvirtd, guest: MakeGuest) -> None:
    for number in range(20):
        guest(f"g{number:02}", pin={0: "1"})
    daemon = Daemon(libvirtd.ro_uri)
    try:
        daemon.start()
        told = daemon.report()
        assert len([one for one in told.guests if one.sighting.state == "running"]) == 20
        daemon.wait_for(lambda later: later.generation > told.generation + 5, "some passes")
        status = Path(f"/proc/{daemon.process.pid}/status").read_text()
        rss_kib = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")))
        assert rss_kib < RSS_LIMIT_KIB
    finally:
        daemon.clean()


def test_eventlet_is_installed_and_never_imported() -> None:
    """The interpreter itself writes down each import; greenlet is eventlet's own C library."""
    assert metadata.version("eventlet")
    daemon = Daemon(None, environ={"PYTHONPROFILEIMPORTTIME": "1"})
    try:
        daemon.start()
        daemon.agentctl("status")
        maps = Path(f"/proc/{daemon.process.pid}/maps").read_text()
        assert daemon.stop() == 0
        lines = (line.rpartition("|") for line in daemon.log().splitlines() if line.startswith("import time:"))
        imported = {name.strip() for _, _, name in lines}
        assert {"agent.watch", "oslo_log.log"} <= imported
        assert {
            name for name in imported if name.partition(".")[0] in {"eventlet", "greenlet", "oslo_messaging"}
        } == set()
        assert "greenlet" not in maps
    finally:
        daemon.clean()


# --- sockets -------------------------------------------------------------------------------------


def test_the_sockets_have_their_modes_and_the_second_one_only_reads(daemon: Daemon) -> None:
    daemon.start()
    full, reading = daemon.dir / "sock/agent.sock", daemon.dir / "sock/agent-ro.sock"
    assert [oct(stat.S_IMODE(path.stat().st_mode)) for path in (full, reading)] == ["0o660", "0o666"]
    post = "POST /v1/health HTTP/1.1\r\nHost: agent\r\nContent-Length: 0\r\n\r\n"
    assert ask(reading, post) == "HTTP/1.1 405 Method Not Allowed"
    assert ask(full, post) == "HTTP/1.1 405 Method Not Allowed"
    get = "GET /livez HTTP/1.1\r\nHost: agent\r\n\r\n"
    assert [ask(path, get) for path in (full, reading)] == ["HTTP/1.1 200 OK", "HTTP/1.1 200 OK"]


def test_anybody_may_read_and_only_the_group_may_use_the_full_socket(daemon: Daemon) -> None:
    daemon.dir.chmod(0o755)
    daemon.start()
    assert connect_as_nobody(daemon.dir / "sock/agent-ro.sock") == 0
    assert connect_as_nobody(daemon.dir / "sock/agent.sock") == errno.EACCES


def connect_as_nobody(path: Path) -> int:
    """The error number of a connect by a user without any group of ours; 0: it worked."""
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        os._exit(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect_ex(str(path)))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# --- other hosts' trees --------------------------------------------------------------------------


def shown(root: Path) -> tuple[Daemon, Report]:
    daemon = Daemon(None, config="[tracker]\ninterval=1\n", arguments=["--sysfs-root", str(root)])
    daemon.start()
    return daemon, daemon.report()


def test_a_recorded_machine_is_shown_as_if_it_were_here(tmp_path: Path) -> None:
    unpack("emulated-16cpu-4n-sriov", tmp_path)
    daemon, told = shown(tmp_path)
    try:
        assert (str(told.topology.online), [cell.id for cell in told.topology.cells]) == ("0-15", [0, 1, 2, 3])
        assert [device.type for device in told.topology.pci].count("type-VF") > 0
        assert (told.guests, told.health.status, told.health.ready) == ((), "ok", True)
        assert {source.name for source in told.health.sources} == {"journal", "sysfs"}
        daemon.wait_for(lambda later: later.generation > told.generation + 2, "passes over it")
        assert thread_cpus(daemon) == {str(CpuSet(os.sched_getaffinity(0)))}
    finally:
        daemon.clean()


def test_a_change_in_a_tree_is_seen_by_the_next_pass(tmp_path: Path) -> None:
    build_tree(tmp_path, **H8)
    daemon, told = shown(tmp_path)
    try:
        assert str(told.topology.online) == "0-7"
        build_tree(tmp_path, **H8, online="0-5")
        daemon.wait_for(lambda later: str(later.topology.online) == "0-5", "the offline CPUs")
    finally:
        daemon.clean()


def test_a_tree_with_nothing_in_it_is_a_problem_and_no_reason_not_to_start(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    daemon, told = shown(tmp_path)
    try:
        assert (told.topology.cpus, len(told.topology.problems) > 0) == ((), True)
        assert daemon.stop() == 0
    finally:
        daemon.clean()


def test_rubbish_in_every_file_is_a_problem_and_no_reason_not_to_start(tmp_path: Path) -> None:
    build_tree(tmp_path, **H8)
    for path in [one for one in tmp_path.rglob("*") if one.is_file() and not one.is_symlink()]:
        write(tmp_path, str(path.relative_to(tmp_path)), b"\xff\xfe rubbish\0" * 40)
    daemon, told = shown(tmp_path)
    try:
        assert told.topology.problems
        daemon.wait_for(lambda later: later.generation > told.generation + 2, "passes over it")
        assert "Traceback" not in daemon.log()
    finally:
        daemon.clean()
