"""How the daemon starts, reloads, keeps its state and ends; a real process each time."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.core.cpuset import CpuSet
from agent.core.report import Report
from tests.functional.daemon import START_S, Daemon
from tests.functional.lab import Guest, Libvirtd, wait_until

MakeGuest = Callable[..., Guest]
REFUSED = "reload refused, the old configuration stays in force: "


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """A daemon whose libvirt is not there: quick, and all the rest must work."""
    made = Daemon(None)
    yield made
    made.clean()


@pytest.fixture
def watching(libvirtd: Libvirtd) -> Iterator[Daemon]:
    """A daemon on a real libvirtd."""
    made = Daemon(libvirtd.ro_uri)
    yield made
    made.clean()


@pytest.fixture
def small_disk(daemon: Daemon) -> Iterator[Path]:
    """The daemon's state folder, on a disk of 256 KiB."""
    yield from mounted(daemon)


@pytest.fixture
def small_disk_watching(watching: Daemon) -> Iterator[Path]:
    yield from mounted(watching)


def mounted(daemon: Daemon) -> Iterator[Path]:
    state = daemon.dir / "state"
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", state], check=True)
    yield state
    subprocess.run(["umount", "--lazy", state], check=True)


def sockets(daemon: Daemon) -> list[str]:
    return sorted(path.name for path in (daemon.dir / "sock").iterdir())


def problem(told: Report, source: str) -> str | None:
    return next((one.problem for one in told.health.sources if one.name == source), None)


def dates(told: Report) -> dict[str, str | None]:
    return {row.id: row.since for row in told.conflicts}


def fill(disk: Path) -> Path:
    """Leave not a byte; gives the file that has them."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(1024)):
            pass
    return filler


WRONG = (
    *("[", "\0\0", "[compute]\ncpu_dedicated_set=é\n", "[DEFAULT]\nlog_file=/no/such/folder/log\n"),
    *("[agent]\nhost=$host\n", "[agent]\nsysfs_root=$sysfs_root/x\n", f"[pci]\ndevice_spec={'[' * 5000}\n"),
    *("[agent]\nnova_conf=/dev/zero\n", "[DEFAULT]\nuse_syslog=true\nsyslog_log_facility=nope\n"),
    *("[DEFAULT]\ncpu_allocation_ratio=nan\n", "[DEFAULT]\nlogging_default_format_string=%(no)s\n"),
)
"""Of every kind of fault one."""


def refuse(daemon: Daemon, text: str) -> None:
    """Have it reload this text, which is wrong, and wait until it says so."""
    before = daemon.log().count(REFUSED)
    daemon.configure(text)
    daemon.reload()
    wait_until(lambda: daemon.log().count(REFUSED) > before, f"{text!r} to be refused", START_S)


def two_cpu_sets(dedicated: str, shared: str, interval_s: int = 2) -> str:
    tracker = f"[tracker]\ninterval={interval_s}\ndeep_interval=3600\n"
    return f"{tracker}[compute]\ncpu_dedicated_set={dedicated}\ncpu_shared_set={shared}\n"


# --- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_and_both_sockets_are_gone(daemon: Daemon, number: signal.Signals) -> None:
    daemon.start()
    assert sockets(daemon) == ["agent-ro.sock", "agent.sock"]
    assert daemon.stop(number) == 0
    assert sockets(daemon) == []
    assert daemon.log().splitlines()[-1].endswith("stopping")


def test_a_storm_of_signals_neither_ends_it_before_its_time_nor_keeps_it_from_ending(daemon: Daemon) -> None:
    daemon.start()
    for _ in range(300):
        daemon.reload()
    wait_until(lambda: "reloaded the configuration" in daemon.log(), "a reload", START_S)
    assert daemon.process.poll() is None
    for _ in range(300):
        daemon.reload()
    assert daemon.stop() == 0


def test_after_a_kill_it_starts_again_over_what_was_left_behind(daemon: Daemon) -> None:
    daemon.start()
    first = daemon.report()
    daemon.process.kill()
    daemon.process.wait()
    assert sockets(daemon) == ["agent-ro.sock", "agent.sock"]
    daemon.start()
    second = daemon.report()
    assert (second.agent_id, second.epoch) == (first.agent_id, first.epoch + 1)
    assert problem(second, "journal") is None
    assert daemon.stop() == 0


# --- twins ---------------------------------------------------------------------------------------


def test_a_twin_on_the_same_state_folder_is_refused_with_the_others_process_id(daemon: Daemon) -> None:
    daemon.start()
    command = [*daemon.command, "--socket-dir", str(daemon.dir / "other")]
    twin = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
    assert twin.returncode == 3
    assert (
        f"Another compute-agent (process {daemon.process.pid}) uses the state folder {daemon.dir}/state." in twin.stderr
    )
    assert not (daemon.dir / "other").exists()
    assert daemon.health().sources


def test_a_twin_on_the_same_sockets_is_refused_and_leaves_them_alone(daemon: Daemon) -> None:
    daemon.start()
    command = [*daemon.command, "--state-path", str(daemon.dir / "other")]
    twin = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
    assert twin.returncode == 3
    assert f"Process {daemon.process.pid} answers at {daemon.dir}/sock/agent.sock." in twin.stderr
    assert daemon.health().sources


# --- configuration -------------------------------------------------------------------------------


def test_check_config_says_what_is_in_force_and_touches_nothing(daemon: Daemon) -> None:
    daemon.configure(two_cpu_sets("1", "0"))
    done = subprocess.run([*daemon.command, "--check-config"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "dedicated CPUs: 1\nshared CPUs: 0\n" in done.stdout
    assert {path.name for path in daemon.dir.iterdir()} == {"agent.conf"}


def test_check_config_names_every_fault(daemon: Daemon) -> None:
    daemon.configure("[tracker]\ninterval=0\n[compute]\ncpu_dedicated_set=1-\n")
    for arguments in (["--check-config"], []):
        done = subprocess.run([*daemon.command, *arguments], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        faults = done.stderr.splitlines()
        assert [line.startswith("compute-agent: ") for line in faults] == [True, True]
        assert any("interval" in line for line in faults)
        assert any("cpu_dedicated_set" in line for line in faults)


def test_a_reload_changes_cpu_sets_and_interval_at_once(daemon: Daemon) -> None:
    daemon.configure(two_cpu_sets("1", "0", interval_s=3600))
    daemon.start()
    before = daemon.report()
    assert str(before.usage.host.dedicated.total) == "1"
    daemon.configure(two_cpu_sets("0", "1", interval_s=1))
    daemon.reload()
    told = daemon.wait_for(lambda told: str(told.usage.host.dedicated.total) == "0", "the new dedicated set")
    assert str(told.usage.host.shared_cpus) == "1"
    daemon.wait_for(lambda later: later.generation > told.generation + 3, "passes at the new interval")


def test_a_wrong_file_keeps_the_old_configuration_and_every_fault_is_logged(daemon: Daemon) -> None:
    daemon.configure(two_cpu_sets("1", "0"))
    daemon.start()
    refuse(daemon, "[tracker]\ninterval=0\n[compute]\ncpu_dedicated_set=1-\n")
    wait_until(lambda: daemon.log().count(REFUSED) == 2, "two faults in the log", START_S)
    assert str(daemon.report().usage.host.dedicated.total) == "1"
    for text in WRONG:
        refuse(daemon, text)
    assert "Traceback" not in daemon.log()
    daemon.config_file.unlink()
    daemon.reload()
    wait_until(lambda: str(daemon.config_file) in daemon.log().splitlines()[-1], "the missing file's fault", START_S)
    daemon.configure(two_cpu_sets("0", "1"))
    daemon.reload()
    daemon.wait_for(lambda told: str(told.usage.host.dedicated.total) == "0", "the right file to be taken")


def test_options_that_need_a_restart_are_named_and_keep_their_value(daemon: Daemon) -> None:
    daemon.configure("[libvirt]\ncall_timeout=7\n")
    daemon.start()
    daemon.configure("[libvirt]\ncall_timeout=8\n[agent]\nhost=renamed\n")
    daemon.reload()
    wait_until(lambda: "reloaded the configuration" in daemon.log(), "the reload", START_S)
    warnings = [line for line in daemon.log().splitlines() if " WARNING " in line and "until compute-agent is" in line]
    assert [line.split("__main__ ")[1] for line in warnings] == [
        f"host stays {os.uname().nodename} until compute-agent is restarted; configured is renamed",
        "call_timeout_s stays 7 until compute-agent is restarted; configured is 8",
    ]


def test_a_conflict_that_a_reload_makes_is_logged_and_dated_and_kept(watching: Daemon, guest: MakeGuest) -> None:
    one = guest("one", pin={0: "1"})
    watching.configure(two_cpu_sets("1", "0"))
    watching.start()
    assert watching.report().conflicts == ()
    watching.configure(two_cpu_sets("0", ""))
    watching.reload()
    told = watching.wait_for(lambda told: len(told.conflicts) == 1, "the conflict")
    row = f"pinned-outside-dedicated:guest:{one.uuid}"
    wait_until(lambda: f"appeared=[{row} (one)]" in watching.log(), "its line", START_S)
    assert watching.log().count(row) == 1
    assert watching.stop() == 0
    watching.start()
    assert dates(watching.report()) == dates(told) == {row: told.conflicts[0].since}


def test_a_shorter_deep_interval_of_a_reload_reads_definitions_again(
    watching: Daemon, guest: MakeGuest, libvirtd: Libvirtd
) -> None:
    guest("off", start=False)
    watching.configure("[tracker]\ninterval = 1\ndeep_interval = 3600\n")
    watching.start()
    watching.configure("[tracker]\ninterval = 1\ndeep_interval = 10\n")
    watching.reload()
    wait_until(lambda: "reloaded the configuration" in watching.log(), "the reload", START_S)
    libvirtd.virsh("setmaxmem", "off", "32M", "--config")

    def is_read(told: Report) -> bool:
        domain = told.guests[0].sighting.domain
        return domain is not None and domain.memory_kib == 32 * 1024

    watching.wait_for(is_read, "the changed definition")


# --- libvirt comes later -------------------------------------------------------------------------


def test_it_starts_without_libvirtd_and_connects_when_that_appears(
    watching: Daemon, guest: MakeGuest, libvirtd: Libvirtd
) -> None:
    guest("there", pin={0: "1"})
    libvirtd.stop()
    watching.start()
    told = watching.report()
    assert (told.health.status, told.health.ready) == ("down", False)
    assert problem(told, "libvirt") is not None
    (seen,) = told.guests  # its process and pid file tell of it
    assert (seen.sighting.name, seen.sighting.validity, seen.holds.cpus) == ("there", "last-known", CpuSet((1,)))
    libvirtd.start()
    told = watching.wait_for(lambda told: told.guests[0].sighting.validity == "valid", "the guest to be seen")
    assert (told.health.status, told.health.ready) == ("ok", True)
    assert told.usage.host.dedicated.used == CpuSet((1,))


def test_a_start_without_libvirtd_forgets_no_date_of_a_conflict(
    watching: Daemon, guest: MakeGuest, libvirtd: Libvirtd
) -> None:
    guest("one", pin={0: "1"})
    guest("two", pin={0: "1"})
    watching.start()
    first = dates(watching.report())
    assert watching.stop() == 0
    libvirtd.stop()
    for _ in range(2):
        watching.start()
        assert dates(watching.report()) == first  # the kernel shows the vCPU threads, bound to one CPU
        assert watching.stop() == 0
    libvirtd.start()
    watching.start()
    assert dates(watching.wait_for(lambda told: bool(told.conflicts), "the conflict")) == first


# --- the state folder ----------------------------------------------------------------------------


def test_a_damaged_journal_is_named_and_the_agent_stays_who_it_is(daemon: Daemon) -> None:
    daemon.start()
    first = daemon.report()
    assert daemon.stop() == 0
    (daemon.dir / "state/journal.sqlite").write_bytes(b"no database" * 1000)
    daemon.start()
    second = daemon.report()
    assert (second.agent_id, second.epoch > first.epoch) == (first.agent_id, True)
    assert f" ERROR agent.adapters.journal.store journal {daemon.dir}/state/journal.sqlite was damaged" in daemon.log()
    told = problem(second, "journal")
    assert told is not None
    assert "agentctl journal accept" in told
    daemon.agentctl("journal", "accept")
    daemon.wait_for(lambda told: problem(told, "journal") is None, "the damage to be accepted")
    assert [path for path in (daemon.dir / "state").iterdir() if ".damaged-" in path.name]


def test_a_state_folder_that_became_read_only_costs_the_memory_and_not_the_view(
    daemon: Daemon, small_disk: Path
) -> None:
    daemon.start()
    first = daemon.report()
    assert daemon.stop() == 0
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    daemon.start()
    second = daemon.wait_for(lambda told: told.generation > 4, "passes")
    assert (second.agent_id, second.usage.cells) == (first.agent_id, first.usage.cells)
    told = problem(second, "journal")
    assert told is not None
    assert f"The journal cannot open {small_disk}/journal.sqlite" in told
    assert "journal" in daemon.agentctl("status")
    assert daemon.stop() == 0


def test_a_state_folder_that_is_full_from_the_start_costs_the_memory_and_not_the_view(
    daemon: Daemon, small_disk: Path
) -> None:
    fill(small_disk)
    daemon.start()
    told = daemon.wait_for(lambda told: told.generation > 4, "passes")
    assert "full" in (problem(told, "journal") or "")
    assert told.usage.cells
    assert daemon.stop() == 0


def test_a_disk_that_fills_up_is_named_and_dates_are_kept_once_there_is_room(
    watching: Daemon, guest: MakeGuest, small_disk_watching: Path
) -> None:
    guest("one", pin={0: "1"})
    watching.start()
    filler = fill(small_disk_watching)
    guest("two", pin={0: "1"})
    told = watching.wait_for(lambda told: problem(told, "journal") is not None, "the journal's problem")
    assert list(dates(told)) == ["cpu-pinned-twice:cpu:1"]
    assert "full" in (problem(told, "journal") or "")
    filler.unlink()
    healed = watching.wait_for(lambda told: problem(told, "journal") is None, "the journal to be well")
    assert watching.stop() == 0
    watching.start()
    assert dates(watching.report()) == dates(healed) == dates(told)


def test_a_state_folder_that_is_deleted_is_named_and_the_end_writes_nothing_into_the_next_agents(
    daemon: Daemon,
) -> None:
    daemon.start()
    state = daemon.dir / "state"
    shutil.rmtree(state)
    lost = daemon.wait_for(lambda told: "is gone" in (problem(told, "journal") or ""), "the loss to be named")
    assert f"{state}/agent.lock is gone" in (problem(lost, "journal") or "")
    second = Daemon(None, arguments=["--state-path", str(state)])
    try:
        second.start()
        daemon.wait_for(lambda told: "is another file" in (problem(told, "journal") or ""), "the other's to be named")
        before = {path.name: path.stat().st_ino for path in state.iterdir()}
        assert daemon.stop() == 0
        assert {path.name: path.stat().st_ino for path in state.iterdir()} == before
        assert problem(second.report(), "journal") is None
        agent_id = second.report().agent_id
        assert second.stop() == 0
        second.start()
        assert (second.report().agent_id, second.report().epoch) == (agent_id, 2)
    finally:
        second.clean()


def test_a_state_folder_that_cannot_be_made_ends_the_start_with_its_own_code(daemon: Daemon) -> None:
    (daemon.dir / "state").write_text("")
    done = subprocess.run(daemon.command, capture_output=True, text=True, timeout=START_S, check=False)
    assert done.returncode == 4
    assert f"The state folder {daemon.dir}/state cannot be used" in done.stderr
