"""Whole pages: usage, guests, one guest, who holds what, the state of the agent."""

from __future__ import annotations

import msgspec

from agent.core.cpuset import CpuSet
from agent.core.host_config import HostConfig
from agent.core.pci import MediatedDevice, PciAddress
from agent.core.report import GuestReport, Report
from agent.core.topology import HostTopology
from agent.core.values import Problem
from agent.render import holders
from agent.render.device_text import class_word, devices_text
from agent.render.guest_text import guest_rows, guest_text, guests_text
from agent.render.host_state import status_text
from agent.render.topology_text import topology_text
from agent.render.usage_text import usage_rows, usage_text
from tests.builders import guest, unread, uuid_of
from tests.cli_reports import (
    DATABASE,
    SINCE,
    VF,
    WEB,
    blind,
    calm,
    contended,
    devices,
    filtered,
    host_report,
    smt_topology,
)


def named(report: Report, name: str) -> GuestReport:
    return next(guest for guest in report.guests if guest.sighting.name == name)


def with_devices() -> HostTopology:
    return msgspec.structs.replace(smt_topology(), pci=devices())


def started(_guest: GuestReport) -> str | None:
    return SINCE


def test_usage_is_a_row_per_cell_and_resource_and_the_host_last() -> None:
    assert (
        usage_text(contended().usage)
        == """\
CELL  WHAT                   TOTAL      USABLE    USED    PROMISED  FREE
0     dedicated CPUs         2-3,10-11  -         2-3,10         -  11
0     shared vCPUs           4          16        0              0  16
0     memory                 15 GiB     15 GiB    1 GiB          0  14 GiB
0     2 MiB pages            512        512       1024           0  -512
1     dedicated CPUs         4-7,12-15  -         -              -  4-7,12-15
1     shared vCPUs           0          0         0              0  0
1     memory                 15 GiB     15 GiB    0              0  15 GiB
1     2 MiB pages            512        512       0              0  64
1     pci 8086:154c type-VF  3          3         1              0  2
host  dedicated CPUs         2-7,10-15  -         2-3,10         -  4-7,11-15
host  shared vCPUs           4          16        0              0  16
host  memory                 30 GiB     29.5 GiB  1 GiB          0  28.5 GiB
host  2 MiB pages            1024       1024      1024           0  0
Floating guests share CPUs 0-1,8-9.
Of the 2 MiB pages of cell 0 the kernel has 64 free: guests have not touched all
  of theirs yet.
"""
    )


def test_usage_rows_keep_numbers_and_lists_for_scripts() -> None:
    rows = {(row.cell, row.resource): row for row in usage_rows(contended().usage)}
    assert rows[0, "dedicated_cpus"][2:] == ("2-3,10-11", None, None, "2-3,10", "", "11")
    assert rows["host", "memory_kib"].free == 29884416
    assert rows[0, "pages_2048_kib"].free == -512
    assert rows[1, "pci:8086:154c:type-VF"][2:] == (3, 0, 3, 1, 0, 2)
    assert rows[1, "pci:8086:1572:type-PF"].total == 1


def test_usage_says_when_free_cpus_are_uncertain_and_which_guest_it_is() -> None:
    report = host_report(smt_topology(), unread("dark"))
    text = usage_text(report.usage)
    assert "Free CPUs are uncertain" in text
    assert "\ndark: " in text


def test_guests_have_a_line_each_by_name() -> None:
    report = contended()
    assert (
        guests_text(report.guests, report.conflicts)
        == """\
NAME      STATE     VCPUS  CPUS  MEMORY   CELLS  DEVICES       CONFLICTS
database  running       2  2,10  1 GiB        0  -                     1
old       shut-off      1  -     512 MiB      -  -                     -
web       running       2  2-3   2 GiB        0  0000:3b:02.0          2
"""
    )


def test_a_host_without_guests_says_so() -> None:
    assert guests_text((), ()) == "no guests\n"


def test_a_guest_that_could_not_be_read_is_listed_with_the_reason() -> None:
    report = host_report(smt_topology(), unread("dark", kernel_cpus="3"))
    text = guests_text(report.guests, report.conflicts)
    assert text.splitlines()[1].split()[:4] == ["dark", "running", "(last", "known)"]
    assert text.splitlines()[-1] == "dark: the definition is not well-formed"
    (row,) = guest_rows(report.guests, report.conflicts)
    assert (row.vcpus, row.memory_kib, row.maker) == (None, None, "unknown")


def test_a_floating_guest_shows_what_it_floats_on() -> None:
    report = host_report(smt_topology(), guest("float", cpuset="0-1", vcpus=2, at=100))
    assert "floats on 0-1" in guests_text(report.guests, report.conflicts)


def test_one_guest_is_shown_with_everything_that_it_has() -> None:
    report = contended()
    text = guest_text(named(report, "web"), report.conflicts, started=SINCE)
    assert text.startswith(
        f"""\
web  {WEB.uuid}
  state     running, persistent; read 4 s ago
  process   QEMU 4711, runs since 2026-11-30T12:00:00Z
  vCPUs     2: vCPU 0 on CPU 2; vCPU 1 on CPU 3
  memory    2 GiB in 2 MiB pages, strict on cell 0
  holds     CPUs 2-3 for itself; 1024 pages of 2 MiB of cell 0
  device    {VF} (hostdev)

ERROR  CPU 2: pinned twice
"""
    )
    assert "2 MiB pages of cell 0: over commit" in text


def test_a_guest_with_hotplug_emulator_and_io_threads_is_told_in_full() -> None:
    seen = guest(
        "rich", {0: "4-5", 1: "4-5"}, vcpus=4, online_vcpus="0-1", cpuset="0-1", emu="6", iothreads={1: "7"}, at=100,
        maker="nova", facts={"flavor": "m1.pinned"}, mem=4096,
    )  # fmt: skip
    report = host_report(smt_topology(), seen)
    lines = guest_text(report.guests[0], report.conflicts, started=None).splitlines()
    assert lines[1:8] == [
        "  state     running, persistent, made by nova; read 4 s ago",
        "  vCPUs     2 of at most 4: vCPUs 0-1 on CPUs 4-5; the others on CPUs 0-1",
        "  emulator  on CPU 6",
        "  iothreads iothread 1 on CPU 7",
        "  memory    4 GiB",
        "  nova      flavor = m1.pinned",
        "  holds     CPUs 6-7 for itself; of them CPUs 6-7 for emulator and iothreads;",
    ]


def test_a_guest_whose_definition_was_never_read_says_what_is_missing() -> None:
    report = host_report(smt_topology(), unread("dark"))
    text = guest_text(report.guests[0], report.conflicts, started=None)
    assert "  pins      not known: its definition could not be read\n" in text
    assert "its CPUs could not be read at all: it may hold more" in text
    assert "  problem   the definition is not well-formed\n" in text


def test_why_a_cpu_names_its_holders_its_sibling_and_the_conflict() -> None:
    assert (
        holders.why_text(holders.why_cpu(contended(), 2, started))
        == """\
CPU 2
  cell 0, socket 0, core 2; dedicated by configuration
  its sibling CPU 10 is held by database
  held by database (vCPU 1), which runs since 2026-11-30T12:00:00Z
  held by web (vCPU 0), which runs since 2026-11-30T12:00:00Z
  ERROR CPU 2: pinned twice, since 2026-11-30T12:00:00Z
  what to do: agentctl conflicts
"""
    )


def test_why_names_the_threads_that_the_conflict_names() -> None:
    """Not those that float over the CPU, are not plugged, or are pinned to every CPU there is."""
    busy = guest(
        "busy", {0: 2, 1: "2-5", 3: 2}, vcpus=4, online_vcpus="0-2", emu="0-15", iothreads={1: "2", 2: "5"}, at=100
    )
    report = host_report(smt_topology(), busy, guest("other", {0: 2}, iothreads={7: "5"}, at=100))
    for cpu, threads in ((2, "vCPU 0"), (5, "iothread 2")):
        (row,) = (row for row in report.conflicts if row.resource.id == str(cpu) and row.kind == "cpu-pinned-twice")
        assert f"busy ({threads})" in row.cause
        assert {holder.name: holder.how for holder in holders.why_cpu(report, cpu, started).holders}["busy"] == threads
    facts = holders.why_guest(report, report.guests[0], started).facts
    assert facts[:2] == ("CPU 2: vCPU 0; also held by other", "CPU 5: iothread 2; also held by other")


def test_why_a_free_cpu_says_that_nobody_holds_it() -> None:
    answer = holders.why_cpu(contended(), 15, started)
    assert answer.holders == ()
    assert holders.why_text(answer).endswith("  its sibling CPU 7 is not held\n  held by nobody\n")


def test_why_calls_an_accepted_conflict_accepted_and_asks_nothing_of_anybody() -> None:
    report = contended()
    accepted = tuple(msgspec.structs.replace(row, accepted=True) for row in report.conflicts)
    answer = holders.why_cpu(msgspec.structs.replace(report, conflicts=accepted), 2, started)
    lines = holders.why_text(answer, width=200).splitlines()
    assert [line for line in lines if "pinned twice" in line or "to do" in line] == [
        f"  ERROR CPU 2: pinned twice, since {accepted[0].since} (accepted by the configuration)"
    ]


def test_why_a_device_names_guest_card_and_driver() -> None:
    assert (
        holders.why_text(holders.why_device(contended(), PciAddress.parse(VF), started))
        == f"""\
device {VF}
  type-VF 8086:154c, cell 1, driver vfio-pci
  a function of 0000:3b:00.0
  held by web (hostdev), which runs since 2026-11-30T12:00:00Z
"""
    )


def test_why_a_device_that_the_host_lacks_says_so_and_who_names_it() -> None:
    gone = "0000:99:00.0"
    report = host_report(with_devices(), guest("late", {0: 4}, dev=(gone,), at=100))
    answer = holders.why_device(report, PciAddress.parse(gone), started)
    assert answer.facts == ("the host has no such function",)
    assert [holder.name for holder in answer.holders] == ["late"]
    assert [row.kind for row in answer.conflicts] == ["device-missing"]


def test_why_a_mediated_device_names_its_guest_and_parent() -> None:
    mdev = "aa618089-8b16-4d01-a136-25a0f3c73123"
    parent = PciAddress.parse("0000:3b:00.0")
    topology = msgspec.structs.replace(
        smt_topology(), mdevs=(MediatedDevice(uuid=mdev, type="nvidia-35", parent=parent),)
    )
    report = host_report(topology, guest("gpu", {0: 4}, mdev=mdev, at=100))
    answer = holders.why_mdev(report, mdev, started)
    assert answer.facts == ("nvidia-35 of 0000:3b:00.0",)
    assert [holder.name for holder in answer.holders] == ["gpu"]


def test_why_a_guest_lists_what_it_holds_and_with_whom() -> None:
    report = contended()
    assert (
        holders.why_text(holders.why_guest(report, named(report, "web"), started))
        == f"""\
guest web
  CPU 2: vCPU 0; also held by database
  CPU 3: vCPU 1
  device {VF} (hostdev)
  runs since 2026-11-30T12:00:00Z
  ERROR CPU 2: pinned twice, since 2026-11-30T12:00:00Z
  ERROR 2 MiB pages of cell 0: over commit, since 2026-11-30T12:00:00Z
  what to do: agentctl conflicts
"""
    )


def test_status_fits_a_screen_and_names_the_worst() -> None:
    text = status_text(contended())
    assert (
        text
        == """\
compute-agent degraded, ready
  - 2 conflicts (cpu-pinned-twice, pages-over-commit): see agentctl conflicts.
agent     5b0c1f0e-0000-4000-8000-000000000001, epoch 7, generation 1
host      2 cells, 2 sockets, 8 cores, 16 CPUs, 32 GiB
guests    2 active, 1 not running
pinned    3 CPUs used, 9 of 12 dedicated free
CPU sets  dedicated CPUs 2-7,10-15, shared CPUs 0-1,8-9
memory    1 GiB used, 28.5 GiB free in small pages
pages     2 MiB: 1024 used, 0 free
sources   domains, libvirt, processes, sysfs ok
problems  1 in what the host says of itself: agentctl topology
conflicts 2 conflicts: 2 errors
  ERROR CPU 2: pinned twice (database, web)
  ERROR 2 MiB pages of cell 0: over commit (web)
next      agentctl conflicts
"""
    )


def test_one_of_a_kind_is_told_in_the_singular() -> None:
    """As on the machine of two CPUs that the demo often has."""
    split = HostConfig(dedicated=CpuSet((1,)), shared=CpuSet((0,)))
    report = host_report(smt_topology(cells=1, cores=2, threads=1), guest("one", {0: 1}, vcpus=1, at=100), config=split)
    status = status_text(report)
    assert "\npinned    1 CPU used, 0 of 1 dedicated free\n" in status
    assert "\nCPU sets  dedicated CPU 1, shared CPU 0\n" in status
    assert "Floating guests share CPU 0.\n" in usage_text(report.usage)
    assert "  holds     CPU 1 for itself; " in guest_text(report.guests[0], (), started=None)


def test_status_of_a_calm_host_is_ok() -> None:
    lines = status_text(calm()).splitlines()
    assert lines[0] == "compute-agent ok, ready"
    assert lines[-2:] == ["conflicts none", "next      agentctl topology"]


def test_status_says_why_the_agent_is_down() -> None:
    text = status_text(blind())
    assert text.startswith("compute-agent down, not ready\n  - ")
    assert "libvirt is not running" in text
    assert "sources processes, sysfs ok; domains NOT OK, never read; libvirt NOT OK, never read" in " ".join(
        text.split()
    )


def test_status_says_in_one_line_that_no_cpu_sets_are_configured() -> None:
    report = host_report(smt_topology(), WEB, DATABASE, config=HostConfig())
    assert "No CPU sets are configured, so each usable CPU" in usage_text(report.usage)
    facts = holders.why_cpu(report, 15, started).facts
    assert facts[0].endswith("; dedicated and shared, as no CPU sets are configured")
    assert "CPU sets  none configured, so each usable CPU counts as dedicated and as shared" in status_text(report)


def test_one_cpu_set_for_all_guests_is_not_called_none() -> None:
    """As nova's vcpu_pin_set makes it."""
    pin_set = CpuSet.parse("2-7")
    report = host_report(smt_topology(), WEB, config=HostConfig(dedicated=pin_set, shared=pin_set))
    assert "Floating guests share CPUs 2-7." in usage_text(report.usage)
    assert holders.why_cpu(report, 7, started).facts[0].endswith("; dedicated and shared by configuration")
    assert "CPU sets  dedicated CPUs 2-7, shared CPUs 2-7\n" in status_text(report)


def test_a_device_that_is_gone_makes_no_filter() -> None:
    topology = contended().topology
    before, after = host_report(topology, WEB), host_report(topology, WEB, guest("x", dev=("0000:99:00.0",)))
    assert devices_text(topology, after.usage) == devices_text(topology, before.usage)
    assert usage_text(after.usage).count("pci ") == usage_text(before.usage).count("pci ") + 1


def test_devices_are_listed_by_cell_and_functions_counted_beside_their_card() -> None:
    report = contended()
    assert (
        devices_text(report.topology, report.usage)
        == f"""\
CELL  ADDRESS       DEVICE                 DRIVER    NAME    STATE
   0  0000:01:00.0  NVMe 144d:a808         nvme      -       -
   1  0000:3b:00.0  Ethernet PF 8086:1572  i40e      ens1f0  3 VFs, 1 used
   1  {VF}  Ethernet VF 8086:154c  vfio-pci  -       web
1 bridge or system function not shown (--all-devices)
"""
    )


def test_every_function_has_its_line_when_all_are_asked_for() -> None:
    report = filtered()
    states = [line.split()[-1] for line in devices_text(report.topology, report.usage, everything=True).splitlines()]
    assert states == ["STATE", "-", "-", "web", "free", "free", "-"]


def test_a_class_without_a_word_is_shown_by_number() -> None:
    assert [class_word(code) for code in ("0200", "0280", "0c99")] == ["Ethernet", "network", "class 0c99"]


def test_the_topology_page_ends_with_what_the_host_contradicts_itself_about() -> None:
    report = contended()
    assert topology_text(report.topology, report.usage, report.conflicts).endswith(
        """
1 problem in what the host says of itself:
  sys/devices/system/cpu/cpu9/cache: the L3 cache could not be read, so it is
    missing here (sysfs says EIO)
"""
    )


def test_distances_are_told_once_some_cells_are_nearer_than_others() -> None:
    cells = smt_topology(cells=4).cells
    near = {0: 1, 1: 0, 2: 3, 3: 2}
    moved = tuple(
        msgspec.structs.replace(
            cell,
            distances={other: 10 if other == cell.id else 12 if other == near[cell.id] else 21 for other in range(4)},
        )
        for cell in cells
    )
    topology = msgspec.structs.replace(smt_topology(cells=4), cells=moved, problems=(Problem(source="s", what="w"),))
    text = topology_text(topology, contended().usage, ())
    assert "near cells: 0 to 1 (12); 1 to 0 (12); 2 to 3 (12); 3 to 2 (12)\n" in text
    assert "near cells" not in topology_text(smt_topology(cells=4), contended().usage, ())


def test_a_shared_uuid_is_what_finds_a_guests_conflicts() -> None:
    report = contended()
    rows = {row.uuid: row.conflicts for row in guest_rows(report.guests, report.conflicts)}
    assert rows == {WEB.uuid: 2, DATABASE.uuid: 1, uuid_of("old"): 0}
