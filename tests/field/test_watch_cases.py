"""Field cases about guests, libvirt and scale, over a whole host in memory: what each pass reads, takes in and says.

The claims are made of the agent that watches.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.adapters.libvirt import DomainText
from agent.adapters.libvirt.binding import BEAT_LATE_S, EventLoop
from agent.claims import Granted
from agent.core.claim.refusal import ClaimRefusal
from agent.core.ledger import Listing
from agent.core.reasons import CpusShort
from agent.core.snapshot import Snapshot
from agent.errors import DomainGone, LibvirtError, LibvirtTimeout
from tests.at_work import asked
from tests.builders import uuid_of
from tests.builders_sysfs import Node
from tests.fakes_libvirt import FakeLibvirt
from tests.fit.requests import asks
from tests.promising_rig import PromisingRig, cpus_of
from tests.rig import DEEP_INTERVAL_S, INTERVAL_S, Rig, config, free, held, kinds, remarks

MIB = 1024
WORKERS = 8
"""Of libvirt, by default: as many domains are read at a time."""


class Libvirt(FakeLibvirt):
    """after_list: is called once, after the next list was given. call_s: what the reading of one domain takes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.after_list: Callable[[], None] | None = None
        self.wait: Callable[[float], None] | None = None
        self.call_s = 0.0

    def list_domains(self) -> Listing:
        listing = super().list_domains()
        after, self.after_list = self.after_list, None
        if after is not None:
            after()
        return listing

    def read_domain_texts(self, uuids: Iterable[str]) -> Iterator[tuple[str, DomainText | LibvirtError]]:
        wanted = list(uuids)
        if self.wait is not None:
            self.wait(math.ceil(len(wanted) / WORKERS) * self.call_s)
        return super().read_domain_texts(wanted)


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= level]


def short_of(rig: PromisingRig, vcpus: int) -> str:
    """The free CPUs that a refusal names to a guest that asks for too many."""
    refusal = rig.refused(asked(f"k{vcpus}", "x", asks(vcpus)))
    (short,) = refusal.reasons
    assert isinstance(short, CpusShort)
    return str(short.free)


def sources(snapshot: Snapshot) -> dict[str, str]:
    return {state.name: state.problem for state in snapshot.sources if state.problem is not None}


def states(rig: Rig) -> dict[str, str]:
    """What libvirt itself says of its guests: the agent must never change it."""
    return {text.name: text.state for text in rig.libvirt.domains.values()}


# --- pin-conflict, dedicated-set-change ----------------------------------------------------------


def test_pin_conflict_log_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """risuorg/risu#580."""
    caplog.set_level(logging.INFO)
    rig = Rig(tmp_path, config("0-63", ""), nodes={0: Node(cpus="0-63", mem_mib=65536)})
    for cpu in range(64):
        rig.run(f"a{cpu}", cpu)
    for cpu in range(32):
        rig.run(f"b{cpu}", cpu)
    reports, warnings = [], []
    for number in range(4):
        if number == 3:
            rig.end("b7")
        caplog.clear()
        reports.append(rig.one_pass(INTERVAL_S))
        warnings.append(len(lines(caplog, logging.INFO)))
    assert [len(report.conflicts) for report in reports] == [32, 32, 32, 31]
    assert warnings == [1, 0, 0, 1]
    assert [free(report) for report in reports] == [""] * 4
    assert "cpu-pinned-twice:cpu:7" in lines(caplog, logging.INFO)[0]
    assert kinds(reports[0]) == ["cpu-pinned-twice"] * 32


def test_dedicated_set_shrunk_with_guests(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """nova@f329ee5a3b."""
    rig = PromisingRig(tmp_path)
    rig.run("a", 2, 3)
    rig.run("b", 6)
    rig.one_pass()
    before = states(rig)
    rig.restart_agent(config("4-7"))
    after = rig.one_pass(INTERVAL_S)
    (row,) = after.conflicts
    assert (row.id, row.severity) == (f"pinned-outside-dedicated:guest:{uuid_of('a')}", "warning")
    assert row.cause == "a is pinned to CPUs 2-3, outside the dedicated set (4-7)"
    assert free(after) == "4-5,7"
    assert str(after.usage.host.dedicated.total) == "4-7"
    assert held(after) == "2-3,6"
    assert (rig.report().health.status, rig.report().health.ready) == ("degraded", True)
    assert short_of(rig, 4) == "4-5,7"
    assert states(rig) == before
    rig.stop_agent()


# --- memory --------------------------------------------------------------------------------------


def test_memory_restored_claim_counted_twice(tmp_path: Path) -> None:
    """kubernetes/kubernetes#140906."""
    with PromisingRig(tmp_path) as rig:
        rig.one_pass()
        k0 = asked("k0", "a", asks(2, 4096))
        made = rig.granted(k0)
        rig.come(made)
        assert [str(row.used) for row in (snapshot.usage.host.dedicated for snapshot in rig.passes(3))][-1] == "2-3"
        assert rig.state("k0") == "resident"
        numbers = set()
        for _ in range(10):
            rig.restart_agent()
            for snapshot in rig.passes(2):
                again = rig.claims.claim(k0)
                assert isinstance(again, Granted)
                assert (again.is_new, again.claim.placement) == (False, made.placement)
                row = snapshot.usage.cells[0].memory_kib
                numbers.add((held(snapshot), free(snapshot), row.used, row.promised))
        assert numbers == {("2-3", "4-7", 4096 * MIB, 0)}
        assert kinds(rig.tracker.snapshot) == []


# --- domain-xml, domain-lifecycle ----------------------------------------------------------------


def test_xml_one_unreadable_of_twenty(tmp_path: Path) -> None:
    """RHBZ#1315435."""
    rig = Rig(tmp_path, config("2-31", "0-1"), nodes={0: Node(cpus="0-31", mem_mib=65536)})
    for number in range(20):
        rig.run(f"d{number}", 2 + number)
    rig.one_pass()
    good = rig.libvirt.domains[uuid_of("d7")].xml
    rig.libvirt.define(good.replace("</domain>", "\N{LATIN SMALL LETTER E WITH ACUTE}<domain>"))
    second = rig.one_pass()
    assert len(second.ledger.sightings) == 20
    (remark,) = remarks(second, "d7")
    assert remark.startswith("definition unreadable, last known pins used (CPU 9): ")
    assert (free(second), complete(second)) == ("22-31", 19)

    rig.restart_agent()
    third = rig.one_pass()
    (remark,) = remarks(third, "d7")
    assert remark.startswith("pins unknown, CPU 9 held, since its threads may run there: ")
    assert (free(third), complete(third), third.usage.free_is_uncertain) == ("22-31", 19, False)

    rig.end_process("d7")
    rig.start("d7")  # another process, whose threads cannot be read
    rig.restart_agent()
    fourth = rig.one_pass()
    (remark,) = remarks(fourth, "d7")
    assert remark.startswith("pins unknown, so free CPUs are uncertain: ")
    assert (fourth.usage.free_is_uncertain, complete(fourth)) == (True, 19)


def complete(snapshot: Snapshot) -> int:
    """Guests that are known in full and hold their one CPU."""
    seen = snapshot.ledger.sightings.values()
    return sum(one.validity == "valid" and one.domain is not None and len(one.domain.vcpu_pins) == 1 for one in seen)


def test_domain_vanishes_during_pass(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """RHBZ#1299480."""
    rig = Rig(tmp_path, make_libvirt=Libvirt)
    assert isinstance(rig.libvirt, Libvirt)
    for cpu, name in enumerate("abc", start=2):
        rig.run(name, cpu)
    rig.libvirt.domains[uuid_of("b")] = msgspec.structs.replace(rig.libvirt.domains[uuid_of("b")], persistent=False)
    rig.libvirt.after_list = lambda: rig.end("b")
    snapshot = rig.one_pass()
    assert {seen.name for seen in snapshot.ledger.sightings.values()} == {"a", "c"}
    assert free(snapshot) == "3,5-7"
    assert (remarks(snapshot, "b"), sources(snapshot)) == ((), {})
    assert lines(caplog) == []


def test_a_domain_that_has_vanished_leaves_its_cpu_to_its_claim(tmp_path: Path) -> None:
    """The rest of domain-vanishes-during-pass: the CPU is free unless a claim holds it."""
    with PromisingRig(tmp_path) as rig:
        rig.one_pass()
        b = rig.granted(asked("k1", "b", asks(1)))
        rig.come(b)
        rig.libvirt.domains[uuid_of("b")] = msgspec.structs.replace(rig.libvirt.domains[uuid_of("b")], persistent=False)
        for snapshot in rig.passes(3):
            assert (held(snapshot), free(snapshot)) == ("2", "3-7")
        rig.end("b")
        for snapshot in rig.passes(3):
            assert (uuid_of("b") in snapshot.ledger.sightings, rig.state("k1")) == (False, "away")
            assert (held(snapshot), free(snapshot)) == ("2", "3-7")


@pytest.mark.parametrize("error", [LibvirtTimeout("did not read domain b"), LibvirtError("internal error")])
def test_a_domain_that_cannot_be_read_for_another_reason_keeps_what_it_held(
    tmp_path: Path, error: LibvirtError
) -> None:
    """The second half of domain-vanishes-during-pass."""
    rig = Rig(tmp_path)
    for cpu, name in enumerate("abc", start=2):
        rig.run(name, cpu)
    rig.one_pass()
    rig.libvirt.fail(uuid_of("b"), error)
    rig.watch.mark(uuid_of("b"))
    snapshot = rig.one_pass()
    assert free(snapshot) == "5-7"
    assert remarks(snapshot, "b") == (f"definition unreadable, last known pins used (CPU 3): {error}",)
    assert complete(snapshot) == 2
    rig.libvirt.fail(uuid_of("b"), DomainGone("no such domain"))
    assert free(rig.one_pass()) == "5-7"


def test_domain_made_by_others(tmp_path: Path) -> None:
    """RHBZ#1412198."""
    rig = PromisingRig(tmp_path)
    rig.run("a", 2, by_nova=True)
    foreign = rig.run("foreign", 5, 6, mem=2048)
    rig.libvirt.domains[foreign] = msgspec.structs.replace(rig.libvirt.domains[foreign], persistent=False)
    first = rig.one_pass()
    makers = {owner.name: owner.maker for row in first.usage.holders for owner in row.owners}
    assert (held(first), free(first)) == ("2,5-6", "3-4,7")
    assert makers == {"a": "nova", "foreign": "libvirt"}
    assert short_of(rig, 4) == "3-4,7"
    assert states(rig) == {"a": "running", "foreign": "running"}
    rig.end("foreign")
    rig.watch.mark(foreign)
    rig.watch.mark(uuid_of("nobody has ever heard of it"))
    last = rig.one_pass()
    assert free(last) == "3-7"
    assert {seen.name for seen in last.ledger.sightings.values()} == {"a"}
    assert rig.granted(asked("k2", "x", asks(4))).state == "reserved"
    rig.stop_agent()


def test_domain_late_stop_event(tmp_path: Path) -> None:
    """LP#1468431."""
    rig = PromisingRig(tmp_path)
    rig.run("a", 2, 3)
    rig.one_pass()
    rig.end("a")
    rig.start("a", 2, 3)
    rig.libvirt.reads.clear()
    rig.watch.mark(uuid_of("a"))  # the old stop; an event is no reading
    assert short_of(rig, 5) == "4-7"
    snapshot = rig.one_pass()
    assert rig.libvirt.reads == [uuid_of("a")]
    assert (held(snapshot), free(snapshot)) == ("2-3", "4-7")
    assert snapshot.ledger.sightings[uuid_of("a")].run.libvirt_id == 2
    rig.stop_agent()


# --- libvirt-outage ------------------------------------------------------------------------------


def test_libvirt_restart_events_again(tmp_path: Path) -> None:
    """kubevirt/kubevirt#194. On a real libvirtd: tests/functional/test_libvirt_connection.py."""
    rig = PromisingRig(tmp_path)
    rig.run("a", 2)
    rig.one_pass()
    for _ in range(10):
        rig.libvirt.lose("libvirtd was restarted")
        rig.libvirt.reconnect()
        assert free(rig.one_pass()) == "3-7"
    rig.one_pass(INTERVAL_S)
    rig.libvirt.reads.clear()
    rig.end("a")
    assert free(rig.one_pass(1.0)) == "2-7"
    assert rig.libvirt.reads == [uuid_of("a")]  # once, not ten times
    assert str(cpus_of(rig.granted(asked("k1", "x", asks(6))))) == "2-7"
    rig.stop_agent()


def test_libvirt_down_is_not_empty(tmp_path: Path) -> None:
    """LP#1240670."""
    rig = PromisingRig(tmp_path)
    rig.run("a", 2, 3, mem=4096)
    rig.one_pass()
    rig.libvirt.lose("libvirtd was stopped. Start it.")
    down = rig.one_pass(12.0)
    told = rig.report()
    assert (told.health.status, sources(down)) == ("degraded", {"libvirt": "libvirtd was stopped. Start it."})
    assert (held(down), down.usage.host.memory_kib.used) == ("2-3", 4096 * MIB)
    (libvirt,) = (source for source in told.health.sources if source.name == "libvirt")
    assert (libvirt.ok, libvirt.age_s is not None and libvirt.age_s >= 12.0) == (False, True)
    assert told.guests[0].age_s >= 12.0
    rig.one_pass(INTERVAL_S)
    assert not rig.report().health.ready
    no = rig.refused(asked("k1", "x", asks(1)))
    assert (no.code, no.retry) == ("AgentNotReady", "later")
    assert "libvirtd was stopped" in no.message
    rig.now += 7.0
    rig.libvirt.reconnect()
    back = rig.one_pass(5.0)
    assert (free(back), sources(back)) == ("4-7", {})
    assert (rig.report().health.status, rig.report().health.ready) == ("ok", True)
    assert str(cpus_of(rig.granted(asked("k2", "y", asks(4))))) == "4-7"
    assert isinstance(rig.claims.get_claim("k1"), ClaimRefusal), "not ready decides nothing"
    rig.stop_agent()


def test_libvirt_event_loop_late_or_idle(tmp_path: Path) -> None:
    """kubevirt/kubevirt#1630. An idle connection that stays: tests/functional/test_libvirt_connection.py; a watchdog
    that stops when no pass can be trusted any more: tests/functional/test_daemon_systemd.py."""
    rig = Rig(tmp_path)
    rig.run("a", 2)
    rig.one_pass()
    rig.now += 30.0
    rig.end("a")
    assert free(rig.one_pass(1.0)) == "2-7"

    now = [0.0]
    beats: list[Callable[..., None]] = []
    loop = EventLoop(lambda: None, lambda _period_ms, beat: beats.append(beat), clock=lambda: now[0])
    assert loop.problem is None
    now[0] = BEAT_LATE_S + 1.0
    assert loop.problem == f"libvirt's event loop has not turned for {BEAT_LATE_S + 1.0:.0f} s; restart the agent"


# --- scale ---------------------------------------------------------------------------------------


def test_scale_500_domains_slow_calls(tmp_path: Path) -> None:
    """RHBZ#1537148. That a claim waits for no pass: tests/race."""
    nodes = {0: Node(cpus="0-255", mem_mib=1 << 20)}
    rig = PromisingRig(tmp_path, config("8-255", "0-7"), make_libvirt=Libvirt, nodes=nodes)
    assert isinstance(rig.libvirt, Libvirt)
    for number in range(240):
        rig.run(f"g{number}", 8 + number)
    for number in range(260):
        rig.define(f"off{number}", 8)

    def wait(seconds: float) -> None:
        rig.now += seconds

    rig.libvirt.wait, rig.libvirt.call_s = wait, 0.1
    begun_at = rig.now
    first = rig.one_pass()
    assert len(rig.libvirt.reads) == 500
    assert rig.now - begun_at < 20.0
    assert free(first) == "248-255"
    domains = {uuid: seen.domain for uuid, seen in first.ledger.sightings.items()}
    rig.libvirt.reads.clear()
    second = rig.one_pass(INTERVAL_S)
    assert len(rig.libvirt.reads) <= math.ceil(500 * INTERVAL_S / DEEP_INTERVAL_S)
    assert all(seen.domain is domains[uuid] for uuid, seen in second.ledger.sightings.items())
    assert (free(second), kinds(second)) == ("248-255", [])
    answers: list[Granted | ClaimRefusal] = []
    rig.libvirt.wait = lambda _seconds: answers.extend(
        rig.claims.claim(asked(f"k{number}", f"x{number}", asks(1))) for number in range(len(answers), 20)
    )
    rig.watch.mark(uuid_of("g0"))
    third = rig.one_pass(INTERVAL_S)
    granted = [answer.claim for answer in answers if isinstance(answer, Granted)]
    assert [str(cpus_of(claim)) for claim in granted] == [str(cpu) for cpu in range(248, 256)]
    assert [answer.code for answer in answers[8:] if isinstance(answer, ClaimRefusal)] == [
        "ComputeResourcesUnavailable"
    ] * 12
    assert (free(third), kinds(third)) == ("", [])
    rig.stop_agent()
